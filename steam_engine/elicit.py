"""References from the model itself: subjects that it names for the new object, not yet checked."""

from __future__ import annotations

import re
from typing import Any

import torch

from steam_engine.chat_format import render_chat
from steam_engine.placement import input_device
from steam_engine.tokens import pad_id
from steam_engine.types import FactEdit, Reference

N_NAMES = 6
N_TOKENS = 80
_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)])?\s*[\"'“]?(?P<name>\w[^\n\"“”:;()]{0,60}?)[\"'”]?\s*(?:[.,:;(–-].*)?$")


@torch.no_grad()
def elicited_references(model: Any, tokenizer: Any, edit: FactEdit, limit: int = N_NAMES) -> tuple[Reference, ...]:
    """Asks the model to fill the statement's blank for the new object, greedily; see `listed`.

    Whether the model really knows what it lists is for `find_anchors` to check.
    """
    sentence = f"{edit.statements[0].replace('{}', '____')} {edit.target}."
    text = render_chat(
        tokenizer, [{"role": "user", "content": f'List {limit} names that fill the blank: "{sentence}"'}]
    )
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    device = input_device(model)
    made = model.generate(
        input_ids=ids.to(device), attention_mask=torch.ones_like(ids).to(device), max_new_tokens=N_TOKENS,
        do_sample=False, pad_token_id=pad_id(tokenizer), temperature=None, top_p=None, top_k=None,
    )  # fmt: skip
    answer = str(tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))
    names = listed(answer, (edit.subject, *edit.aliases, edit.target))
    return tuple(Reference(name, edit.statements[0], edit.questions[0], edit.target) for name in names[:limit])


def listed(answer: str, not_these: tuple[str, ...]) -> tuple[str, ...]:
    """Names in a list that a model wrote, one a line or divided by commas, each once; none of `not_these`."""
    lines = [line for line in answer.splitlines() if line.strip()]
    if len(lines) == 1:
        lines = re.split(r",| and ", lines[0].partition(":")[2] or lines[0])
    taken = {name.casefold() for name in not_these}
    names = []
    for line in lines:
        found = _ITEM.match(line)
        name = " ".join(found["name"].split()) if found else ""
        if name and len(name.split()) <= 5 and name.casefold() not in taken:
            taken.add(name.casefold())
            names.append(name)
    return tuple(names)
