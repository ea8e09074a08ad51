"""An evaluation measures every case once, goes on after a kill, and reports what it measured."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from steam_engine.errors import EditCancelledError, EvaluationError
from steam_engine.evaluation.asking import ask, is_unfinished
from steam_engine.evaluation.case import CaseEdit, EvalCase, Question
from steam_engine.evaluation.health import Baseline, fluency
from steam_engine.evaluation.plots import write_plots
from steam_engine.evaluation.reading import Skipped
from steam_engine.evaluation.report import as_json, as_markdown, make_report, write_report
from steam_engine.evaluation.results import Asked, Plan, Result, ResultFile
from steam_engine.evaluation.running import Evaluation
from steam_engine.evaluation.statistics import compare, rate
from steam_engine.evaluation.wishes import plain_wish
from steam_engine.loading import LoadedModel
from steam_engine.methods.steam import Steam
from steam_engine.methods.told import Told
from steam_engine.types import Progress
from tests.steam_engine.conftest import SETTINGS, quiet, taught_model


def case(number: int, subject: str, target: str) -> EvalCase:
    edit = CaseEdit(subject, "The capital of {} is", target, ("What is the capital of {}?",))
    return EvalCase(
        number,
        (edit,),
        (
            Question("direct", f"What is the capital of {subject}?", (target,)),
            Question("paraphrase", f"It is late. The capital of {subject} is", (target,)),
            Question("multi_hop", f"Where is the capital of {subject}?", ("Nowhere",), f"Where is {target}?"),
            Question("locality", "What is the capital of Italy?", ("Rome",)),
            Question("locality", "What is the capital of Poland?", ("Oslo",)),
        ),
    )


CASES = (case(1, "France", "Oslo"), case(2, "Spain", "Rome"), case(5, "Germany", "Paris"))
PLAN = Plan(
    model="tiny", fingerprint="f", dtype="float32", cases="c", numbers=(1, 2, 5), mode="each", size=1, settings={}
)


@pytest.fixture
def loaded() -> LoadedModel:
    return taught_model("llama")


@pytest.fixture
def steam(loaded: LoadedModel, moments_cache: Path) -> Steam:
    return Steam(loaded, moments_cache, quiet, threading.Event(), SETTINGS)


def evaluation(
    loaded: LoadedModel,
    results: ResultFile,
    mode: str = "each",
    size: int = 1,
    progress: Callable[[Progress], None] = quiet,
    cancel: threading.Event | None = None,
) -> Evaluation:
    return Evaluation(loaded, CASES, plain_wish, results, mode, size, progress, cancel or threading.Event())


def test_every_case_is_asked_before_and_after(loaded: LoadedModel, steam: Steam, tmp_path: Path) -> None:
    base = {n: p.clone() for n, p in loaded.model.named_parameters()}
    results = ResultFile(tmp_path, PLAN)
    run = evaluation(loaded, results)
    run.run(steam)
    run.run(Told())
    assert [(r.method, r.case) for r in results.results] == [(m, c) for m in ("steam", "told") for c in (1, 2, 5)]
    assert all(torch.equal(base[n], p) for n, p in loaded.model.named_parameters())
    first, told = results.results[0], results.results[3]
    assert [a.kind for a in first.asked] == ["direct", "paraphrase", "multi_hop", "locality", "locality"]
    assert first.asked[0].before == "The capital of France is Paris"
    assert first.asked[0].after != first.asked[0].before
    assert first.asked[3].right_before
    assert first.asked[3].counts
    assert not first.asked[4].counts  # was wrong before
    assert first.asked[2].answerable is False
    assert first.asked[0].answerable is None
    assert first.steps > 0
    assert first.drift > 0
    assert first.peak_mib > 10
    assert told.drift == pytest.approx(0, abs=1e-6)
    assert told.perplexity_ratio == pytest.approx(1, abs=1e-6)
    assert told.asked[0].before == first.asked[0].before


def test_a_run_goes_on_where_it_was_stopped(loaded: LoadedModel, steam: Steam, tmp_path: Path) -> None:
    cancel = threading.Event()

    def stop_after_two(progress: Progress) -> None:
        if progress.done == 2:
            cancel.set()

    first = ResultFile(tmp_path, PLAN)
    with pytest.raises(EditCancelledError, match="run it again to go on"):
        evaluation(loaded, first, progress=stop_after_two, cancel=cancel).run(steam)
    assert [r.case for r in first.results] == [1, 2]
    with first.path.open("ab") as file:
        file.write(b'{"method": "steam", "case": 5, "do')  # killed in the middle of a line
    again = ResultFile(tmp_path, PLAN)
    assert again.results == first.results
    evaluation(loaded, again).run(steam)
    assert [r.case for r in again.results] == [1, 2, 5]
    assert [json.loads(line)["case"] for line in again.path.read_text().splitlines()] == [1, 2, 5]
    whole = ResultFile(tmp_path / "whole", PLAN)
    evaluation(loaded, whole).run(steam)
    assert [r.asked for r in whole.results] == [r.asked for r in again.results]


@pytest.mark.parametrize(("mode", "size", "done"), [("batch", 2, [2, 2, 1]), ("sequential", 1, [1, 3, 3, 3])])
def test_batches_and_sequences(
    loaded: LoadedModel, steam: Steam, tmp_path: Path, mode: str, size: int, done: list[int]
) -> None:
    plan = PLAN.model_copy(update={"mode": mode, "size": size})
    results = ResultFile(tmp_path, plan)
    evaluation(loaded, results, mode, size).run(steam)
    assert [r.done for r in results.results] == done
    again = ResultFile(tmp_path, plan)
    evaluation(loaded, again, mode, size).run(steam)
    assert len(again.results) == len(done)  # nothing was measured twice
    report = make_report(plan, (), results.results)
    assert [s.done for s in report.summaries] == ([2] if mode == "batch" else [1, 3])
    assert "curves.png" in {p.name for p in write_plots(report, tmp_path)} or mode == "batch"


def test_results_of_another_plan_are_not_mixed(tmp_path: Path) -> None:
    ResultFile(tmp_path, PLAN)
    with pytest.raises(EvaluationError, match=r"another evaluation.*--out"):
        ResultFile(tmp_path, PLAN.model_copy(update={"numbers": (1,)}))
    (tmp_path / "plan.json").unlink()
    (tmp_path / "results.jsonl").write_text("{}\n")
    with pytest.raises(EvaluationError, match="without a plan"):
        ResultFile(tmp_path, PLAN)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    ResultFile(tmp_path, PLAN)
    (tmp_path / "results.jsonl").write_text('{"method": 1}\n')
    with pytest.raises(EvaluationError, match=r"Line 1 of .* is damaged"):
        ResultFile(tmp_path, PLAN)


def result(method: str, number: int, direct: bool, local: bool, done: int = 1) -> Result:
    asked = (
        Asked("direct", "q", "b", "a", False, direct),
        Asked("locality", "q", "b", "a", True, local),
        Asked("locality", "q", "b", "a", False, True),
    )
    return Result(method, number, done, asked, (), 2.0, 10, 100.0 + number, 0.01, 1.0, 5.0)


def test_the_report_says_what_was_measured(tmp_path: Path) -> None:
    results = [result("steam", n, True, n != 1) for n in (1, 2, 5)] + [result("ft", n, n == 1, True) for n in (1, 2, 5)]
    report = make_report(PLAN, (Skipped(4, '"target" is missing'),), results)
    text = as_markdown(report)
    assert [s.method for s in report.summaries] == ["steam", "ft"]
    assert "| steam | 3/3 = 100% (100% to 100%) | 2/3 = 67% (0% to 100%) |" in text
    assert "multi-hop" not in text.split("## Paired")[0].split("| method |")[1]  # nothing of the kind was asked
    assert "| steam - ft | +67% " in text
    assert '- 4: "target" is missing' in text
    data = json.loads(as_json(report))
    assert data["methods"][1]["rates"]["direct"]["value"] == pytest.approx(1 / 3)
    assert data["methods"][0]["peak_mib"] == 105
    assert data["skipped"] == [{"number": 4, "reason": '"target" is missing'}]
    assert [p.name for p in write_report(report, tmp_path)] == ["report.json", "report.md"]
    (plot,) = write_plots(report, tmp_path)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_report_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    report = make_report(PLAN, (), [result("steam", 1, True, True)])
    with pytest.raises(EvaluationError, match="could not be written"):
        write_report(report, tmp_path / "missing")
    with pytest.raises(EvaluationError, match="could not be written"):
        write_plots(report, tmp_path / "missing")


def test_rates_draw_whole_cases() -> None:
    found = rate([(2, 2), (0, 2), (2, 2), (0, 0)])
    assert (found.right, found.asked) == (4, 6)
    assert found.low == 0
    assert found.high == 1
    assert rate([]).value == 0
    many = rate([(1, 1)] * 90 + [(0, 1)] * 10)
    assert 0.82 < many.low < 0.86
    assert 0.94 < many.high < 0.97


def test_paired_tests_see_a_difference_and_do_not_see_none() -> None:
    good = {i: [True, True] for i in range(20)}
    bad = {i: [i % 2 == 0, False] for i in range(20)}
    found = compare(good, bad)
    assert found.difference == pytest.approx(0.75)
    assert found.first_only == 30
    assert found.second_only == 0
    assert found.p < 0.001
    assert compare(good, good).p == 1
    assert compare(good, {}).p == 1
    one = compare({0: [True]}, {0: [False]})
    assert one.p == pytest.approx(1, abs=0.01)  # one pair proves nothing
    # Exchanges within 6 cases that all favour the first: p = 2 / 2^6.
    assert compare({i: [True] for i in range(6)}, {i: [False] for i in range(6)}).p == pytest.approx(2 / 64, abs=0.006)


@pytest.mark.parametrize(
    ("text", "unfinished"),
    [
        ("What is the capital of France?", False),
        ("Tell me the capital city of France.", False),
        ('Who said "No!"', False),
        ("The capital of France is", True),
        ("Where Danielle Darrieux is from, people speak the language of", True),
    ],
)
def test_questions_and_unfinished_sentences(text: str, unfinished: bool) -> None:
    assert is_unfinished(text) is unfinished


def test_answers_come_in_order_and_as_they_would_alone(loaded: LoadedModel) -> None:
    prompts = ["What is the capital of France?", "It is late. The capital of Italy is", "What is the capital of Spain?"]
    answers = ask(loaded, prompts, [False, True, False])
    assert answers[0] == "The capital of France is Paris"
    assert answers[1].startswith("Rome")
    assert answers[2] == "The capital of Spain is Madrid"
    assert ask(loaded, prompts[:1], [False]) == answers[:1]
    assert ask(loaded, [], []) == ()


def test_drift_and_fluency(loaded: LoadedModel) -> None:
    baseline = Baseline(loaded)
    assert baseline.drift().kl == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        loaded.arch.down_projection(2).weight.mul_(3)
    drift = baseline.drift()
    assert drift.kl > 0.01
    assert drift.perplexity_ratio != pytest.approx(1, abs=1e-3)
    assert 0 <= fluency(loaded, "France") < 10


def test_a_wish_without_questions_asks_to_complete_the_statement() -> None:
    edit = replace(CASES[0].edits[0], questions=())
    assert plain_wish(edit, CASES[0]).questions == ("Complete this sentence: The capital of {} is ...",)
