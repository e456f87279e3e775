"""Mixing at the server: its new point is (1 - m) times the old one plus m times the one that its own step made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pydantic import Field

from chestfed.plugins import Can, Demand, Step, StepSpec


@dataclass(frozen=True)
class Mixed(Step):
    """A mean of the server's old and new point."""

    share: float
    key: ClassVar[str] = "server_mixing"
    place = "server"

    @property
    def demand(self) -> Demand:
        """The algorithm has duals of its own, and a client sends one message a round."""
        return Demand(self.key, frozenset({Can.ROBUST, Can.ONE_MESSAGE, Can.OWN_DUALS}))

    def describe(self) -> str:
        """The line of a dry run."""
        return f"server mixing: {self.share:g} of the new point"

    def move(self, before: Any, after: Any, kept: Any) -> tuple[Any, Any]:
        """Primal and dual variables move a share of the way."""
        primal, dual = (getattr(before, name).lerp(getattr(after, name), self.share) for name in ("primal", "dual"))
        return replace(after, primal=primal, dual=dual), kept


def build(values: Mapping[str, Any], seed: int = 0) -> Mixed | None:
    """The step; None where the key has the value that means without it."""
    share = values["server_mixing"]
    return None if share == 1 else Mixed(share)


MIXING = StepSpec(
    "server_mixing",
    "a mean of the server's old and new point",
    {"server_mixing": (float, Field(1.0, gt=0, le=1, description="share of the new point; 1: the new point alone"))},
    build,
)
