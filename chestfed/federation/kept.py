"""A client's state on its hospital's disk: what a hospital that is started again goes on from."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from chestfed.algorithms.variables import Point, from_named_tensors, named_tensors
from chestfed.core.checkpoint import as_damaged, load_state, save_state
from chestfed.engines.host import Host, Kept
from chestfed.engines.requests import Reply, Request, Start
from chestfed.models import FlatModule
from chestfed.training.assemble import Cohort


def answer(host: Host, request: Request) -> Reply:
    """The host's answer; a start from turn 0 begins anew, whatever a run that was given up has left."""
    if isinstance(request, Start) and request.after == 0:
        host.kept = {0: Kept(None, tuple(0 for _ in host.client.positions()))}
    return host.answer(request)


def save(host: Host, path: Path) -> None:
    """Write the states of all turns that the host keeps."""
    tensors: dict[str, Tensor] = {}
    for turn, kept in host.kept.items():
        if kept.state is not None:
            tensors |= named_tensors(kept.state, f"turn{turn}")
    values = {
        "stage": host.stage,
        "drawn": {str(turn): list(kept.drawn) for turn, kept in host.kept.items()},
        "without": [turn for turn, kept in host.kept.items() if kept.state is None],
    }
    save_state(path, tensors, values)


def restore(host: Host, path: Path, cohort: Cohort, network: FlatModule) -> None:
    """Let a new host go on from the file, if there is one.

    Raises
    ------
    DamagedError
        If the file is damaged, or of another algorithm.
    """
    if not path.exists():
        return
    tensors, values = load_state(path, network.grad.device)
    objective = cohort.objective()
    extra, dual = torch.zeros(objective.extra_size), torch.zeros(objective.dual_size)
    point = Point(torch.cat([network.parameters(), extra.to(network.grad)]), dual.to(network.grad))
    with as_damaged(path):
        host.begin(values["stage"])
        like = host.start_at(point)
        host.kept = {
            int(turn): Kept(
                None if int(turn) in values["without"] else from_named_tensors(like, tensors, f"turn{turn}"),
                tuple(drawn),
            )
            for turn, drawn in values["drawn"].items()
        }
