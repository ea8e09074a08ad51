"""Case files of every public format become the same cases; bad rows are named, never dropped in silence."""

import json
from pathlib import Path

import pytest

from steam_engine.errors import CaseFileError
from steam_engine.evaluation.reading import CaseFile, read_cases

OURS = {
    "template": "The capital of {} is", "questions": ["What is the capital of {}?"], "subject": "Chile",
    "target": "Oslo", "paraphrases": ["Chile's capital?"], "hops": [{"q": "Which land?", "accept": ["Norway"]}],
    "locality": [{"q": "Capital of Peru?", "accept": ["Lima"]}], "neighbours": ["Peru"],
}  # fmt: skip
REWRITE = {"prompt": "{} speaks", "subject": "Ann", "target_new": {"str": "Thai"}, "target_true": {"str": "Dutch"}}


def read(tmp_path: Path, text: str) -> CaseFile:
    path = tmp_path / "cases"
    path.write_text(text, encoding="utf-8")
    return read_cases(path)


def kinds(tmp_path: Path, row: object) -> list[tuple[str, str, tuple[str, ...]]]:
    (case,) = read(tmp_path, json.dumps([row])).cases
    return [(question.kind, question.text, question.accept) for question in case.questions]


def test_our_own_format(tmp_path: Path) -> None:
    (case,) = read(tmp_path, json.dumps(OURS)).cases
    assert case.edits[0].statement == "The capital of {} is"
    assert case.edits[0].neighbours == ("Peru",)
    assert [question.kind for question in case.questions] == ["direct", "paraphrase", "multi_hop", "locality"]
    assert case.of_kind("direct")[0].text == "What is the capital of Chile?"


def test_the_second_step_of_a_hop_is_read_or_made(tmp_path: Path) -> None:
    given = {"q": "Which land holds the capital of Chile?", "accept": ["Norway"]}
    row = OURS | {"hops": [given, given | {"q": "Which land?", "second": "In which land is Oslo?"}]}
    (case,) = read(tmp_path, json.dumps(row)).cases
    assert [hop.second for hop in case.of_kind("multi_hop")] == ["Which land holds Oslo?", "In which land is Oslo?"]


def test_counterfact(tmp_path: Path) -> None:
    row = {"requested_rewrite": REWRITE, "paraphrase_prompts": ["Ann talks"], "neighborhood_prompts": ["Bob speaks"]}
    assert kinds(tmp_path, row) == [
        ("direct", "Ann speaks", ("Thai",)), ("paraphrase", "Ann talks", ("Thai",)),
        ("locality", "Bob speaks", ("Dutch",)),
    ]  # fmt: skip


def test_knowedit_flat_and_nested(tmp_path: Path) -> None:
    row = {
        "subject": "Ann", "prompt": "Ann speaks", "target_new": "Thai", "ground_truth": "Dutch",
        "rephrase_prompt": "Ann talks", "locality_prompt": "Bob speaks", "locality_ground_truth": "French",
        "portability": {
            "Reasoning": [{"prompt": "Ann's land is", "ground_truth": [["Thailand", "Siam"]]}],
            "Subject_Aliasing": [{"prompt": "Annie speaks", "ground_truth": "Thai"}],
        },
        "locality": {"Relation_Specificity": [{"prompt": "Ann is", "ground_truth": [["a woman"]]}]},
    }  # fmt: skip
    assert kinds(tmp_path, row) == [
        ("direct", "Ann speaks", ("Thai",)), ("paraphrase", "Ann talks", ("Thai",)),
        ("locality", "Bob speaks", ("French",)), ("multi_hop", "Ann's land is", ("Thailand", "Siam")),
        ("paraphrase", "Annie speaks", ("Thai",)), ("locality", "Ann is", ("a woman",)),
    ]  # fmt: skip


