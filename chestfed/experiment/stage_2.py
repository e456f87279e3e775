"""The schema of stage 2 in a pipeline: the algorithm, its hyper-parameters, its stages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from chestfed.core.config import StrictModel
from chestfed.engines.topology import NamedGraph
from chestfed.experiment.catalogue import BY_NAME, algorithms_for, names_of

AlgorithmName = Literal[
    "codasca",
    "coda_plus",
    "coda",
    "npa",
    "npa_large_batch",
    "local_scgdam",
    "local_sgdam",
    "local_sgda",
    "local_sgdm",
    "local_sgdm_ratio",
    "scaffold",
    "fedprox",
    "fedavg",
    "pdmm",
    "admm",
    "gossip",
    "centralised",
]
ObjectiveName = Literal["auc", "compositional_auc", "cross_entropy", "ratio_loss"]

Edge = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]

#: The algorithms without a server, and those that average the iterates of a stage.
PEER_ALGORITHMS = names_of("without a server")
AVERAGING = ("coda_plus", "coda", "npa", "npa_large_batch")


@dataclass(frozen=True)
class Stage:
    """One stage: its window, its whole rounds, and the factor on the step sizes."""

    window: int
    rounds: int
    lr_factor: float


class Federated(StrictModel):
    """Stage 2: federated training. Names in brackets are the papers' symbols; `chestfed algorithms` lists the choice.

    The experiments of the source paper keep window and stage length and divide the step sizes; its Theorems 1 and 2
    let all three change geometrically: `lr_decay`, `stage_growth` and `window_growth` of the same size.
    """

    algorithm: AlgorithmName = Field("codasca", description="the method; see `chestfed algorithms`")
    objective: ObjectiveName | None = Field(
        None, description="what is trained on; null: the algorithm's own (see `chestfed algorithms`)"
    )
    positive_ratio: Literal["common", "client"] = Field(
        "common",
        description="p of the AUC loss: one for all clients, which makes the weighted losses that of the pooled data; "
        "or each client's own, another problem, as an ablation",
    )
    communication: Literal["published", "minimal"] = Field(
        "published",
        description="CODASCA's messages: with control variates (2d each way), or without (d each way; equal up to "
        "rounding)",
    )
    window: int = Field(
        32,
        ge=1,
        description="local steps per round [I]; npa communicates after every step, npa_large_batch after every step "
        "on this many batches at once",
    )
    window_growth: float = Field(1.0, ge=1, description="the window is multiplied by this after each stage")
    local_lr: float = Field(0.1, gt=0, description="step size of v at the clients [eta_l]")
    dual_lr: float | None = Field(None, gt=0, description="step size of alpha; null: local_lr")
    dual_step: Literal["gradient", "preconditioned"] = Field(
        "gradient",
        description="gradient: alpha steps along its gradient; preconditioned: the step is divided by p(1-p)/J, "
        "the curvature of each disease's alpha, so that rare diseases move as fast as common ones",
    )
    server_lr: Annotated[float, Field(gt=0)] | Literal["sqrt_k"] = Field(
        1.0, description="server step [eta_g] of CODASCA and SCAFFOLD; sqrt_k: the square root of the number of clients"
    )
    prox: float = Field(
        1e-3,
        ge=0,
        description="coefficient of the proximal term: lambda, towards the stage's start; FedProx's mu, "
        "towards the round's",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="beta of LocalSGDM")
    inner_lr: float = Field(0.1, ge=0, description="LocalSCGDAM: step along the cross-entropy inside the AUC [rho]")
    inner_rate: float = Field(0.9, gt=0, le=1, description="LocalSCGDAM: rate of the moving average h [alpha eta]")
    momentum_rate: float = Field(
        0.1, gt=0, le=1, description="LocalSCGDAM, LocalSGDAM: rate of the gradient averages [beta eta]"
    )
    hvp: Literal["exact", "drop"] = Field(
        "exact", description="LocalSCGDAM: the Hessian-vector product of the inner step, or none, as an ablation"
    )
    ratio_alpha: float = Field(1.0, ge=0, description="Ratio Loss: weight of a class is alpha + beta R")
    ratio_beta: float = Field(0.1, ge=0, description="Ratio Loss: beta")
    auxiliary: int = Field(
        16,
        ge=1,
        description="Ratio Loss: images per disease and class, of the first client's training images, that the server "
        "looks at once per round",
    )
    topology: NamedGraph | list[Edge] = Field(
        "ring",
        description="without a server: ring, star, complete, a list of edges (pairs of node numbers from 0), or a file "
        "with an edge per line, relative to the pipeline's file; it is replaced by its edges when it is read",
    )
    exchange: Literal["synchronous", "random_edge", "round_robin"] = Field(
        "synchronous", description="without a server: the edges that exchange after the local steps"
    )
    eta: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        1.0, description="weight of the dual variables of PDMM and ADMM; auto: the tuning-free formula"
    )
    rho: float = Field(0.1, ge=0, description="weight of the neighbours' points in PDMM and ADMM; 0 halves the traffic")
    batch_size: int = Field(32, ge=1, description="images per client and step")
    large_batch: int = Field(8, ge=1, description="batches from which CODA estimates alpha between two stages")
    weights: Literal["uniform", "images"] = Field(
        "uniform",
        description="weight of a client in every mean: 1/K (the paper), or its share of the training rows",
    )
    stages: int = Field(3, ge=1, description="number of stages; without a server all their steps are one stage")
    stage_steps: int = Field(1000, ge=1, description="local steps per stage [T0], to the nearest whole round")
    stage_growth: float = Field(1.0, ge=1, description="stage_steps is multiplied by this after each stage")
    lr_decay: float = Field(3.0, ge=1, description="step sizes are divided by this after each stage")
    returned: Literal["last", "average", "random_round"] | None = Field(
        None,
        description="the point that a stage returns: its last; the average of all iterates (CODA+, CODA, NPA); that of "
        "a round drawn at random, as in the analysis; null: average for CODA+, CODA and NPA, else last",
    )

    @model_validator(mode="after")
    def _options_suit_the_algorithm(self) -> Self:
        if self.returned == "average" and self.algorithm not in AVERAGING:
            raise ValueError(f"returned: average is for {', '.join(AVERAGING)}; {self.algorithm} has no such average")
        if self.algorithm != "codasca" and self.communication == "minimal":
            raise ValueError(f"communication: minimal is for codasca; {self.algorithm} has one form of messages")
        possible = BY_NAME[self.algorithm].objectives
        if self.objective is not None and self.objective not in possible:
            raise ValueError(
                f"objective: {self.objective} does not go with {self.algorithm}, which takes {' or '.join(possible)}; "
                f"{self.objective} goes with {', '.join(algorithms_for(self.objective))}"
            )
        return self

    @property
    def trains_on(self) -> str:
        """The objective: the one that is set, or the algorithm's own."""
        return self.objective or BY_NAME[self.algorithm].objectives[0]

    @property
    def batches_per_step(self) -> int:
        """Batches that a client takes at once in a local step: 1, but for NPA with large batches."""
        return self.window if self.algorithm == "npa_large_batch" else 1

    @property
    def images_per_step(self) -> int:
        """Images that a client sees per local step; centralised, per client whose images were moved."""
        return self.batch_size * self.batches_per_step

    @property
    def rounds_per_window(self) -> int:
        """Rounds in which a client takes `window` steps: 1, but for NPA."""
        return self.window if self.algorithm == "npa" else 1

    @property
    def schedule(self) -> tuple[Stage, ...]:
        """The stages. Without a server they are one, at the first's step size, for dual variables live on the edges.

        A stage is whole rounds and ends as near as they come to where it should, counted from the start of training:
        what one stage is too long by, the next is shorter by, so that the whole is not off by more than half a window,
        unless a stage is shorter than its window, for it has one round at least.
        """
        planned, wanted, done = [], 0.0, 0
        for number in range(self.stages):
            window = round(self.window * self.window_growth**number)
            if self.algorithm in ("npa", "npa_large_batch"):
                window = 1
            wanted += self.stage_steps * self.stage_growth**number
            rounds = _nearest(wanted - done, window * self.batches_per_step)
            done += rounds * window * self.batches_per_step
            planned.append(Stage(window, rounds, self.lr_decay**-number))
        if self.algorithm in PEER_ALGORITHMS:
            return (Stage(self.window, _nearest(wanted, self.window), 1.0),)
        return tuple(planned)

    @property
    def wanted_steps(self) -> int:
        """Local steps that the stages should have together, in batches of one client; whole rounds may miss it."""
        return round(sum(self.stage_steps * self.stage_growth**number for number in range(self.stages)))

    @property
    def batches(self) -> int:
        """Batches that one client takes over all stages: what `wanted_steps` asks for, in whole rounds."""
        return self.steps * self.batches_per_step

    @property
    def rounds(self) -> int:
        """Rounds over all stages."""
        return sum(stage.rounds for stage in self.schedule)

    @property
    def steps(self) -> int:
        """Local steps of one client over all stages."""
        return sum(stage.rounds * stage.window for stage in self.schedule)


def _nearest(steps: float, window: int) -> int:
    """Rounds of `window` steps that come nearest to `steps`, one at least; half a round is rounded up."""
    return max(1, math.floor(steps / window + 0.5))
