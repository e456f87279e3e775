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
from chestfed.studies import running
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


def _load(patch: pytest.MonkeyPatch, **arguments: Any) -> Any:
    """The pipeline that `chestfed.run` would run."""

    def stop(pipeline: object, *_: object) -> None:
        raise _Loaded(pipeline)

    patch.setattr(running, "check", stop)
    with pytest.raises(_Loaded) as loaded:
        chestfed.run(**arguments)
    return loaded.value.args[0]


class _Loaded(Exception):
    """Ends a call before it trains; its argument is the pipeline."""


TWO = 'methods=[{"algorithm": "fedavg"}, {"algorithm": "fedprox", "name": "near"}]'


@pytest.mark.parametrize(
    ("override", "key", "expected"),
    [
        ("seeds=4", "seed_list", [1, 2, 3, 4]),
        ("seeds=[3, 5]", "seed_list", [3, 5]),
        ("windows=[2, 8]", "windows", [2, 8]),
        ("splits=2", "splits", 2),
        ("k=[1, 2]", "k", [1, 2]),
        ("selected=[fedavg, coda]", "selected_names", ["fedavg", "coda"]),
        (TWO, "selected_names", ["fedavg", "near"]),
        ("title=x", "selected_names", ["codasca"]),
    ],
)
def test_overrides_take_keys_that_make_several_studies(
    monkeypatch: pytest.MonkeyPatch, override: str, key: str, expected: object
) -> None:
    base = "chestxray8_algorithms" if key == "splits" else "digits_ih"
    loaded = _load(monkeypatch, pipeline=base, overrides=[override])
    selected = [method.name for method in loaded.selected_methods]
    assert (selected if key == "selected_names" else getattr(loaded, key)) == expected


def test_overrides_take_k_beside_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"clients": [IMAGES, IMAGES], "test": IMAGES, "pipeline": "digits_ih"}
    assert _load(monkeypatch, **data, overrides=["k=[2]"]).k == [2]
    assert (
        _load(monkeypatch, clients=[IMAGES, IMAGES], test=IMAGES, methods=["fedavg"], overrides=["seeds=4"]).seeds == 4
    )


@pytest.mark.parametrize(
    ("override", "arguments"),
    [
        ("seeds=4", {"seeds": 2}),
        ("windows=[4]", {"windows": [2]}),
        ("splits=2", {"splits": 3}),
        ("k=2", {"k": 1}),
        ("seed=2", {"seed": 1}),
        ("runtime.device=cpu", {"device": "cpu"}),
        ("model=small", {"model": "densenet121"}),
        ("methods.*.objective=auc", {"objective": "auc"}),
        ("selected=[fedavg]", {"methods": ["coda"]}),
        ("selected=[fedavg]", {"algorithm": "coda"}),
        (TWO, {"methods": [{"algorithm": "coda"}]}),
        ("collection={name: digits}", {"clients": [IMAGES], "test": IMAGES}),
    ],
)
def test_a_key_that_is_given_twice_is_refused(override: str, arguments: dict[str, Any]) -> None:
    with assert_refused(ConfigError, "given twice", key=override.partition("=")[0]):
        chestfed.run("digits_ih", overrides=[override], **arguments)


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
