"""LibAUC itself: found or not, and its losses and optimizers with every setting said."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

#: loss(scores `[n, J]`, labels `[n, J]`, a `[J]`, b `[J]`, LibAUC's alpha `[J]`).
Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def import_libauc(folder: Path | None) -> list[str]:
    """Make `libauc.losses` and `libauc.optimizers` importable; the names of the modules that were stood in for."""
    if folder is not None:
        sys.path.append(str(folder.resolve()))
    stubs = []
    if importlib.util.find_spec("tqdm") is None:
        empty = types.ModuleType("tqdm")
        empty.__dict__.update(tqdm=None, trange=None)
        sys.modules["tqdm"] = empty
        stubs.append("tqdm (an empty module: the losses and optimizers never call it)")
    try:
        for name in ("libauc.losses", "libauc.optimizers"):
            importlib.import_module(name)
    except ImportError as error:
        sys.exit(
            f"LibAUC cannot be imported: {error}.\nFetch it with `python -m pip install --target runs/libauc_pkgs "
            "--no-deps libauc==2.0.1` and pass `--libauc runs/libauc_pkgs`."
        )
    if stubs:
        del sys.modules["tqdm"]
    return stubs


def libauc_loss(name: str, **settings: Any) -> Any:
    """A LibAUC loss on the CPU."""
    return getattr(sys.modules["libauc.losses"], name)(device="cpu", **settings)


def libauc_optimizer(name: str, params: Sequence[Tensor], loss: Any, **settings: Any) -> Any:
    """A LibAUC optimizer without clipping, decay and momentum unless the settings say so."""
    plain = {"clip_value": math.inf, "weight_decay": 0.0, "epoch_decay": 0.0, "verbose": False, "device": "cpu"}
    if name == "PESG":
        plain["momentum"] = 0.0
    return getattr(sys.modules["libauc.optimizers"], name)(params, loss_fn=loss, **(plain | settings))


def set_variables(loss: Any, a: Tensor, b: Tensor, alpha: Tensor) -> None:
    """Give a LibAUC loss these values, in their own precision."""
    for name, value in {"a": a, "b": b, "alpha": alpha}.items():
        setattr(loss, name, torch.nn.Parameter(value.detach().clone()))


def as_loss(module: Any, **call: Any) -> Loss:
    """A LibAUC loss as a function of its variables."""

    def loss(scores: Tensor, labels: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        for name in ("a", "b", "alpha"):
            module._parameters.pop(name, None)
        module.a, module.b, module.alpha = a, b, alpha
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Input data has no positive sample": those batches are meant
            return module(scores, labels, **call).sum()

    return loss
