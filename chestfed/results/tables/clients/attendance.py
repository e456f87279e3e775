"""Who trained a model: its clients, those that missed rounds, and those that had left before it began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from chestfed.results.tables.run_folder import ROUNDS, RunFolder

if TYPE_CHECKING:
    from chestfed.results.tables.frames import Results

#: At most so many added clients are named.
_NAMED = 3


class Attendance(TypedDict):
    """The clients that began a K, in the order of addition, and in how many of its `rounds` those were that missed any.

    Of several training seeds and splits over all of their rounds.
    """

    k: int
    clients: list[str]
    rounds: int
    partly: dict[str, int]


def read_attendance(runs: Sequence[RunFolder], k: int) -> Attendance:
    """The attendance at a finished K of these runs."""
    clients = dict.fromkeys(name for run in runs for name in run.row(k).clients)
    rounds = [entry for run in runs if (run.folder(k) / ROUNDS).is_file() for entry in run.rounds(k)]
    missed = Counter(name for entry in rounds for name in entry.get("absent", ()))
    partly = {name: len(rounds) - missed[name] for name in clients if missed[name]}
    return {"k": k, "clients": list(clients), "rounds": len(rounds), "partly": partly}


def describe_added(before: Attendance | None, now: Attendance) -> str:
    """The clients that a K adds to those of the one before, and which of all of them were not there in every round.

    `bert; clara in 5 of 30 rounds; without dora`.
    """
    known, partly = before["clients"] if before else [], now["partly"]
    added = [name for name in now["clients"] if name not in known]
    always = [name for name in added if name not in partly]
    lost = [name for name in known if name not in now["clients"]]
    whole = (", ".join(always) if len(always) <= _NAMED else f"{len(always)} clients") if added else "nobody"
    parts = [whole, *_list_gaps(now), f"without {', '.join(lost)}" if lost else ""]
    return "; ".join(filter(None, parts))


def describe_gaps(attendance: Attendance) -> str:
    """The clients that missed rounds: `clara in 5 of 30 rounds`; empty if none did."""
    return ", ".join(_list_gaps(attendance))


def count_added(results: Results, first: int, last: int) -> int:
    """Clients that train at the K `last` and not at `first`."""
    at = find_attendance(results)
    if first not in at or last not in at:  # a table of an earlier release
        return last - first
    return len(set(at[last]["clients"]) - set(at[first]["clients"]))


def find_attendance(results: Results) -> dict[int, Attendance]:
    """The attendance of each K; empty where methods are compared, and of tables of earlier releases."""
    return {one["k"]: one for one in results.about.get("attendance", [])}


def is_complete(attendance: Attendance | None) -> bool:
    """Whether the first K clients trained, in every round."""
    return attendance is None or (len(attendance["clients"]) >= attendance["k"] and not attendance["partly"])


def list_incomplete(attendances: Iterable[Attendance]) -> list[str]:
    """Sentences without a period on the K of which not every client was there in every round."""
    texts = []
    for one in attendances:
        few = f"{len(one['clients'])} of {one['k']} took part: {', '.join(one['clients'])}"
        parts = [few] if len(one["clients"]) < one["k"] else []
        parts += _list_gaps(one)
        texts += [f"K={one['k']}: {', '.join(parts)}"] if parts else []
    return texts


def takes_part(hospital: Mapping[str, Any], now: Attendance, every: Sequence[Attendance]) -> bool:
    """Whether a hospital is among those that a K began with; a site that is several clients has none of its name."""
    is_client = any(hospital["name"] in one["clients"] for one in every)
    return now["k"] >= hospital["joins"] and (not is_client or hospital["name"] in now["clients"])


def _list_gaps(attendance: Attendance) -> list[str]:
    return [f"{name} in {count} of {attendance['rounds']} rounds" for name, count in attendance["partly"].items()]
