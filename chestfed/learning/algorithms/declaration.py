"""Declaration of an algorithm beside its rule: where it comes from, what it sends, what it takes, its options."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from chestfed.core.plugins import Options, Versioned
from chestfed.learning.abilities import Can
from chestfed.learning.algorithms.variables import Rule
from chestfed.learning.objectives.declaration import ObjectiveKind

#: Where it ends with heterogeneous clients and a constant step: at the optimum whatever the window, only with a window
#: of 1, or not.
Exact = Literal["any window", "window 1", "no"]

#: Number of local steps of a round: `window`; one; or one, on `window` batches at once.
Pace = Literal["window", "every step", "large batch"]

#: Slices of the weights' vector `[d]`, by the name of the group that they hold; see `Setting`.
Groups = Mapping[str, tuple[slice, ...]]


@dataclass(frozen=True)
class ClientInfo:
    """The client that a rule is built for: its number, its training rows, and its weight in a mean."""

    number: int
    rows: int
    weight: float


class UnknownGroups(Groups):
    """The groups of a network that is not known: asking for one is a mistake of the caller."""

    def __getitem__(self, name: str) -> tuple[slice, ...]:
        raise TypeError(f"the group '{name}' of an unknown network: give Setting its `groups`")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class Setting:
    """Values that the rule of one stage is built from, at one client or at the server.

    Attributes
    ----------
    window
        I, local steps between two communications: of this client in this round, where clients differ.
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
    client
        The client that the rule is for; None at the server.
    groups
        Slices of the weights `primal[:d]`: `classifier` (the last layer), `normalization` (scales and shifts of
        normalization layers) and `features` (all others). Together they are all weights, each once.
    seed
        Of training: for random draws of the server. A client draws from `gradients.stream`.
    shared
        Shape of what the server sends for the objective, see `Objective.shared_shape`.
    normalized
        Whether the objective divides each disease's loss by p(1-p).
    """

    window: int
    local_lr: float
    lr_factor: float = 1.0
    clients: int = 1
    positive_ratio: Tensor | None = None
    degree: int = 0
    returns_average: bool = True
    client: ClientInfo | None = None
    groups: Groups = field(default_factory=UnknownGroups)
    seed: int = 0
    shared: tuple[int, ...] = (0,)
    normalized: bool = False


def _no_steps(options: object) -> Sequence[Any]:
    return ()


@dataclass(frozen=True)
class AlgorithmSpec(Versioned):
    """One algorithm; what a declaration leaves out is as for FedAvg.

    Attributes
    ----------
    name, title, paper, where
        The name in configurations; for people; who published it; the lines or equations there.
    family
        The kind of problem, under which it is listed.
    takes
        Kinds of objectives that it can train on.
    objective
        Name of the objective that it trains on unless the configuration says another.
    sends
        Numbers that a client sends per round, d being the weights, C those of the classifier, N those of normalization
        layers, J the diseases and P the numbers that are shared: "2(d + 3J)". Without a server: per message. A function
        where it depends on the options.
    bytes_sent
        Bytes of an update, a function of options and `Sizes`, where `sends` is not all: a compressed update.
    steps
        Steps of the exchange that belong to it, from its options: `chestfed.plugins.Step`.
    gradients
        Gradients that a client takes per round, I being its local steps and F the batches of a full pass: "2I + F". A
        function where it depends on the options.
    sent
        In words, what these numbers are.
    variant
        The algorithm whose update rule this is, and what is set otherwise; empty for a rule of its own.
    exact, note
        Where it ends, see `Exact`; and any remark.
    options
        The model of its own options.
    build
        Makes the rule of a stage from options and setting: an `Algorithm`, or what its layout runs.
    rule
        The class of the rule; `package.module:Rule` is then a reference to this declaration.
    layout
        Makes a `Layout` from options and the number of clients, which then send to each other; None: there is a server.
    pooled
        A reference that holds all images in one place and sends nothing.
    pace
        Local steps per round.
    can
        What it can beside what all can, see `Can`: `AVERAGING` is FedAvg's. ROBUST: the server's step takes nothing of
        the updates but their weighted mean, and nobody relies on its being the mean exactly, as control variates do;
        clients send new values, not changes.
        SOME_CLIENTS: what the server keeps stays what it should be in a round without some, by means over those who
        answered, or by the rule's `partial_round`. OWN_POINTS: the rule is `Personal`; with SERVER_POINT beside a
        complete model of the server, else images of no client are scored with the weighted mean of the clients' points.
        SCORES: it reads `logits`, `labels` or `remembered`, and clients send scores, which a hospital's policy may
        forbid.
    version
        Identifies the code of a declaration that stands in no file, as in a notebook: change it with the code.
    """

    name: str
    title: str
    paper: str
    where: str
    build: Callable[[Any, Setting], Rule]
    family: str = "minimization"
    takes: tuple[ObjectiveKind, ...] = ("minimization",)
    objective: str = "cross_entropy"
    sends: str | Callable[[Any], str] = "d"
    sent: str = "w"
    exact: Exact = "no"
    options: type[Options] = Options
    rule: type | None = None
    note: str = ""
    variant: str = ""
    layout: Callable[[Any, int], Any] | None = None
    pooled: bool = False
    pace: Pace = "window"
    can: frozenset[Can] = frozenset()
    gradients: str | Callable[[Any], str] = "I"
    bytes_sent: Callable[[Any, Sizes], int] | None = None
    steps: Callable[[Any], Sequence[Any]] = _no_steps

    @property
    def has_server(self) -> bool:
        """Whether clients send to a server, not to each other."""
        return self.layout is None

    def formula(self, options: Options | None = None) -> str:
        """`sends` under these options, or the default ones."""
        return self.sends if isinstance(self.sends, str) else self.sends(options or self.options())

    def describe_gradients(self, options: Options | None = None) -> str:
        """`gradients` under these options, or the default ones."""
        return self.gradients if isinstance(self.gradients, str) else self.gradients(options or self.options())


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network and its task, as the formulas of a declaration have them."""

    d: int  #: weights
    J: int  #: diseases
    C: int = 0  #: weights of the classifier
    N: int = 0  #: weights of normalization layers
    itemsize: int = 4  #: bytes of a number
    P: int = 0  #: numbers that the server sends for the objective

    @classmethod
    def of(cls, weights: int, diseases: int, groups: Groups, itemsize: int = 4, shared: int = 0) -> Sizes:
        """For a network whose groups are known."""
        classifier, norms = (
            sum(cut.stop - cut.start for cut in groups[key]) for key in ("classifier", "normalization")
        )
        return cls(weights, diseases, classifier, norms, itemsize, shared)


