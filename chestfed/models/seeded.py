"""Random numbers inside foreign code: weights that a factory draws, dropout, stochastic depth."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch
from torch import nn

#: Classes of modules that draw no random number while they train.
_DRAW_NOTHING: Final = frozenset(
    {
        *(f"torch.nn.modules.container.{name}" for name in ("ModuleDict", "ModuleList", "Sequential")),
        *(f"torch.nn.modules.pooling.{name}" for name in ("AdaptiveAvgPool2d", "AvgPool2d", "MaxPool2d")),
        *(f"monai.networks.nets.densenet.{name}" for name in ("DenseNet", "_DenseBlock", "_DenseLayer", "_Transition")),
        *(f"chestfed.models.resnet20.{name}" for name in ("ResNet20", "_Block")),
        "torch.nn.modules.activation.ReLU",
        "torch.nn.modules.batchnorm.BatchNorm2d",
        "torch.nn.modules.conv.Conv2d",
        "torch.nn.modules.flatten.Flatten",
        "torch.nn.modules.linear.Linear",
        "torch.nn.modules.normalization.GroupNorm",
    }
)


def may_draw(module: nn.Module) -> bool:
    """Whether a module could draw random numbers while it trains: true unless all of its parts are known not to."""
    return not all(map(_draws_nothing, module.modules()))


def _draws_nothing(part: nn.Module) -> bool:
    hooks = [*part._forward_pre_hooks.values(), *part._forward_hooks.values(), *part._backward_hooks.values()]
    foreign = any(not getattr(hook, "__module__", "").startswith("chestfed.models.") for hook in hooks)
    name = f"{type(part).__module__}.{type(part).__qualname__}"
    return name in _DRAW_NOTHING and not foreign and "forward" not in vars(part)


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """In this block, whatever is drawn from a global generator is a function of `seed`; after it, they are as before.

    The generators are torch's (on the CPU and on `device`), NumPy's legacy one and Python's.
    """
    cuda = [device] if device is not None and device.type == "cuda" else []
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        for one in cuda:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
