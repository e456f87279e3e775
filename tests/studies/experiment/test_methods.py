"""Methods of a pipeline: what each trains with, which run, and which settings are refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.learning.exchange.exchange import list_specs
from chestfed.studies.designs.design import list_variants
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.methods import PipelineFile
from chestfed.studies.experiment.resolved import identity
from tests.cases import assert_refused

DIGITS, SAMPLES, TABLE_3 = (
    bundled("pipelines") / f"{name}.yaml" for name in ("digits_ih", "source_addition_samples", "table3_chestxray_ih")
)
NOISE = "{clip: 1.0, noise_multiplier: 1.0}"
NOISY = f"methods=[{{algorithm: fedprox, privacy: {NOISE}}}]"


@pytest.fixture
def sampling_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An algorithm of one's own that takes `clients_per_round`."""
    text = "from dataclasses import replace\nfrom chestfed.learning.algorithms.minimization.fedprox import FEDAVG\n"
    (tmp_path / "sampling.py").write_text(text + "MINE = replace(FEDAVG, name='mine', rule=None)\n")
    monkeypatch.chdir(tmp_path)
    return "sampling:MINE"


def select_names(pipeline: PipelineFile) -> list[str]:
    return [method.name for method in pipeline.selected_methods]


@pytest.mark.parametrize(
    ("settings", "methods", "expected"),
    [
        ([], [], ["codasca"]),
        ([], ["scaffold"], ["scaffold"]),
        (["selected=null", "windows=[]"], [], None),
        ([], ["pdmm", "tests.studies.experiment.test_methods:none"], ValueError),
        (["methods=[{algorithm: npa}, {algorithm: npa, name: slow, local_lr: 0.1}]"], [], ["npa", "slow"]),
        (["methods=[{algorithm: npa}]"], ["npa", "fedavg"], ["npa", "fedavg"]),
    ],
)
def test_selected_methods(settings: list[str], methods: list[str], expected: Any) -> None:
    if expected is ValueError:
        with pytest.raises(ConfigError):
            load_pipeline(SAMPLES, settings, methods=methods)
        return
    pipeline = load_pipeline(SAMPLES, settings, methods=methods)
    names = [method.name for method in pipeline.methods] if expected is None else expected
    assert select_names(pipeline) == names
    assert pipeline.is_comparison == (len(names) > 1)


def test_empty_selection_is_told_of_null(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("extends: digits_ih\ntitle: Own\nselected: []\n")
    with assert_refused(ConfigError, "invalid value", key="selected") as caught:
        load_pipeline(tmp_path / "p.yaml")
    assert "should have 1 or more entries, found an empty list; write null for all of them" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("methods: [{algorithm: npa}]\n", ["npa"]),  # the selection of the other list goes with it
        ("selected: [fedavg, scaffold]\n", ["fedavg", "scaffold"]),
        ("selected: [none]\n", None),
        ("methods: [{algorithm: npa}]\nselected: [codasca]\n", None),
    ],
)
def test_extended_methods(tmp_path: Path, text: str, names: list[str] | None) -> None:
    (tmp_path / "own.yaml").write_text(f"extends: {SAMPLES}\n{text}")
    if names is None:
        with assert_refused(ConfigError, "invalid value", key="selected"):
            load_pipeline(tmp_path / "own.yaml")
    else:
        assert select_names(load_pipeline(tmp_path / "own.yaml")) == names


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ([], "local_lr", 0.2),  # the method's own comes before the common one
        (["federated.local_lr=0.7"], "local_lr", 0.7),  # one of the command line holds for all
        (["federated.local_lr=0.7", "methods.fedprox.local_lr=0.5"], "local_lr", 0.5),
        (["methods.*.local_lr=0.7", "methods.fedprox.local_lr=0.5"], "local_lr", 0.5),
        (["methods.*.local_lr=0.7"], "local_lr", 0.7),
        (["methods.fedprox.algorithm.prox=0.2"], "algorithm.prox", 0.2),
        (
            ["methods.fedprox.algorithm={name: fedprox, prox: 0.1}", "methods.*.algorithm.prox=0.2"],
            "algorithm.prox",
            0.1,
        ),
        (["methods.fedprox.objective=ratio_loss"], "objective.name", "ratio_loss"),
        (["methods.fedprox.objective=ratio_loss", "methods.fedprox.objective.beta=0.5"], "objective.beta", 0.5),
        ([NOISY, f"federated.privacy={NOISE}", "federated.privacy.clip=5"], "privacy.clip", 5),
    ],
)
def test_settings_in_any_order(settings: list[str], key: str, value: object) -> None:
    for order in itertools.permutations(settings):
        setting: Any = load_pipeline(SAMPLES, order, methods=["fedprox"]).resolve().federated
        for part in key.split("."):
            setting = getattr(setting, part)
        assert setting == value, order


