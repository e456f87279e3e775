"""Failures while the cache is filled: what is lost in that run and in the next, and what is decoded needlessly."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chestfed.core.processes.workers import parallel_map
from chestfed.data.images import cache, file_store
from chestfed.data.images.cache import fill_cache
from chestfed.data.images.levels import Stored
from chestfed.data.images.preprocess import Preprocess
from tests.data.images.test_cache import Table, make_site

PREPROCESS = Preprocess()


def _fill(table: Table, folder: Path, error: Exception | None = None, times: int = 10**9) -> tuple[int, int]:
    """Images lost, and films decoded; every tenth film fails so often."""
    seen: list[str] = []
    original = cache.prepare_image

    def decoding(path: Path, *how: Any) -> np.ndarray:
        seen.append(path.name)
        if error is not None and int(path.stem) % 10 == 3 and seen.count(path.name) <= times:
            raise error
        return original(path, *how)

    cache.prepare_image = decoding
    try:
        images = fill_cache(table, folder / "cache", PREPROCESS, workers=1, skip_unreadable=True)
    finally:
        cache.prepare_image = original
    images.read(np.flatnonzero(images.records >= 0))
    return len(images.quarantined), len(seen)


def _failing(error: Exception, times: int, table: Table, folder: Path) -> tuple[int, int, int]:
    """An error in a first run; what the second needs beyond the films that the first lost is needless."""
    lost, _ = _fill(table, folder, error, times)
    later, decoded = _fill(table, folder)
    return lost, later, decoded - lost


def _lethal(path: Path, stored: Stored) -> Any:
    if int(path.stem) % 40 == 3 and path.parent.with_name("kill").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return cache._prepare_one(PREPROCESS, path, stored)


def _killed(table: Table, folder: Path) -> tuple[int, int, int]:
    """Decoding processes are killed, as by a lack of memory."""
    (table.root / "kill").touch()
    original, kind = cache.pixels, cache.pixels(PREPROCESS)
    cache.pixels = lambda _: kind._replace(work=_lethal)
    file_store.parallel_map = partial(parallel_map, small=1)  # in processes of their own, however few images
    try:
        images = fill_cache(table, folder / "cache", PREPROCESS, workers=2, skip_unreadable=True)
    finally:
        cache.pixels, file_store.parallel_map = original, parallel_map
    later, decoded = _fill(table, folder)
    return len(images.quarantined), later, decoded - len(images.quarantined)


def _changed(change: Callable[[Table], Table], table: Table, folder: Path) -> tuple[int, int, int]:
    lost, _ = _fill(table, folder)
    later, decoded = _fill(change(table), folder)
    return lost, later, decoded


def _moved(table: Table) -> Table:
    return replace(table, root=table.root.rename(table.root.with_name("moved")))


def _copied(table: Table) -> Table:
    place = shutil.copytree(table.root, table.root.with_name("copy"), copy_function=shutil.copyfile)
    return replace(table, root=Path(place))


def _touched(table: Table) -> Table:
    for file in (table.root / "images").iterdir():
        os.utime(file, (1, 1))
    return table


def _renamed(table: Table) -> Table:
    names = [name.replace("/", "/renamed ") for name in table.frame["image"]]
    for old, new in zip(table.frame["image"], names, strict=True):
        (table.root / old).rename(table.root / new)
    return replace(table, frame=table.frame.assign(image=names))


#: What is done, and how many of 14 images are lost in that run.
CASES: dict[str, tuple[Callable[[Table, Path], tuple[int, int, int]], int]] = {
    "I/O error, once per image": (partial(_failing, OSError(errno.EIO, "Input/output error"), 1), 0),
    "I/O error during a whole run": (partial(_failing, OSError(errno.EIO, "Input/output error"), 10**9), 2),
    "no memory during a whole run": (partial(_failing, OSError(errno.ENOMEM, "Cannot allocate memory"), 10**9), 2),
    "access denied during a whole run": (
        partial(_failing, PermissionError(errno.EACCES, "Permission denied"), 10**9),
        2,
    ),
    "decoders killed": (_killed, 1),
    "images copied without times": (partial(_changed, _copied), 0),
    "images touched": (partial(_changed, _touched), 0),
    "images renamed": (partial(_changed, _renamed), 0),
    "folder moved": (partial(_changed, _moved), 0),
}


# `test_a_killed_decoder_costs_one_image` is the case of killed decoders with four images.
@pytest.mark.slow_but(
    "I/O error, once per image", "access denied during a whole run", "images touched", "images renamed", "folder moved"
)
@pytest.mark.parametrize("case", CASES)
def test_failures_lose_nothing_for_good(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_store, "_PAUSES", (0.0, 0.0))
    fail, expected = CASES[case]
    lost, lost_later, needless = fail(make_site(tmp_path, 14, "{}.png", (352, 352)), tmp_path)
    assert (lost, lost_later, needless) == (expected, 0, 0)
