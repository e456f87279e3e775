"""Which networks draw random numbers while they train: only for these are generators saved and restored."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from chestfed.learning.models import FlatModule, build_model, may_draw, network_options
from tests.cases import each

BUILT_IN = ("small", "densenet121", "densenet161", "resnet20")
#: The device of a GPU as well, where there is one: `pytest -m gpu`.
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
    ),
]


def state(device: str) -> list[object]:
    """The states of all generators that a network could draw from."""
    tensors = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device == "cuda" else [])]
    legacy: Any = np.random.get_state()  # noqa: NPY002
    return [*(tensor.tolist() for tensor in tensors), random.getstate(), legacy[1].tolist(), legacy[2:]]


@pytest.mark.parametrize("device", DEVICES)
@each("name", BUILT_IN)
def test_built_in_networks_draw_nothing(name: str, device: str) -> None:
    network = FlatModule(build_model(network_options(name), 5, 0), device, channels_last=True)
    assert not may_draw(network.module)
    network.module.train()
    before = state(device)
    network.module(torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)).to(device)).sum().backward()
    assert state(device) == before


class Shuffled(nn.Sequential):
    """One that draws by a method of its own."""


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(2, 2))
    module.register_forward_hook(lambda *_: None)
    return module


@each("module", [nn.Sequential(nn.Linear(2, 2), nn.Dropout()), nn.Dropout(0.0), Shuffled(nn.Linear(2, 2)), hooked()])
def test_unknown_modules_may_draw(module: nn.Module) -> None:
    assert may_draw(module)
    assert not may_draw(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
