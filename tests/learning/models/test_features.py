"""Frozen features: they are the network's own, the head is all that trains, and a head knows its network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from chestfed.core.checkpoint import save_checkpoint
from chestfed.core.errors import ConfigError
from chestfed.learning.models import build_model, load_frozen, may_draw, network_options, try_network
from chestfed.learning.models.features import FeatureHead, FeatureOptions
from tests.cases import assert_refused, each

SMALL = {"name": "small", "blocks": [1, 1], "init_features": 8, "growth_rate": 4}


def write_model(file: Path, seed: int = 1, name: str = "small", norm: str = "group") -> nn.Module:
    """A model file of a study with three diseases, and its network."""
    options = network_options(**SMALL, norm=norm)
    module = build_model(options, 3, seed)
    header = {"model": {**options.model_dump(mode="json"), "name": name}, "diseases": ["a", "b", "c"]}
    save_checkpoint(file, module.state_dict(), {**header, "preprocess": {"size": 32}})
    return module.eval()


def features(**options: object) -> FeatureOptions:
    chosen = network_options("features", **options)
    assert isinstance(chosen, FeatureOptions)
    return chosen


@pytest.fixture
def images() -> Tensor:
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@each("trained", [0, 1])
def test_heads_draw_no_random_numbers(trained: int) -> None:
    assert not may_draw(build_model(features(network=SMALL, trained=trained, hidden=3), 2, 0))


def test_features_enter_the_last_layer(tmp_path: Path, images: Tensor) -> None:
    module = write_model(tmp_path / "model.safetensors")
    frozen = load_frozen(features(network=str(tmp_path / "model.safetensors")))
    taken = frozen.extract(images)
    assert taken.shape == (3, frozen.width)
    with torch.no_grad():
        layer = module.class_layers.out
        assert torch.allclose(layer(taken), module(images), atol=1e-6)
        assert torch.allclose(taken, module.class_layers[:-1](module.features(images)), atol=1e-6)
    assert frozen.preprocess == {"size": 32}


def test_the_head_alone_is_trained(tmp_path: Path, images: Tensor) -> None:
    write_model(tmp_path / "model.safetensors")
    options = features(network=str(tmp_path / "model.safetensors"))
    network = try_network(options, 2, 32)
    frozen = load_frozen(options)
    assert network.size == 2 * frozen.width + 2
    assert not len(network.buffers())
    assert {*network.module.state_dict()} == {"head.weight", "head.bias", "digest"}
    with torch.no_grad():
        assert torch.equal(network.module(frozen.extract(images)), network.module(images))
    hidden = try_network(features(network=SMALL, hidden=5), 2, 32)
    assert hidden.size == 5 * frozen.width + 5 + 12


def test_a_head_refuses_other_weights(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_model(tmp_path / f"{seed}.safetensors", seed)
    first, second = (build_model(features(network=str(tmp_path / f"{seed}.safetensors")), 2, 0) for seed in (1, 2))
    first.load_state_dict(first.state_dict())
    with assert_refused(ConfigError, "other features"):
        second.load_state_dict(first.state_dict())


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    options = features(network=str(tmp_path / "model.safetensors"))
    write_model(tmp_path / "model.safetensors")
    before = load_frozen(options)
    assert load_frozen(options) is before
    write_model(tmp_path / "model.safetensors", seed=2)
    assert load_frozen(options).digest != before.digest


def test_images_have_the_networks_input_form(own_network: str, images: Tensor) -> None:
    Path("gray.py").write_text(
        "from torch import nn\n"
        "def build(num_classes, mean=None):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, num_classes))\n"
    )
    frozen = load_frozen(features(network={"name": "gray:build"}, outputs=4, channels=1, range=[-1024, 1024]))
    gray = torch.rand(2, 1, 32, 32)
    mean, std = (torch.tensor(values)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    taken = frozen.extract((gray - mean) / std)
    assert torch.allclose(taken, gray.flatten(1) * 2048 - 1024, atol=1e-2)
    assert isinstance(build_model(features(network="small"), 2, 0), FeatureHead)


@pytest.mark.parametrize(("trained", "norm"), [(1, "group"), (3, "group"), (3, "batch")])
def test_last_stages_are_trained_too(trained: int, norm: str, tmp_path: Path, images: Tensor) -> None:
    module = write_model(tmp_path / "model.safetensors", norm=norm)
    plain, options = (features(network=str(tmp_path / "model.safetensors"), trained=n) for n in (0, trained))
    fixed, head = (build_model(choice, 2, 0).train() for choice in (plain, options))
    frozen = load_frozen(options)
    assert frozen.digest != load_frozen(plain).digest
    head.load_state_dict({**head.state_dict(), **{k: v for k, v in fixed.state_dict().items() if k != "digest"}})
    taken = frozen.extract(images)
    assert taken.shape == (3, frozen.count_features(32))
    assert torch.allclose(head(taken), fixed(images), atol=1e-5)  # it starts as the network that was read
    assert torch.equal(head(taken), head(images))

    network = try_network(options, 2, 32)
    parts = [part for stage in [*module.features][len(module.features) - trained + 1 :] for part in stage.modules()]
    weights = [w for part in parts if isinstance(part, nn.Conv2d | nn.GroupNorm) for w in part.parameters()]
    assert network.size == 2 * frozen.width + 2 + sum(map(torch.numel, weights))
    assert not len(network.buffers())
    before = {name: value.clone() for name, value in head.state_dict().items()}
    head(taken).square().sum().backward()
    torch.optim.SGD([part for part in head.parameters() if part.requires_grad], 0.1).step()
    changed = {name for name, value in head.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name, part in head.named_parameters() if part.requires_grad}
    again = load_frozen(options).extract(images)
    assert torch.equal(again, taken)  # the network that was read is as it was


def test_stages_that_are_not_there(own_network: str) -> None:
    with assert_refused(ConfigError, "too many stages", network="small", stages=9):
        load_frozen(features(network=SMALL, trained=9))
    with assert_refused(ConfigError, "no stages", network="resnet20"):
        load_frozen(features(network="resnet20", trained=1))


def test_what_is_no_network_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "other.safetensors", name="mylab.nets:VIT")
    with assert_refused(ConfigError, "network is not built in", network="mylab.nets:VIT"):
        load_frozen(features(network=str(tmp_path / "other.safetensors")))
    save_checkpoint(tmp_path / "state.safetensors", {"a": torch.zeros(1)}, {"round": 1})
    with assert_refused(ConfigError, "not a model file"):
        load_frozen(features(network=str(tmp_path / "state.safetensors")))
    missing = str(tmp_path / "k3" / "model.safetensors")
    with assert_refused(ConfigError, "no model file", file=missing) as caught:
        load_frozen(features(network=missing))
    assert "--set model.network=" in str(caught.value)
    wrong: list[dict[str, object]] = [
        {"network": {"name": "features", "network": "small"}},
        {"network": {"size": 1}},
        {"network": "small", "range": [1, 0]},
        {},
    ]
    for options in wrong:
        with pytest.raises(ValidationError):
            features(**options)
    assert "small" in json.dumps(features(network="small").model_dump(mode="json"))
