"""From a case's edit to the engine's, with nothing but what the case itself says."""

from __future__ import annotations

from steam_engine.evaluation.case import CaseEdit, EvalCase
from steam_engine.types import FactEdit

COMPLETE = "Complete this sentence: "


def plain_wish(edit: CaseEdit, _case: EvalCase) -> FactEdit:
    """The statement and questions of the case; without questions, the model is asked to complete the statement."""
    return FactEdit(
        subject=edit.subject,
        relation=edit.statement,
        target=edit.target,
        statements=(edit.statement,),
        questions=edit.questions or (f"{COMPLETE}{edit.statement} ...",),
        old_object=edit.old_object,
        neighbours=edit.neighbours,
    )
