"""STEAM: edits single facts in the weights of a language model (Jeong et al., EMNLP 2025, arXiv 2510.10398).

This package knows tensors, tokens and a `FactEdit`; it knows nothing of pages, databases or search.
"""
