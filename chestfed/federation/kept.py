"""A client's state on its hospital's disk: what a hospital that is started again goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chestfed.algorithms.variables import Point, from_named_tensors, named_tensors
from chestfed.core.checkpoint import as_damaged, load_state, save_state
from chestfed.engines.host import Host, Kept
from chestfed.engines.requests import Reply, Request, Start
from chestfed.models import FlatModule
from chestfed.training.assemble import Federation


def answer(host: Host, request: Request) -> Reply:
    """The host's answer; a start from turn 0 begins anew, whatever a run that was given up has left."""
    if isinstance(request, Start) and request.after == 0:
        host.kept, host.stepped = {0: Kept(None, tuple(0 for _ in host.client.positions()))}, {}
    return host.answer(request)


def save(host: Host, path: Path) -> None:
    """Write the states of all turns that the host keeps."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for kind in ("kept", "stepped"):
        of_kind: dict[int, Kept] = getattr(host, kind)
        for turn, its in of_kind.items():
            if its.state is not None:
                tensors |= named_tensors(its.state, f"{kind}{turn}")
        values[kind] = [[turn, its.state is not None, its.drawn, its.stage] for turn, its in of_kind.items()]
    save_state(path, tensors, values | {"part": _name_part(path)})


def restore(host: Host, path: Path, cohort: Federation, network: FlatModule) -> None:
    """Let a new host go on from the file, if there is one."""
    if not path.exists():
        return
    tensors, values = load_state(path, network.grad.device)
    objective = cohort.objective()
    extra, dual = torch.zeros(objective.extra_size), torch.zeros(objective.dual_size)
    point = Point(torch.cat([network.parameters(), extra.to(network.grad)]), dual.to(network.grad))
    with as_damaged(path):
        if values["part"] != _name_part(path):
            raise ValueError(f"it is of {values['part']}, not of {_name_part(path)}")
        like = host.start_at(point)
        for kind in ("kept", "stepped"):
            states: dict[int, Kept] = {}
            for turn, is_there, drawn, stage in values[kind]:
                state = from_named_tensors(like, tensors, f"{kind}{turn}") if is_there else None
                states[turn] = Kept(state, tuple(drawn), stage)
            setattr(host, kind, states)


def _name_part(path: Path) -> str:
    """Study and K, which name the folder and the file."""
    return f"{path.stem} of the study {path.parent.name}"
