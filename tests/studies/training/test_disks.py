"""Disks that are full, read-only or gone: one message, and before anything takes time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.studies.training.tiny_studies import command, run


@contextmanager
def free(byte_count: int) -> Iterator[None]:
    """Pretend that a disk has so much room."""
    usage = shutil.disk_usage(".")._replace(free=byte_count)
    with patch("shutil.disk_usage", lambda _: usage):
        yield


def test_bad_output_folder_refused_early(home: Path) -> None:
    (home / "file").write_text("")
    for out in ("file", "file/below"):
        result = run(home, command(out, "--cache", "never"))
        assert (result.code, "Traceback" in result.err) == (1, False)
        assert "--out" in result.err
    result = run(home, command("elsewhere", "--cache", "file/cache", "--no-tracking"))
    assert (result.code, "--cache" in result.err) == (1, True)
    assert not (home / "never").exists()


def test_folder_name_not_utf8_refused(home: Path) -> None:
    result = run(home, command(os.fsdecode(b"r\xfcns"), "--no-tracking"))
    assert result.code == 1
    assert "not UTF-8" in result.err
    assert "--out" in result.err


@pytest.mark.slow_but("1000-1.0 kB---cache")
@pytest.mark.parametrize(("room", "amount", "option"), [(1_000, "1.0 kB", "--cache"), (2_000_000, "2.0 MB", "--out")])
def test_too_little_room_is_reported(home: Path, room: int, amount: str, option: str) -> None:
    cache = "cache-of-no-room" if option == "--cache" else "cache"
    with free(room):
        out = f"no-room{option}"
        big = ["--set", "model.growth_rate=64", "--set", "model.init_features=256"] if option == "--out" else []
        result = run(home, command(out, "--cache", cache, "--no-tracking", *big))
    assert result.code == 1
    assert f"and {amount} are free" in result.err
    assert option in result.err
