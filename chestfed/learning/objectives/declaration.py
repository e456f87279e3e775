"""Objectives, and what the file of one declares beside its loss: its kind, its paper, its options.

An objective has no update rule. Besides the network's weights it may own further primal variables (`extra`, stored
behind the weights in the primal vector) and dual variables (`dual`); it says how many. Labels are float32
`[n, diseases]` in {0, 1, NaN}; NaN means missing and is masked, disease by disease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from chestfed.core.plugins import Options, Versioned
from chestfed.learning.abilities import Can

#: Kind of problem that an algorithm must solve; those of leaves and plug-ins have names of their own.
#:
#: minimization     a loss of the weights alone
#: min-max          further primal variables and dual variables, which the algorithm ascends
#: server-weighted  a minimization with an estimate of the server's, sent with the model
ObjectiveKind = str


class Objective(Protocol):
    """A loss as a function of logits, labels and the objective's own variables."""

    @property
    def extra_size(self) -> int:
        """Number of primal variables beside the weights: none, unless a subclass has some."""
        return 0

    @property
    def dual_size(self) -> int:
        """Number of dual variables: 0 for a plain minimization."""
        return 0

    @property
    def gradient_scale(self) -> float:
        """Size of the gradients, where those of cross-entropy are 1: ranges of step sizes are divided by it."""
        return 1.0

    @property
    def shared_shape(self) -> tuple[int, ...]:
        """Shape of what the server sends with the model for the loss, and no client changes: an estimate, scores."""
        return (0,)

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Scalar loss, differentiable in logits, extra and dual.

        With a `shared_shape` there is a fifth argument, these numbers, as a vector.
        """


@runtime_checkable
class Sampled(Protocol):
    """An objective that remembers something of each training row of a client: `memory_size` numbers, 0 at first."""

    @property
    def memory_size(self) -> int:
        """Numbers per row."""

    def sampled_loss(
        self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the new memory of its rows `[n, memory_size]`, given the old one.

        With a `shared_shape` there is a sixth argument, these numbers, as a vector.
        """


@dataclass(frozen=True)
class Outputs:
    """Outputs of a network for a batch: logits `[n, J]`, and the input of its last linear layer `[n, f]`."""

    logits: Tensor
    features: Tensor


@dataclass(frozen=True)
class Seen:
    """Features and other models' outputs, which an objective sees beside the logits.

    `features` `[n, f]` are the input of the network's last linear layer, differentiable. `others` has the outputs of
    other models of the same batch, without gradients, in evaluation mode: `start`, the model that the round started
    from, and `previous`, this client's at the end of its previous round (in the first one `start`).
    """

    features: Tensor
    others: Mapping[str, Outputs]


@runtime_checkable
class Seeing(Protocol):
    """An objective that sees the network's features, and outputs of the `models` that it names."""

    @property
    def models(self) -> tuple[str, ...]:
        """Other models that are run on every batch: `start`, `previous`; none costs nothing."""

    def seen_loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor, seen: Seen) -> Tensor:
        """The loss of a batch, in place of `loss`, which is that without what is seen."""


def shape_shared(objective: object) -> tuple[int, ...]:
    """The objective's `shared_shape`; (0,) for one that does not say it."""
    return tuple(getattr(objective, "shared_shape", (0,)))


def measure_gradients(objective: object) -> float:
    """The objective's `gradient_scale`; 1 for one that does not say it."""
    return float(getattr(objective, "gradient_scale", 1.0))


def count_shared(objective: object) -> int:
    """The numbers in its `shared_shape`."""
    return prod(shape_shared(objective))


def is_normalized(objective: object) -> bool:
    """Whether each disease's loss is divided by p(1-p), so that the curvature of its dual variable is not p(1-p)."""
    return bool(getattr(objective, "normalized", False))


def count_remembered(objective: object) -> int:
    """The numbers that a `Sampled` objective remembers of each row; 0 of another."""
    return objective.memory_size if isinstance(objective, Sampled) else 0


@runtime_checkable
class DualEstimate(Protocol):
    """An objective whose best dual variables have a closed form."""

    def best_dual(self, scores: Tensor, labels: Tensor, dual: Tensor) -> Tensor:
        """The dual variables that maximize the loss of these scores `[n, J]`; NaN where they do not tell."""


