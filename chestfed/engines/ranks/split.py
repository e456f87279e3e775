"""One client's batches over all ranks: each computes the gradient on a slice, and rank 0 has that of the whole.

Rank 0 alone keeps weights and optimizer; the others are sent the weights before every step. So there is one state to
save, and it cannot differ between ranks. The loss must be a sum over the images of a batch, divided by a number that
depends on no image: that of `labeled_mean` with a share is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from chestfed.engines.client import NetworkClient
from chestfed.engines.ranks.link import Link

_END = -1  # in place of the number of a batch


class SplitClient(NetworkClient):
    """A client of a minimization, on rank 0 to be trained, on the others to `follow`; `batches` are slices.

    Batch normalization takes its statistics from slices; running statistics are averaged over the ranks.

    Parameters
    ----------
    share
        Of a batch, in this rank's slice.
    """

    def __init__(self, link: Link, share: float, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._link, self._share = link, share

    @contextmanager
    def training(self, buffers: Tensor) -> Iterator[None]:
        """A round; its buffers and its loss are then those of all ranks."""
        for rank in range(1, self._link.size):
            self._link.post(rank, {"do": "follow"})
        with super().training(buffers):
            self._link.broadcast(buffers)
            yield
            self._tell(_END)
            self._join()

    def gradients(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """See `NetworkClient.gradients`: on the whole batch."""
        self._tell(self.batches.position)
        self._link.broadcast(primal)
        return self._whole(primal, dual)

    def follow(self) -> None:
        """Compute this rank's part of a round."""
        buffers, primal = self._network.buffers(), self._network.parameters()
        self._link.broadcast(buffers)
        with super().training(buffers):
            while (position := self._tell(_END)) != _END:
                self.batches.seek(position)
                self._link.broadcast(primal)
                self._whole(primal, primal[:0])  # a minimization has no dual variables
        self._join()

    def _whole(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        gradient, nothing = super().gradients(primal, dual)
        self._link.add_up(gradient.mul_(self._share), everywhere=False)
        return gradient, nothing

    def _tell(self, position: int) -> int:
        """The number of the batch that comes next, as rank 0 gives it."""
        told = torch.tensor([position])
        self._link.broadcast(told)
        return int(told)

    def _join(self) -> None:
        mean = torch.cat([self._network.buffers(), self._loss_sum.reshape(1)]) * self._share
        self._link.add_up(mean, everywhere=False)
        self._network.load_buffers(mean[:-1])
        self._loss_sum.copy_(mean[-1])
