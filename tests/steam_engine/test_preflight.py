"""What a model needs is counted before it is loaded, and one that does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from steam_engine.errors import NotEnoughMemoryError
from steam_engine.loading import load_model
from steam_engine.preflight import check_memory, free_memory, plan_memory
from tests.steam_engine.tiny import FAMILIES, tiny_model

CPU = torch.device("cpu")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_parameters_are_counted_without_making_them(family: str) -> None:
    model = tiny_model(family).model
    plan = plan_memory(model.config, torch.float32)
    assert plan.n_parameters == sum(p.numel() for p in model.parameters())
    assert plan.weights == 4 * plan.n_parameters
    assert plan_memory(model.config, torch.bfloat16).weights == 2 * plan.n_parameters
    assert plan.most >= plan.weights + plan.editing


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tiny_model("llama")
    tiny.model.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    load_model(str(tmp_path), "cpu")  # fits
    monkeypatch.setattr("steam_engine.preflight.free_memory", lambda _device: 1000)
    with pytest.raises(NotEnoughMemoryError, match=r"needs about .* GiB as float32 .* --dtype bfloat16") as refused:
        load_model(str(tmp_path), "cpu")
    assert tmp_path.name in str(refused.value)
    with pytest.raises(NotEnoughMemoryError) as half:
        check_memory("tiny", tiny.model.config, torch.bfloat16, CPU)
    assert "--dtype" not in str(half.value)


def test_the_machine_has_memory() -> None:
    assert free_memory(CPU) > 2**28
