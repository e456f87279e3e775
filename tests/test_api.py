"""The Python API: what `chestfed.run`, `evaluate`, `compare` and `load_site` do is what the commands do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
import torch

import chestfed
from chestfed.core.bundled import bundled
from chestfed.core.errors import ChestfedError, ChestfedWarning, ConfigError
from chestfed.learning.algorithms import ALGORITHMS, AlgorithmSpec
from chestfed.learning.algorithms.minimization.fedprox import FedProx
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.training.tiny_studies import SETTINGS

DIGITS = [
    *("collection.clients=2", "federated.window=2", "federated.batch_size=4", "federated.stage_steps=4"),
    *("federated.stages=1", "evaluation.resamples=0", "runtime.threads=1"),
]
CHEXPERT = bundled("site_configs") / "synthetic" / "chexpert.yaml"

MINE = AlgorithmSpec(
    name="mine",
    title="Mine",
    paper="-",
    where="-",
    exact="window 1",
    build=lambda options, setting: FedProx(setting.window, setting.local_lr),
)


def test_import_is_light_and_lists_names() -> None:
    program = (
        "import sys, chestfed\n"
        "print(sorted({'torch', 'numpy', 'pandas', 'monai', 'mlflow'} & set(sys.modules)), dir(chestfed))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.startswith("[] ")
    for name in chestfed.__all__:
        assert f"'{name}'" in output
        assert getattr(chestfed, name)


def test_nameless_user_is_given_a_name() -> None:
    """As in a container that is started with `--user 12345`."""
    program = (
        "import os, pwd\n"
        "for name in ('LOGNAME', 'USER', 'LNAME', 'USERNAME'): os.environ.pop(name, None)\n"
        "pwd.getpwuid = {}.__getitem__\n"
        "import chestfed, getpass; print(getpass.getuser())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "unknown\n", done.stderr


@pytest.mark.slow
def test_a_study_is_that_of_the_command(
    tiny_study: Path, furnish: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(furnish(tmp_path))
    study = chestfed.run(overrides=SETTINGS, data=tiny_study / "synthetic_hospitals", out=tmp_path / "runs", quiet=True)
    (folder,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    assert study.folder.name == folder.name
    pd.testing.assert_frame_equal(study.table(), chestfed.Study.load(folder).table())
    assert not (tmp_path / "runs" / "mlflow.db").exists()


@pytest.mark.slow
def test_algorithm_has_three_spellings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ALGORITHMS, "_registered", {})  # what is registered here is unknown to other tests
    for part, name in ((MINE, "mine"), ({"name": "fedprox", "prox": 0.5}, "fedprox"), ("scaffold", "scaffold")):
        study = chestfed.run("digits_ih", algorithm=part, overrides=DIGITS, seed=3)
        assert study.configuration["federated"]["algorithm"]["name"] == name
        assert study.configuration["seed"] == 3
    capsys.readouterr()
    again = chestfed.run("digits_ih", algorithm="scaffold", overrides=DIGITS, seed=3)
    assert again.folder == study.folder
    assert "from the earlier run" in capsys.readouterr().out
    with assert_refused(ConfigError, "name taken", part="codasca"):
        chestfed.run("digits_ih", algorithm=replace(MINE, name="codasca"), overrides=DIGITS)


@pytest.mark.slow
def test_unidentified_method_trains_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ALGORITHMS, "_registered", {})
    made_here = replace(MINE, build=lambda options, setting: FedProx(setting.window, 0.0))
    for part, folders in ((made_here, 2), (replace(made_here, version="1"), 1)):
        with nullcontext() if part.version else pytest.warns(ChestfedWarning, match="'mine'"):
            runs = [chestfed.run("digits_ih", algorithm=part, overrides=DIGITS, quiet=True) for _ in range(2)]
        assert len({study.folder for study in runs}) == folders


@pytest.mark.slow
def test_seeds_give_tables_of_every_k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    studies = chestfed.run("digits_ih", algorithm="fedavg", k=[1, 2], seeds=[3, 5], overrides=DIGITS, quiet=True)
    assert (studies.ks, studies.seeds, studies.folder.parent) == ((1, 2), (3, 5), Path("runs"))
    of_each = {seed: studies.study(seed) for seed in studies.seeds}
    rows = studies.by_seed()
    for (k, seed), row in rows.iterrows():
        assert of_each[seed].configuration["seed"] == seed
        assert row["mean"] == pytest.approx(of_each[seed].auc(k))
    table = studies.table().query("disease == 'mean'").set_index("k")
    assert table["auc"].to_dict() == pytest.approx(rows["mean"].groupby("k").mean().to_dict())
    assert table["sd"].to_dict() == pytest.approx(rows["mean"].groupby("k").std().to_dict())
    (gain,) = studies.significance().query("disease == 'mean'").to_dict("records")
    assert gain["difference"] == pytest.approx(table["auc"][2] - table["auc"][1])
    assert gain["p"] == gain["p"]  # over patients and seeds there is one
    assert f"{gain['difference']:+.3f}" in studies.verdict.replace("−", "-")
    assert len(studies.plot_auc().lines) == 4  # both seeds, what the legend says of them, and the mean
    with assert_refused(ConfigError, "no such seed", seed=4):
        studies.study(4)
    with assert_refused(ChestfedError, "no such table", view="hospitals"):
        studies.hospitals()
    with assert_refused(ConfigError, "several seeds"):
        studies.rounds()
    assert of_each[3].study(3).folder == of_each[3].folder
    compared = call("compare", *(of_each[3].folder / f"k{k}" for k in (1, 2)), "--resamples", "20")
    assert compared.code == 0, compared.err
    assert "images." in compared.out
    assert " patients." not in compared.out  # images of digits are nobody's


def test_models_are_scored_and_compared(tiny_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (folder,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    study = chestfed.Study.load(folder)
    site = chestfed.load_site(CHEXPERT, data=tiny_study / "synthetic_hospitals", cache=tmp_path / "cache")
    images = site.dataset("valid", size=64, views="frontal")
    assert images[0][0].shape == (3, 64, 64)
    assert len(site.dataset("valid", size=np.int64(64))) >= len(images)  # type: ignore[arg-type]
    with assert_refused(ConfigError, "no such image", split="valid"):
        site.dataset("valid", size=64, views=[])
    with assert_refused(ConfigError, "not a site"):
        chestfed.evaluate(study, site, data=tmp_path)
    with assert_refused(ConfigError, "unknown choice", key="interval"):
        study.compare(study, interval="wald")  # type: ignore[arg-type]
    results = [chestfed.evaluate(study, site, k=k, resamples=20, out=tmp_path / f"k{k}") for k in (1, 2)]
    for k, result in zip((1, 2), results, strict=True):
        assert result.auc["mean"] == pytest.approx(study.auc(k))
        assert repr(result).count("\n") < 5
        assert f"{result.auc['mean']:.3f}" in repr(result)
    assert study.auc(1, "Edema") == study.auc(1, "oedema") == study.auc(1, "edema")
    with assert_refused(ConfigError, "outputs without names") as error:
        chestfed.evaluate(torch.nn.Identity(), site)
    assert "diseases=" in str(error.value)
    with assert_refused(ConfigError, "no patients held out", site="chexpert"):
        chestfed.evaluate(study, site, split="held-out")
    (tmp_path / "taken").write_text("a file")
    with assert_refused(ChestfedError, "cannot be written", option="out"):
        chestfed.evaluate(study, site, out=tmp_path / "taken")
    table = chestfed.compare(tmp_path / "k1", tmp_path / "k2", resamples=20)
    expected = chestfed.compare(folder / "k1", folder / "k2", resamples=20)
    assert table["difference"].tolist() == pytest.approx(expected["difference"].tolist())


def test_bad_arguments_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prox = MappingProxyType({"name": "fedprox", "prox": np.float32(-1)})
    for arguments, kind in (
        ({"pipeline": "no_such"}, "no such name"),
        ({"algorithm": {"name": "fedavg", "prox": 0.1}}, "unknown key"),
        ({"k": 9}, "invalid value"),
        *(({"seeds": seeds}, "not several seeds") for seeds in ([3, 3], [3, 3, 4], [-1, 2], 1)),
        ({"seeds": [1.5, 2]}, "not whole numbers"),
        ({"k": np.int64(9)}, "invalid value"),
        ({"skip_unreadable": True, "quiet": True}, "no effect"),
        ({"overrides": "k=2"}, "not a list"),
        ({"add_sites": Path("own.yaml")}, "not a list"),
        ({"algorithm": {"name": "fedprox", "prox": np.ones(2)}}, "invalid value"),
        ({"model": torch.nn.Linear}, "not a part"),
        ({"model": {"name": "small", "initial_weights": tmp_path / "x"}}, "unreadable weights"),
        ({"algorithm": prox}, "invalid value"),
    ):
        with assert_refused(ConfigError, kind):
            chestfed.run(**{"pipeline": "digits_ih", **arguments})  # type: ignore[arg-type]
    with assert_refused(ConfigError, "not a device", device="gpu"):
        chestfed.evaluate("model.onnx", "site.yaml", device="gpu")
    with assert_refused(ConfigError, "unknown choice", key="interval"):
        chestfed.evaluate("model.onnx", "site.yaml", interval="wald")  # type: ignore[arg-type]
    with assert_refused(ConfigError, "unknown choice", key="output_type"):
        chestfed.evaluate("model.onnx", "site.yaml", output_type="logit")
    with assert_refused(ConfigError, "not a count", key="resamples"):
        chestfed.compare("a", "b", resamples=-1)
    with assert_refused(ConfigError, "not a count", key="resamples"):
        chestfed.evaluate("model.onnx", "site.yaml", resamples=2.5)  # type: ignore[arg-type]
    with assert_refused(ConfigError, "not a list", key="diseases"):
        chestfed.evaluate("model.onnx", "site.yaml", diseases="edema")
    with assert_refused(ConfigError, "not a site"):
        chestfed.evaluate("model.onnx", None)  # type: ignore[arg-type]
    with assert_refused(ConfigError, "not a list", key="overrides"):
        chestfed.load_site(CHEXPERT, tmp_path, overrides="title=x")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_script_needs_no_main_guard(tiny_hospitals: Path, tmp_path: Path) -> None:
    (tmp_path / "synthetic_hospitals").symlink_to(tiny_hospitals)
    settings = [*(setting for setting in SETTINGS if not setting.startswith("k=")), "k=[1]"]
    (tmp_path / "script.py").write_text(
        "import sys, chestfed\n"
        f"study = chestfed.run(overrides={settings!r}, quiet=True)\n"
        "print(study.ks, 'mlflow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(1,) False\n"
