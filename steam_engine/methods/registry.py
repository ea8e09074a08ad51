"""The methods by name."""

from __future__ import annotations

from pathlib import Path

from steam_engine.errors import UnknownMethodError
from steam_engine.loading import LoadedModel
from steam_engine.methods.base import Method
from steam_engine.methods.ft import FineTuning
from steam_engine.methods.memit import Memit
from steam_engine.methods.names import NAMES
from steam_engine.methods.rome import Rome
from steam_engine.methods.steam import Steam
from steam_engine.methods.told import Told
from steam_engine.settings import EditSettings
from steam_engine.types import CancelToken, ProgressCallback


def method(
    name: str,
    loaded: LoadedModel,
    cache_dir: Path,
    progress: ProgressCallback,
    cancel: CancelToken,
    settings: EditSettings | None = None,
) -> Method:
    """The method of that name on a model.

    Args:
        name: one of NAMES.
        loaded: the unedited model.
        cache_dir: where second moments are kept.
        progress, cancel: for what is prepared when a session starts.
        settings: of STEAM; their source of second moments is the other methods' too.

    Raises:
        UnknownMethodError: there is no such method.
    """
    settings = settings or EditSettings()
    if name == "steam":
        return Steam(loaded, cache_dir, progress, cancel, settings)
    if name == "rome":
        return Rome(loaded, cache_dir, progress, cancel, statistics=settings.statistics)
    if name == "memit":
        return Memit(loaded, cache_dir, progress, cancel, statistics=settings.statistics)
    if name == "ft":
        return FineTuning(loaded)
    if name == "told":
        return Told()
    raise UnknownMethodError(f"There is no editing method '{name}'; there are {', '.join(NAMES)}.")
