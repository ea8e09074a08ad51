"""`evaluate` on the command line: options, what the store lends to a case, and which cases are taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import main
from assistant.evaluating import chosen_cases, store_wish
from assistant.options_evaluate import parse_evaluate
from knowledge_store.store import KnowledgeStore
from steam_engine.evaluation.case import CaseEdit, EvalCase, Question

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeStore]:
    with KnowledgeStore.open(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture
def cases(tmp_path: Path) -> str:
    path = tmp_path / "cases.jsonl"
    path.write_text("{}\n")
    return str(path)


def case(*questions: Question, statement: str = "The capital of {} is", neighbours: tuple[str, ...] = ()) -> EvalCase:
    edit = CaseEdit("Brazil", statement, "Madrid", ("What is the capital of {}?",), None, neighbours)
    return EvalCase(1, (edit,), questions)


def test_the_store_lends_phrasings_but_nothing_that_is_measured(store: KnowledgeStore) -> None:
    relation = store.relation("capital")
    measured = relation.questions[1].replace("{}", "Brazil")
    one = case(
        Question("paraphrase", measured, ("Madrid",)),
        Question("locality", "What is the capital of Germany?", ("Berlin",)),
    )
    wish = store_wish(store, one.edits[0], one)
    assert wish.relation == "capital"
    assert wish.statements[0] == "The capital of {} is"
    assert len(wish.statements) > 1
    assert wish.questions[0] == "What is the capital of {}?"
    assert measured not in [q.replace("{}", "Brazil") for q in wish.questions]
    assert len(wish.neighbours) > 5
    assert "Germany" not in wish.neighbours
    assert wish.references
    assert wish.hop_examples == ()


def test_the_cases_own_neighbours_come_first_and_unknown_relations_stay_as_they_are(store: KnowledgeStore) -> None:
    one = case(neighbours=("Peru",))
    assert store_wish(store, one.edits[0], one).neighbours == ("Peru",)
    strange = case(statement="The favourite colour of {} at night is")
    assert store_wish(store, strange.edits[0], strange).statements == ("The favourite colour of {} at night is",)


def test_which_cases_are_taken() -> None:
    all_cases = [EvalCase(n, (), ()) for n in range(10)]
    assert [c.number for c in chosen_cases(all_cases, 3, None)] == [0, 1, 2]
    drawn = [c.number for c in chosen_cases(all_cases, 3, 7)]
    assert drawn == sorted(drawn)
    assert drawn == [c.number for c in chosen_cases(all_cases, 3, 7)]
    assert {tuple(c.number for c in chosen_cases(all_cases, 3, s)) for s in range(5)} != {tuple(drawn)}
    assert len(chosen_cases(all_cases, 30, 1)) == 10


def test_options(cases: str, tmp_path: Path) -> None:
    found = parse_evaluate([cases, "--out", str(tmp_path), "--methods", "Steam, ft", "--limit", "5", "--batch", "2"])
    assert found.methods == ("steam", "ft")
    assert (found.limit, found.mode, found.batch) == (5, "batch", 2)
    assert parse_evaluate([cases, "--out", str(tmp_path)]).methods == ("steam", "rome", "memit", "ft", "told")
    assert parse_evaluate([cases, "--out", str(tmp_path), "--sequential"]).mode == "sequential"
    assert parse_evaluate([cases, "--out", str(tmp_path), "--statistics", cases]).statistics == cases
    assert parse_evaluate([cases, "--out", str(tmp_path)]).ray is None


@pytest.mark.parametrize("address", ["auto", "local", "10.0.0.7:6379", "[::1]:6379", "head.example:6379"])
def test_addresses_of_a_cluster(cases: str, tmp_path: Path, address: str) -> None:
    assert parse_evaluate([cases, "--out", str(tmp_path), "--ray", address]).ray == address


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--methods", "mend"], "no method 'mend'; use some of steam,rome"),
        (["--methods", ","], "no method"),
        (["--limit", "0"], "'0' is not a whole number above 0"),
        (["--batch", "2", "--sequential"], "exclude each other"),
        (["--seed", "1"], "draws the cases of a --limit"),
        (["--device", "tpu"], "is not a device"),
        (["--ray", "10.0.0.7"], "'10.0.0.7' is not the address of a Ray cluster; use auto, local, host:port"),
        (["--ray", "ray://head:10001"], "is not the address"),
        (["--ray", "local", "--sequential"], "leave one of the two out"),
        (["--ray", "local", "--device", "cuda:1"], "with --ray use --device cuda"),
        (["--statistics", "nowhere.txt"], "nowhere.txt, does not exist; give a .txt"),
    ],
)
def test_bad_options(cases: str, tmp_path: Path, capsys: Capture, extra: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_evaluate([cases, "--out", str(tmp_path), *extra])
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_a_missing_file_and_a_file_without_cases(tmp_path: Path, cases: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        parse_evaluate([str(tmp_path / "none.jsonl"), "--out", str(tmp_path)])
    assert "there is no file" in capsys.readouterr().err
    assert main(["evaluate", cases, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "holds no case" in told
    assert "Traceback" not in told


def test_the_command_on_a_cluster_of_its_own_measures_what_it_measures_alone(
    tmp_path: Path, tiny_model: Path, capsys: Capture
) -> None:
    row = {
        "template": "The capital of {} is",
        "questions": ["What is the capital of {}?"],
        "target": "Rome",
        "locality": [{"q": "What is the capital of Italy?", "accept": ["Rome"]}],
    }
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps({**row, "subject": s}) + "\n" for s in ("France", "Spain", "Peru")))
    asked: list[dict[int, object]] = []
    for name, extra in (("alone", []), ("spread", ["--ray", "local"])):
        command = ["evaluate", str(file), "--methods", "told", "--model", str(tiny_model), "--device", "cpu"]
        assert main([*command, "--out", str(tmp_path / name), *extra]) == 0
        lines = (tmp_path / name / "results.jsonl").read_text().splitlines()
        asked.append({json.loads(line)["case"]: json.loads(line)["asked"] for line in lines})
    assert asked[0] == asked[1]
    assert set(asked[1]) == {1, 2, 3}
    told = capsys.readouterr()
    assert "on 1 machine." in told.err
    assert told.out.count("| told | 1 |") == 2
    assert (tmp_path / "alone" / "plan.json").read_bytes() == (tmp_path / "spread" / "plan.json").read_bytes()
