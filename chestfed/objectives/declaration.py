"""What an objective's file declares beside its loss: its kind, its paper, its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from chestfed.core.plugins import Options

#: What an algorithm must be able to do with it.
#:
#: minimization     a loss of the weights alone
#: min-max          further primal variables and dual variables, which the algorithm ascends
#: compositional    a loss at a point that the network reaches by a step of its own
#: server-weighted  a minimization whose dual variables are the server's own estimate, sent with the model
ObjectiveKind = Literal["minimization", "min-max", "compositional", "server-weighted"]


@dataclass(frozen=True)
class Population:
    """What an objective may know of the labels.

    `positive_ratio` is the common share of positives per disease, `own_ratio` this client's, both float `[J]`.
    """

    positive_ratio: Tensor
    own_ratio: Tensor

    @property
    def diseases(self) -> int:
        """J."""
        return self.positive_ratio.numel()


@dataclass(frozen=True)
class ObjectiveSpec:
    """One objective.

    `build(options, population)` makes the loss of one client, an `Objective`; `rule` is its class, so that
    `package.module:Rule` is a reference to this declaration.
    """

    name: str
    text: str
    paper: str
    kind: ObjectiveKind
    build: Callable[[Any, Population], Any]
    options: type[Options] = Options
    rule: type | None = None
