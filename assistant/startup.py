"""From options to an assistant that is ready to talk: workspace, facts, model, journal, in that order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import transformers

from assistant.assistant import Assistant, sync
from assistant.host import ModelHost
from assistant.options import Options
from assistant.workspace import Workspace, cache_directory, open_workspace
from knowledge_store.store import KnowledgeStore
from steam_engine.editor import Editor
from steam_engine.exports.transaction import remove_leftovers
from steam_engine.loading import load_model
from steam_engine.settings import EditSettings

T = TypeVar("T")
Report = Callable[[str], None]


@contextmanager
def ready(options: Options, report: Report) -> Iterator[tuple[Assistant, Workspace]]:
    """Open everything, and close it again afterwards. Earlier edits are in the weights.

    Args:
        options: from the command line.
        report: told in a line what is being done, and how long it took.

    Raises:
        AmendError: something cannot be opened; the message says what to do.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with open_workspace(options.workspace) as workspace:
        report(f"Workspace: {workspace.root}")
        remove_leftovers(workspace.exports)  # the workspace is ours alone, so whoever made them has ended
        with closing(_timed("the known facts", report, lambda: KnowledgeStore.open(workspace.store))) as store:
            loaded = _timed(
                f"the model {options.model or '(the one that comes with Amend)'}",
                report,
                lambda: load_model(options.model, options.device, options.dtype, cache_directory()),
            )
            settings = EditSettings(statistics=options.statistics)
            editor = Editor(loaded, workspace.journal, cache_directory(), settings)
            host = ModelHost(loaded, editor)
            sync(host, store)
            edits = len(host.active)
            report(
                f"{loaded.name} on {loaded.device_name}, {loaded.dtype_name}, "
                f"with {edits} {'edit' if edits == 1 else 'edits'}."
            )
            archives = options.mode == "serve"  # a browser downloads one file; a terminal has the directory
            yield Assistant(host, store, workspace.exports, archives), workspace


def _timed(what: str, report: Report, work: Callable[[], T]) -> T:
    report(f"Opening {what} ...")
    started = time.perf_counter()
    result = work()
    report(f"  done in {time.perf_counter() - started:.1f} s")
    return result
