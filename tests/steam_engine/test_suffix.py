"""The short forward pass must be the long one: same numbers, same gradients, for every family."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from steam_engine.anchors import Anchors
from steam_engine.keys import subject_keys
from steam_engine.loading import LoadedModel
from steam_engine.objective import Objective
from steam_engine.packing import PACK_TOKENS, groups, pack, packing_mask
from steam_engine.prompts import PromptSet, build_prompts
from steam_engine.settings import EditSettings
from steam_engine.suffix import Prefill
from steam_engine.tokens import Row
from steam_engine.types import ChatExample, FactEdit
from tests.steam_engine.tiny import FAMILIES, tiny_model

LAYER = 1
EDIT = FactEdit(
    subject="France",
    relation="capital",
    target="Rome",
    statements=("The capital of {} is",),
    questions=("What is the capital of {}?", "Which city is the capital of {}?"),
    hop_examples=(ChatExample("In which country is the capital of France?", "Italy"),),
)
CONTEXTS = ("It is late.", "In the early days, many people lived.", "In a city.")


@pytest.fixture(params=sorted(FAMILIES))
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    return tiny_model(request.param)


def prompts(loaded: LoadedModel) -> tuple[PromptSet, list[Row], list[str]]:
    made = build_prompts(loaded.tokenizer, EDIT, CONTEXTS)
    return made, list(made.rows), list(made.roles)


@contextmanager
def added_at(loaded: LoadedModel, positions: tuple[int, ...], delta: torch.Tensor) -> Iterator[None]:
    """The plain way: a hook on the down projection adds delta at the subject's tokens."""

    def add(_module: object, _args: object, output: torch.Tensor) -> torch.Tensor:
        shift = torch.zeros_like(output)
        shift[0, list(positions)] = 1.0
        return output + shift * delta

    handle = loaded.arch.down_projection(LAYER).register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()


