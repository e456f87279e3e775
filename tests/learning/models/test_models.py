"""Networks as flat vectors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.learning.models import (
    MODELS,
    FlatModule,
    build_model,
    convolve_channels_last,
    network_options,
    reset_classifier,
)
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Runtime
from chestfed.studies.training.pretrain import new_network
from tests.cases import assert_refused

SMALL = network_options("small", init_features=8, growth_rate=8, blocks=[1, 1], norm="batch")


def images(n: int = 2) -> torch.Tensor:
    return torch.randn(n, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_parameters_are_views_of_the_vector() -> None:
    network = FlatModule(build_model(SMALL, 5, 1))
    vector = network.parameters()
    assert vector.shape == (network.size,)
    network.bind(vector)
    vector.zero_()
    assert all(not parameter.any() for parameter in network.module.parameters())
    first = next(network.module.parameters())
    first.data.fill_(2)
    assert vector[: first.numel()].eq(2).all()


def test_flat_gradient_is_the_modules() -> None:
    model = build_model(SMALL, 5, 1)
    model(images()).square().sum().backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])  # type: ignore[union-attr]
    network = FlatModule(build_model(SMALL, 5, 1))
    network.bind(network.parameters())
    gradient, _ = network.differentiate(network.module(images()).square().sum())
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)
    assert torch.equal(network.grad, gradient)
    assert all(parameter.grad is None for parameter in network.module.parameters())


@pytest.mark.parametrize("autocast", [False, True])
def test_channels_last_keeps_the_gradient(autocast: bool) -> None:
    """Weights in the images' format, converted to bfloat16 at once: the gradient of the module itself, bit by bit."""

    def compute_loss(model: torch.nn.Module) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return model(images()).float().square().sum()

    model = build_model(SMALL, 5, 1).to(memory_format=torch.channels_last)
    convolve_channels_last(model)
    network = FlatModule(build_model(SMALL, 5, 1), channels_last=True)
    vector = network.parameters()
    for _ in range(2):
        network.bind(vector, bf16=autocast)
        network.differentiate(compute_loss(network.module))
        model.zero_grad()
        compute_loss(model).backward()
        vector -= 0.01 * network.grad
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
    assert torch.equal(network.parameters(), vector)
    network.bind(vector)
    for parameter, other in zip(network.module.parameters(), model.parameters(), strict=True):
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, other)


def test_unused_parameters_have_no_slope() -> None:
    network = FlatModule(build_model(SMALL, 5, 1))
    network.bind(network.parameters())
    network.differentiate(network.module(images()).square().sum())
    extra, dual = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    gradient, dual_gradient = network.differentiate((2 * extra).sum(), extra, dual)
    assert not gradient[: network.size].any()
    assert gradient[network.size :].tolist() == [2, 2, 2]
    assert dual_gradient.tolist() == [0, 0]


def test_counters_of_batches_stay_in_files() -> None:
    model = build_model(SMALL, 5, 1)
    names = list(model.state_dict())
    network = FlatModule(model)
    network.module.train()(images())
    state = network.state_dict()
    assert sorted(state) == sorted(names)
    build_model(SMALL, 5, 2).load_state_dict(state)


def test_float_buffers_come_back() -> None:
    network = FlatModule(build_model(SMALL, 5, 1))
    network.module(images())
    stored = network.buffers()
    network.module(images() * 3)
    assert not torch.equal(network.buffers(), stored)
    network.load_buffers(stored)
    assert torch.equal(network.buffers(), stored)
    assert (
        FlatModule(build_model(network_options("small", init_features=8, growth_rate=8, blocks=[1]), 5, 1))
        .buffers()
        .numel()
        == 0
    )


def test_pooling_is_averaging_the_images() -> None:
    plain, pooled = build_model(SMALL, 5, 1), build_model(SMALL.model_copy(update={"pool": 2}), 5, 1)
    assert list(plain.state_dict()) == list(pooled.state_dict())
    halved = images().unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(4, 5))
    torch.testing.assert_close(pooled(images()), plain(halved))


