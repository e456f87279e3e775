"""Seconds per round, apart from what is the same in every run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chestfed.results.tables import files as round_times
from chestfed.results.tables.files import RoundTimes, read_round_times


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Set its only value to let time pass."""
    now = [100.0]
    monkeypatch.setattr(round_times.time, "monotonic", lambda: now[0])
    return now


def test_round_is_timed_from_the_last_pause(tmp_path: Path, clock: list[float]) -> None:
    times = RoundTimes(tmp_path / "seconds.jsonl", resumed=False)
    clock[0] += 2
    times.reached(1)
    clock[0] += 50  # reporting, tracking
    times.next_round()
    clock[0] += 3
    times.reached(2)
    assert read_round_times(tmp_path / "seconds.jsonl") == {1: 2.0, 2: 3.0}


def test_resumed_rounds_have_their_last_time(tmp_path: Path, clock: list[float]) -> None:
    file = tmp_path / "seconds.jsonl"
    file.write_text("".join(json.dumps({"round": n, "seconds": 9.0}) + "\n" for n in (1, 2)))
    times = RoundTimes(file, resumed=True)
    times.reached(1)  # the state of round 1 was loaded
    times.next_round()
    clock[0] += 4
    times.reached(2)
    assert read_round_times(file) == {1: 9.0, 2: 4.0}


def test_torn_line_or_missing_file_skipped(tmp_path: Path) -> None:
    file = tmp_path / "seconds.jsonl"
    assert read_round_times(file) == {}
    file.write_text('{"round": 1, "seconds": 2.5}\n{"round": 2, "sec')
    assert read_round_times(file) == {1: 2.5}
