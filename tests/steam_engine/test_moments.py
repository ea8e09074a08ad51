"""Second moments: the same bits however often the work was stopped, from whatever text."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.normalizers import Lowercase

from steam_engine import moments as moments_module
from steam_engine import partial_sums
from steam_engine.corpora.base import Corpus
from steam_engine.corpora.pieces import PIECE, cut, rounds, spread
from steam_engine.corpora.registry import open_corpus
from steam_engine.corpora.source import DatasetSource, FileSource, parse_source
from steam_engine.corpora.text_file import BLOCK
from steam_engine.editor import Editor
from steam_engine.errors import CorpusError, EditCancelledError
from steam_engine.loading import LoadedModel
from steam_engine.methods.memit import Memit
from steam_engine.methods.registry import method
from steam_engine.methods.rome import Rome
from steam_engine.moments import Statistics, cache_path, key_moments, load_statistics, statistics_of
from steam_engine.sampling import OPENINGS, QUESTIONS
from steam_engine.types import Progress
from tests.steam_engine.conftest import SETTINGS, capital, quiet, taught_model
from tests.steam_engine.tiny import CAPITALS

N = 10_000  # key vectors: a batch has 3,000 to 4,000


def words(n: int, seed: int = 0) -> str:
    """Prose of `n` sentences, no two of which are alike."""
    rng = random.Random(seed)
    names = [*CAPITALS, *CAPITALS.values()]
    return "\n".join(
        f"Sentence {i}: the {rng.choice(names)} of {rng.choice(names)} saw {rng.randrange(10**6)} people."
        for i in range(n)
    )


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return taught_model("llama")


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(words(3000), encoding="utf-8")
    assert path.stat().st_size > 2 * BLOCK
    return path


def made(
    loaded: LoadedModel,
    cache: Path,
    source: str = "",
    *,
    n: int = N,
    layers: tuple[int, ...] = (0,),
    progress: Callable[[Progress], None] = quiet,
    cancel: threading.Event | None = None,
) -> dict[int, Statistics]:
    return statistics_of(loaded, layers, n, cache, progress, cancel or threading.Event(), open_corpus(source))


def stopping_at(batch: int, cancel: threading.Event) -> Callable[[Progress], None]:
    told = iter(range(10**6))

    def progress(what: Progress) -> None:
        if what.stage == moments_module.STAGE and next(told) == batch:
            cancel.set()

    return progress


def files(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


# -- what is computed ---------------------------------------------------------------------------------------------


def test_moments_are_the_mean_outer_product_of_the_keys_after_a_passages_first(loaded: LoadedModel) -> None:
    passages = [list(loaded.tokenizer(text)["input_ids"]) for text in words(5).splitlines()]
    keys = []
    module = loaded.arch.down_projection(1)
    handle = module.register_forward_pre_hook(lambda _m, args: keys.append(args[0][0, 1:]))
    for passage in passages:
        loaded.model(torch.tensor([passage]))
    handle.remove()
    expected = torch.cat(keys)
    total, n = key_moments(loaded.arch, [1], passages)
    assert n == len(expected)
    assert torch.allclose(total[1], expected.T @ expected, rtol=1e-4, atol=1e-5)


def test_the_name_of_sampled_statistics_is_as_ever(tmp_path: Path) -> None:
    """What earlier versions of the program kept is found again."""
    before = hashlib.sha256(json.dumps([OPENINGS, QUESTIONS, 10_240, 8]).encode()).hexdigest()[:8]
    key = open_corpus("").key(None, quiet, threading.Event())  # type: ignore[arg-type]
    assert cache_path(tmp_path, "f" * 64, 9, 10_240, key).name == f"moments-{'f' * 16}-layer9-{before}.safetensors"


def test_statistics_without_a_checksum_are_read_too(loaded: LoadedModel, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "old.safetensors"
    save_file({"moments": torch.eye(3)}, path, metadata={"n_keys": "7", "contexts": '["A."]'})
    old = load_statistics(path)
    assert old is not None
    assert (old.n_keys, old.contexts) == (7, ("A.",))


# -- stopped and gone on with -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sampled", "file"])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_what_was_cancelled_goes_on_to_the_same_bits(
    loaded: LoadedModel, tmp_path: Path, text_file: Path, kind: str, batch: int
) -> None:
    source = "" if kind == "sampled" else str(text_file)
    whole = made(loaded, tmp_path / "whole", source)[0]
    cancel = threading.Event()
    with pytest.raises(EditCancelledError, match="goes on from here"):
        made(loaded, tmp_path / "cut", source, progress=stopping_at(batch, cancel), cancel=cancel)
    partial = list(files(tmp_path / "cut")) if batch else []
    assert len(partial) == (1 if batch else 0)
    told: list[Progress] = []
    again = made(loaded, tmp_path / "cut", source, progress=told.append)[0]
    counts = [p.done for p in told if p.stage == moments_module.STAGE]
    assert (counts[0] > 0) == (batch > 0)  # not from the beginning
    assert counts == sorted(counts)
    assert counts[-1] == N
    assert torch.equal(again.moments, whole.moments)
    assert again.n_keys == whole.n_keys
    assert again.contexts == whole.contexts
    assert files(tmp_path / "cut") == files(tmp_path / "whole")  # the sum on the way is gone


def test_layers_that_got_differently_far_end_at_the_same_bits(
    loaded: LoadedModel, tmp_path: Path, text_file: Path
) -> None:
    source = str(text_file)
    whole = made(loaded, tmp_path / "whole", source, layers=(0, 2))
    for layer, batch in ((0, 1), (2, 2)):
        cancel = threading.Event()
        with pytest.raises(EditCancelledError):
            made(loaded, tmp_path / "cut", source, layers=(layer,), progress=stopping_at(batch, cancel), cancel=cancel)
    again = made(loaded, tmp_path / "cut", source, layers=(0, 2))
    for layer in (0, 2):
        assert again[layer].n_keys == whole[layer].n_keys
        assert torch.equal(again[layer].moments, whole[layer].moments)


KILLED = """
import os, signal, sys, threading
from pathlib import Path
import torch
from steam_engine import moments, partial_sums
from steam_engine.corpora.registry import open_corpus
torch.set_num_threads(1)
partial_sums.SECONDS = partial_sums.SHARE = 0
folder, source, cache, kill_at = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
told = []
def progress(what):
    if what.stage == moments.STAGE:
        told.append(what.done)
        if len(told) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
