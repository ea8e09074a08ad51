"""The knowledge store as a LangChain vector store: chains retrieve facts; another store can replace it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from knowledge_store.encoder import SentenceEncoder
from knowledge_store.errors import InvalidFactError
from knowledge_store.store import KnowledgeStore, fact_text
from knowledge_store.types import ScoredFact

ADDED_SOURCE = "added through LangChain"


class FactVectorStore(VectorStore):
    """Documents are facts: the text is the canonical sentence, the metadata has its parts."""

    def __init__(self, store: KnowledgeStore) -> None:
        self._store = store

    @property
    def embeddings(self) -> Embeddings:
        """The sentence encoder, loaded now if it was not."""
        return self._store.encoder.embeddings()

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **kwargs: Any
    ) -> list[str]:
        """Add facts and return their ids. A text is read as a statement unless its metadata has the parts.

        The parts are "subject", "relation" (an id) and "object". When one text is no fact, none is added:
        raises InvalidFactError.
        """
        texts = list(texts)
        triples = [
            self._triple(text, metadata) for text, metadata in zip(texts, metadatas or [{}] * len(texts), strict=True)
        ]
        return [str(fact.id) for fact in self._store.add_facts(triples, kwargs.get("source", ADDED_SOURCE))]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the `k` facts nearest in meaning."""
        return [document for document, _ in self.similarity_search_with_score(query, k)]

    def similarity_search_with_score(self, *args: Any, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return the `k` facts nearest in meaning, each with its cosine similarity."""
        return [(self._document(found), found.score) for found in self._store.search(*args, **kwargs)]

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> FactVectorStore:
        """Open the store in `directory` (a keyword argument) and add facts; its own encoder is used."""
        made = cls(KnowledgeStore.open(Path(kwargs["directory"]), SentenceEncoder()))
        made.add_texts(texts, metadatas)
        return made

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: (cosine + 1.0) / 2.0

    def _triple(self, text: str, metadata: dict[str, Any]) -> tuple[str, str, str]:
        if {"subject", "relation", "object"} <= metadata.keys():
            return str(metadata["subject"]), str(metadata["relation"]), str(metadata["object"])
        parsed = self._store.parse(text)
        if parsed is None or not parsed.known_relation:
            raise InvalidFactError(f"'{text}' cannot be read as a fact: write 'The capital of France is Paris'.")
        return parsed.subject, parsed.relation.id, parsed.object

    def _document(self, found: ScoredFact) -> Document:
        fact = found.fact
        return Document(
            id=str(fact.id),
            page_content=fact_text(self._store.relation(fact.relation), fact.subject, fact.object),
            metadata={
                "subject": fact.subject,
                "relation": fact.relation,
                "object": fact.object,
                "source": fact.source,
            },
        )
