"""Lines that whoever sends requests may cause in a log, by the hour."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

#: Lines of one kind in an hour.
MOST = 100


class Allowance:
    """So many lines in an hour; further ones are counted."""

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.time) -> None:
        self._most, self._clock = most, clock
        self._hour, self._taken, self._missed = 0, 0, 0

    def take(self) -> bool:
        """Whether one more line may be written."""
        hour = int(self._clock() // 3600)
        if hour != self._hour:
            self._hour, self._taken = hour, 0
        self._taken += 1
        self._missed += self._taken > self._most
        return self._taken <= self._most

    def is_over(self) -> bool:
        """Whether the hour has ended in which the last line was asked for."""
        return int(self._clock() // 3600) != self._hour

    def missed(self) -> int:
        """The lines that were not written since this was last asked."""
        missed, self._missed = self._missed, 0
        return missed


class Hourly(logging.Filter):
    """Passes so many records of a logger in an hour; the next one says how many were left out."""

    def __init__(self, allowance: Allowance | None = None) -> None:
        super().__init__()
        self._allowance = allowance or Allowance()

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        if not self._allowance.take():
            return False
        if missed := self._allowance.missed():
            record.msg, record.args = f"{record.getMessage()} (before it {missed:,} further ones)", ()
        return True
