"""What an algorithm's file declares beside its rule: where it comes from, what it sends, what it takes, its options."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from chestfed.algorithms.variables import Rule
from chestfed.core.plugins import Options, Versioned
from chestfed.objectives.declaration import ObjectiveKind

Family = Literal["min-max AUC", "compositional", "minimization", "decentralized", "reference"]

#: Where it ends with heterogeneous clients and a constant step: at the optimum whatever the window, only with a window
#: of 1, or not.
Exact = Literal["any window", "window 1", "no"]

#: How many local steps a round has: `window`; one; or one, on `window` batches at once.
Pace = Literal["window", "every step", "large batch"]

#: Graphs that have a name; see `chestfed.engines.topology`.
NamedGraph = Literal["ring", "star", "complete"]

Edge = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


@dataclass(frozen=True)
class Setting:
    """What the rule of one stage is built for.

    Attributes
    ----------
    window
        I, local steps between two communications.
    local_lr
        Step size of the primal variables in this stage.
    lr_factor
        This stage's factor on step sizes, already in `local_lr`; an option that is a step size is multiplied by it.
    clients
        K.
    positive_ratio
        p, float `[J]`: the common share of positives per disease; `[K, J]` where each site has dual variables.
    degree
        Largest number of neighbors of a node; 0 with a server.
    returns_average
        False where a stage returns another point than the algorithm's own, so that no average of its own is needed.
    """

    window: int
    local_lr: float
    lr_factor: float = 1.0
    clients: int = 1
    positive_ratio: Tensor | None = None
    degree: int = 0
    returns_average: bool = True


@dataclass(frozen=True)
class AlgorithmSpec(Versioned):
    """One algorithm.

    Attributes
    ----------
    name, title, family, paper, where
        The name in configurations; for people; the kind of problem; who published it; the lines or equations there.
    takes
        Kinds of objectives that it can train on.
    objective
        Name of the objective that it trains on unless the configuration says another.
    sends
        Numbers that a client sends per round, d being the weights and J the diseases: "2(d + 3J)".
        Decentralized: per edge and direction. A function where it depends on the options.
    sent
        In words, what these numbers are.
    variant
        The algorithm whose update rule this is, and what is set otherwise; empty for a rule of its own.
    exact, note
        Where it ends, see `Exact`; and anything that should be said beside it.
    options
        The model of its own options.
    build
        Makes the rule of a stage from options and setting: an `Algorithm`, or a `PeerAlgorithm` if decentralized.
    rule
        The class of the rule; `package.module:Rule` is then a reference to this declaration.
    decentralized
        Nodes of a graph, no server; the options are `DecentralizedOptions`.
    pooled
        A reference that holds all images in one place and sends nothing.
    pace
        Local steps per round.
    samples_clients
        Whether a round may have some of the clients only (`federated.clients_per_round`), as in its paper.
    averages
        Whether the server's step takes nothing of the updates but their weighted mean, and nobody relies on its being
        the mean exactly, as control variates do: `federated.aggregation` may then put a robust one in its place.
    partial_rounds
        Whether a round may go on without a client that does not answer (`federated.absent`): what the server keeps
        stays what it should be, by means over those who answered, or by the rule's `partial_round`.
    version
        Identifies the code of a declaration that stands in no file, as in a notebook: change it with the code.
    """

    name: str
    title: str
    family: Family
    paper: str
    where: str
    takes: tuple[ObjectiveKind, ...]
    objective: str
    sends: str | Callable[[Any], str]
    sent: str
    exact: Exact
    build: Callable[[Any, Setting], Rule]
    options: type[Options] = Options
    rule: type | None = None
    note: str = ""
    variant: str = ""
    decentralized: bool = False
    pooled: bool = False
    pace: Pace = "window"
    samples_clients: bool = False
    averages: bool = False
    partial_rounds: bool = False

    def formula(self, options: Options | None = None) -> str:
        """`sends` under these options, or the default ones."""
        return self.sends if isinstance(self.sends, str) else self.sends(options or self.options())


def numbers_sent(formula: str, weights: int, diseases: int) -> int:
    """A formula such as "2(d + 3J)" for d weights and J diseases.

    Raises
    ------
    ValueError
        If it holds anything but numbers, d, J, +, - and products.
    """
    explicit = re.sub(r"(?<=[\dJd)])\s*(?=[Jd(])", "*", formula.replace(" ", ""))
    known = {"d": weights, "J": diseases}
    operations = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}

    def value(node: ast.AST) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return known[name]
            case ast.BinOp(left=left, op=op, right=right):
                return operations[type(op)](value(left), value(right))
        raise KeyError(node)

    try:
        return value(ast.parse(explicit, mode="eval").body)
    except (KeyError, SyntaxError):
        raise ValueError(f"not a formula in d and J: '{formula}'") from None


class MinMaxOptions(Options):
    """Step size of the dual variables."""

    dual_lr: float | None = Field(
        None,
        gt=0,
        description="step size of alpha; null: local_lr",
        json_schema_extra={"search": [0.01, 1.0, "log"]},
    )
    dual_step: Literal["gradient", "preconditioned"] = Field(
        "gradient",
        description="gradient: alpha follows its gradient; preconditioned: the step is divided by p(1-p)/J, the "
        "curvature of each disease's alpha, so that rare diseases move as fast as common ones",
    )

    def dual_step_size(self, setting: Setting) -> float | Tensor:
        """The step size of alpha in a stage: a number, or one per disease `[J]`."""
        dual_lr = setting.local_lr if self.dual_lr is None else self.dual_lr * setting.lr_factor
        if self.dual_step == "gradient":
            return dual_lr
        assert setting.positive_ratio is not None
        p = setting.positive_ratio
        curvature = (p * (1 - p) / p.shape[-1]).flatten()
        return dual_lr / torch.where(curvature > 0, curvature, 1.0)


class ProximalOptions(MinMaxOptions):
    """With a proximal term towards the start of the stage."""

    prox: float = Field(
        1e-3, ge=0, description="coefficient of the proximal term towards the start of the stage [lambda]"
    )


class ServerStepOptions(Options):
    """With a step of the server along the clients' mean change."""

    server_lr: Annotated[float, Field(gt=0)] | Literal["sqrt_k"] = Field(
        1.0, description="the server's step [eta_g]; sqrt_k: the square root of the number of clients"
    )

    def server_step_size(self, setting: Setting) -> float:
        """eta_g for this number of clients."""
        return setting.clients**0.5 if self.server_lr == "sqrt_k" else self.server_lr


class DecentralizedOptions(Options):
    """The graph, and which of its edges exchange."""

    topology: NamedGraph | list[Edge] = Field(
        "ring",
        description="ring, star, complete, a list of edges (pairs of node numbers from 0), or a file with one "
        "edge per line, relative to the pipeline's file and replaced by its edges when read",
    )
    exchange: Literal["synchronous", "random_edge", "round_robin"] = Field(
        "synchronous",
        description="edges that exchange messages after the local steps. synchronous: all; random_edge: one at "
        "random; round_robin: one in turn",
    )
