"""What a person talks to: commands, proposals, replies, result cards, in a web page or in a terminal."""
