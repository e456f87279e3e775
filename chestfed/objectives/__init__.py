"""Training objectives: a loss as a function of logits, labels and the objective's own variables.

An objective has no update rule. Besides the network's weights it may own further primal variables (`extra`,
stored behind the weights in the primal vector) and dual variables (`dual`); it says how many. Labels are
float32 `[n, diseases]` in {0, 1, NaN}; NaN means missing and is masked, disease by disease.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Objective(Protocol):
    """What the engine needs of an objective."""

    @property
    def extra_size(self) -> int:
        """Number of primal variables beside the weights."""
        ...

    @property
    def dual_size(self) -> int:
        """Number of dual variables, 0 for a plain minimisation."""
        ...

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Scalar loss, differentiable in logits, extra and dual."""
        ...
