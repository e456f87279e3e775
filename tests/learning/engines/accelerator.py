"""A pretend accelerator, on which what training asks of a GPU can be counted without one.

A tensor on device `pretend` holds one of the CPU, on which everything is computed. As with CUDA, a tensor of the CPU
with more than one number cannot be mixed with it. Whatever makes a program wait for a GPU is counted: reading a number,
an index by a mask, and copies from one side to the other.

    python -m tests.learning.engines.accelerator FILE      writes, as JSON, what rounds of every algorithm ask

PyTorch calls the device backend below experimental, and it is global: hence a process of its own.
"""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as register

from chestfed.studies.experiment.pipeline import Pipeline
from tests.learning.engines.small_teams import build_team, pipelines

register("pretend")
torch.pretend.get_amp_supported_dtype = lambda: [torch.bfloat16]  # type: ignore[attr-defined]
DEVICE = torch.device("pretend", 0)
INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_")
READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2")

#: What made the program wait since it was last cleared.
asked: collections.Counter[str] = collections.Counter()


class Held(Tensor):
    """A tensor on the device; `raw` is the one that it holds."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> Held:
        size, like = raw.shape, {"strides": raw.stride(), "storage_offset": raw.storage_offset(), "dtype": raw.dtype}
        held = torch.Tensor._make_wrapper_subclass(cls, size, **like, device=DEVICE)  # type: ignore[attr-defined]
        held.raw = raw
        return held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["raw"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: object) -> Held:
        return Held(inner["raw"])

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Held) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.raw = value.raw


class Everywhere(TorchDispatchMode):
    """Within, tensors can be made on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation, on what its arguments hold."""
    name, tensors = func.overloadpacket.__name__, [a for a in tree_flatten((args, kwargs))[0] if isinstance(a, Tensor)]
    held = [tensor for tensor in tensors if isinstance(tensor, Held)]
    device = kwargs.get("device")
    here = bool(held) if device is None else torch.device(device).type == DEVICE.type
    if name == "copy_":
        here = isinstance(args[0], Held)
    if name in ("_to_copy", "copy_"):
        if here != isinstance(args[name == "copy_"], Held):
            asked["to the device" if here else "from the device"] += 1
    elif held:
        asked["read"] += name in READS
        indices = [value for value in args[1] if isinstance(value, Tensor)] if name in INDEXED else []
        asked["read"] += any(index.dtype == torch.bool for index in indices)
        for value in tensors:
            if not isinstance(value, Held) and value.dim() and not any(value is index for index in indices):
                raise RuntimeError(f"{func}: a tensor of the CPU {tuple(value.shape)} with one of the device")
    wrappers = {id(value.raw): value for value in held}
    if device is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    raw_args, raw_kwargs = tree_map(lambda value: value.raw if isinstance(value, Held) else value, (args, kwargs))
    with torch.no_grad():
        result = func(*raw_args, **raw_kwargs)
    if not here:
        return args[0] if name == "copy_" else result

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return wrappers[id(value)] if id(value) in wrappers else Held(value)

    return tree_map(placed, result)


def on_device(module: torch.nn.Module) -> torch.nn.Module:
    """The module there."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            part.register_parameter(name, torch.nn.Parameter(Held(parameter.detach())))
        for name, buffer in part.named_buffers(recurse=False):
            part.register_buffer(name, Held(buffer))
    return module


def run_round(pipeline: Pipeline, **where: Any) -> tuple[dict[str, int], Tensor]:
    """What a round asks, and the point after it."""
    team = build_team(pipeline, **where)
    engine, state = team.engine, team.state
    asked.clear()
    state, _ = engine.run_round(state)
    transfers = dict(+asked)
    engine.restart(engine.finish_stage(state))
    return transfers, engine.current(state).primal.cpu()


HERE: dict[str, Any] = {"device": DEVICE, "place": on_device}


def main() -> None:
    """Write, per algorithm, what rounds of two and three steps ask, and how far they end from where the CPU does."""
    results: dict[str, Any] = {"rounds": {}}
    two_steps, three_steps = pipelines(2), pipelines(3)
    for name, pipeline in three_steps.items():
        _, on_cpu = run_round(pipeline)
        with Everywhere():
            two, _ = run_round(two_steps[name], **HERE)
            three, point = run_round(pipeline, **HERE)
        apart = float((point - on_cpu).abs().max())
        results["rounds"][name] = {"two steps": two, "three steps": three, "apart": apart}
    with Everywhere():
        results["statistics"] = [measure_statistics(two_steps["codasca"], count) for count in (2, 3)]
        results["mixed"] = why_refused()
    Path(sys.argv[1]).write_text(json.dumps(results), encoding="utf-8")


def measure_statistics(pipeline: Pipeline, count: int) -> dict[str, int]:
    """What is asked to take the running statistics anew from so many batches."""
    team = build_team(pipeline, **HERE)
    client = team.fleet.hosts[0].client
    with client.training(team.network.buffers()):
        asked.clear()
        client.gather_statistics(team.output.primal, count)
    return dict(+asked)


def why_refused() -> str:
    """The error of a sum over both sides."""
    try:
        torch.zeros(2, device=DEVICE) + torch.ones(2)
    except RuntimeError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
