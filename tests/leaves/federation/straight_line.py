"""A line that carries parcels within this process, as bytes, to participants that it can start anew or tamper with."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.errors import ChestfedError
from chestfed.data.sites.phantoms import MARKER
from chestfed.learning.engines.messages.wire import Packed
from chestfed.leaves.federation.hospital.participant import Participant
from chestfed.leaves.federation.parcels import LineLost, Parcel
from chestfed.leaves.federation.settings import Hospital, HospitalFile, Leaves, Policy

#: Changes a reply on its way: `tamper(hospital, reply)`.
Tamper = Callable[[str, Parcel], Parcel]


class StraightLine:
    """Answers at once. `away` are hospitals that cannot be reached, the replies of those in `slow` do not come yet;
    `lost` counts breaks that are to come.
    """

    def __init__(self, hospitals: dict[str, Hospital], tamper: Tamper = lambda name, reply: reply) -> None:
        self.hospitals, self.tamper = hospitals, tamper
        self.away: set[str] = set()
        self.slow: set[str] = set()
        self.lost = 0
        self.log: list[str] = []
        self._marks = dict.fromkeys(hospitals, 0)
        self._participants: dict[str, Participant] = {}
        self._numbers, self._replies = itertools.count(), dict[str, Parcel | ChestfedError]()
        self._from: dict[str, str] = {}
        for name in hospitals:
            self.start_anew(name)

    def start_anew(self, name: str) -> None:
        """Forget all that this hospital has not on its disk."""
        self._participants[name] = Participant(self.hospitals[name], self.log.append)
        self._marks[name] += 1

    def set_policy(self, name: str, **policy: Any) -> None:
        """Start a hospital anew with a policy."""
        hospital = self.hospitals[name]
        file = hospital.file.model_copy(update={"policy": Policy(**policy)})
        self.hospitals[name] = replace(hospital, file=file)
        self.start_anew(name)

    def online(self) -> dict[str, str]:
        return {name: str(mark) for name, mark in self._marks.items() if name not in self.away}

    def send(self, name: str, parcel: Parcel, seconds: float) -> str:
        if self.lost:
            raise LineLost("as the test wishes")
        ticket = str(next(self._numbers))
        if name not in self.away:
            reply = self._participants[name](as_sent(parcel))
            self._replies[ticket] = self.tamper(name, as_sent(reply))
            self._from[ticket] = name
        return ticket

    def receive(self, tickets: list[str]) -> dict[str, Parcel | ChestfedError]:
        there = [ticket for ticket in tickets if ticket in self._replies and self._from[ticket] not in self.slow]
        return {ticket: self._replies.pop(ticket) for ticket in there}

    def reconnect(self) -> None:
        self.lost -= 1
        if self.lost:
            raise LineLost("still")

    def close(self) -> None:
        pass


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def as_sent(parcel: Parcel) -> Parcel:
    """What arrives: nothing but text and bytes has passed."""
    arrays = {kind: np.frombuffer(array.tobytes(), array.dtype) for kind, array in parcel.packed.arrays.items()}
    return Parcel(json.loads(json.dumps(parcel.values, allow_nan=False)), Packed(parcel.packed.header, arrays))


def sample_hospital(
    name: str, root: Path, data: Path, leaves: Leaves | None = None, *, synthetic: bool = True
) -> Hospital:
    """One of the sample hospitals, with its folder; if not `synthetic` it has a secret key."""
    site = Path(__file__).parents[3] / "site_configs" / "synthetic" / f"{name}.yaml"
    (root / name).mkdir(parents=True, exist_ok=True)
    if not synthetic:
        copy = root / name / "site.yaml"
        copy.write_text(f"extends: {site}\nsynthetic: false\n")
        site, data = copy, unmarked(data)
    file = HospitalFile(
        hospital=name,
        server="localhost:9443",
        site=str(site),
        data_root=str(data),
        threads=1,
        cache=str(data.parent / "hospital_caches" / name),
        leaves=leaves or Leaves(),
    )
    return Hospital(root / name, file)


def unmarked(data: Path) -> Path:
    """The sample hospitals once more, without the files that mark their folders as synthetic."""
    folder = data.with_name("unmarked_hospitals")
    if not folder.exists():
        shutil.copytree(data, folder, ignore=shutil.ignore_patterns(MARKER))
    return folder
