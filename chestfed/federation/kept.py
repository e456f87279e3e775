"""A client's state on its hospital's disk: what a hospital that is started again goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chestfed.algorithms.variables import Point, from_named_tensors, named_tensors
from chestfed.core.checkpoint import as_damaged, load_checkpoint, save_checkpoint
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
    """Write the states of all turns that the host keeps; a tensor that several share is stored once."""
    tensors: dict[str, Tensor] = {}
    for turn, kept in host.kept.items():
        if kept.state is not None:
            tensors |= named_tensors(kept.state, f"turn{turn}")
    first: dict[tuple[Any, ...], str] = {}
    same = {}
    for name, tensor in tensors.items():
        place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if tensor.numel() and place in first:
            same[name] = first[place]
        first.setdefault(place, name)
    values = {
        "stage": host.stage,
        "same": same,
        "drawn": {str(turn): list(kept.drawn) for turn, kept in host.kept.items()},
        "without": [turn for turn, kept in host.kept.items() if kept.state is None],
    }
    save_checkpoint(path, {name: tensor for name, tensor in tensors.items() if name not in same}, values)


def restore(host: Host, path: Path, cohort: Cohort, network: FlatModule) -> None:
    """Let a new host go on from the file, if there is one.

    Raises
    ------
    DamagedError
        If the file is damaged, or of another algorithm.
    """
    if not path.exists():
        return
    stored, values = load_checkpoint(path)
    tensors = {name: tensor.to(network.grad.device) for name, tensor in stored.items()}
    objective = cohort.objective()
    extra, dual = torch.zeros(objective.extra_size), torch.zeros(objective.dual_size)
    point = Point(torch.cat([network.parameters(), extra.to(network.grad)]), dual.to(network.grad))
    with as_damaged(path):
        tensors |= {name: tensors[first] for name, first in values["same"].items()}
        host.begin(values["stage"])
        like = host.start_at(point)
        host.kept = {
            int(turn): Kept(
                None if int(turn) in values["without"] else from_named_tensors(like, tensors, f"turn{turn}"),
                tuple(drawn),
            )
            for turn, drawn in values["drawn"].items()
        }
