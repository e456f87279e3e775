"""Scores of test images by all ranks together: each takes some of the batches of one process; no bit differs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from chestfed.data.images.batches import list_batches
from chestfed.learning.engines.messages.wire import count_pieces
from chestfed.learning.engines.ranks.link import LONG, Link
from chestfed.learning.models import FlatModule
from chestfed.studies.training.data.clients import Outputs, TestSet, prepare_scoring, read_probabilities, run_batches
from chestfed.studies.training.data.experiment import Experiment


def list_tests(experiment: Experiment) -> list[TestSet]:
    """All that may be scored, in an order that every rank has."""
    test = experiment.test
    return [test, *test.parts, *experiment.hospitals.values(), *experiment.validation.values()]


def score_share(
    link: Link, experiment: Experiment, network: FlatModule, parameters: Tensor, buffers: Tensor, test: TestSet
) -> list[Tensor]:
    """Share of the logits that is this rank's, `[n, J]` for each hospital of the test set.

    Running statistics are taken in turn too, those of each hospital by one rank.
    """
    machine, parts = experiment.machine, test.parts or (test,)
    taken: dict[int, Tensor] = {}
    for number, part in enumerate(parts):
        if number % link.size == link.rank:
            prepare_scoring(network, parameters, buffers, part, machine)
            taken[number] = network.buffers()
    logits = []
    for number, part in enumerate(parts):
        statistics = _share(link, number % link.size, taken.get(number, buffers))
        prepare_scoring(network, parameters, statistics, part, machine, renews=False)
        turn = _turn(link, link.rank, number)
        logits.append(run_batches(network, part, experiment.pipeline.evaluation.batch_size, machine, turn))
    return logits


def send_scores(link: Link, logits: Sequence[Tensor]) -> None:
    """Send this rank's share to rank 0."""
    works = link.post(0, {"done": "score"}) + link.push(0, logits)
    for work in works:
        link.finish(work, "rank 0", LONG)


def gather_scores(link: Link, experiment: Experiment, own: Sequence[Tensor], buffers: Tensor, test: TestSet) -> Outputs:
    """Scores of all ranks, of which rank 0 has its `own` logits, with the `buffers` that they say they are of.

    Raises
    ------
    TrainingError
        If an output is not finite, or a rank does not answer.
    """
    size, parts = experiment.pipeline.evaluation.batch_size, test.parts or (test,)
    tables = [own[number].new_empty(len(part.labels), len(part.diseases)) for number, part in enumerate(parts)]
    for rank in range(link.size):
        places = [_select_rows(len(part.labels), size, _turn(link, rank, n)) for n, part in enumerate(parts)]
        shares = list(own)
        if rank:
            shares = [table.new_empty(len(rows), table.shape[1]) for table, rows in zip(tables, places, strict=True)]
            what, pieces = f"rank {rank} with its test images", count_pieces(shares)
            link.fetch(rank, what)
            received = link.pull(rank, pieces, what)
            run = torch.cat([part.cpu() for part in received.values()] or [shares[0].flatten()])
            lengths = [length for _, length in pieces]
            shares = [part.view(-1, len(test.diseases)) for part in run.split(lengths)]
        for table, rows, share in zip(tables, places, shares, strict=True):
            table[rows] = share
    return Outputs(np.concatenate([read_probabilities(table) for table in tables]), buffers)


def _turn(link: Link, rank: int, number: int) -> tuple[int, int]:
    """Turn of a rank at the batches of a hospital: the first one falls to another rank each time."""
    return (rank - number) % link.size, link.size


def _select_rows(count: int, batch_size: int, turn: tuple[int, int]) -> Tensor:
    return torch.tensor([row for rows in list_batches(count, batch_size, turn) for row in rows], dtype=torch.int64)


def _share(link: Link, source: int, statistics: Tensor) -> Tensor:
    """The running statistics that one rank has taken, at every rank."""
    if not statistics.numel():
        return statistics
    if link.rank != source:
        (kind, _), *_ = pieces = count_pieces([statistics])
        return link.take(source, pieces, f"rank {source}")[kind]
    for work in link.spread([statistics]):
        link.finish(work, "the other ranks")
    return statistics
