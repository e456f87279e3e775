"""The parts of a compositional gradient from a network: g, the gradient of f at g, and its way back through g.

The network is called as a function of its parameters, so that the graph of g's own gradient stays valid while the
network is evaluated elsewhere, at h.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from chestfed.plugins import NextBatch, Note, TrainedNetwork

if TYPE_CHECKING:
    from chestfed.leaves.compositional.objective import CompositionalAuc


class BlankComposition:
    """`CompositionalGradients` of the right shapes, whatever their values."""

    def inner(self, x: Tensor) -> Tensor:
        """Return x."""
        return x

    def outer(self, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        return h, y

    def pull_back(self, q: Tensor) -> Tensor:
        """Return q."""
        return q


@dataclass
class NetworkComposition:
    """`CompositionalGradients` of a network on a client's batches."""

    network: TrainedNetwork
    objective: CompositionalAuc
    next_inner: NextBatch  #: draws the client's next batch for g
    next_outer: NextBatch  #: and for f
    note: Note  #: called once per gradient computed: those of g and f, and a Hessian-vector product each count as one
    autocast: bool
    #: The block in which the network is called on the batch drawn last: what it draws there is decided by the batch.
    randomness: Callable[[], AbstractContextManager[None]] = nullcontext
    weight_decay: float = 0.0  #: coefficient of |w|^2 / 2, which is added to f(g(x))
    weights: Tensor = field(init=False)  #: of the last call of `inner`
    slope: Tensor = field(init=False)  #: the gradient of the cross-entropy there

    def inner(self, x: Tensor) -> Tensor:
        """g(x) = (w - rho grad L_CE(w), a, b) on the next batch."""
        images, labels = self.next_inner()
        exact = self.objective.hvp == "exact"
        size = self.network.size
        self.weights = x[:size].detach().clone().requires_grad_()
        none = x[:0]
        loss = self.objective.inner.loss(self._logits(self.weights, images), labels, none, none)
        (self.slope,) = torch.autograd.grad(loss, self.weights, create_graph=exact)
        self.note(None, None)
        return torch.cat([x[:size] - self.objective.rho * self.slope.detach(), x[size:]])

    def outer(self, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the AUC loss of the network at h, by h and by alpha, on the next batch."""
        images, labels = self.next_outer()
        point, alpha = h.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()
        size = self.network.size
        loss = self.objective.loss(self._logits(point, images), labels, point[size:], alpha)
        gradient, dual_gradient = torch.autograd.grad(loss, (point, alpha))
        self.note(loss.detach(), None)
        return gradient, dual_gradient

    def pull_back(self, q: Tensor) -> Tensor:
        """(q_w - rho H q_w, q_a, q_b) with H the Hessian of the cross-entropy on the last batch of `inner`."""
        size = self.network.size
        if self.objective.hvp == "exact":
            (product,) = torch.autograd.grad(self.slope, self.weights, grad_outputs=q[:size])
            q = torch.cat([q[:size] - self.objective.rho * product, q[size:]])
        if self.weight_decay:
            q = torch.cat([q[:size] + self.weight_decay * self.weights.detach(), q[size:]])
        self.note(None, q)
        return q

    def _logits(self, flat: Tensor, images: Tensor) -> Tensor:
        # The fast kernels of attention have no second derivative; this one has.
        attention = sdpa_kernel(SDPBackend.MATH) if self.objective.hvp == "exact" else nullcontext()
        autocast = torch.autocast(images.device.type, torch.bfloat16, enabled=self.autocast)
        with self.randomness(), attention, autocast:
            logits = self.network.call(flat, images)
        return logits.float() if self.autocast else logits
