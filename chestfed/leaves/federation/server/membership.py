"""Which hospitals take part in a study: who has left, who formed each K, and what each reported of its data.

Kept beside the run folders, because a hospital that has left cannot be asked again, and its counts name the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from chestfed.core.checkpoint import write_json
from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError, TrainingError


class Change(StrictModel, frozen=False):
    """A hospital that left or came back, and where the study stood: at `round` finished rounds of `k`."""

    time: str
    hospital: str
    event: str
    k: int | None = None
    round: int = 0


class MembershipFile(StrictModel, frozen=False):
    """The file: openings by hospital; the hospitals that began each K, and those that left in its middle."""

    openings: dict[str, dict[str, Any]] = Field({})
    departed: list[str] = Field([])
    formed: dict[int, list[str]] = Field({})
    gone: dict[int, list[str]] = Field({})
    changes: list[Change] = Field([])
    heads: dict[str, list[Any]] = Field({})  #: number and hash of the last line of each hospital's log
    late: list[str] = Field([])  #: away when the study began: the run is named without their data


class Membership:
    """The hospitals of one study, in the order of addition; the first is the target, which cannot leave."""

    def __init__(self, file: Path, names: Sequence[str], least: int = 1) -> None:
        self.names, self._file, self._least = tuple(names), file, least
        self.record = MembershipFile()
        if file.exists():
            try:
                self.record = MembershipFile.model_validate_json(file.read_bytes())
            except ValidationError:
                raise ConfigError(
                    f"{file}: damaged. Restore it from a backup, or delete it if no hospital has left",
                    kind="damaged file",
                    file=str(file),
                ) from None

    @property
    def present(self) -> tuple[str, ...]:
        """The hospitals that are asked."""
        return tuple(name for name in self.names if name not in self.record.departed)

    def after(self, leaving: Sequence[str], returning: Sequence[str]) -> tuple[str, ...]:
        """The hospitals that are asked once some have left or come back."""
        departed = (set(self.record.departed) | set(leaving)) - set(returning)
        return tuple(name for name in self.names if name not in departed)

    def change(self, leaving: Sequence[str], returning: Sequence[str]) -> None:
        """Hospitals leave or come back, from where the study stands; `place` records where that is.

        Raises
        ------
        ConfigError
            If one is not of the study, is the target, or too few remain.
        """
        for name in (*leaving, *returning):
            if name not in self.names:
                text = f"'{name}' is not a hospital of this study: {', '.join(self.names)}"
                raise ConfigError(text, kind="unknown hospital", hospital=name)
        if self.names[0] in leaving:
            raise ConfigError(
                f"--without {self.names[0]}: the target has the test images, so there is no study without it",
                kind="target leaves",
                hospital=self.names[0],
            )
        before, after = set(self.record.departed), set(self.names) - set(self.after(leaving, returning))
        if len(self.names) - len(after) < self._least:
            raise ConfigError(
                f"{len(self.names) - len(after)} hospitals remain; faults.least_hospitals in federation.yaml is "
                f"{self._least}",
                kind="too few hospitals",
                needed=self._least,
            )
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        for name in self.names:
            if (name in after) != (name in before):
                event = "left" if name in after else "came back"
                self.record.changes.append(Change(time=now, hospital=name, event=event))
        self.record.departed = [name for name in self.names if name in after]
        self.save()

    def place(self, rounds: Mapping[int, int | None]) -> tuple[Change, ...]:
        """Record where the new changes are: `rounds` are the finished rounds of each K, None of a finished one.

        Returns the changes. A K with rounds keeps the hospitals that began it; those that left are absent from its next
        round on. A K without is formed anew from those present.
        """
        ks = [k for k, done in rounds.items() if done is not None]
        changes = [change for change in self.record.changes if change.k is None]
        for change in changes if ks else []:
            change.k, change.round = ks[0], rounds[ks[0]] or 0
        for k in ks:
            if rounds[k]:
                gone = {*self.record.gone.get(k, []), *self.record.departed} & {*self.record.formed.get(k, self.names)}
                self.record.gone[k] = sorted(gone)
            else:
                self.record.gone.pop(k, None)
                self.record.formed.pop(k, None)
        self.save()
        return tuple(changes)

    def members(self, k: int) -> tuple[str, ...]:
        """The hospitals that began a K, or that are to begin it."""
        return tuple(self.record.formed.get(k, [name for name in self.names[:k] if name in self.present]))

    def form(self, k: int) -> tuple[str, ...]:
        """Record the hospitals that begin a K; those of them that still take part.

        Raises
        ------
        TrainingError
            If they are too few.
        """
        self.record.formed[k] = list(self.members(k))
        gone = self.record.gone.get(k, ())
        active = tuple(name for name in self.members(k) if name not in gone)
        if len(active) < min(self._least, k):
            raise TrainingError(
                f"K={k}: {len(active)} hospitals take part; faults.least_hospitals in federation.yaml is {self._least}",
                kind="too few hospitals",
                needed=self._least,
            )
        self.save()
        return active

    def remember(self, openings: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep what hospitals reported of their data."""
        for name in self.names:
            if name not in openings and name not in self.record.openings and name not in self.record.late:
                self.record.late.append(name)
        self.record.openings |= {name: dict(opening) for name, opening in openings.items()}
        self.save()

    def opening(self, name: str) -> dict[str, Any] | None:
        """Report of a hospital on its data; None: it never took part."""
        return self.record.openings.get(name)

    def digest(self, name: str, digest: str) -> str:
        """The digest of a hospital's data by which the run is named."""
        return "late" if name in self.record.late else digest

    def save(self) -> None:
        """Write the file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._file, self.record.model_dump(mode="json"))