def test_published_networks_have_statistics() -> None:
    small = network_options("small", init_features=8, growth_rate=8, blocks=[1, 1])
    assert FlatModule(build_model(small, 5, 1)).buffers().numel() == 0
    published = network_options("densenet121")
    assert FlatModule(build_model(published, 5, 1)).buffers().numel() > 80_000
    grouped = FlatModule(build_model(published.model_copy(update={"norm": "group"}), 5, 1))
    assert grouped.buffers().numel() == 0
    assert grouped.size == FlatModule(build_model(published, 5, 1)).size


def test_weights_depend_on_the_seed_only() -> None:
    before = torch.random.get_rng_state()
    first, again, other = (FlatModule(build_model(SMALL, 5, seed)).parameters() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_reset_changes_the_last_layer_only() -> None:
    model = build_model(SMALL, 5, 1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    reset_classifier(model, SMALL, 5, 3)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"class_layers.out.weight", "class_layers.out.bias"}


@pytest.mark.parametrize(
    ("name", "published", "features"), [("densenet121", 7_978_856, 1024), ("densenet161", 28_681_000, 2208)]
)
def test_networks_have_their_published_size(name: str, published: int, features: int) -> None:
    """`published` is with a head of 1000 classes; ours has 5."""
    network = FlatModule(build_model(network_options(name), 5, 1))
    assert network.size == published - 1000 * (features + 1) + 5 * (features + 1)


def kept_bytes(network: FlatModule) -> tuple[int, list[torch.Tensor]]:
    """Bytes that the first pass of a step keeps for the second; logits, gradient and buffers after two steps."""
    sizes: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    network.bind(network.parameters())
    network.module.train()
    for _ in range(2):
        sizes.clear()  # the next step may use other addresses
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logits = network.trained(images(4))
        network.differentiate(logits.square().sum())
    return sum(sizes.values()), [logits, network.grad, network.buffers()]


@pytest.mark.parametrize("name", ["small", "resnet20"])
def test_recomputing_keeps_every_bit(name: str) -> None:
    options = SMALL.model_copy(update={"blocks": [3, 3]}) if name == "small" else network_options(name, norm="batch")
    parts = MODELS.find(name).recomputed
    (most, plain), (least, twice) = (
        kept_bytes(FlatModule(build_model(options, 5, 1), recomputed=r)) for r in ("", parts)
    )
    assert all(torch.equal(value, other) for value, other in zip(plain, twice, strict=True))
    assert least < most / 2


@pytest.mark.slow
def test_runtime_options_reach_the_network() -> None:
    pipeline = load_pipeline(bundled("pipelines") / "digits_ih.yaml").resolve()
    for compiled, recomputed in ((False, False), (True, False), (False, True)):
        runtime = Runtime(device="cpu", threads=1, compile=compiled, recompute=recomputed)
        network = new_network(pipeline, prepare_machine(runtime))
        assert (network.trained is not network.module) == compiled
        layers = dict(network.module.named_modules())
        assert ("forward" in vars(layers["features.denseblock1.denselayer1"])) == recomputed


@pytest.mark.slow
def test_compiled_network_equals_the_plain() -> None:
    def pooled_convolution() -> torch.nn.Module:
        torch.manual_seed(0)
        layers = [
            torch.nn.Conv2d(3, 4, 3, bias=False),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
        ]
        return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(4, 2))

    plain, compiled = (FlatModule(pooled_convolution(), channels_last=True, compiled=yes) for yes in (False, True))
    assert type(compiled.trained) is not type(plain.trained)
    for value, other in zip(kept_bytes(plain)[1], kept_bytes(compiled)[1], strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_static_parameters_equal_bound_ones() -> None:
    """A copy in place of a view changes no number, and no address."""
    images, ends = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(3)), []
    for static in (False, True):
        network = FlatModule(build_model(network_options("small"), 5, 0), static=static)
        places = [part.data_ptr() for part in network.module.parameters()]
        vector = network.parameters() * 1.01
        for _ in range(3):
            network.bind(vector)
            network.differentiate(network.trained(images).square().sum())
            vector -= 0.01 * network.grad
        network.bind(vector)
        assert torch.equal(network.parameters(), vector)
        assert ([part.data_ptr() for part in network.module.parameters()] == places) == static
        ends.append(vector)
    assert torch.equal(*ends)


