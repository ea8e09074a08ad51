"""From a source to the text that it stands for."""

from __future__ import annotations

from steam_engine.corpora.base import Corpus
from steam_engine.corpora.dataset import HubDataset
from steam_engine.corpora.sampled import SampledText
from steam_engine.corpora.source import FileSource, parse_source
from steam_engine.corpora.text_file import TextFile


def open_corpus(text: str) -> Corpus:
    """The text that `parse_source` understands; nothing is read yet.

    Raises:
        CorpusError: see `parse_source`.
    """
    source = parse_source(text)
    if source is None:
        return SampledText()
    return TextFile(source) if isinstance(source, FileSource) else HubDataset(source)
