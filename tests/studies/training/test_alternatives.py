"""What each hospital could do instead: own data, fine-tuning and centralized training beside the largest K."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

import chestfed
from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.manifest import Part
from chestfed.reports.pages.page import make_report
from chestfed.results.evaluation.joining import gate
from chestfed.results.tables.clients.gate import ALTERNATIVE_TITLES
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.views import TITLES, describe_hospitals
from chestfed.studies import jobs
from chestfed.studies.experiment.alternatives import FineTuning, Gate, centralized_settings
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.rules import make_step_counts
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.alternatives import AlternativeRuns, Hospital
from chestfed.studies.training.assemble import form_federation
from chestfed.studies.training.data.experiment import Experiment, load_images
from chestfed.studies.training.pretrain import Pretrained
from tests.cases import assert_refused
from tests.command_line import Called
from tests.studies.training.test_hospitals import PIPELINE
from tests.studies.training.tiny_studies import SMALL, Forks, read_rows, run, study

SETTINGS = [
    *SMALL,
    "k=[1,2]",
    *(f"sites.{number}.validation_fraction=0.3" for number in range(5)),
    'alternatives={"fine_tuned": {"epochs": [0.5, 1], "lr_factors": [1, 0.1]}, "gate": {}}',
]

ALL = "own data and validation patients"


@pytest.fixture(autouse=True, scope="module")
def _two_patients_count() -> Iterator[None]:
    """A gate needs variances, which one patient has not; tiny hospitals have no ten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 2)
        yield


@pytest.fixture(scope="module")
def folder(home: Path) -> Path:
    command = study("--out", "alternatives", "--no-tracking", settings=SETTINGS)
    called = run(home, command)
    assert called.code == 0, called.err
    (path,) = (home / "alternatives").glob("synthetic-source_addition_samples-*")
    return path


def test_each_hospital_has_all_alternatives(folder: Path) -> None:
    frame = chestfed.Study.load(folder).alternatives()
    models = frame.query("disease == 'mean'").groupby("hospital")["model"].apply(list).to_dict()
    six = ["own data alone", "K=2", ALL, "fine-tuned", "centralized", "gate"]
    assert models == {"chexpert": six, "chestxray8": six}
    gains = pd.read_csv(folder / "alternative_gains.csv")
    assert set(gains["model"]) == {"K=2", ALL, "fine-tuned", "centralized", "gate"}
    costs = pd.read_csv(folder / "gate_gains.csv")
    assert set(costs["model"]) == {"gate"}
    assert set(costs["reference"]) == {"K=2", ALL, "fine-tuned", "centralized"}


def test_own_data_and_validation_is_more(folder: Path) -> None:
    """It trains on more rows than own data: another model, of a stage 1 of its own."""
    for name, alone in (("chestxray8", folder / "k2" / "alternatives" / "own_data"), ("chexpert", None)):
        more = pd.read_parquet(folder / "k2" / "alternatives" / "own_data_all" / name / "predictions.parquet")
        less = pd.read_parquet((folder / "k1" if alone is None else alone / name) / "predictions.parquet")
        assert more["image"].tolist() == less["image"].tolist()
        assert (more["score_edema"] != less["score_edema"]).any()
    pretrained = folder.parent.glob("synthetic-pretrained-*")
    assert len(list(pretrained)) == 4


def test_gate_says_what_it_may_cost(folder: Path) -> None:
    prices = RunFolder(folder).path.glob("k2/alternatives/gate/*/choice.json")
    known = [json.loads(file.read_text())["price"] for file in prices]
    assert len(known) == 2
    for price in filter(None, known):
        assert price["caution"] == 1
        assert -0.1 <= price["worst"] <= 0
        assert 0 <= price["seen"] <= 1


def test_aucs_are_those_of_the_stored_scores(folder: Path) -> None:
    frame = chestfed.Study.load(folder).alternatives().set_index(["hospital", "model", "disease"])["auc"]
    for kind, title in ALTERNATIVE_TITLES.items():
        stored = pd.read_parquet(folder / "k2" / "alternatives" / kind / "chestxray8" / "predictions.parquet")
        known = stored["label_edema"].notna()
        auc = roc_auc_score(stored["label_edema"][known], stored["score_edema"][known])
        assert frame["chestxray8", title, "edema"] == pytest.approx(auc)


def test_own_data_of_the_target_is_k_1(folder: Path) -> None:
    frame = chestfed.Study.load(folder).alternatives()
    (auc,) = frame.query("hospital == 'chexpert' and model == 'own data alone' and disease == 'mean'")["auc"]
    assert auc == RunFolder(folder).row(1).mean.value
    assert not (folder / "k2" / "alternatives" / "own_data" / "chexpert").exists()


