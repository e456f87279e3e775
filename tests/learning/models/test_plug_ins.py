"""Networks that are not built in: declared in a file of one's own, or built by any factory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Annotated

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from chestfed.core.config import StrictModel, load_config
from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Choice
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.models import (
    MODELS,
    ModelOptions,
    build_model,
    name_network,
    network_options,
    reset_classifier,
    try_network,
)
from chestfed.learning.objectives import OBJECTIVES
from tests.cases import assert_refused

DENSENET = {"spatial_dims": 2, "in_channels": 3, "init_features": 8, "growth_rate": 4, "block_config": [1, 1]}


class Configured(StrictModel):
    """A configuration with a network."""

    model: Annotated[ModelOptions, Choice(MODELS)]


def configured(folder: Path, text: str) -> ModelOptions:
    (folder / "c.yaml").write_text(f"model: {text}\n")
    return load_config(folder / "c.yaml", Configured).model


def test_foreign_option_names_its_owner(tmp_path: Path) -> None:
    assert configured(tmp_path, "small") == network_options("small")
    for text in ("densenet121, growth_rate: 8", "densenet161, pool: 2", "resnet20, blocks: [1]"):
        with assert_refused(ConfigError, "unknown key", place=f"{tmp_path / 'c.yaml'}:1"):
            configured(tmp_path, f"{{name: {text}}}")
    with assert_refused(ConfigError, "unknown key", key="model.growth_rat", suggestion="growth_rate"):
        configured(tmp_path, "{name: small, growth_rat: 8}")
    with assert_refused(ConfigError, "invalid value", key="model"):
        configured(tmp_path, "densenet12")


def test_own_declaration_is_a_network(own_network: str, tmp_path: Path) -> None:
    options = configured(tmp_path, f'{{name: "{own_network}:TINY", width: 8}}')
    assert name_network(options) == "Tiny transformer"
    network = try_network(options, outputs=3, size=32)
    assert network.module.head.weight.shape == (3, 8)
    assert Configured.model_validate(Configured(model=options).model_dump(mode="json")).model == options
    with assert_refused(ConfigError, "unknown key", key="model.depth"):
        configured(tmp_path, f'{{name: "{own_network}:TINY", depth: 8}}')
    assert MODELS.digest(options.name) != MODELS.digest("small")


def test_factory_arguments_are_checked(own_network: str, tmp_path: Path) -> None:
    module = try_network(
        configured(tmp_path, f'{{name: "{own_network}:make_tiny", options: {{width: 8}}}}'), 3, 32
    ).module
    assert module.head.weight.shape == (3, 8)
    densenet = network_options("monai.networks.nets:DenseNet", options=DENSENET)
    assert densenet.outputs_as == "out_channels"  # type: ignore[attr-defined]
    for text, kind, key in (
        ("make_tiny, options: {widht: 8}", "invalid value", "model.options"),
        ("make_tiny, options: {num_classes: 8}", "invalid value", "model.options"),
        ("make_tiny, outputs_as: heads", "invalid value", "model.outputs_as"),
        ("make_tiny, width: 8", "unknown key", "model.width"),
        ("nn.Conv2d, options: {kernel_size: 1}", "invalid value", "model.options"),
        ("annotations", "invalid value", "model"),
        ("missing", "invalid value", "model"),
    ):
        name, _, rest = text.partition(",")
        with assert_refused(ConfigError, kind, key=key) as caught:
            configured(tmp_path, f'{{name: "{own_network}:{name}"{"," * bool(rest)}{rest}}}')
        assert caught.value.fields.get("suggestion", "") == "width" * ("widht" in rest)


def test_factory_options_reach_processes(own_network: str) -> None:
    """Jobs send the options of a study to other processes."""
    for name, options in (
        (f"{own_network}:TinyTransformer", {"width": 8}),
        ("monai.networks.nets:DenseNet", DENSENET),
        ("torch.nn:Linear", {"in_features": 3}),
    ):
        network = network_options(name, options=options, **({"outputs_as": "out_features"} if "Linear" in name else {}))
        sent = pickle.loads(pickle.dumps(network))
        assert sent == network
        assert sent.model_dump(exclude_unset=True) == network.model_dump(exclude_unset=True)
    own = network_options(f"{own_network}:TINY", width=8)
    assert pickle.loads(pickle.dumps(own)) == own


def test_factory_with_kwargs_needs_outputs(own_network: str, tmp_path: Path) -> None:
    with (tmp_path / "mynets.py").open("a") as file:
        file.write("\n\ndef passing(**rest: int) -> nn.Module:\n    return TinyTransformer(**rest)\n")
    with assert_refused(ConfigError, "invalid value", key="model.outputs_as"):
        configured(tmp_path, f"{own_network}:passing")
    options = configured(tmp_path, f'{{name: "{own_network}:passing", outputs_as: outputs, options: {{width: 8}}}}')
    assert build_model(options, 3, 1).get_parameter("head.weight").shape == (3, 8)
    monai = network_options("monai.networks.nets:resnet10", options={"spatial_dims": 2, "n_input_channels": 3})
    assert monai.outputs_as == "num_classes"  # type: ignore[attr-defined]


BROKEN = """
import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self, outputs, shape=(2,)):
        super().__init__()
        self.layer = nn.Linear(3, outputs)

    def forward(self, images):
        logits = self.layer(images.mean((2, 3)))
        return logits, logits


class Wide(Pair):
    def forward(self, images):
        return self.layer(images.mean(2))


