"""Paired measurement: all cases in turn, many times, so that a busy machine slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any


def paired(
    cases: Mapping[str, Callable[[], object]],
    *,
    count: int = 1,
    unit: str = "call",
    repeats: int = 7,
    wall: bool = False,
) -> dict[str, Any]:
    """Ratios to the first case, and milliseconds of each per `unit`, of which a call has `count`.

    A ratio is the median over the turns of another case's time by the first one's, measured right after each other.
    Time is that of all threads of this process on the processor, or, with `wall`, that of the clock.
    """
    clock = time.perf_counter if wall else time.process_time
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(repeats + 1):
        names = list(cases) if turn % 2 else list(cases)[::-1]
        for name in names:
            begin = clock()
            cases[name]()
            if turn:  # the first turn warms up
                times[name].append(1000 * (clock() - begin) / count)
    first = next(iter(cases))
    return {
        "ratios": {
            f"{name} / {first}": round(median(b / a for a, b in zip(times[first], times[name], strict=True)), 2)
            for name in list(cases)[1:]
        },
        f"ms per {unit}": {name: round(median(found), 4) for name, found in times.items()},
        "time": "clock" if wall else "processor",
    }
