"""What a campaign is made of: cases with a name, each tried for itself, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults.children import Ended


@dataclass(frozen=True)
class Result:
    """What came of a case: why it fell, if it did; what was done, counted; and the most that one thing took."""

    why: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One fault. Its name says which: a campaign that is started again leaves out those whose names went well."""

    name: str
    attempt: Callable[[], Result]


@dataclass(frozen=True)
class Campaign:
    """Where everything happens, the output folder of an undisturbed study there, and how much is asked for."""

    home: Path
    sound: Path
    kills: int = 100
    stores: int = 20
    flips: int = 50
    pictures: int = 4000


Part = Callable[[Campaign], Iterator[Case]]


def told(ended: Ended, codes: tuple[int, ...] = (0, 1, 2)) -> str:
    """Why a command ended otherwise than with its work done or with one message; nothing if it did not."""
    return "" if ended.told and ended.code in codes else f"exit {ended.code}: {ended.text[-300:]}"


def as_row(case: Case, result: Result, seconds: float, commit: str) -> dict[str, Any]:
    """A case in the file of a campaign; what is empty is left out."""
    row = {"case": case.name, **asdict(result), "seconds": round(seconds, 1), "commit": commit}
    return {key: value for key, value in row.items() if value or key == "seconds"}


def in_words(rows: list[dict[str, Any]]) -> str:
    """What a table says of the cases of a part: how many, what was done to them, and the most that anything took."""
    counts: dict[str, int] = {}
    most: dict[str, float] = {}
    for row in rows:
        for key, value in row.get("counts", {}).items():
            counts[key] = counts.get(key, 0) + value
        for key, value in row.get("most", {}).items():
            most[key] = max(most.get(key, 0.0), value)
    fell = sum(bool(row.get("why")) for row in rows)
    words = [f"{len(rows)} cases", *(f"{value:,} {key}" for key, value in counts.items())]
    words += [f"at most {value:g} {key}" for key, value in most.items()]
    return f"{', '.join(words)} | {'all' if not fell else f'{len(rows) - fell}'} good"