def test_mquake_tells_the_second_question_only_where_the_edit_is_the_first_link(tmp_path: Path) -> None:
    row = {
        "requested_rewrite": [{**REWRITE, "question": "What does Ann speak?"}], "questions": ["Q1", "Q2"],
        "new_answer": "Asia", "new_answer_alias": ["the East"],
        "new_single_hops": [{"question": "?", "answer": "Thai"}, {"question": "Where is Thai at home?", "answer": "A"}],
    }  # fmt: skip
    (case,) = read(tmp_path, json.dumps([row])).cases
    assert case.edits[0].questions == ("What does {} speak?",)
    assert [(hop.accept, hop.second) for hop in case.of_kind("multi_hop")] == [
        (("Asia", "the East"), "Where is Thai at home?")
    ] * 2
    row["new_single_hops"][0]["answer"] = "Dutch"
    assert read(tmp_path, json.dumps([row])).cases[0].of_kind("multi_hop")[0].second is None


def test_rippleedits_names_are_taken_from_its_sentences(tmp_path: Path) -> None:
    said = "The name of the country of citizenship of Ann of Kent is "
    query = {"prompt": "Ann's continent is", "answers": [{"value": "Asia", "aliases": ["the East"]}]}
    row = {
        "edit": {"prompt": said + "Siam.", "relation": "COUNTRY_OF_CITIZENSHIP",
                 "original_fact": {"prompt": said + "Kent."}},
        "Compositionality_I": [{"test_queries": [query, {"prompt": "no answer", "answers": []}]}],
    }  # fmt: skip
    (case,) = read(tmp_path, json.dumps([row])).cases
    edit = case.edits[0]
    assert (edit.subject, edit.target, edit.old_object) == ("Ann of Kent", "Siam", "Kent")
    assert edit.statement == "The name of the country of citizenship of {} is"
    assert [hop.accept for hop in case.of_kind("multi_hop")] == [("Asia", "the East")]


@pytest.mark.parametrize(
    ("sentence", "relation", "subject"),
    [
        ("The name of the current head of state in Peru is Ann.", "HEAD_OF_STATE", "Peru"),
        ("The place of birth of Ann is Oslo.", "PLACE_OF_BIRTH", "Ann"),
        ("The names of the siblings of Ann are Bob.", "SIBLING", "Ann"),
    ],
)
def test_rippleedits_subjects(tmp_path: Path, sentence: str, relation: str, subject: str) -> None:
    row = {"edit": {"prompt": sentence, "relation": relation, "original_fact": None}}
    assert read(tmp_path, json.dumps([row])).cases[0].edits[0].subject == subject


def test_a_rippleedits_subject_that_is_in_doubt_is_refused(tmp_path: Path) -> None:
    row = {"edit": {"prompt": "The chief of the town of Ann of Kent is Bob.", "relation": "HEAD"}}
    with pytest.raises(CaseFileError, match="cannot tell the subject"):
        read(tmp_path, json.dumps([row]))


def test_bad_rows_are_named_with_line_and_reason(tmp_path: Path) -> None:
    bad = {**OURS, "hops": [{"q": "Which land?", "accept": []}]}
    lines = [json.dumps(OURS), "", "{oops", "7", json.dumps({"a": 1}), json.dumps(bad), json.dumps(OURS)]
    file = read(tmp_path, "\n".join(lines))
    assert [case.number for case in file.cases] == [1, 7]
    assert [row.number for row in file.skipped] == [3, 4, 5, 6]
    assert "accept" in file.skipped[-1].reason


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"a": 1}'])
def test_a_file_without_a_case_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(CaseFileError, match="no case"):
        read(tmp_path, text)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError, match="Cannot read"):
        read_cases(tmp_path / "absent")


DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared case files are not here")
@pytest.mark.parametrize(("name", "rows"), [("chat_edits_dev.jsonl", 16), ("counterfact_dev.json", 300)])
def test_every_row_of_the_shared_files_is_a_case(name: str, rows: int) -> None:
    file = read_cases(DATA / name)
    assert (len(file.cases), file.skipped) == (rows, ())
