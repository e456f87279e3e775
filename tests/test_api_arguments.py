"""The Python API: what is in memory is taken, and what cannot be used is refused with what to give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chestfed
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms import ALGORITHMS
from tests.cases import assert_refused
from tests.studies.tuning.test_tune import TINY
from tests.test_api import CHEXPERT, DIGITS, MINE

STUDY = {"title": "Own: digits", "extends": "digits_ih", "federated": {"window": 4}, "seed": np.int64(3)}
IMAGES = [(np.full((8, 8), 9 * number, np.uint8), number % 2) for number in range(6)]


def test_mapping_is_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = chestfed.load_pipeline(STUDY)
    assert (pipeline.title, pipeline.seed, pipeline.resolve("fedprox").federated.window) == ("Own: digits", 3, 4)
    assert pipeline == chestfed.load_pipeline(STUDY)
    assert list(tmp_path.iterdir()) == []
    site = {"config": "site_configs/synthetic/chexpert.yaml"}
    sites = chestfed.load_pipeline({"title": "x", "sites": [site], "data_root": "data"}).sites
    assert Path(sites[0].config) == bundled("site_configs") / "synthetic" / "chexpert.yaml"
    with assert_refused(ConfigError, "unknown key", key="windws", place="argument pipeline", suggestion="windows"):
        chestfed.load_pipeline({**STUDY, "windws": [1]})


def test_model_of_a_pipeline_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = chestfed.load_pipeline("digits_ih", ["seed=4"])
    assert chestfed.load_pipeline(file) == file
    windows = chestfed.load_pipeline("digits_ih", ["windows=[4, 8]"])
    assert chestfed.load_pipeline(windows).windows == [4, 8]
    study = file.resolve("fedprox")
    again = chestfed.load_pipeline(study)  # type: ignore[arg-type]
    assert again.resolve() == study


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"pipeline": 3}, "not a pipeline"),
        ({"pipeline": ["digits_ih"]}, "not a pipeline"),
        ({"pipeline": "digits_ih", "methods": [{"name": "fedavg"}]}, "no algorithm"),
        ({"pipeline": "digits_ih", "methods": []}, "no methods"),
        ({"pipeline": "digits_ih", "methods": [3]}, "not a part"),
        ({"pipeline": "digits_ih", "methods": ["fedavg"], "algorithm": "fedavg"}, "two selections"),
        ({"pipeline": "digits_ih", "jobs": 0}, "not a count"),
        ({"pipeline": "digits_ih", "jobs": "two"}, "not a count"),
        ({"pipeline": "digits_ih", "windows": [1.5]}, "not whole numbers"),
        ({"pipeline": "digits_ih", "seeds": 2, "jobs": 2, "algorithm": MINE}, "declaration of one process"),
        ({"clients": [IMAGES]}, "no test set"),
        ({"test": IMAGES}, "no test set"),
        ({"tasks": ["spot"]}, "no test set"),
        ({"clients": 3, "test": IMAGES}, "not a list"),
        ({"pipeline": "digits_ih", "windows": 3}, "not a list"),
        ({"pipeline": "digits_ih", "overrides": [3]}, "another type"),
        ({"pipeline": "digits_ih", "out": None}, "not a path"),
        ({"pipeline": "digits_ih", "data": {}}, "not a path"),
        ({"pipeline": "digits_ih", "cache": 3}, "not a path"),
        ({"pipeline": "digits_ih", "add_sites": [None]}, "not a site"),
    ],
)
def test_unusable_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ALGORITHMS, "_registered", {})
    with assert_refused(ConfigError, kind):
        chestfed.run(**arguments)
    assert not list(tmp_path.glob("runs/digits*"))


@pytest.mark.parametrize("value", [{}, None, np.zeros((2, 2)), b"x"], ids=repr)
def test_other_types_than_paths_are_refused(value: Any) -> None:
    for load in (chestfed.load_site, chestfed.Study.load, chestfed.Comparison.load):
        with pytest.raises(ConfigError) as caught:
            load(value)
        assert caught.value.kind in ("not a site", "not a path")


def test_unusable_models_are_refused(tmp_path: Path, tiny_hospitals: Path) -> None:
    network = torch.nn.Linear(3, 2)
    for model, settings, kind in (
        (3, {}, "not a model"),
        (network, {}, "outputs without names"),
        (network, {"diseases": ["edema", "-"], "k": 2}, "module"),
        (network, {"diseases": ["edema", "-"], "input": {"channels": 2}}, "unusable input"),
        (network, {"diseases": ["edema", "-"], "network": "resnet20"}, "module"),
        (tmp_path / "x.onnx", {"input": {"channels": 1}}, "not a module"),
    ):
        with assert_refused(ConfigError, kind):
            chestfed.evaluate(model, CHEXPERT, data=tiny_hospitals, **settings)  # type: ignore[arg-type]
    for models in ((), ("one",), (3, 4)):
        with pytest.raises(ConfigError) as caught:
            chestfed.compare(*models)  # type: ignore[arg-type]
        assert caught.value.kind in ("not models", "not a model")


@pytest.mark.slow
def test_samples_train_in_two_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ALGORITHMS, "_registered", {})
    short = [setting for setting in DIGITS if "clients" not in setting]
    methods = [replace(MINE, version="1"), {"algorithm": "fedavg", "name": "slow", "local_lr": 0.01}]
    data = {"clients": [IMAGES, IMAGES[:4]], "test": IMAGES, "tasks": ["bright"]}
    compared = chestfed.run(methods=methods, **data, overrides=short, quiet=True)  # type: ignore[arg-type]
    assert isinstance(compared, chestfed.Comparison)
    assert compared.methods == ("mine", "slow")
    assert compared.settings()["local_lr"].tolist() == [0.1, 0.01]
    assert compared.table(wide=True).columns.tolist() == ["bright"]
    assert compared.study("slow").configuration["federated"]["local_lr"] == 0.01
    assert compared.fairness().empty
    with assert_refused(ConfigError, "no such run"):
        compared.study("fast")
    assert repr(chestfed.Comparison.load(compared.folder)) == repr(compared)
    network = compared.study("mine").network()
    assert network(torch.zeros(1, 3, 32, 32)).shape == (1, 1)


@pytest.mark.slow
def test_settings_are_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("digits.yaml").write_text(TINY.format(file=bundled("pipelines") / "digits_ih.yaml"))
    tuned = chestfed.tune("digits.yaml", methods=["fedprox"], trials=2, seeds=1, confirm=0, quiet=True)
    assert tuned.trials["trial"].tolist() == [1, 2]
    assert isinstance(tuned.result, chestfed.Study)
    best = tuned.trials.sort_values("validation_auc")["local_lr"].iloc[-1]
    assert tuned.result.configuration["federated"]["local_lr"] == pytest.approx(best)
    assert tuned.result.configuration["tuning"]["trials"] == 2
    assert chestfed.load_pipeline(tuned.file).resolve().tuning is not None
