"""What the engine needs of an objective.

An objective has no update rule. Besides the network's weights it may own further primal variables (`extra`, stored
behind the weights in the primal vector) and dual variables (`dual`); it says how many. Labels are float32
`[n, diseases]` in {0, 1, NaN}; NaN means missing and is masked, disease by disease.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor


class Objective(Protocol):
    """A loss as a function of logits, labels and the objective's own variables."""

    @property
    def extra_size(self) -> int:
        """Number of primal variables beside the weights."""
        ...

    @property
    def dual_size(self) -> int:
        """Number of dual variables, 0 for a plain minimization."""
        ...

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Scalar loss, differentiable in logits, extra and dual."""
        ...


@runtime_checkable
class DualEstimate(Protocol):
    """An objective whose best dual variables have a closed form."""

    def best_dual(self, scores: Tensor, labels: Tensor, dual: Tensor) -> Tensor:
        """The dual variables that maximize the loss of these scores `[n, J]`; `dual` where nothing is known."""
        ...
