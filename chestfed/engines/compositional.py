"""The parts of a compositional gradient from a network: g, the gradient of f at g, and its way back through g.

The network is called as a function of its parameters, so that the graph of g's own gradient stays valid while the
network is evaluated elsewhere, at h.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from chestfed.models import FlatModule
from chestfed.objectives.compositional import CompositionalAuc

#: The client's next batch: images and labels, on its device; counted by the client.
NextBatch = Callable[[], tuple[Tensor, Tensor]]

#: Told of a pass through the network: its loss, or None, and the gradient that the algorithm steps along, or None.
Note = Callable[[Tensor | None, Tensor | None], None]


class NetworkComposition:
    """`CompositionalGradients` of a network on a client's batches.

    Parameters
    ----------
    next_inner, next_outer
        Draw the client's next batch for g and for f.
    note
        Called once per gradient computed: those of g and f, and a Hessian-vector product each count as one.
    randomness
        The block in which the network is called on the batch drawn last: what it draws there is decided by the batch.
    """

    def __init__(
        self,
        network: FlatModule,
        objective: CompositionalAuc,
        next_inner: NextBatch,
        next_outer: NextBatch,
        note: Note,
        *,
        autocast: bool,
        randomness: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._network = network
        self._objective = objective
        self._next_inner, self._next_outer = next_inner, next_outer
        self._note = note
        self._autocast = autocast
        self._randomness = randomness
        self._weights = torch.zeros(0)
        self._slope = torch.zeros(0)

    def inner(self, x: Tensor) -> Tensor:
        """g(x) = (w - rho grad L_CE(w), a, b) on the next batch."""
        images, labels = self._next_inner()
        exact = self._objective.hvp == "exact"
        size = self._network.size
        self._weights = x[:size].detach().clone().requires_grad_()
        none = x[:0]
        loss = self._objective.inner.loss(self._logits(self._weights, images), labels, none, none)
        (self._slope,) = torch.autograd.grad(loss, self._weights, create_graph=exact)
        self._note(None, None)
        return torch.cat([x[:size] - self._objective.rho * self._slope.detach(), x[size:]])

    def outer(self, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the AUC loss of the network at h, by h and by alpha, on the next batch."""
        images, labels = self._next_outer()
        point, alpha = h.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()
        size = self._network.size
        loss = self._objective.loss(self._logits(point, images), labels, point[size:], alpha)
        gradient, dual_gradient = torch.autograd.grad(loss, (point, alpha))
        self._note(loss.detach(), None)
        return gradient, dual_gradient

    def pull_back(self, q: Tensor) -> Tensor:
        """(q_w - rho H q_w, q_a, q_b) with H the Hessian of the cross-entropy on the last batch of `inner`."""
        if self._objective.hvp == "exact":
            size = self._network.size
            (product,) = torch.autograd.grad(self._slope, self._weights, grad_outputs=q[:size])
            q = torch.cat([q[:size] - self._objective.rho * product, q[size:]])
        self._note(None, q)
        return q

    def _logits(self, flat: Tensor, images: Tensor) -> Tensor:
        # The fast kernels of attention have no second derivative; this one has.
        attention = sdpa_kernel(SDPBackend.MATH) if self._objective.hvp == "exact" else nullcontext()
        autocast = torch.autocast(images.device.type, torch.bfloat16, enabled=self._autocast)
        with self._randomness(), attention, autocast:
            logits = self._network.call(flat, images)
        return logits.float() if self._autocast else logits
