"""Parts of a batch on several ranks, which compute one client together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from chestfed.learning.engines.parts import Parts
from chestfed.learning.engines.ranks.batch_norm import synchronize
from chestfed.learning.engines.ranks.link import Link


class RankParts(Parts):
    """The parts dealt to these ranks, of which this process is one; at most as many as there are parts."""

    def __init__(self, count: int, link: Link, ranks: Sequence[int], *, synchronized: bool = False) -> None:
        super().__init__(count)
        self.synchronized = synchronized
        self._link, self._ranks, self._group = link, ranks, link.group(ranks)
        self.own = range(ranks.index(link.rank), count, len(ranks))

    def synchronize(self, module: nn.Module) -> AbstractContextManager[None]:
        """See `Parts.synchronize`."""
        return synchronize(module, self._gather) if self.synchronized else super().synchronize(module)

    def join(self, logits: Sequence[Tensor], images: int) -> Tensor:
        """See `Parts.join`."""
        own = super().join(logits, images)
        table = own.new_zeros(images, own.shape[1], device=self._link.place)
        table[torch.from_numpy(self.select(images)).to(table.device)] = own.to(table.device)
        self._link.compute_together(lambda: [dist.all_reduce(table, group=self._group, async_op=True)])
        return table.to(own.device)

    def add(self, gradients: Iterable[Tensor]) -> Tensor:
        """See `Parts.add`.

        Each rank is sent its piece of the vector from every part and adds in the order of the parts; then all pieces
        are gathered. That moves as many bytes as a sum in a ring, whose order would depend on the number of ranks.
        """
        own = [gradient.to(self._link.place, copy=True) for gradient in gradients]
        size, count = own[0].numel(), len(self._ranks)
        width = -(-size // count)
        padded = own[0].new_zeros(len(own), width * count)
        for row, gradient in zip(padded, own, strict=True):
            row[:size] = gradient
        pieces = padded.view(len(own), count, width)
        mine = self._ranks.index(self._link.rank)
        by_rank = [padded.new_empty(len(range(place, self.count, count)), width) for place in range(count)]
        by_rank[mine] = pieces[:, mine]
        operations: list[dist.P2POp] = []
        for place, rank in enumerate(self._ranks):
            if place != mine:
                operations.append(dist.P2POp(dist.isend, pieces[:, place].contiguous(), rank, self._group))
                operations.append(dist.P2POp(dist.irecv, by_rank[place], rank, self._group))
        self._link.compute_together(lambda: dist.batch_isend_irecv(operations))
        total = by_rank[0][0].clone()
        for number in range(1, self.count):
            total += by_rank[number % count][number // count]
        return self._gather(total).flatten()[:size]

    def _gather(self, row: Tensor) -> Tensor:
        """The rows `[n]` of all these ranks, `[ranks, n]`."""
        own = row.to(self._link.place)
        rows = own.new_empty(len(self._ranks), len(own))
        self._link.compute_together(
            lambda: [dist.all_gather(list(rows.unbind()), own, group=self._group, async_op=True)]
        )
        return rows.to(self._link.device)


def find_team(number: int, clients: int, ranks: int, parts: int) -> list[int]:
    """The ranks that compute a client, the first of which answers: one, unless batches have parts and there are more.

    Clients are dealt out, rank 0 comes last, for it is the server too; of more ranks than clients each client gets
    several, as long as each has a part.
    """
    if clients >= ranks or parts == 1:
        return [(number + 1) % ranks if clients > 1 else 0]
    return [rank for rank in range(ranks) if (rank - 1) % clients == number][:parts]


def make_parts(count: int, link: Link, ranks: Sequence[int], *, synchronized: bool = False) -> Parts | None:
    """The parts that this process computes among these ranks; None if it is none of them. All ranks must call it.

    If they are `synchronized`, there is one for each rank, whatever the `count`.
    """
    if len(ranks) > 1:
        link.group(ranks)
    if link.rank not in ranks:
        return None
    count = len(ranks) if synchronized else count
    return RankParts(count, link, ranks, synchronized=synchronized) if len(ranks) > 1 else Parts(count)