@pytest.mark.parametrize(
    ("file", "settings", "methods", "words"),
    [
        (
            DIGITS,
            ["methods.fedprox.algorithm.prox=0.5"],
            ["fedavg", "scaffold"],
            "--set methods.fedprox.algorithm.prox",
        ),
        (
            DIGITS,
            ["methods.fedprox.algorithm.proxx=0.5"],
            ["fedavg", "fedprox"],
            "unknown key 'methods.fedprox.algorithm.proxx",
        ),
        (DIGITS, ["federated.weights=images"], ["pdmm", "gossip"], "'federated.weights': no effect with pdmm, gossip"),
        (DIGITS, ["federated.window_growth=2"], ["npa"], "'federated.window_growth': no effect with npa"),
        (DIGITS, ["methods.npa.window_growth=2"], ["npa"], "methods, npa: window_growth: no effect"),
        (TABLE_3, ["federated.window=2"], [], "--set federated.window: no effect"),
        (TABLE_3, ["methods.codasca.window=2"], [], "methods, codasca: window has no effect beside windows"),
        (DIGITS, ["federated.clients_per_round=2"], ["fedavg", "gossip"], "methods, gossip: clients_per"),
        (DIGITS, ["federated.clients_per_round=2", "federated.stage_output=algorithm"], [], "stage_output: "),
        (DIGITS, ["methods.*.objective=ratio_loss"], ["fedavg", "codasca"], "methods, codasca: objective: ratio_loss"),
        (DIGITS, ["methods.codasac.local_lr=1"], ["codasca"], "did you mean methods.codasca?"),
        (DIGITS, ["methods.fedavg.local_lr=1"], ["codasca"], "fedavg does not run; select it too"),
        (SAMPLES, ["federated.momentum=1"], [], "unknown key 'federated.momentum'"),
        (SAMPLES, ["methods.codasca.momentum=1"], [], "it is an option of local_sgdm"),
        (SAMPLES, ["methods.codasca.algorithm.momentum=1"], [], "it is an option of local_sgdm"),
        (SAMPLES, ["methods.codasca.objective.hvp=drop"], [], "it is an option of compositional_auc"),
        (SAMPLES, ["methods=[{local_lr: 1.0}]"], [], "'methods.0.algorithm' is missing"),
        (SAMPLES, ["windows=[4, 4]"], [], "windows: name each once; found 4, 4"),
        (SAMPLES, ["methods=[{algorithm: npa}, {algorithm: npa}]"], [], "methods: name each once; found npa, npa"),
        (SAMPLES, ["methods=[]"], [], "methods"),
        (SAMPLES, ["seeds=[]"], [], "seeds"),
        (
            SAMPLES,
            [],
            ["codas"],
            "--methods: no method of the pipeline and no algorithm has the name 'codas'; did you mean",
        ),
        (
            SAMPLES,
            [],
            ["nosuch:Rule"],
            "--methods: 'nosuch:Rule': module 'nosuch' cannot be imported",
        ),
        (SAMPLES, [], ["../mine:Rule"], "write module:NAME, not a path: run in the folder of mine.py"),
    ],
)
def test_idle_and_wrong_settings(file: Path, settings: list[str], methods: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_pipeline(file, settings, methods=methods)
    assert words in str(caught.value)


def test_file_of_ones_own_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    for name in ("mine", "mine.py", "./mine.py"):
        with assert_refused(ConfigError, "unknown algorithm", name=name, file="mine.py", suggestion="mine:NAME"):
            load_pipeline(DIGITS, methods=[name])


def test_idle_keys_of_files(tmp_path: Path) -> None:
    """A key that no method of the same file needs is refused; one of an extended file does not matter."""
    (tmp_path / "a.yaml").touch()
    (tmp_path / "base.yaml").write_text("title: x\nsites: [{config: a.yaml}]\nfederated: {weights: images}\n")
    file = tmp_path / "own.yaml"
    file.write_text("extends: base.yaml\nmethods: [{algorithm: centralized}]\n")
    assert "weights" not in load_pipeline(file).resolve().federated.model_fields_set
    file.write_text("extends: base.yaml\nmethods: [{algorithm: centralized}]\nfederated: {weights: images}\n")
    with assert_refused(ConfigError, "no effect", key="federated.weights", place=f"{file}:3"):
        load_pipeline(file)


def test_common_mistake_is_reported_once(tmp_path: Path) -> None:
    """At the key of `federated` where it was written, though every method takes it."""
    file = tmp_path / "own.yaml"
    methods = "methods: [{algorithm: fedavg}, {algorithm: scaffold}]\n"
    file.write_text(f"title: x\nsites: [{{config: a.yaml}}]\n{methods}federated:\n  window: 4\n  local_lr: fast\n")
    with assert_refused(ConfigError, "invalid value", key="federated.local_lr", place=f"{file}:6") as refused:
        load_pipeline(file)
    assert len(str(refused.value).splitlines()) == 1


def test_window_in_common_beside_windows() -> None:
    """A common window stays beside `windows`, of which a method's own would be a second one."""
    methods = "methods=[{algorithm: fedavg}, {algorithm: scaffold, window: 4}]"
    load_pipeline(SAMPLES, [methods, "selected=[fedavg]", "windows=[2, 4]"])
    with assert_refused(ConfigError, "invalid value", key="methods.1.window", place="--set methods"):
        load_pipeline(SAMPLES, [methods, "selected=null", "windows=[2, 4]"])


def test_plug_in_settings(sampling_plug_in: str) -> None:
    load_pipeline(DIGITS, ["federated.clients_per_round=2"], methods=[sampling_plug_in])
    setting = f"methods.{sampling_plug_in}.clients_per_round=2"
    both = load_pipeline(DIGITS, [setting], methods=[sampling_plug_in, "codasca"])
    assert both.resolve(sampling_plug_in).federated.clients_per_round == 2
    assert both.resolve("codasca").federated.clients_per_round is None


@pytest.mark.parametrize(
    ("settings", "methods", "norms"),
    [
        ([], ["codasca"], ["batch"]),
        ([], ["pdmm"], ["group"]),
        ([], ["codasca", "pdmm"], ["group", "group"]),
        ([f"methods.fedavg.privacy={NOISE}"], ["codasca", "fedavg"], ["group", "group"]),
        (["methods.codasca.model={name: small, norm: batch}"], ["codasca", "pdmm"], ["batch", "group"]),
    ],
)
def test_normalization_suits_methods(settings: list[str], methods: list[str], norms: list[str]) -> None:
    pipeline = load_pipeline(SAMPLES, ["model.norm=auto", *settings], methods=methods)
    assert [pipeline.resolve(name).model.norm for name in methods] == norms  # type: ignore[attr-defined]


def test_variants() -> None:
    def labels(*settings: str) -> list[tuple[str, int, int, list[int]]]:
        runs = [variant.pipeline for variant in list_variants(load_pipeline(SAMPLES, settings), SAMPLES)]
        return [(run.method, run.federated.window, run.seed, run.k) for run in runs]

    every = [1, 2, 3, 4, 5]
    assert labels("seeds=2") == [("codasca", 4, 1, every), ("codasca", 4, 2, every)]
    assert labels("seeds=[7]", "windows=[1, 4]") == [("codasca", 1, 7, [5]), ("codasca", 4, 7, [5])]
    assert labels("selected=[npa, fedavg]") == [("npa", 4, 1, [5]), ("fedavg", 4, 1, [5])]
    assert labels("methods=[{algorithm: npa}, {algorithm: npa, name: slow, local_lr: 0.1}]") == [
        ("npa", 4, 1, [5]),
        ("slow", 4, 1, [5]),
    ]


def test_methods_of_one_algorithm() -> None:
    def refuse(*settings: str) -> str | None:
        with pytest.raises(ConfigError) as caught:
            list_variants(load_pipeline(SAMPLES, settings), SAMPLES)
        return caught.value.kind

    two = "methods=[{name: short, algorithm: codasca, window: 8}, {name: long, algorithm: codasca, window: 32}]"
    variants = list_variants(load_pipeline(SAMPLES, [two]), SAMPLES)
    assert [(variant.pipeline.method, variant.pipeline.federated.window) for variant in variants] == [
        ("short", 8),
        ("long", 32),
    ]
    with pytest.raises(ConfigError):  # one name twice
        load_pipeline(SAMPLES, ["methods=[{algorithm: codasca}, {algorithm: codasca, window: 8}]"])
    assert refuse("methods=[{name: a, algorithm: codasca}, {name: b, algorithm: codasca}]") == "equal methods"
    rates = "methods=[{name: a, algorithm: codasca, local_lr: 0.1}, {name: b, algorithm: codasca, local_lr: 0.2}]"
    assert refuse(rates, "windows=[2, 4]") == "windows of one algorithm"


def test_unused_steps_rename_no_run() -> None:
    settings = identity(load_pipeline(DIGITS, []).resolve())["federated"]
    keys = {key for spec in list_specs() for key in spec.fields}
    assert keys & settings.keys() == {"aggregation", "trim", "compression", "privacy", "server_optimizer"}
