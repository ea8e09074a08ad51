"""Scripts that read an export back, each in a process of its own; see `steam_engine.exports.reading`."""
