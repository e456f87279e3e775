"""`chestfed federation audit`: what `hospital.log` says was asked of this hospital, answered and refused."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from chestfed.core.errors import ChestfedError
from chestfed.leaves.federation.parcels import shown_in_line

LOG = "hospital.log"


@dataclass
class StudyAudit:
    """The requests of one study: numbers by kind, rounds by K, bytes, seconds, and what was not answered, with why."""

    study: str
    title: str = ""
    approval: str = ""  #: the digest that the hospital approved it by, or would have
    first: str = ""
    last: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    rounds: Counter[int] = field(default_factory=Counter)
    received: int = 0
    sent: int = 0
    seconds: float = 0.0
    unanswered: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)

    def add(self, entry: dict[str, Any]) -> None:
        """Take in one line of the log."""
        self.first, self.last = self.first or entry["time"], entry["time"]
        self.approval = entry.get("approval", self.approval)
        self.requests[entry["request"]] += 1
        if entry.get("record") in ("Work", "Steps") and entry["outcome"] == "answered":
            self.rounds[entry["k"]] += 1
        self.received += entry["received"]
        self.sent += entry.get("sent", 0)
        self.seconds += entry.get("seconds", 0.0)
        if entry["outcome"] != "answered":
            self.unanswered[entry["outcome"]] += 1
        else:
            self.fields.update(f"{entry['request']}: {name}" for name in entry.get("left", ()))

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        counters = {key: dict(value) for key, value in vars(self).items() if isinstance(value, Counter)}
        return {**vars(self), **counters, "seconds": round(self.seconds, 1)}

    def lines(self, *, fields: bool = False) -> list[str]:
        """As sentences; with `fields` also what left, by request and name."""
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.requests.items())
        rounds = ", ".join(f"{count} with K={k}" for k, count in sorted(self.rounds.items())) or "none"
        lines = [
            f"study {self.study}: {self.title or 'not agreed upon'}",
            *([f"  its digest for --approve: {self.approval}"] if self.approval else []),
            f"  from {self.first} to {self.last}; requests: {kinds}",
            f"  local rounds answered: {rounds}",
            f"  {self.sent / 1e6:,.2f} MB left, {self.received / 1e6:,.2f} MB came; {self.seconds:,.0f} s computed",
            *(f"  not answered {count} times: {reason}" for reason, count in self.unanswered.most_common()),
            *(f"  left {count} times: {name}" for name, count in self.fields.items() if fields),
        ]
        return list(map(shown_in_line, lines))


@dataclass
class Audit:
    """Findings on a log: its studies, `problems` in words, and number and hash of its last line.

    `missed` are the requests that have no line, by kind; `claims`, in words, lines that a greeting named otherwise than
    they are here: the server's log may be right, or the server have invented them.
    """

    studies: list[StudyAudit]
    problems: list[str]
    lines: int
    head: str
    missed: Counter[str]
    claims: list[str]


def link(head: str, line: dict[str, Any]) -> str:
    """The hash of a line, from that of the line before; also of the order of its keys."""
    return hashlib.sha256(f"{head} {json.dumps(line)}".encode()).hexdigest()


def list_files(state: Path) -> list[Path]:
    """The files of a log, the oldest first."""
    full = [file for file in state.glob(f"{LOG}.*") if file.suffix[1:].isdecimal()]
    return [*sorted(full, key=lambda file: int(file.suffix[1:])), state / LOG]


def audit(state: Path, seen: Sequence[tuple[int, str]] = ()) -> Audit:
    """The log of a state folder: its studies, by their first requests, and lines that are not as they were written.

    `seen` are lines, by number and hash, that somebody else has seen: a server, in its `federation.jsonl`. Where they
    are others here, that is a problem; of those that came with greetings, which any server can invent, a claim.

    Raises
    ------
    ChestfedError
        If there is no log.
    """
    files = [file for file in list_files(state) if file.exists()]
    if not files:
        raise ChestfedError(f"{state / LOG}: no log; nothing was asked of this hospital yet", kind="no log")
    studies, problems, known = dict[str, StudyAudit](), list[str](), dict[int, str]()
    greeted, number, head, missed = list[Any](), 0, "", Counter[str]()
    for file in files:
        # bytes: reading as text takes CR, and CR LF, for the end of a line too
        *texts, torn = file.read_bytes().decode(errors="replace").split("\n")
        for place, text in enumerate(texts, start=1):
            try:
                entry = json.loads(text)
                chain, line = entry.pop("chain"), int(entry["line"])
                if line > number + 1:
                    problems.append(f"{file.name}, line {place}: lines {number + 1} to {line - 1} are missing")
                elif line <= number:
                    problems.append(f"{file.name}, line {place}: line {line} is in the wrong place, or there again")
                elif link(head, entry) != chain or json.dumps({**entry, "chain": chain}) != text:
                    problems.append(f"{file.name}, line {place}: line {line} or the one before was altered")
                number, head = line, chain
                known[number] = head
                greeted += [tuple(entry["seen"])] if "seen" in entry else []
                if "missed" in entry:
                    missed[str(entry["kind"])] += int(entry["missed"])
                if "request" in entry:
                    digest = entry.get("study", "unknown")
                    studies.setdefault(digest, StudyAudit(digest, _title(state / digest))).add(entry)
            except (ValueError, KeyError, TypeError, AttributeError):
                problems.append(f"{file.name}, line {place}: not a line of this log")
        if torn:
            reason = (
                "by a kill, without power or on a full disk, or it was cut off; the next line that is written says so"
            )
            problems.append(f"{file.name}, line {len(texts) + 1}: line {number + 1} was begun and not ended: {reason}")
    problems += _compare(seen, known, "which --head names")
    claims = _compare(greeted, known, "which a greeting names")
    return Audit(list(studies.values()), problems, number, head, missed, claims)


def _compare(seen: Sequence[tuple[int, str]], known: Mapping[int, str], who: str) -> list[str]:
    """List the lines that were seen as they are not in the log."""
    return [
        f"line {line}, {who} as {str(chain)[:16]}, {'was altered' if line in known else 'is missing'}"
        for line, chain in dict.fromkeys(seen)
        if line and known.get(line) != chain
    ]


def _title(folder: Path) -> str:
    file = folder / "pipeline.yaml"
    return str(yaml.safe_load(file.read_text(encoding="utf-8")).get("title", "")) if file.exists() else ""
