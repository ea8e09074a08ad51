"""The embedded model is converted once, and the conversion is the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from assistant.workspace import cache_directory
from steam_engine.converted import converted, is_intact
from steam_engine.fingerprint import model_fingerprint
from steam_engine.loading import load_model
from tests.disk import file_limit
from tests.steam_engine.tiny import tiny_model


class Source:
    """A model to convert, and how often it was read."""

    def __init__(self) -> None:
        self.loaded = tiny_model("llama")
        self.reads = 0

    def __call__(self) -> tuple[Any, Any]:
        self.reads += 1
        return self.loaded.model, self.loaded.tokenizer


def test_it_is_read_once(tmp_path: Path) -> None:
    source = Source()
    folder = tmp_path / "cache" / "model"
    assert converted(folder, source) == folder
    assert converted(folder, source) == folder
    assert source.reads == 1
    assert sorted(p.name for p in folder.parent.iterdir()) == ["model"]
    again = load_model(str(folder), "cpu")
    assert again.fingerprint == model_fingerprint(source.loaded.model, source.loaded.tokenizer)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "converted.json"])
def test_a_damaged_file_is_noticed_and_made_again(tmp_path: Path, name: str) -> None:
    source = Source()
    folder = tmp_path / "model"
    converted(folder, source)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    assert not is_intact(folder)
    assert converted(folder, source) == folder
    assert source.reads == 2
    assert is_intact(folder)


def test_without_a_place_to_keep_it_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    source = Source()
    assert converted(tmp_path / "file" / "model", source) is None
    assert source.reads == 0


def test_a_full_disk_keeps_none_and_leaves_nothing(tmp_path: Path) -> None:
    with file_limit(10_000):
        assert converted(tmp_path / "cache" / "model", Source()) is None
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.model
@pytest.mark.timeout(600)
def test_the_conversion_is_the_embedded_model() -> None:
    direct = load_model(device="cpu")
    kept = load_model(device="cpu", cache_dir=cache_directory())
    assert kept.fingerprint == direct.fingerprint
    assert (kept.name, kept.source, kept.max_tokens, kept.is_chat) == (direct.name, "", direct.max_tokens, True)
    for one, other in zip(direct.model.state_dict().items(), kept.model.state_dict().items(), strict=True):
        assert one[0] == other[0]
        assert torch.equal(one[1], other[1])
    turns = [{"role": "user", "content": "Où est Paris?\n<|im_end|>  It's 3.14!"}]
    texts = [loaded.tokenizer.apply_chat_template(turns, tokenize=False) for loaded in (direct, kept)]
    assert texts[0] == texts[1]
    ids = [loaded.tokenizer(texts[0])["input_ids"] for loaded in (direct, kept)]
    assert ids[0] == ids[1]
    assert direct.model.generation_config.to_dict() == kept.model.generation_config.to_dict()