loaded = torch.load(folder / "model.pt", weights_only=False)
moments.statistics_of(loaded, [0], 10_000, cache, progress, threading.Event(), open_corpus(source))
print(told[0])
"""


def test_what_was_killed_goes_on_to_the_same_bits(loaded: LoadedModel, tmp_path: Path, text_file: Path) -> None:
    torch.save(loaded, tmp_path / "model.pt")

    def run(cache: str, kill_at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path), str(text_file), str(tmp_path / cache), str(kill_at)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    whole = run("whole", -1)
    assert whole.stdout == "0\n", whole.stderr
    assert run("cut", 3).returncode == -signal.SIGKILL
    assert [name for name in files(tmp_path / "cut") if name.endswith(".partial.safetensors")]
    again = run("cut", -1)
    assert int(again.stdout) > 0, again.stderr
    (name,) = files(tmp_path / "whole")
    assert files(tmp_path / "cut") == [name]
    one, other = load_statistics(tmp_path / "cut" / name), load_statistics(tmp_path / "whole" / name)
    assert one is not None
    assert other is not None
    assert torch.equal(one.moments, other.moments)
    assert (one.n_keys, one.contexts) == (other.n_keys, other.contexts)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "other", "empty"])
def test_a_damaged_sum_is_ignored(loaded: LoadedModel, tmp_path: Path, text_file: Path, damage: str) -> None:
    source = str(text_file)
    whole = made(loaded, tmp_path / "whole", source)[0]
    cancel = threading.Event()
    with pytest.raises(EditCancelledError):
        made(loaded, tmp_path / "cut", source, progress=stopping_at(1, cancel), cancel=cancel)
    (partial,) = (tmp_path / "cut").iterdir()
    data = bytearray(partial.read_bytes())
    if damage == "flipped":
        data[-2] ^= 16  # of the last number; the header is whole
    partial.write_bytes({"truncated": data[:-9], "flipped": data, "other": b"{}" * 99, "empty": b""}[damage])
    told: list[Progress] = []
    again = made(loaded, tmp_path / "cut", source, progress=told.append)[0]
    assert next(p.done for p in told if p.stage == moments_module.STAGE) == 0
    assert torch.equal(again.moments, whole.moments)


def test_sums_are_kept_now_and_then(
    loaded: LoadedModel, tmp_path: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept_at_the_end(seconds: float) -> bool:
        monkeypatch.setattr(partial_sums, "SECONDS", seconds)
        monkeypatch.setattr(partial_sums, "SHARE", 0)
        seen = []

        def look(what: Progress) -> None:
            if what.stage == moments_module.STAGE and what.done == N:
                seen.extend(tmp_path.glob(f"{seconds}/*.partial.safetensors"))

        made(loaded, tmp_path / str(seconds), str(text_file), progress=look)
        return bool(seen)

    assert kept_at_the_end(0)
    assert not kept_at_the_end(1000)


def test_a_disk_that_refuses_is_a_warning(
    loaded: LoadedModel, tmp_path: Path, text_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = made(loaded, tmp_path / "whole", str(text_file))[0]
    (tmp_path / "cache").write_text("a file where a directory should be")
    cancel = threading.Event()
    with caplog.at_level(logging.WARNING), pytest.raises(EditCancelledError):
        made(loaded, tmp_path / "cache", str(text_file), progress=stopping_at(1, cancel), cancel=cancel)
    assert "could not be kept" in caplog.text
    assert torch.equal(made(loaded, tmp_path / "cache", str(text_file))[0].moments, whole.moments)


# -- files --------------------------------------------------------------------------------------------------------


def test_the_cache_knows_text_size_layer_and_tokenizer(loaded: LoadedModel, tmp_path: Path, text_file: Path) -> None:
    cache = tmp_path / "cache"

    def asked(source: Path, **changes: Any) -> int:
        """Files in the cache after the statistics were asked for."""
        made(changes.pop("model", loaded), cache, str(source), **changes)
        return len(files(cache))

    assert asked(text_file, n=300) == 1
    copy = tmp_path / "copy.md"
    copy.write_bytes(text_file.read_bytes())
    assert asked(copy, n=300) == 1  # the content counts, not the name
    assert asked(text_file, n=301) == 2
    assert asked(text_file, n=300, layers=(0, 1)) == 3
    text_file.write_text(words(3000, seed=1), encoding="utf-8")
    assert asked(text_file, n=300) == 4
    other = taught_model("llama").tokenizer
    other = type(other)(tokenizer_object=type(other.backend_tokenizer).from_str(other.backend_tokenizer.to_str()))
    other.backend_tokenizer.normalizer = Lowercase()  # the same vocabulary, and text is cut otherwise
    assert asked(text_file, n=300, model=replace(loaded, tokenizer=other)) == 5
    loaded.tokenizer(["a", "b c d"], padding=True)  # leaves a trace in the tokenizer, which does not count
    assert asked(text_file, n=300) == 5


def test_a_long_file_is_sampled_throughout(loaded: LoadedModel, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("\n".join(f"{i:07d}" for i in range(200_000)), encoding="utf-8")
    n_blocks = -(-path.stat().st_size // BLOCK)
    first = next(open_corpus(str(path)).batches(loaded))
    places = [int(loaded.tokenizer.decode(passage).split()[1]) / 200_000 for passage in first]
    assert len(places) == 16 < n_blocks
    assert [sum(a <= p < a + 0.25 for p in places) for a in (0, 0.25, 0.5, 0.75)] == pytest.approx([4] * 4, abs=1)


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_all_of_a_file_is_used_once_before_it_ends(loaded: LoadedModel, tmp_path: Path, suffix: str) -> None:
    lines = words(2500).splitlines()
    path = tmp_path / f"text{suffix}"
    records = [json.dumps({"text": "\n".join(lines[i : i + 50]), "id": i}) for i in range(0, len(lines), 50)]
    path.write_text("\n".join(lines if suffix == ".txt" else records), encoding="utf-8")
    assert path.stat().st_size > BLOCK
    numbers = [
        int(number)
        for batch in open_corpus(str(path)).batches(loaded)
        for passage in batch
        for number in re.findall(r"^Sentence (\d+):", loaded.tokenizer.decode(passage), re.MULTILINE)
    ]
    assert len(numbers) == len(set(numbers))
    assert len(numbers) > 0.6 * len(lines)  # the others are cut in two, or beyond MAX_TOKENS of this coarse tokenizer


def test_text_that_is_not_ascii_is_cut_between_characters(loaded: LoadedModel, tmp_path: Path) -> None:
    path = tmp_path / "東.txt"
    path.write_text("\ufeff" + "東京は日本の首都です。" * 9000, encoding="utf-8")
    pieces = [p for batch in islice(open_corpus(str(path)).batches(loaded), 5) for p in batch]
    text = "".join(loaded.tokenizer.decode(p[:-3]) for p in pieces)
    assert len(pieces) > 16
    assert set(text) <= set("東京は日本の首都です。\ufffd")
    assert text.count("\ufffd") <= 2 * len(pieces)  # where MAX_TOKENS of single bytes end


def test_pieces() -> None:
    text = " ".join(str(i) for i in range(1000))
    pieces = cut(text)
    assert " ".join(pieces) == text
    assert max(map(len, pieces)) <= PIECE
    assert cut("x" * 1200) == ["x" * PIECE, "x" * PIECE, "x" * 176]
    assert cut(" \n ") == []
    for n in (1, 2, 3, 64, 1000):
        assert sorted(spread(n)) == list(range(n))

    def blocks() -> Iterator[tuple[int, list[str]]]:
        yield 0, ["a" * 1200, "b"]
        yield 1, []
        yield 2, ["c"]

    found = list(rounds(blocks))
    assert sorted(found) == ["a" * 176, "a" * PIECE, "a" * PIECE, "b", "c"]
    assert found[1] == "c"  # one of each block before the second of any


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "does not exist; give a .txt"),
        ("folder", "", "is a directory"),
        ("table.csv", b"a,b", "cannot be read from table.csv; give"),
        ("empty.txt", b"", "is empty; give another"),
        ("latin.txt", b"fine\nfine\ncaf\xe9 noir", r"not UTF-8 text \(line 3\); save it as UTF-8"),
        ("cut.txt", b"fine\ncaf\xc3", r"not UTF-8 text \(line 2\)"),
        ("short.txt", b"The capital of France is Paris. " * 3, r"short.txt is too short: it has \d+ key.*at least 48"),
        ("blank.txt", b" \n" * 500, "too short: it has 0 key vectors"),
        ("bad.jsonl", b'{"text": "a"}\n\nnot json\n', r"Line 3 of .*bad.jsonl is not a JSON object.*\"text\": "),
        ("other.jsonl", b'{"text": "a"}\n{"body": "b"}\n', r"Line 2 of .* has no \"text\""),
        ("number.jsonl", b'{"text": 3}', r"Line 1 of .* has no \"text\" with a string"),
    ],
)
def test_what_cannot_be_used_is_told(
    loaded: LoadedModel, tmp_path: Path, name: str, content: bytes | str | None, message: str
) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    with pytest.raises(CorpusError, match=message):
        made(loaded, tmp_path / "cache", str(path))
    assert not (tmp_path / "cache").exists() or files(tmp_path / "cache") == []


def test_a_text_with_fewer_vectors_than_wanted_is_used_with_a_warning(
    loaded: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "few.txt"
    path.write_text(words(40))
    with caplog.at_level(logging.WARNING):
        few = made(loaded, tmp_path / "cache", str(path))[0]
    assert loaded.arch.d_ff < few.n_keys < N
    assert f"few.txt has {few.n_keys} of the {N} key vectors" in caplog.text
    assert torch.equal(made(loaded, tmp_path / "cache", str(path))[0].moments, few.moments)  # now from the cache


def test_a_file_that_changes_while_it_is_read_is_refused(loaded: LoadedModel, tmp_path: Path, text_file: Path) -> None:
    def change(what: Progress) -> None:
        if what.stage == moments_module.STAGE and what.done == 0:
            text_file.write_text(words(3001), encoding="utf-8")

    with pytest.raises(CorpusError, match=r"was changed while it was read; try again"):
        made(loaded, tmp_path / "cache", str(text_file), progress=change)


def test_reading_a_large_file_can_be_cancelled(loaded: LoadedModel, tmp_path: Path, text_file: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(EditCancelledError):
        made(loaded, tmp_path / "cache", str(text_file), cancel=cancel)


# -- who uses them ------------------------------------------------------------------------------------------------


def test_an_editor_and_the_other_methods_take_the_source(tmp_path: Path, text_file: Path) -> None:
    loaded, cache = taught_model("llama"), tmp_path / "cache"
    settings = replace(SETTINGS, statistics=str(text_file))
    editor = Editor(loaded, tmp_path / "journal", cache, settings)
    editor.apply(capital(), quiet)
    expected = made(taught_model("llama"), tmp_path / "own", str(text_file), n=SETTINGS.moment_tokens)[0]
    assert editor._statistics is not None
    assert torch.equal(editor._statistics.moments, expected.moments)
    assert len(files(cache)) == 1
    for name in ("rome", "memit"):
        one: Any = method(name, taught_model("llama"), cache, quiet, threading.Event(), settings)
        assert isinstance(one, Rome | Memit)
        places: dict[str, Any] = {"layer": 0} if name == "rome" else {"layers": (0,)}
        with replace(one, **places, moment_tokens=SETTINGS.moment_tokens).session():
            pass
        assert len(files(cache)) == 1  # the same statistics


def test_an_editor_without_its_text_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not exist"):
        Editor(taught_model("llama"), tmp_path / "j", tmp_path / "c", replace(SETTINGS, statistics="none.txt"))


# -- datasets -----------------------------------------------------------------------------------------------------


def test_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    path = tmp_path / "a.JSONL"
    path.write_text("{}")
    assert parse_source("") is None
    assert parse_source(str(path)) == FileSource(path)
    assert parse_source("hf:a/b") == DatasetSource("a/b", None, "train")
    assert parse_source("hf:a/b:small") == DatasetSource("a/b", "small", "train")
    assert parse_source("hf:a/b:small:test") == DatasetSource("a/b", "small", "test")
    assert parse_source("hf:a/b::test") == DatasetSource("a/b", None, "test")
    for wrong in ("hf:", "hf::x", "hf:a:b:c:d"):
        with pytest.raises(CorpusError, match="write hf:NAME"):
            parse_source(wrong)


def test_without_the_dataset_library_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CorpusError, match="pip install datasets"):
        parse_source("hf:wikitext")


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> Any:
    return pytest.importorskip("datasets")


@pytest.fixture(params=["parquet file", "parquet directory", "saved", "saved splits"])
def local_dataset(request: pytest.FixtureRequest, datasets: Any, tmp_path: Path) -> str:
    lines = words(3000).splitlines()
    texts = ["\n".join(lines[i : i + 30]) for i in range(0, len(lines), 30)]
    made = datasets.Dataset.from_dict({"text": [*texts, None, ""], "n": list(range(len(texts) + 2))})
    path = tmp_path / "data"
    if request.param == "saved":
        made.save_to_disk(str(path))
    elif request.param == "saved splits":
        datasets.DatasetDict({"train": made}).save_to_disk(str(path))
    else:
        path.mkdir()
        made.to_parquet(str(path / "train.parquet"))
    return f"hf:{path / 'train.parquet' if request.param == 'parquet file' else path}"


def test_a_local_dataset_gives_the_same_bits_after_a_stop(
    loaded: LoadedModel, tmp_path: Path, local_dataset: str
) -> None:
    whole = made(loaded, tmp_path / "whole", local_dataset)[0]
    assert whole.n_keys >= N
    cancel = threading.Event()
    with pytest.raises(EditCancelledError):
        made(loaded, tmp_path / "cut", local_dataset, progress=stopping_at(1, cancel), cancel=cancel)
    assert torch.equal(made(loaded, tmp_path / "cut", local_dataset)[0].moments, whole.moments)
    with pytest.raises(CorpusError, match="cannot be read"):
        made(loaded, tmp_path / "cut", f"{local_dataset}::nosuchsplit")


def test_a_dataset_without_text_and_one_that_is_none(
    loaded: LoadedModel, tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bodies.parquet"
    datasets.Dataset.from_dict({"body": ["a"], "id": [1]}).to_parquet(str(path))
    with pytest.raises(CorpusError, match=r'no column "text"; it has body, id\. Rename one'):
        made(loaded, tmp_path / "cache", f"hf:{path}")
    strange = tmp_path / "some.xyz"
    strange.write_text("a")
    with pytest.raises(CorpusError, match=r"cannot be read: a file must be one of .parquet"):
        made(loaded, tmp_path / "cache", f"hf:{strange}")


def test_a_dataset_of_the_hub_is_known_by_its_revision(
    loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    corpus: Corpus = open_corpus("hf:someone/texts:small:test")

    def key(sha: str) -> Any:
        monkeypatch.setattr("huggingface_hub.dataset_info", lambda name: type("Info", (), {"sha": sha}))
        return corpus.key(loaded, quiet, threading.Event())

    assert key("a" * 40) != key("b" * 40)
    assert key("a" * 40)[:5] == ["dataset", "someone/texts", "a" * 40, "small", "test"]

    def unreachable(name: str) -> None:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr("huggingface_hub.dataset_info", unreachable)
    with pytest.raises(CorpusError, match=r"cannot be read: no route to the hub .*a local copy: hf:DIRECTORY"):
        corpus.key(loaded, quiet, threading.Event())
