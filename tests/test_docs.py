"""What the documentation shows must work: commands, options, links, files and code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from assistant.options_evaluate import METHODS, parse_evaluate
from steam_engine.evaluation.formats import case_of

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_methods_table_lists_all_methods() -> None:
    text = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    table = text.split("## Methods")[1].split("## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == METHODS.split(",")


def test_the_options_exist(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    case = json.loads(text.split("```json")[1].split("```")[0])
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))
    options = set(re.findall(r"--[a-z]+", text.split("## Options")[1].split("## ")[0]))
    values = {"--methods": "steam", "--limit": "1", "--seed": "1", "--batch": "2", "--model": "m", "--device": "cpu"}
    values |= {"--dtype": "float32", "--ray": "local", "--statistics": str(tmp_path / "cases.jsonl")}
    for option in options - {"--sequential", "--seed"}:
        parse_evaluate([str(tmp_path / "cases.jsonl"), "--out", str(tmp_path), option, values[option]])
    parse_evaluate([str(tmp_path / "cases.jsonl"), "--out", str(tmp_path), "--sequential"])


def test_the_case_is_a_case() -> None:
    text = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    found = case_of(json.loads(text.split("```json")[1].split("```")[0]), 1)
    assert [q.kind for q in found.questions] == ["direct", "paraphrase", "multi_hop", "locality"]


def test_the_code_compiles_and_its_imports_are_there() -> None:
    for page in DOCS:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            compile(block, page.name, "exec")
            imports = "\n".join(line for line in block.splitlines() if line.startswith(("import", "from")))
            exec(imports, {})
