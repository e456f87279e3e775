"""Checkpoints: exact, atomic, and clear when damaged."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import stat
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors import SafetensorError

from chestfed.core.checkpoint import (
    CHECKSUM,
    SaveTimes,
    load_checkpoint,
    remove_orphans,
    save_checkpoint,
    write_atomically,
    write_json,
)
from chestfed.core.errors import ChestfedError, DamagedError
from tests.cases import assert_refused, each


def test_every_bit_comes_back(tmp_path: Path) -> None:
    tensors = {
        "a": torch.tensor([0.1, -0.0, torch.nan, torch.inf]),
        "b": torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).T,
        "c": torch.zeros((), dtype=torch.int64),
        "d": torch.zeros(0),
    }
    tensors["alias"] = tensors["a"]
    save_checkpoint(tmp_path / "s", tensors, {"step": 3, "history": [{"auc": 0.1 + 0.2}]})
    content, values = load_checkpoint(tmp_path / "s")
    del values[CHECKSUM]
    assert values == {"step": 3, "history": [{"auc": 0.1 + 0.2}]}
    assert set(content) == set(tensors)
    for name, tensor in tensors.items():
        assert content[name].dtype == tensor.dtype
        assert content[name].numpy().tobytes() == tensor.contiguous().numpy().tobytes()
        assert content[name].data_ptr() % 64 == 0  # as torch's own: elsewhere, products of matrices round otherwise


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o027, 0o640), (0o022, 0o644), (0o002, 0o664)])
def test_modes_of_umask_and_owner_are_kept(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_json(tmp_path / "new", {})
        (tmp_path / "old").touch()
        (tmp_path / "old").chmod(0o600)
        write_json(tmp_path / "old", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600


NUMBERS = arrays(st.sampled_from([np.float32, np.float64, np.int64]), array_shapes(min_dims=0, min_side=0, max_side=4))


@given(st.dictionaries(st.text("abc.01", min_size=1), NUMBERS, max_size=4), st.randoms())
def test_flipped_bit_is_never_read(named: dict[str, np.ndarray], chance: Random) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        save_checkpoint(path, {name: torch.from_numpy(array) for name, array in named.items()}, {"step": 7})
        tensors, _ = load_checkpoint(path)
        assert {name: tensor.numpy().tobytes() for name, tensor in tensors.items()} == {
            name: array.tobytes() for name, array in named.items()
        }
        content = bytearray(path.read_bytes())
        for _ in range(10):
            place, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
            content[place] ^= bit
            path.write_bytes(content)
            content[place] ^= bit
            try:
                other, values = load_checkpoint(path)
            except ChestfedError:
                continue
            assert (sorted(other), values.get("step")) == (sorted(named), 7), "read, and not what was written"
            assert all(other[name].numpy().tobytes() == array.tobytes() for name, array in named.items())


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_truncated_checkpoint_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "state.safetensors"
    save_checkpoint(path, {"a": torch.ones(100)}, {"step": 1})
    path.write_bytes(path.read_bytes()[:keep])
    with assert_refused(ChestfedError, "damaged checkpoint", file="state.safetensors"):
        load_checkpoint(path)


def test_altered_bits_are_found(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_checkpoint(path, {"a": torch.arange(7.0), "b": torch.zeros(2, dtype=torch.bfloat16)}, {"step": 1, "t": "é"})
    whole, seen = path.read_bytes(), 0
    sound, values = load_checkpoint(path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            content, others = load_checkpoint(path)
        except DamagedError:
            seen += 1
            continue
        assert (others["step"], others["t"]) == (values["step"], values["t"]), place  # the checksum's own name was hit
        assert all(torch.equal(content[name], tensor) for name, tensor in sound.items()), place
    assert seen > 0.9 * len(whole)


@each(
    ("error", "words"),
    [
        (SafetensorError("I/O error: No space left on device (os error 28)"), "No space left on device"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), os.strerror(errno.EDQUOT)),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), os.strerror(errno.EROFS)),
    ],
)
def test_full_disk_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with assert_refused(ChestfedError, "cannot be written", reason=words) as refused:
        save_checkpoint(tmp_path / "s", {"a": torch.ones(2)}, {})
    assert "earlier file" not in str(refused.value)
    assert ("Free space" in str(refused.value)) == (error.args[0] != errno.EROFS)
    assert list(tmp_path.iterdir()) == []


def test_only_orphans_are_removed(tmp_path: Path) -> None:
    (tmp_path / "k1").mkdir()
    for name in (".table.csv.ab_12.part", "k1/.state.safetensors.x9.part", "k1/result.json", ".lock"):
        (tmp_path / name).write_text("x")
    remove_orphans(tmp_path)
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()) == [
        ".lock",
        "k1/result.json",
    ]


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})

    def full_disk(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with assert_refused(ChestfedError, "cannot be written", reason="No space left on device") as refused:
        write_atomically(path, full_disk)
    assert "earlier file is kept" in str(refused.value)
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_unwritable_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file/x.json", "file/below/x.json"):
        with assert_refused(ChestfedError, "cannot be written"):
            write_json(tmp_path / place, {})


def test_json_refuses_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def save_for_ever(path: Path, pipe: Connection) -> None:
    torch.set_num_threads(1)  # a fork hangs in several threads if its parent has computed in several
    for step in itertools.count():
        save_checkpoint(path, {"a": torch.full((400_000,), float(step))}, {"step": step})
        pipe.send(step)


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is a POSIX signal")
def test_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    fork = multiprocessing.get_context("fork")  # a new interpreter would import torch
    for times in (1, 3, 7):
        here, there = fork.Pipe(duplex=False)
        process = fork.Process(target=save_for_ever, args=(path, there))
        process.start()
        there.close()
        assert [here.recv() for _ in range(times)] == list(range(times))
        process.kill()
        process.join()
        tensors, values = load_checkpoint(path)
        assert (tensors["a"] == values["step"]).all()


def test_saves_take_a_hundredth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    def waits(seconds: float) -> bool:
        nonlocal now
        now += seconds - 1
        early, now = times.due, now + 1
        return not early and times.due

    def write(takes: float) -> None:
        nonlocal now
        now += takes

    times = SaveTimes()
    assert waits(60)
    for takes, seconds in ((3, 300), (0.1, 60)):
        times.save(partial(write, takes))
        assert waits(seconds)