def test_own_data_in_parallel_is_the_same(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "WorkerContext", Forks)
    called = run(home, study("--out", "at_once", "--no-tracking", "--jobs", "2", settings=SETTINGS))
    assert called.code == 0, called.err
    assert "2 K and own data, 2 at a time" in called.out + called.err
    own, files = "k2/alternatives/own_data/chestxray8", ("model.safetensors", "predictions.parquet", "result.json")
    for name in ("alternatives.csv", *(f"{own}/{file}" for file in files)):
        assert (home / "at_once" / folder.name / name).read_bytes() == (folder / name).read_bytes(), name


def test_choice_is_best_on_validation(folder: Path) -> None:
    for name in ("chexpert", "chestxray8"):
        choice = json.loads((folder / "k2" / "alternatives" / "fine_tuned" / name / "choice.json").read_text())
        aucs = [candidate["validation_auc"] for candidate in choice["candidates"]]
        assert len(aucs) == 5
        assert choice["chosen"]["validation_auc"] == max(aucs)
        assert choice["candidates"][0]["epochs"] == 0


def test_gate_has_scores_of_its_choice(folder: Path) -> None:
    for name in ("chexpert", "chestxray8"):
        choice = json.loads((folder / "k2" / "alternatives" / "gate" / name / "choice.json").read_text())
        assert len(choice["candidates"]) in (0, 4)
        places = {
            "common": f"hospitals/{name}" if name != "chexpert" else "",
            "own_data": f"alternatives/own_data/{name}",
        }
        place = places.get(choice["name"], f"alternatives/fine_tuned/{name}")
        if choice["mixed"]:
            continue
        chosen = folder / "k1" if (choice["name"], name) == ("own_data", "chexpert") else folder / "k2" / place
        ours, theirs = (
            pd.read_parquet(part / "predictions.parquet")["score_edema"]
            for part in (folder / "k2" / "alternatives" / "gate" / name, chosen)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.slow
def test_gate_sees_validation_patients_alone(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospitals: list[Hospital] = []
    given: list[tuple[np.ndarray, np.ndarray]] = []
    choose_for, choose = AlternativeRuns._choose, gate.choose

    def record_hospital(runs: AlternativeRuns, hospital: Hospital, settings: Gate) -> None:
        hospitals.append(hospital)
        choose_for(runs, hospital, settings)

    def record(site: str, scores: Any, labels: np.ndarray, patients: np.ndarray, caution: float) -> gate.Choice:
        given.append((labels, patients))
        assert {len(values) for values in scores.values()} == {len(labels)}
        return choose(site, scores, labels, patients, caution)

    monkeypatch.setattr(AlternativeRuns, "_choose", record_hospital)
    monkeypatch.setattr(gate, "choose", record)
    choices = {file: file.read_bytes() for file in (folder / "k2" / "alternatives" / "gate").rglob("choice.json")}
    shutil.rmtree(folder / "k2" / "alternatives" / "gate")
    assert run(home, study("--out", "alternatives", "--no-tracking", settings=SETTINGS)).code == 0
    assert {file: file.read_bytes() for file in choices} == choices
    assert [hospital.name for hospital in hospitals] == ["chexpert", "chestxray8"]
    for hospital, (labels, patients) in zip(hospitals, given, strict=True):
        assert hospital.validation is not None
        assert labels is hospital.validation.labels
        assert patients is hospital.validation.patients
        assert not {*hospital.validation.patient_names} & {*hospital.test.patient_names}


@pytest.mark.slow
def test_a_cautious_gate_keeps_own_data(home: Path, folder: Path) -> None:
    settings = [setting.replace('"gate": {}', '"gate": {"caution": 100}') for setting in SETTINGS]
    copied = home / "cautious" / folder.name
    shutil.copytree(folder, copied)
    called = run(home, study("--out", "cautious", "--no-tracking", settings=settings))
    assert called.code == 0, called.err
    gains = pd.read_csv(copied / "alternative_gains.csv").query("model == 'gate'")
    assert (gains["difference"].dropna() == 0).all()
    chosen = [json.loads(file.read_text())["name"] for file in copied.glob("k2/alternatives/gate/*/choice.json")]
    assert chosen == ["own_data"] * 2


@pytest.mark.slow
def test_a_second_start_repeats_nothing(home: Path, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    assert run(home, study("--out", "alternatives", "--no-tracking", settings=SETTINGS)).code == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")} == before


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_page_shows_the_table(folder: Path) -> None:
    assert TITLES["alternatives"] in make_report(RunFolder.open(folder)).html


@pytest.mark.slow
def test_own_data_equals_single_study(home: Path, folder: Path) -> None:
    """The same hospital as the first of `sites`, K=1."""
    order = [1, 0, 2, 3, 4]
    sites = [
        {"config": str(PIPELINE.parent / entry.config), "validation_fraction": 0.3}
        for entry in load_pipeline(PIPELINE).sites
    ]
    swapped = [f"sites={json.dumps([sites[place] for place in order])}", "evaluation.split=test"]
    settings = [setting for setting in SETTINGS if not setting.startswith(("sites", "alternatives", "k="))]
    command = study("--out", "swapped", "--no-tracking", settings=[*settings, *swapped, "k=[1]"])
    called = run(home, command)
    assert called.code == 0, called.err
    (path,) = (home / "swapped").glob("synthetic-source_addition_samples-*")
    alone = pd.read_parquet(path / "k1" / "predictions.parquet")
    alternative = pd.read_parquet(folder / "k2" / "alternatives" / "own_data" / "chestxray8" / "predictions.parquet")
    np.testing.assert_array_equal(alone["score_edema"], alternative["score_edema"])


def test_hospital_alone_has_its_local_steps(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own number of those per client; fine-tuning counts epochs in windows."""
    settings = [setting.replace(', "gate": {}', ', "centralized": null') for setting in SETTINGS]
    pipeline = load_pipeline(PIPELINE, [*settings, "federated.local_steps={per_client: [1, 3, 2, 2, 2]}"]).resolve()
    (experiment,) = load_images([read_rows(pipeline, PIPELINE, home / "synthetic_hospitals")], home / "cache")
    runs = AlternativeRuns(experiment, tmp_path, lambda folder: Part("", ""), lambda folder, test: None, train_stage_1)
    second = experiment.clients[1]
    hospital = Hospital(second, experiment.hospitals[second.name], experiment.validation[second.name])
    asked: list[Callable[[int, int], int] | None] = []

    def begin(alone: Experiment, k: int, *_: Any, **__: Any) -> Any:
        federation = form_federation(alone, k)
        asked.append(make_step_counts(federation.settings, 0, 0, federation.rows, federation.places))
        raise TrainingError("nothing is trained here")

    for name in ("begin_training", "train_federated"):
        monkeypatch.setattr(f"chestfed.studies.training.alternatives.{name}", begin)
    runs.__dict__["_common_weights"] = (torch.zeros(0), torch.zeros(0))
    for train in (runs._train_alone, lambda hospital: list(runs._train_candidates(hospital, FineTuning(), 1.0))):
        with pytest.raises(TrainingError):
            train(hospital)
    alone, tuned = asked
    assert alone is not None
    assert (alone(0, 0), tuned) == (3, None)


def train_stage_1(experiment: Experiment) -> Pretrained:
    return Pretrained(torch.zeros(0), torch.zeros(0), [])


def test_fine_tuning_needs_validation() -> None:
    with assert_refused(ConfigError, "invalid value", key=""):
        load_pipeline(PIPELINE, ["alternatives={}"]).resolve()
    assert load_pipeline(PIPELINE, ['alternatives={"fine_tuned": null}']).resolve().alternatives is not None


def test_centralized_pools_the_images() -> None:
    settings = centralized_settings(Federated(local_lr=0.5), {"algorithm": "centralized_auc", "batch_size": 8})
    assert (settings.local_lr, settings.batch_size, settings.spec.pooled) == (0.5, 8, True)
    with pytest.raises(ValueError, match="centralized_auc"):
        centralized_settings(Federated(), {"algorithm": "fedavg"})


@pytest.mark.slow
def test_the_dry_run_counts_them(home: Path) -> None:
    called = run(home, study("--out", "none", "--dry-run", settings=SETTINGS))
    assert called.code == 0, called.err
    assert all(
        part in called.out
        for part in ("own data alone, stage 2, 1 model", "fine-tuned, 2 models", "centralized, 1 model")
    )


def test_named_hospitals_alone_have_alternatives(home: Path) -> None:
    def call(name: str) -> Called:
        own = f"alternatives={{hospitals: [{name}], fine_tuned: null, centralized: null}}"
        return run(home, study("--out", "named", "--no-tracking", settings=[*SMALL, "k=[2]", own]))

    assert "no site is called chestxray" in " ".join(call("chestxray").err.split())
    assert "own data: this hospital alone (-: not trained)" in " ".join(call("chestxray8").out.split())
    (folder,) = (home / "named").glob("synthetic-source_addition_samples-*")
    study_ = chestfed.Study.load(folder)
    assert set(study_.alternatives()["hospital"]) == {"chestxray8"}
    assert "Without held-out patients" not in describe_hospitals(load_results(RunFolder(folder)), "alternatives")
