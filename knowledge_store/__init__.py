"""What is known: facts, relations and their phrasings, search by meaning, anchors and probes.

The store knows facts and text; it knows nothing of a language model's weights.
"""
