"""Networks that model files name: rebuilt like built-in ones, but a file's word alone runs no code."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import chestfed
from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import save_checkpoint
from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ConfigError
from chestfed.learning.models import MODELS, ModelOptions, build_model, network_options
from chestfed.studies.experiment.device import Machine
from chestfed.studies.scoring.scorers import Declared, Scorer, open_scorer
from tests.cases import assert_refused
from tests.command_line import call

MACHINE = Machine(torch.device("cpu"), 1, False, False, 0)
SIZE = 32
DENSENET = {"spatial_dims": 2, "in_channels": 3, "init_features": 4, "growth_rate": 4, "block_config": [1]}


@pytest.fixture
def own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the working folder that declares `TINY`; models lie in its folder `runs/k1`."""
    shutil.copy(Path(__file__).parents[2] / "learning" / "models" / "tiny_transformer.py", tmp_path / "ownnet.py")
    (tmp_path / "runs" / "k1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("ownnet", None)
    yield "ownnet"
    sys.modules.pop("ownnet", None)


def written(path: Path, options: ModelOptions, **header: Any) -> torch.nn.Module:
    """A model file as a study writes it."""
    module = build_model(options, 5, seed=3).eval()
    values = {
        "model": options.model_dump(mode="json"),
        "model_source": MODELS.digest(options.name),
        "diseases": list(DISEASES),
        "preprocess": {"size": SIZE, "fit": "stretch", "levels": "window"},
        "synthetic": True,
        "data": "synthetic",
    }
    save_checkpoint(path, module.state_dict(), values | header)
    return module


def opened(path: Path, **declared: Any) -> Scorer:
    return open_scorer(str(path), Declared(**declared), MACHINE)


def same(scorer: Scorer, module: torch.nn.Module) -> bool:
    images = torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        return torch.equal(scorer.call(images), module(images))


def test_plug_in_network_rebuilt_from_file(own_network: str) -> None:
    file = Path("runs/k1/model.safetensors")
    for options, kind in (
        (network_options(f"{own_network}:TINY", width=8), "Tiny transformer"),
        (network_options(f"{own_network}:TinyTransformer", options={"width": 8}), f"{own_network}:TinyTransformer"),
        (network_options("monai.networks.nets:DenseNet", options=DENSENET), "monai.networks.nets:DenseNet"),
        (network_options("resnet20"), "ResNet20"),
    ):
        module = written(file, options)
        scorer = opened(file)
        assert scorer.kind == f"chestfed model, {kind}"
        assert scorer.notes == ()
        assert same(scorer, module)


def test_changed_code_is_noted(own_network: str) -> None:
    file = Path("runs/k1/model.safetensors")
    written(file, network_options(f"{own_network}:TINY"), model_source="0123456789abcdef")
    (note,) = opened(file).notes
    now = MODELS.digest(f"{own_network}:TINY")
    assert now is not None
    assert now in note
    assert "0123456789abcdef" in note


#: References of a header that must not be called, and the kind of the refusal.
UNTRUSTED = [
    ("os:system", "module of the standard library"),
    ("subprocess:call", "module of the standard library"),
    ("builtins:eval", "module of the standard library"),
    ("antigravity:webbrowser.open", "module of the standard library"),
    ("monai.bundle:run", "not a network of the library"),
    ("monai.networks.nets.resnet:optional_import", "function"),
    ("monai.networks.nets:get_pretrained_resnet_medicalnet", "function"),
    ("torch:load", "function"),
    ("torch.hub:load", "function"),
    ("numpy:load", "function"),
    ("chestfed.core.checkpoint:json.loads", "function"),
    ("ownnet:make_tiny", "function"),
    ("ownnet:../evil", "unknown network"),
    ("no such", "unknown network"),
]


def test_name_in_a_file_cannot_call_any_code(own_network: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os
    import subprocess

    called: list[object] = []
    monkeypatch.setattr(os, "system", called.append)
    monkeypatch.setattr(subprocess, "call", called.append)
    file = Path("runs/k1/model.safetensors")
    module = build_model(network_options(f"{own_network}:TINY"), 5, seed=3)
    before = set(sys.modules)
    for name, kind in UNTRUSTED:
        model = {"name": name, "outputs_as": "command", "options": {"args": f"touch {tmp_path / 'harm'}"}}
        save_checkpoint(
            file,
            module.state_dict(),
            {"model": model, "model_source": None, "diseases": list(DISEASES), "preprocess": {"size": SIZE}},
        )
        with assert_refused(ConfigError, kind):
            opened(file)
    assert called == []
    assert not (tmp_path / "harm").exists()
    assert "antigravity" not in set(sys.modules) - before
    with assert_refused(ConfigError, "module of the standard library"):
        opened(file, network="subprocess:call")


def test_code_beside_a_model_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "model.safetensors", network_options("small", blocks=[1]), model={"name": "evil:Net"})
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('harm').touch()\nNet = 1\n")
    monkeypatch.chdir(tmp_path)
    with assert_refused(ConfigError, "code in the model's folder"):
        opened(tmp_path / "model.safetensors")
    assert not (tmp_path / "harm").exists()


def test_library_network_fetches_nothing(own_network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(*_: object, **__: object) -> None:
        raise AssertionError("weights were fetched")

    monkeypatch.setattr("monai.networks.nets.resnet.get_pretrained_resnet_medicalnet", fetched)
    file = Path("runs/k1/model.safetensors")
    arguments = {"spatial_dims": 2, "n_input_channels": 3}
    module = written(file, network_options("monai.networks.nets:resnet10", options=arguments))
    content = {"name": "monai.networks.nets:resnet10", "options": {**arguments, "pretrained": True}}
    save_checkpoint(
        file,
        module.state_dict(),
        {
            "model": content,
            "model_source": MODELS.digest(content["name"]),
            "diseases": list(DISEASES),
            "preprocess": {"size": SIZE},
        },
    )
    assert same(opened(file), module)
    content["options"]["name"] = "hf-hub:somebody/something"  # type: ignore[index]
    save_checkpoint(
        file,
        module.state_dict(),
        {"model": content, "model_source": None, "diseases": list(DISEASES), "preprocess": {"size": SIZE}},
    )
    with assert_refused(ConfigError, "network to be downloaded"):
        opened(file)


def test_user_may_name_a_refused_network(own_network: str) -> None:
    file = Path("runs/k1/model.safetensors")
    module = written(file, network_options(f"{own_network}:make_tiny", options={"width": 8}))
    with assert_refused(ConfigError, "function"):
        opened(file)
    assert same(opened(file, network=f"{own_network}:make_tiny"), module)


def test_described_foreign_weights_scored(own_network: str) -> None:
    module = build_model(network_options(f"{own_network}:TINY", width=8), 3, seed=3).eval()
    torch.save(module.state_dict(), "m.pth")
    torch.save({"state_dict": {f"net.{name}": part for name, part in module.state_dict().items()}}, "m.ckpt")
    description = {
        "model": {"name": f"{own_network}:TINY", "width": 8},
        "diseases": ["Edema", "Effusion", "Lung Opacity"],
        "preprocess": {"size": SIZE, "levels": "window"},
    }
    Path("m.yaml").write_text(json.dumps(description))
    for name in ("m.pth", "m.ckpt"):
        scorer = opened(Path(name), config=Path("m.yaml"))
        assert scorer.outputs == ("edema", "pleural_effusion", "lung_opacity")
        assert same(scorer, module)
        assert len(scorer.notes) == 0
    with assert_refused(ConfigError, "weights without a network"):
        opened(Path("m.pth"))
    torch.save(build_model(network_options(f"{own_network}:TINY"), 2, seed=3).state_dict(), "n.pth")
    scorer = opened(Path("n.pth"), diseases=("edema", "mass"), network=f"{own_network}:TINY")
    assert scorer.call(torch.zeros(1, 3, SIZE, SIZE)).isfinite().all()
    with assert_refused(ConfigError, "two networks named"):
        opened(Path("m.pth"), config=Path("m.yaml"), network=f"{own_network}:TINY")


#: Frozen networks that a header may name: nothing but code and weights of chestfed is used.
BUILT_IN = [{"name": "efficientnet-lite0", "initial_weights": "imagenet"}, {"name": "small", "blocks": [1]}]
#: Frozen networks that it may not name: foreign code, foreign files, and weights that would be downloaded.
NOT_BUILT_IN: list[object] = [
    {"name": "ownnet:make_tiny"},
    {"name": "ownnet:TINY"},
    {"name": "monai.networks.nets:resnet10"},
    "ownnet:make_tiny",
    "os:system",
    {"name": "small", "initial_weights": "harm.pth"},
    {"name": "densenet121", "initial_weights": "imagenet"},
    {"name": "features", "network": "small"},
    {"name": ["small"]},
    None,
]


@pytest.mark.parametrize("network", BUILT_IN)
def test_built_in_frozen_network_is_opened(tmp_path: Path, network: dict[str, Any]) -> None:
    file = tmp_path / "model.safetensors"
    module = written(file, network_options("features", network=network))
    assert same(opened(file), module)
    out = call("export", file, "--out", "hub", folder=tmp_path)
    assert out.code == 0, out.err
    assert same(opened(tmp_path / "hub"), module)


@pytest.mark.parametrize("network", NOT_BUILT_IN)
def test_features_build_nothing_on_a_word(
    own_network: str, network: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    file = Path("runs/k1/model.safetensors")
    options = network_options("features", network={"name": "small", "blocks": [1]})
    written(file, options, model={**options.model_dump(mode="json"), "network": network})
    with assert_refused(ConfigError, "network within a network"):
        opened(file)
    assert own_network not in sys.modules


def test_user_may_trust_a_frozen_network(own_network: str, tiny_hospitals: Path) -> None:
    file = Path("runs/k1/model.safetensors")
    module = written(file, network_options("features", network={"name": f"{own_network}:make_tiny"}))
    assert same(opened(file, network="features"), module)
    exported = call("export", file, "--out", "hub", "--network", "features", folder=Path.cwd())
    assert exported.code == 0, exported.err
    site: Any = bundled("site_configs") / "synthetic" / "chexpert.yaml"
    with pytest.raises(ConfigError, match="network='features'"):
        chestfed.evaluate(file, site, data=tiny_hospitals)
    done = chestfed.evaluate(file, site, data=tiny_hospitals, network="features", batch_norm="stored", resamples=0)
    assert len(done.predictions) > 20
