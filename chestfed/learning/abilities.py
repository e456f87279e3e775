"""Abilities of an algorithm, as a set: settings ask for them, and take some from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Can(Enum):
    """An ability; its value is what a setting that needs it says of one without it."""

    # What a declaration states.
    ROBUST = "another mean of the updates than the exact one"
    SOME_CLIENTS = "rounds without some clients"
    UNEQUAL_STEPS = "different numbers of local steps"
    UNEQUAL_STEPS_OF_SOME = "different numbers of local steps in rounds without some clients"
    OWN_POINTS = "a point per client"
    SERVER_POINT = "a complete model at the server beside points of clients"
    SCORES = "scores of single images, which clients send"

    # What follows from these and from the objective.
    ONE_POINT = "one point for all clients"
    OWN_DUALS = "dual variables of the algorithm's own, not the server's estimate"
    MEAN_POINT = "a next stage that may begin at a mean of points"

    # What every algorithm has, unless a setting takes it.
    EACH = "every update by itself"
    NUMBERS = "updates as plain numbers"
    PLAIN_MEAN = "the mean of the updates"
    ONE_MESSAGE = "one message of a client per round"
    ALL_CLIENTS = "all clients in every round"
    FIXED_WEIGHTS = "the same weights in every round"
    EQUAL_WEIGHTS = "clients that count alike"


#: Abilities of every algorithm.
COMMON: Final = frozenset(
    {
        Can.EACH,
        Can.NUMBERS,
        Can.PLAIN_MEAN,
        Can.ONE_MESSAGE,
        Can.ALL_CLIENTS,
        Can.FIXED_WEIGHTS,
        Can.EQUAL_WEIGHTS,
    }
)

#: Rounds without some clients, and clients with unequal steps, in every combination.
ANY_ROUND: Final = frozenset({Can.SOME_CLIENTS, Can.UNEQUAL_STEPS, Can.UNEQUAL_STEPS_OF_SOME})
#: FedAvg's: the server's step takes nothing of the updates but a mean of new values, not changes.
AVERAGING: Final = ANY_ROUND | {Can.ROBUST}


@dataclass(frozen=True)
class Demand:
    """Abilities that a setting under `key` needs, and those that others then lack, with the reason."""

    key: str
    needs: frozenset[Can] = frozenset()
    takes: Mapping[Can, str] = field(default_factory=dict)


def find_conflicts(
    name: str, can: frozenset[Can], demands: Sequence[Demand], list_able: Callable[[Can], Sequence[str]]
) -> Iterator[str]:
    """Why settings do not go together: key, reason.

    `name` is the algorithm, which `can` so much beside what all have; `list_able` gives others that have an ability.
    """
    for demand in demands:
        for ability in sorted(demand.needs, key=list(Can).index):
            if ability not in can | COMMON:
                reason = f"{demand.key}: needs {ability.value}, which {name} does not have"
                others = list_able(ability)
                yield f"{reason}; {', '.join(others)} and plug-ins with Can.{ability.name} do" if others else reason
            for other in demands:
                if other is not demand and ability in other.takes:
                    yield f"{demand.key}: needs {ability.value}; not with {other.key}: {other.takes[ability]}"