@pytest.mark.slow
def test_missing_compiler_names_the_key(tmp_path: Path) -> None:
    program = (
        "import torch; from chestfed.learning.models import FlatModule\n"
        "layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3), torch.nn.ReLU())\n"
        "FlatModule(layers, compiled=True).trained(torch.ones(2, 3, 2, 2))"
    )
    environment = {**os.environ, "CXX": "/nowhere/c++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "TrainingError: runtime.compile:" in result.stderr


def torchvision_names(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    stored = {}
    for name, tensor in model.state_dict().items():
        for part in ("norm1", "conv1", "norm2", "conv2"):
            name = name.replace(f".layers.{part}.", f".{part}.")
        stored[name.replace("class_layers.out.", "classifier.")] = tensor
    return stored


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_torchvision_weights_are_loaded(tmp_path: Path, suffix: str) -> None:
    donor = build_model(SMALL, 14, seed=9)
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(torchvision_names(donor), path)
    else:
        from safetensors.torch import save_file

        save_file(torchvision_names(donor), path)
    model = build_model(SMALL.model_copy(update={"initial_weights": str(path)}), 5, seed=1)
    state, given = model.state_dict(), donor.state_dict()
    for name in state:
        if not name.startswith("class_layers.out"):
            assert torch.equal(state[name], given[name]), name


def test_foreign_weights_are_refused(tmp_path: Path) -> None:
    torch.save({"layer.weight": torch.zeros(3)}, tmp_path / "w.pth")
    with assert_refused(ConfigError, "weights of another network"):
        build_model(SMALL.model_copy(update={"initial_weights": str(tmp_path / "w.pth")}), 5, 1)
    with assert_refused(ConfigError, "unreadable weights"):
        build_model(SMALL.model_copy(update={"initial_weights": str(tmp_path / "none.pth")}), 5, 1)


def test_pickle_without_weights_is_refused(tmp_path: Path) -> None:
    import pickle

    torch.save({"a": Path()}, tmp_path / "saved.pth")
    torch.save({0: torch.zeros(3)}, tmp_path / "numbered.pth")
    for name, content in (
        ("pickle.pth", pickle.dumps({"a": Path()})),
        ("saved.pth", None),
        ("page.pth", b"<!doctype html><p>Sign in</p>"),
        ("pointer.pth", b"version https://git-lfs.github.com/spec/v1\n"),
        ("none.pth", b""),
        ("numbered.pth", None),
        ("", None),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with assert_refused(ConfigError, "unreadable weights"):
            build_model(SMALL.model_copy(update={"initial_weights": str(tmp_path / name)}), 5, 1)


@pytest.mark.parametrize(("channels", "groups"), [(8, 4), (6, 2), (9, 1)])
def test_group_norm_divides_all_channels(channels: int, groups: int) -> None:
    config = network_options("small", init_features=channels, growth_rate=channels if channels == 9 else 8, blocks=[1])
    layers = [part for part in build_model(config, 5, 1).modules() if isinstance(part, torch.nn.GroupNorm)]
    assert {layer.num_groups for layer in layers} == {groups}


def test_call_equals_the_bound_module() -> None:
    network = FlatModule(build_model(SMALL, 5, 1))
    other = network.parameters() + 0.01
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    called = network.call(other, images)
    network.bind(other)
    torch.testing.assert_close(called, network.module(images), rtol=0, atol=0)
