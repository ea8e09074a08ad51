"""Whether a text names something."""

from __future__ import annotations

import re
from collections.abc import Iterable


def mentions(text: str, names: Iterable[str]) -> bool:
    """Whether any of the names is in the text as whole words, whatever its case."""
    return any(
        re.search(rf"(?<!\w){re.escape(name.strip())}(?!\w)", text, re.IGNORECASE) for name in names if name.strip()
    )