@runtime_checkable
class ServerEstimate(Protocol):
    """An objective for which the server estimates what is shared, from auxiliary images."""

    def estimate_shared(self, logits: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Make the numbers `[shared_shape]` of `logits`, `labels` `[n, J]` and the classifier's input `[n, f]`."""


@dataclass(frozen=True)
class Population:
    """Statistics of the labels for an objective.

    `positive_ratio` is the common share of positives per disease, float `[J]`; `site_ratios` that of each client,
    `[K, J]`, 0 without labels; `site` is the number of this one. `labeled` `[K, J]` is the share of each client's
    training rows that has a label.
    """

    positive_ratio: Tensor
    site_ratios: Tensor
    site: int = 0
    labeled: Tensor | None = None

    @property
    def own_ratio(self) -> Tensor:
        """The share of positives per disease at this client, `[J]`."""
        return self.site_ratios[self.site]

    @property
    def own_labeled(self) -> Tensor | None:
        """The share of rows with a label per disease at this client, `[J]`."""
        return None if self.labeled is None else self.labeled[self.site]

    @property
    def diseases(self) -> int:
        """J."""
        return self.positive_ratio.numel()


def labeled_mean(terms: Tensor, labels: Tensor, share: Tensor | None = None) -> Tensor:
    """The mean per disease `[J]` of `terms` `[n, J]` over the images with a label; 0 where there is none.

    With `share`, the client's share of labeled rows `[J]`, the sum is divided by the number of labels that a batch of n
    has on average, not by that of this batch. The mean over all batches is then the mean over all labeled rows; divided
    by its own number, a batch without a label (half of those of 32, where 2% are labeled) would take weight from it.
    """
    known = ~torch.isnan(labels)
    count = known.sum(dim=0) if share is None else len(labels) * share.to(terms)
    return torch.where(known, terms, 0.0).sum(dim=0) / torch.where(count > 0, count, 1.0)


#: The client's next batch: images and labels, on its device; counted by the client.
NextBatch = Callable[[], tuple[Tensor, Tensor]]

#: Callback per pass through the network: its loss, or None, and the gradient that the algorithm steps along, or None.
Note = Callable[[Tensor | None, Tensor | None], None]


class TrainedNetwork(Protocol):
    """The network of a client as a function of its weights."""

    @property
    def size(self) -> int:
        """Number of weights."""

    def call(self, flat: Tensor, images: Tensor) -> Tensor:
        """Logits `[n, J]` with the weights `flat` `[d]`, differentiable in them."""


@dataclass(frozen=True)
class Passes:
    """Network and batches of one client, with which an objective computes gradients of its own.

    Attributes
    ----------
    batches
        The next batch of each sequence: the client's own, then those of `Oracle.streams`.
    note
        To be called once per gradient computed.
    autocast
        Whether the network is to be called in bfloat16.
    randomness
        The block in which the network is called on the batch drawn last: what it draws there is decided by the batch.
    weight_decay
        Coefficient of |w|^2 / 2, which is added to the loss.
    """

    network: TrainedNetwork
    objective: Any
    batches: Sequence[NextBatch]
    note: Note
    autocast: bool
    randomness: Callable[[], AbstractContextManager[None]]
    weight_decay: float


@dataclass(frozen=True)
class Oracle:
    """Gradients of an objective's own, in place of those of `Objective.loss` on a batch.

    `make` gives what the algorithm calls at a client; `blank` answers the same calls with tensors of the right shapes.
    `streams` are the names of further sequences of batches, each through all images in every epoch.
    """

    make: Callable[[Passes], Any]
    blank: Any
    streams: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObjectiveSpec(Versioned):
    """One objective.

    `build(options, population)` makes the loss of one client, an `Objective`; `rule` is its class, so that
    `package.module:Rule` is a reference to this declaration. `version` identifies the code of one that
    stands in no file. `draws` says whether the loss may draw random numbers: the generators are then kept from batch to
    batch, which takes time. An algorithm that trains on it `lacks` these abilities: `Can.OWN_DUALS`, `Can.MEAN_POINT`.
    `oracle` makes gradients of its own. `by_class` says that batches may be drawn by class (`federated.sampling`): with
    another share of positives in every batch, and in the `Population`, it is the same problem.
    """

    name: str
    text: str
    paper: str
    kind: ObjectiveKind
    build: Callable[[Any, Population], Objective]
    options: type[Options] = Options
    rule: type | None = None
    draws: bool = True
    lacks: frozenset[Can] = frozenset()
    oracle: Oracle | None = None
    by_class: bool = False

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the further sequences of batches that a client draws from."""
        return self.oracle.streams if self.oracle else ()
