"""The connection between ranks: what one sends another receives, and the end of one ends the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from chestfed.core.errors import TrainingError
from chestfed.learning.engines.messages.wire import count_pieces
from chestfed.learning.engines.ranks.link import Link
from tests.learning.engines.forked_ranks import run_ranks

SENT = [torch.arange(5.0), torch.arange(3), torch.zeros(0), torch.tensor([[-0.0, 1e-45]])]


def exchange(link: Link) -> Any:
    """Rank 0 announces, spreads and pushes; the others answer with what they got."""
    pieces = count_pieces(SENT)
    if link.rank:
        note = link.hear()
        both = [link.take(0, pieces, ""), link.pull(0, pieces, "")]
        for work in link.post(0, {"rank": link.rank, **note}):
            link.finish(work, "")
        return both
    link.announce({"text": "ü" * 1000})
    works = link.spread(SENT) + [work for rank in range(1, link.size) for work in link.push(rank, SENT)]
    notes = [link.fetch(rank, "") for rank in range(1, link.size)]
    for work in works:
        link.finish(work, "")
    return notes


@pytest.mark.parametrize("count", [2, 4])
def test_notes_and_arrays_arrive(count: int, tmp_path: Path) -> None:
    notes, *received = run_ranks(tmp_path, count, exchange)
    assert notes == [{"rank": rank, "text": "ü" * 1000} for rank in range(1, count)]
    for runs in (run for both in received for run in both):
        assert runs["int64"].tolist() == [0, 1, 2]
        expected = torch.cat([SENT[0], SENT[3].flatten()])
        assert runs["float32"].view(torch.int32).tolist() == expected.view(torch.int32).tolist()


@pytest.mark.parametrize("error", [TrainingError("client 'b': its update"), KeyError("client 'b'")])
def test_failure_of_a_rank_is_passed_on(error: Exception, tmp_path: Path) -> None:
    def work(link: Link) -> None:
        if link.rank == 1:
            raise error
        if link.rank == 0:
            link.fetch(1, "client 'a'")
        link.hear()

    first, _, other = run_ranks(tmp_path, 3, work)
    expected = TrainingError if isinstance(error, TrainingError) else RuntimeError
    assert type(first) is expected
    assert all(part in str(first) for part in ("rank 1", "client 'b'"))
    assert isinstance(other, Exception)  # it wakes; rank 0 may have closed the store already, and tells why


def test_late_rank_is_named_with_its_client(tmp_path: Path) -> None:
    def work(link: Link) -> Any:
        return link.hear() if link.rank else link.fetch(1, "client 'b' on rank 1")

    late, _ = run_ranks(tmp_path, 2, work, timeout=0.5)
    assert (type(late), late.kind, late.fields["who"]) == (TrainingError, "no answer in time", "client 'b' on rank 1")
