"""One client's batches over all ranks: each computes the gradients on a slice, and rank 0 has those of the whole.

Rank 0 alone keeps the client's variables and takes the steps; the others are sent the variables before every one. So
there is one state to save, and it cannot differ between ranks. The loss must be a sum over the images of a batch,
divided by a number that depends on no image (`ObjectiveSpec.sums_images`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chestfed.core.randomness import stream_seed
from chestfed.engines.client import Batches, NetworkClient
from chestfed.engines.ranks.link import Link

_END = -1  # in place of the number of a batch


def client_on(
    link: Link | None, number: int, name: str, batches_of: Callable[[tuple[int, int]], Any], *args: Any, **more: Any
) -> NetworkClient:
    """A client in this process or, with a link, this rank's part of one; `batches_of((i, n))` has slice i of n."""
    whole = partial(batches_of, (0, 1))
    if link is None:
        return NetworkClient(name, whole(), *args, **more)
    slices = batches_of((link.rank, link.size))
    return SplitClient(link, slices.share, whole, number, name, slices, *args, **more)


class SplitClient(NetworkClient):
    """A client, on rank 0 to be trained, on the others to `follow`; `batches` are slices.

    Batch normalization takes its statistics from slices; running statistics are averaged over the ranks. What is
    estimated without a gradient, statistics anew and dual variables, rank 0 takes from whole batches alone.

    Parameters
    ----------
    share
        Of a batch, in this rank's slice.
    whole
        Makes the sequence of whole batches.
    number
        Of the client, as rank 0 names it to the others.
    """

    def __init__(
        self, link: Link, share: float, whole: Callable[[], Batches], number: int, *args: Any, seed: int, **more: Any
    ) -> None:
        seed = stream_seed(seed, "rank", link.rank) if link.rank else seed  # dropout of different images
        super().__init__(*args, seed=seed, **more)
        self._link, self._share, self._whole, self._number = link, share, whole, number

    @contextmanager
    def training(self, buffers: Tensor) -> Iterator[None]:
        """A round; its buffers, its loss and its mean gradient are then those of all ranks."""
        for rank in range(1, self._link.size):
            self._link.post(rank, {"do": "follow", "client": self._number})
        with super().training(buffers):
            self._link.broadcast(buffers)
            yield
            self._tell(_END)
            self._join()

    def gradients(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """See `NetworkClient.gradients`: on the whole batch."""
        self._tell(self.batches.position)
        before = self.images_seen
        summed = self._summed(primal, dual)
        self.images_seen = before + round((self.images_seen - before) / self._share)
        return summed

    def follow(self) -> None:
        """Compute this rank's part of a round."""
        buffers, weights = self._network.buffers(), self._network.parameters()
        primal = torch.cat([weights, weights.new_zeros(self._objective.extra_size)])
        dual = weights.new_zeros(self._objective.dual_size)
        self._link.broadcast(buffers)
        with super().training(buffers):
            while (position := self._tell(_END)) != _END:
                self.batches.seek(position)
                self._summed(primal, dual)
        self._join()

    def gather_statistics(self, primal: Tensor, batches: int) -> None:
        with self._whole_batches():
            super().gather_statistics(primal, batches)

    def best_dual(self, primal: Tensor, dual: Tensor, batches: int) -> Tensor:
        with self._whole_batches():
            return super().best_dual(primal, dual, batches)

    @contextmanager
    def _whole_batches(self) -> Iterator[None]:
        slices, self.batches = self.batches, self._whole()
        try:
            self.batches.seek(slices.position)
            yield
            slices.seek(self.batches.position)
        finally:
            self.batches.close()
            self.batches = slices

    def _summed(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients over the ranks, at rank 0's variables."""
        self._link.broadcast(primal)
        self._link.broadcast(dual)
        gradients = super().gradients(primal, dual)
        for gradient in gradients:
            self._link.add_up(gradient.mul_(self._share), everywhere=False)
        return gradients

    def _tell(self, position: int) -> int:
        """The number of the batch that comes next, as rank 0 gives it."""
        told = torch.tensor([position])
        self._link.broadcast(told)
        return int(told)

    def _join(self) -> None:
        """Put buffers, loss and mean gradient together, if there was a step."""
        if not self._steps:
            return
        parts = [self._network.buffers(), self._loss_sum.reshape(1), self._gradient_sum]
        mean = torch.cat(parts) * self._share
        self._link.add_up(mean, everywhere=False)
        buffers, loss, gradient = mean.split([part.numel() for part in parts])
        self._network.load_buffers(buffers)
        self._loss_sum.copy_(loss[0])
        self._gradient_sum.copy_(gradient)
