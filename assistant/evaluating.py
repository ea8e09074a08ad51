"""`python app.py evaluate`: cases and methods in, results, report and plots out; the store lends what it knows."""

from __future__ import annotations

import hashlib
import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import torch
import transformers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBars

from assistant.briefing import TRAINED_QUESTIONS, brief
from assistant.options_evaluate import EvaluateCommand
from assistant.workspace import cache_directory
from knowledge_store.store import KnowledgeStore
from steam_engine.errors import CaseFileError
from steam_engine.evaluation.case import CaseEdit, EvalCase
from steam_engine.evaluation.cluster import Cluster, connected
from steam_engine.evaluation.plots import write_plots
from steam_engine.evaluation.reading import CaseFile, read_cases
from steam_engine.evaluation.report import Report, as_markdown, make_report, write_report
from steam_engine.evaluation.results import Failed, Plan, ResultFile
from steam_engine.evaluation.running import Evaluation
from steam_engine.evaluation.wishes import plain_wish
from steam_engine.evaluation.worker import worker_model
from steam_engine.loading import LoadedModel, load_model, pick_dtype
from steam_engine.methods.registry import method
from steam_engine.settings import EditSettings
from steam_engine.text import mentions
from steam_engine.types import CancelToken, FactEdit, Progress, ProgressCallback


def store_wish(store: KnowledgeStore, edit: CaseEdit, case: EvalCase) -> FactEdit:
    """A case's edit with what the store knows of its relation, without anything that is measured.

    A statement, question or subject of the store that occurs in a question of the case is left out, but for the
    direct questions, which an edit is trained on.
    """
    own = plain_wish(edit, case)
    relation = store.find_relation(edit.statement)
    if relation is None:
        return own
    known = brief(store, edit.subject, relation, edit.target)
    measured = {q.text.casefold() for q in case.questions if q.kind != "direct"}
    asked = " ".join(q.text for q in case.questions if q.kind != "direct")

    def fresh(templates: Sequence[str]) -> tuple[str, ...]:
        return tuple(t for t in templates if t.replace("{}", edit.subject).casefold() not in measured)

    statements = tuple(dict.fromkeys((edit.statement, *fresh(known.statements))))
    questions = tuple(dict.fromkeys((*edit.questions, *fresh(known.questions))))[:TRAINED_QUESTIONS]
    return replace(
        known,
        statements=statements,
        questions=questions or own.questions,
        neighbours=edit.neighbours or tuple(name for name in known.neighbours if not mentions(asked, (name,))),
        hop_examples=(),
        old_object=edit.old_object or known.old_object,
    )


def chosen_cases(cases: Sequence[EvalCase], limit: int | None, seed: int | None) -> tuple[EvalCase, ...]:
    """The first cases, or as many drawn by `seed`, in the file's order."""
    if limit is None or limit >= len(cases):
        return tuple(cases)
    if seed is None:
        return tuple(cases[:limit])
    drawn = sorted(random.Random(seed).sample(range(len(cases)), limit))
    return tuple(cases[i] for i in drawn)


def evaluate(
    loaded: LoadedModel,
    store: KnowledgeStore,
    cache_dir: Path,
    options: EvaluateCommand,
    file: CaseFile,
    progress: ProgressCallback,
    tell: Callable[[str], None],
    cancel: CancelToken | None = None,
    cluster: Cluster | None = None,
) -> Report:
    """Measures, and writes results.jsonl, report.json, report.md and plots to `options.out`.

    Args:
        loaded: the unedited model.
        store: facts and phrasings for the edits; the same for every method.
        cache_dir: where second moments are kept.
        options: what to measure (its model is `loaded` already); the same `out` goes on where an earlier run ended.
        file: the cases of `options.cases`.
        progress: told about cases.
        tell: told sentences for the user.
        cancel: set to stop; what was measured stays.
        cluster: where to measure, instead of on `loaded`.

    Raises:
        CaseFileError, UnknownMethodError, EvaluationError, CorpusError: see the message.
        EditCancelledError: `cancel` was set.
    """
    cases = chosen_cases(file.cases, options.limit, options.seed)
    numbers = [case.number for case in cases]
    if len(set(numbers)) < len(numbers):
        raise CaseFileError(f"{options.cases} holds a case number twice.")
    for row in file.skipped[:20]:
        tell(f"Row {row.number} of {options.cases.name} is left out: {row.reason}.")
    if len(file.skipped) > 20:
        tell(f"{len(file.skipped) - 20} more rows are left out; the report lists them all.")
    settings = EditSettings(statistics=options.statistics)
    plan = Plan(
        model=loaded.name,
        fingerprint=loaded.fingerprint,
        dtype=loaded.dtype_name,
        cases=hashlib.sha256(options.cases.read_bytes()).hexdigest(),
        numbers=tuple(numbers),
        mode=options.mode,
        size=options.batch,
        settings=asdict(settings),
    )
    cancel = cancel or threading.Event()
    results = ResultFile(options.out, plan)
    if results.results:
        tell(f"Going on with {len(results.results)} results in {options.out}.")

    def wish(edit: CaseEdit, case: EvalCase) -> FactEdit:
        return store_wish(store, edit, case)

    failed: list[Failed] = []
    if cluster is None:
        methods = [method(name, loaded, cache_dir, progress, cancel, settings) for name in options.methods]
        evaluation = Evaluation(loaded, cases, wish, results, options.mode, options.batch, progress, cancel)
        for one in methods:
            evaluation.run(one)
    else:
        from steam_engine.evaluation.spread import Spread  # needs Ray

        order = worker_model(loaded, cluster.device(options.device), cache_dir, options.mode, settings)
        places = cluster.places(order.device, loaded.n_bytes)
        machines = len({place.node for place in places})
        tell(f"{len(places)} worker{'s' * (len(places) > 1)} on {machines} machine{'s' * (machines > 1)}.")
        with Spread(places, order, progress, tell, cancel) as spread:
            for name in options.methods:
                failed += spread.run(name, cases, options.mode, options.batch, wish, results)
    report = make_report(plan, file.skipped, results.results, failed)
    write_report(report, options.out)
    write_plots(report, options.out)
    return report


def run_command(command: EvaluateCommand) -> None:
    """`evaluate` with a terminal: bars on stderr, the report on stdout.

    Facts come from the seed alone and no workspace is touched, so that a report can be made again elsewhere.

    Raises:
        AmendError: see `evaluate` and `load_model`.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    console = Console(stderr=True)
    file = read_cases(command.cases)  # a file without cases is told before the model is loaded
    with ExitStack() as stack:
        cluster = stack.enter_context(connected(command.ray)) if command.ray else None
        store = stack.enter_context(KnowledgeStore.open(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        device, dtype = command.device, command.dtype
        if cluster is not None:  # here the model only tells what it is, and shall not fill a worker's GPU
            dtype = str(pick_dtype(dtype, torch.device(cluster.device(device)))).removeprefix("torch.")
            device = "cpu"
        loaded = load_model(command.model, device, dtype, cache_directory())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with ProgressBars(*columns, console=console) as bars:
            tasks: dict[str, TaskID] = {}

            def progress(told: Progress) -> None:
                if told.stage not in tasks:
                    tasks[told.stage] = bars.add_task(told.stage)
                bars.update(tasks[told.stage], completed=told.done, total=told.total or None)

            def tell(line: str) -> None:
                console.print(line, markup=False, highlight=False)

            report = evaluate(loaded, store, cache_directory(), command, file, progress, tell, cluster=cluster)
    print(as_markdown(report))
    console.print(f"Written to {command.out}: results.jsonl, report.json, report.md, plots.", markup=False)