class Fails(Pair):
    def forward(self, images):
        return self.layer(images)


class Endless(Pair):
    def forward(self, images):
        return self.layer(images.mean((2, 3))) / 0


class Half(Pair):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.half()


class Lazy(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.layer = nn.LazyLinear(outputs)


class Headless(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, outputs))

    def forward(self, images):
        return images.mean((2, 3)) @ self.weight


class Three(Pair):
    def __init__(self, outputs):
        super().__init__(3)

    def forward(self, images):
        return self.layer(images.mean((2, 3)))


class Deep(Three):
    def forward(self, images):
        return super().forward(nn.functional.max_pool2d(images, 64))


NETWORKS = ["Half"]


def nothing(outputs):
    return outputs


def broken(outputs):
    raise RuntimeError("no such backbone")
"""


def test_unsuitable_network_is_refused(own_network: str, tmp_path: Path) -> None:
    with (tmp_path / "mynets.py").open("a") as file:
        file.write(BROKEN)
    for name, kind in (
        ("Pair", "other logits"),
        ("Wide", "network fails"),
        ("Fails", "network fails"),
        ("Endless", "logits not finite"),
        ("Half", "not float32"),
        ("Lazy", "lazy parameter"),
        ("Headless", "unknown last layer"),
        ("Three", "other logits"),
        ("NETWORKS", "not a declaration"),
        ("nothing", "not a module"),
        ("broken", "network cannot be built"),
    ):
        with assert_refused(ConfigError, kind):
            try_network(network_options(f"{own_network}:{name}"), 5, 32)


def test_larger_images_are_advised_if_they_help(own_network: str, tmp_path: Path) -> None:
    with (tmp_path / "mynets.py").open("a") as file:
        file.write(BROKEN)
    for name, helps in (("Deep", True), ("Wide", False)):
        with assert_refused(ConfigError, "network fails") as caught:
            try_network(network_options(f"{own_network}:{name}"), 5, 32)
        assert ("takes 64 pixels: raise preprocess.size" in str(caught.value)) == helps


def test_what_is_no_network_has_an_example(own_network: str, tmp_path: Path) -> None:
    built = "built = nn.Linear(2, 2)\nclass Bare(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    with (tmp_path / "mynets.py").open("a") as file:
        file.write(built)
    for name, words in (("built", "is an object of class Linear; expected"), ("Bare", "It has none. Write the class")):
        with pytest.raises(ConfigError) as caught:
            configured(tmp_path, f'"{own_network}:{name}"')
        assert words in str(caught.value)
        assert "def __init__(self, num_classes)" in str(caught.value)
        assert "docs/own_method.md" in str(caught.value)
    for catalogue, example in ((ALGORITHMS, "MINE = AlgorithmSpec("), (OBJECTIVES, "MINE = ObjectiveSpec(")):
        with assert_refused(ConfigError, "not a declaration") as caught:
            catalogue.find(f"{own_network}:Bare")
        assert "is a class derived from Module; expected an instance of" in str(caught.value)
        assert example in str(caught.value)


def test_foreign_last_layer_is_found(own_network: str) -> None:
    for options, head in (
        (network_options(f"{own_network}:TINY"), "head"),
        (network_options("monai.networks.nets:DenseNet", options=DENSENET), "class_layers.out"),
        (network_options(f"{own_network}:make_tiny", classifier="patches"), "patches"),
    ):
        model = build_model(options, 5, seed=1)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        reset_classifier(model, options, 5, seed=2)
        changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
        assert changed == {f"{head}.weight", f"{head}.bias"}


def test_foreign_weights_lose_their_prefix(own_network: str, tmp_path: Path) -> None:
    donor = build_model(network_options(f"{own_network}:TINY"), 14, seed=9).state_dict()
    for prefix in ("", "module.", "net.backbone."):
        torch.save({"state_dict": {prefix + name: tensor for name, tensor in donor.items()}}, tmp_path / "w.ckpt")
        options = network_options(f"{own_network}:TINY", initial_weights=str(tmp_path / "w.ckpt"))
        state = build_model(options, 5, seed=1).state_dict()
        assert all(torch.equal(state[name], donor[name]) for name in state if not name.startswith("head."))
    both = {f"{prefix}.{name}": tensor for prefix in ("student", "teacher") for name, tensor in donor.items()}
    torch.save(both, tmp_path / "w.ckpt")
    with assert_refused(ConfigError, "two networks fit"):
        build_model(options, 5, seed=1)


def test_factory_weights_depend_on_the_seed(own_network: str, tmp_path: Path) -> None:
    with (tmp_path / "mynets.py").open("a") as file:
        file.write(
            "\n\ndef drawn(outputs):\n    import numpy, random\n    made = TinyTransformer(outputs)\n"
            "    made.head.bias.data += float(numpy.random.rand()) + random.random()\n    return made\n"
        )
    before = torch.random.get_rng_state()
    first, again, other = (
        build_model(network_options(f"{own_network}:drawn"), 5, seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.bias"], other["head.bias"])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_auto_norm_follows_the_averaging() -> None:
    auto = network_options("small", norm="auto")
    assert auto.resolve_norm(averaged=True) == network_options("small", norm="batch")
    assert auto.resolve_norm(averaged=False) == network_options("small", norm="group")
    fixed = network_options("resnet20", norm="batch")
    assert fixed.resolve_norm(averaged=False) is fixed
    with pytest.raises(ValidationError):
        network_options("small", norm="layer")
    assert isinstance(build_model(auto, 5, 1), nn.Module)