def numbers_sent(formula: str, sizes: Sizes) -> int:
    """A formula such as "2(d + 3J)" for a network of these sizes.

    Raises
    ------
    ValueError
        If it holds anything but numbers, d, J, C, N, P, +, - and products.
    """
    return evaluate(formula, {"d": sizes.d, "J": sizes.J, "C": sizes.C, "N": sizes.N, "P": sizes.P})


def evaluate(formula: str, known: Mapping[str, int]) -> int:
    """The value of a formula of numbers, these letters, +, - and products, such as "2I + F".

    Raises
    ------
    ValueError
        If it holds anything else.
    """
    letters = "".join(known)
    explicit = re.sub(rf"(?<=[\d{letters})])\s*(?=[{letters}(])", "*", formula.replace(" ", ""))
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
        raise ValueError(f"not a formula in {', '.join(known)}: '{formula}'") from None


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
        "curvature of each disease's alpha (with a normalized objective by 1/J), so that rare diseases move as fast as "
        "common ones",
    )

    def dual_step_size(self, setting: Setting) -> float | Tensor:
        """The step size of alpha in a stage: a number, or one per disease `[J]`."""
        dual_lr = setting.local_lr if self.dual_lr is None else self.dual_lr * setting.lr_factor
        if self.dual_step == "gradient":
            return dual_lr
        assert setting.positive_ratio is not None
        p = setting.positive_ratio
        curvature = p * (1 - p)
        if setting.normalized:
            curvature = (curvature > 0).to(p)
        curvature = (curvature / p.shape[-1]).flatten()
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