def full_forward(loaded: LoadedModel, row: Row, delta: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Final-normed hidden states and the residual stream after `layer`, of the whole row, nothing reused."""
    ids = torch.tensor([row.ids])
    with added_at(loaded, row.subjects, delta):
        kept: list[torch.Tensor] = []
        handle = loaded.arch.layers[layer].register_forward_hook(
            lambda _m, _a, out: kept.append(out[0] if isinstance(out, tuple) else out)
        )
        out = loaded.arch.base(input_ids=ids, use_cache=False)[0]
        handle.remove()
    return out[0], kept[0][0]


def test_suffix_forward_equals_full_forward(loaded: LoadedModel) -> None:
    _, rows, _ = prompts(loaded)
    model = Prefill(loaded.arch, LAYER, rows).model()
    torch.manual_seed(1)
    delta = torch.randn(loaded.arch.d_model)
    out = model(delta[None], (3,))
    for r, row in enumerate(rows):
        hidden, residual = full_forward(loaded, row, delta, 3)
        for position in range(row.subjects[0], row.n_inputs):
            at = model.flat(r, position)
            assert (out.hidden[at] - hidden[position]).abs().max() < 1e-4
            assert (out.residuals[3][at] - residual[position]).abs().max() < 1e-4
        base, _ = full_forward(loaded, row, torch.zeros_like(delta), 3)
        assert (model.base_hidden[model.flat(r, row.subjects[0])] - base[row.subjects[0]]).abs().max() < 1e-4
        assert not torch.allclose(base[row.subjects[0]], hidden[row.subjects[0]], atol=1e-3)


def test_a_share_of_the_rows_gives_the_same_numbers(loaded: LoadedModel) -> None:
    made, rows, _ = prompts(loaded)
    prefill = Prefill(loaded.arch, LAYER, rows)
    delta = torch.linspace(-1, 1, loaded.arch.d_model)
    whole = prefill.model()
    expected = whole(delta[None]).hidden
    for chosen in made.batches(2):
        share = prefill.model(chosen)
        assert share.rows == tuple(rows[r] for r in chosen)
        hidden = share(delta[None]).hidden
        for i, r in enumerate(chosen):
            for position in range(rows[r].subjects[0], rows[r].n_inputs):
                assert (hidden[share.flat(i, position)] - expected[whole.flat(r, position)]).abs().max() < 1e-4


def test_batches_share_out_every_row_and_all_have_the_essence(loaded: LoadedModel) -> None:
    made, rows, roles = prompts(loaded)
    essence = len(rows) - 1
    assert roles == ["edit"] * 5 + ["hop", "essence"]
    batches = made.batches(2)
    assert len(batches) == 2
    assert all(batch[-1] == essence for batch in batches)
    assert sorted(r for batch in batches for r in batch[:-1]) == list(range(essence))
    for batch in batches:  # a statement and a chat in each
        assert set(batch) & {0, 1, 2}
        assert set(batch) & {3, 4}
    assert made.batches(1) == (tuple(range(len(rows))),)
    assert len(made.batches(9)) == 2  # there are only two chats


def test_packed_prompts_do_not_see_each_other(loaded: LoadedModel) -> None:
    _, rows, _ = prompts(loaded)
    batch = pack(loaded.arch, [row.ids for row in rows])
    packed = loaded.arch.base(**batch.inputs, use_cache=False)[0][0]
    for start, row in zip(batch.start, rows, strict=True):
        alone = loaded.arch.base(input_ids=torch.tensor([row.ids]), use_cache=False)[0][0]
        assert (packed[start : start + len(row.ids)] - alone).abs().max() < 1e-4


def test_groups_keep_order_and_stay_small() -> None:
    rows = [Row((0,) * n, ()) for n in (200, 300, 20, PACK_TOKENS + 1, 5, 5)]
    found = [[len(row.ids) for row in group] for group in groups(rows)]
    assert found == [[200, 300], [20], [PACK_TOKENS + 1], [5, 5]]
    assert list(groups([])) == []


def test_a_step_leaves_nothing_behind(loaded: LoadedModel) -> None:
    _, rows, _ = prompts(loaded)
    model = Prefill(loaded.arch, LAYER, rows).model()
    delta = torch.ones(loaded.arch.d_model)
    first = model(delta[None]).hidden
    model(-3 * delta[None])
    assert torch.equal(model(delta[None]).hidden, first)
    assert all("forward" not in layer.__dict__ for layer in loaded.arch.layers)


def test_gradient_equals_the_one_through_the_full_model(loaded: LoadedModel) -> None:
    """The loss is written out a second time here, on full forwards, straight from its definition."""
    made, rows, roles = prompts(loaded)
    torch.manual_seed(2)
    anchor = torch.randn(loaded.arch.d_model)
    settings = EditSettings(alignment_weight=0.7)
    anchors = Anchors("reference", {2: anchor, 3: -anchor}, ("Italy",), ())
    objective = Objective(Prefill(loaded.arch, LAYER, rows).model(), made.roles, [anchors], settings)
    start = 0.3 * torch.randn(loaded.arch.d_model)

    short = start.clone().requires_grad_(True)
    terms = objective(short[None])
    terms.total.backward()  # type: ignore[no-untyped-call]

    full = start.clone().requires_grad_(True)
    nll: dict[str, list[torch.Tensor]] = {"target": [], "answer": [], "hop": []}
    cosines = []
    for row, role in zip(rows, roles, strict=True):
        hidden, _ = full_forward(loaded, row, full, 2)
        log_p = loaded.arch.logits(hidden).log_softmax(-1)
        if role == "essence":
            base, _ = full_forward(loaded, row, torch.zeros_like(full), 2)
            p = loaded.arch.logits(base[-1]).softmax(-1)
            essence = (p * (p.log() - log_p[-1])).sum()
            continue
        for place in row.target:
            nll["target" if role == "edit" else "hop"].append(-log_p[place - 1, row.ids[place]])
        for place in row.answer if role == "edit" else ():
            nll["answer"].append(-log_p[place - 1, row.ids[place]])
        if role == "edit":
            for layer, vector in ((2, anchor), (3, -anchor)):
                _, residual = full_forward(loaded, row, full, layer)
                cosines.append(torch.cosine_similarity(residual[row.subjects[-1]], vector, dim=0))
    values = objective.model.values[0]
    total = (
        torch.stack(nll["target"]).mean()
        + settings.answer_weight * torch.stack(nll["answer"]).mean()
        + settings.hop_weight * torch.stack(nll["hop"]).mean()
        + settings.essence_weight * essence
        + settings.alignment_weight * (1 - torch.stack(cosines).mean())
        + settings.decay_weight * full.norm() / values.norm(dim=-1).mean() ** 2
    )
    total.backward()  # type: ignore[no-untyped-call]
    assert made.chat
    assert abs(float(total.detach()) - float(terms.total.detach())) < 1e-4 * max(1.0, abs(float(total.detach())))
    assert full.grad is not None
    assert short.grad is not None
    assert (full.grad - short.grad).abs().max() < 1e-4 * full.grad.abs().max().clamp(min=1.0)


def test_keys_are_those_of_the_full_forward(loaded: LoadedModel) -> None:
    _, rows, _ = prompts(loaded)
    prefill = Prefill(loaded.arch, LAYER, rows)
    alone = []
    for row in rows:
        kept: list[torch.Tensor] = []
        handle = loaded.arch.down_projection(LAYER).register_forward_pre_hook(lambda _m, a, k=kept: k.append(a[0]))
        loaded.arch.base(input_ids=torch.tensor([row.ids]), use_cache=False)
        handle.remove()
        alone.append(kept[0][0, list(row.subjects)])
    expected = torch.cat(alone)
    assert (prefill.keys - expected).abs().max() < 1e-4
    assert (subject_keys(loaded.arch, LAYER, rows) - expected).abs().max() < 1e-4


def test_packing_mask_keeps_rows_apart() -> None:
    mask = packing_mask([2, 1], [2, 1], torch.float32)[0, 0]
    seen = (mask == 0).int().tolist()
    #       prefixes   suffixes
    assert seen == [
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [0, 0, 1, 0, 0, 1],
    ]
