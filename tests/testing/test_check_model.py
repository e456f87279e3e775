"""`check_model` accepts networks that keep the contract, and names the rule that another breaks."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from pydantic import BaseModel
from torch import nn

from chestfed.core.errors import ConfigError
from chestfed.learning.models import ModelOptions, ModelSpec, try_network
from chestfed.testing import ContractError, check_algorithm, check_model
from tests.cases import assert_refused
from tests.learning.models.tiny_transformer import TINY

RULES = 10


def test_sound_networks_pass_every_rule() -> None:
    densenet = {"spatial_dims": 2, "in_channels": 3, "init_features": 4, "growth_rate": 4, "block_config": [1]}
    assert len(check_model(TINY, size=32, dropout=0.3)) == RULES
    assert len(check_model("small", size=32, blocks=[1], norm="batch")) == RULES
    assert len(check_model("monai.networks.nets:DenseNet", size=32, options={**densenet, "dropout_prob": 0.2})) == RULES


class Base(nn.Module):
    """A linear layer on the mean color, and what a broken network adds to it."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(3, outputs)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(images.mean((2, 3)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits(images)


class OwnDropout(Base):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        noise = torch.tensor(np.random.default_rng().random(), dtype=torch.float32)
        return self.logits(images) * (1 + noise if self.training else 1)


class DropsInEvaluation(Base):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits(images) * (1 + random.random())


class Probabilities(Base):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits(images).sigmoid()


class LooksAround(Base):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits(images - images.mean(0))


class Squeezes(Base):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits(images).squeeze(1)


class Unused(Base):
    def __init__(self, outputs: int) -> None:
        super().__init__(outputs)
        self.spare = nn.Parameter(torch.ones(2))


class NewBuffer(Base):
    count: torch.Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__(outputs)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.count = self.count + 1
        return self.logits(images)


class Forgets(Base):
    def __init__(self, outputs: int) -> None:
        super().__init__(outputs)
        self.scale = torch.rand(1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits(images) * self.scale


class Tied(Base):
    def __init__(self, outputs: int) -> None:
        super().__init__(outputs)
        self.copy = nn.Linear(3, outputs)
        self.copy.weight = self.head.weight

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits(images) + self.copy(images.amax((2, 3)))


def unseeded(outputs: int) -> nn.Module:
    made = Base(outputs)
    made.head.bias.data.fill_(float(np.random.default_rng().random()))
    return made


def constant(outputs: int) -> nn.Module:
    made = Base(outputs)
    for part in made.parameters():
        part.data.fill_(0.1)
    return made


@pytest.mark.parametrize(
    ("build", "broken"),
    [
        (OwnDropout, "what it draws in training"),
        (Probabilities, "logits, not probabilities"),
        (DropsInEvaluation, "in evaluation mode it draws nothing"),
        (LooksAround, "in evaluation mode it draws nothing"),
        (Squeezes, "become logits"),
        (Unused, "gradients reach all"),
        (NewBuffer, "views of one vector"),
        (Forgets, "survive a file"),
        (Tied, "nothing else changes"),
        (unseeded, "function of the seed"),
        (constant, "function of the seed"),
    ],
)
def test_a_broken_rule_is_named(build: Callable[[int], nn.Module], broken: str) -> None:
    spec = ModelSpec("broken", "Broken", ModelOptions, lambda options, outputs: build(outputs))
    with pytest.raises(ContractError) as caught:
        check_model(spec, size=16)
    assert any(broken in rule for rule in caught.value.broken)


def test_forward_without_return_is_named() -> None:
    class Silent(Base):
        def forward(self, images: torch.Tensor) -> None:  # type: ignore[override]
            self.logits(images)

    spec = ModelSpec("silent", "Silent", ModelOptions, lambda options, outputs: Silent(outputs))
    with assert_refused(ConfigError, "nothing returned", network="silent"):
        try_network(ModelOptions(name="silent"), 2, 16, spec)
    with pytest.raises(ContractError) as caught:
        check_model(spec, size=16)
    assert [rule for rule in caught.value.broken if "become logits" in rule] == caught.value.broken


def test_loose_options_break_the_contract() -> None:
    class Loose(ModelOptions):
        model_config = {**BaseModel.model_config, "extra": "ignore"}

    spec = ModelSpec("loose", "Loose", Loose, lambda options, outputs: Base(outputs))
    with pytest.raises(ContractError) as caught:
        check_model(spec, size=16)
    assert [rule for rule in caught.value.broken if "option" in rule] == caught.value.broken


def test_unbuildable_network_is_reported() -> None:
    def fails(options: ModelOptions, outputs: int) -> nn.Module:
        raise RuntimeError("no backbone")

    with pytest.raises(ContractError) as caught:
        check_model(ModelSpec("fails", "Fails", ModelOptions, fails))
    assert len(caught.value.broken) == 1


def test_non_declarations_are_refused() -> None:
    with assert_refused(ConfigError, "invalid options", part="small"):
        check_model("small", growth=3)
    with assert_refused(ConfigError, "not a part"):
        check_algorithm(Base)  # type: ignore[arg-type]
