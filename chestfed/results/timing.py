"""Seconds per communication round, in `kN/seconds.jsonl`: one line per round, written when it is done.

They are not in `rounds.jsonl` because they differ between runs, while everything there is reproducible.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

SECONDS = "seconds.jsonl"


class RoundTimes:
    """The clock of one K, which starts on construction.

    If `resumed`, the run goes on from a saved state: the first `reached` names its last round, which is not timed.
    """

    def __init__(self, file: Path, *, resumed: bool) -> None:
        self._file = file
        self._resumed = resumed
        self._start = time.monotonic()

    def reached(self, number: int) -> None:
        """Round `number` (from 1) is done: write its duration."""
        if self._resumed:
            self._resumed = False
            return
        entry = {"round": number, "seconds": round(time.monotonic() - self._start, 4)}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def next_round(self) -> None:
        """The next round begins now."""
        self._start = time.monotonic()


def read_round_times(file: Path) -> dict[int, float]:
    """Seconds by round; empty without the file, as after a resumed last round.

    A round repeated after an interruption has its last time. A half-written line, as after a power cut, is skipped.
    """
    if not file.is_file():
        return {}
    found: dict[int, float] = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            found[int(entry["round"])] = float(entry["seconds"])
        except (ValueError, KeyError, TypeError):
            continue
    return found
