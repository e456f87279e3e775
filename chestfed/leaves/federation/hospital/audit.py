"""`chestfed federation audit`: what `hospital.log` says was asked of this hospital, answered and refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from chestfed.core.errors import ChestfedError

LOG = "hospital.log"


@dataclass
class StudyAudit:
    """The requests of one study: numbers by kind, rounds by K, bytes, seconds, and what was not answered, with why."""

    study: str
    title: str = ""
    first: str = ""
    last: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    rounds: Counter[int] = field(default_factory=Counter)
    received: int = 0
    sent: int = 0
    seconds: float = 0.0
    unanswered: Counter[str] = field(default_factory=Counter)

    def add(self, entry: dict[str, Any]) -> None:
        """Take in one line of the log."""
        self.first, self.last = self.first or entry["time"], entry["time"]
        self.requests[entry["request"]] += 1
        if entry.get("record") in ("Work", "Steps") and entry["outcome"] == "answered":
            self.rounds[entry["k"]] += 1
        self.received += entry["received"]
        self.sent += entry.get("sent", 0)
        self.seconds += entry.get("seconds", 0.0)
        if entry["outcome"] != "answered":
            self.unanswered[entry["outcome"]] += 1

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        counters = {key: dict(value) for key, value in vars(self).items() if isinstance(value, Counter)}
        return {**vars(self), **counters, "seconds": round(self.seconds, 1)}

    def lines(self) -> list[str]:
        """As sentences."""
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.requests.items())
        rounds = ", ".join(f"{count} with K={k}" for k, count in sorted(self.rounds.items())) or "none"
        return [
            f"study {self.study}: {self.title or 'not agreed upon'}",
            f"  from {self.first} to {self.last}; requests: {kinds}",
            f"  local rounds answered: {rounds}",
            f"  {self.sent / 1e6:,.2f} MB left, {self.received / 1e6:,.2f} MB came; {self.seconds:,.0f} s computed",
            *(f"  not answered {count} times: {reason}" for reason, count in self.unanswered.most_common()),
        ]


def audit(state: Path) -> list[StudyAudit]:
    """The studies in the log of a state folder, in the order of their first requests.

    Raises
    ------
    ChestfedError
        If there is no log, or a line of it cannot be read.
    """
    files = sorted(state.glob(f"{LOG}.*"), key=lambda file: int(file.suffix[1:]), reverse=True)
    files += [state / LOG]
    if not files[-1].exists():
        raise ChestfedError(f"{files[-1]}: no log; nothing was asked of this hospital yet", kind="no log")
    studies = dict[str, StudyAudit]()
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                entry = json.loads(line)
                if "request" in entry:
                    digest = entry.get("study", "unknown")
                    studies.setdefault(digest, StudyAudit(digest, _title(state / digest))).add(entry)
            except (ValueError, KeyError, TypeError):
                raise ChestfedError(
                    f"{file}, line {number}: not a line of this log; was it edited?", kind="damaged log", row=number
                ) from None
    return list(studies.values())


def _title(folder: Path) -> str:
    file = folder / "pipeline.yaml"
    return str(yaml.safe_load(file.read_text(encoding="utf-8")).get("title", "")) if file.exists() else ""
