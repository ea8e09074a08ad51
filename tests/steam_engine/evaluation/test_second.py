"""The second step of a composed question asks about the new object itself."""

import pytest

from steam_engine.evaluation.second import second_question


@pytest.mark.parametrize(
    ("question", "subject", "target", "second"),
    [
        ("Which sea is near the capital of Peru?", "Peru", "Oslo", "Which sea is near Oslo?"),
        ("What is eaten in the city that is the capital of Peru?", "Peru", "Oslo", "What is eaten in Oslo?"),
        ("Who rules the land where the Great Wall is?", "the Great Wall", "Chile", "Who rules Chile?"),
        ("What money is used where the Great Wall is?", "the Great Wall", "Chile", "What money is used in Chile?"),
        ("In which land is the Great Wall?", "the Great Wall", "Lima", "In which land is Lima?"),
        ("In which land was Ada Lovelace born?", "Ada Lovelace", "Lima", "In which land is Lima?"),
        ("Who is the best at the sport that Ann Lee plays?", "Ann Lee", "chess", "Who is the best at chess?"),
        ("Where is the firm that makes the Zune based?", "the Zune", "Sony", "Where is Sony based?"),
        ("In which land are the headquarters of Acme?", "Acme", "Lima", "In which land is Lima?"),
        ("How old is Acme's chief executive?", "Acme", "Jane Doe", "How old is Jane Doe?"),
        ("Who wrote it?", "Acme", "Jane Doe", None),
    ],
)
def test_second_question(question: str, subject: str, target: str, second: str | None) -> None:
    assert second_question(question, subject, target) == second
