"""`chestfed tune --k`: settings of each K, of each hospital's own data and of centralized training."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from chestfed.core.errors import ConfigError
from chestfed.learning.objectives.auc_margin import AucMargin
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.ranges import Range, at_k
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training import alternatives
from chestfed.studies.training.assemble import form_federation
from chestfed.studies.training.data.experiment import Experiment, load_images, make_selection
from chestfed.studies.training.data.sites import OWN_TEST, TEST, TRAIN, VALID, open_sites, with_validation
from chestfed.studies.tuning.subjects import list_subjects
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.training.tiny_studies import FILE, SMALL, read_rows

SETTINGS = [
    *SMALL,
    "k=[1,2]",
    'alternatives={"fine_tuned": null}',
    'search={"dual_lr": null, "server_lr": null, "prox": null}',
]


def load_selection(home: Path, settings: list[str]) -> Experiment:
    """What a search of every K trains on and is scored on, with its images."""
    pipeline = with_validation(load_pipeline(FILE, settings), 0.3, everywhere=True)
    first = read_rows(pipeline.resolve(), FILE, home / "synthetic_hospitals")
    sites = open_sites(pipeline.resolve(), FILE, home / "synthetic_hospitals")
    (data,) = load_images([make_selection(pipeline.resolve(), sites, first.machine, alone=True)], home / "cache")
    return data


@pytest.mark.slow
def test_every_k_is_tuned_and_tested_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: dict[str, float] = {}
    real = alternatives.train_federated

    def note(experiment: Experiment, k: int, *more: object) -> object:
        name = "centralized" if experiment.pipeline.federated.spec.pooled else experiment.clients[0].name
        trained[name] = experiment.pipeline.federated.local_lr
        return real(experiment, k, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(alternatives, "train_federated", note)
    words = [part for setting in SETTINGS for part in ("--set", setting)]
    options = ("--k", "all", "--trials", "3", "--seeds", "1", "--confirm", "1", "--no-tracking")
    done = call("tune", FILE, *words, *options, folder=home)
    assert done.code == 0, done.err
    (tuned,) = (home / "runs").glob("*tune-*/tuned.yaml")
    trials = pd.read_csv(tuned.parent / "trials.csv")
    best = trials[trials["best_so_far"]].drop_duplicates("algorithm").set_index("algorithm")["local_lr"]
    names = ["codasca:K=1", "codasca:K=2", "codasca:own_data:chestxray8", "codasca:centralized"]
    assert sorted(best.index) == sorted(names)
    pipeline = load_pipeline(tuned)
    settings = pipeline.resolve().federated
    assert [at_k(settings, k).local_lr for k in (1, 2)] == [best[name] for name in names[:2]]
    assert pipeline.resolve().tuning is not None
    assert trained == {"chestxray8": best[names[2]], "centralized": best[names[3]]}
    (run,) = (home / "runs").glob("*tuned-*")
    own = run / "k2" / "alternatives" / "own_data" / "chestxray8"
    assert json.loads((own / "settings.json").read_text()) == {"local_lr": best[names[2]]}
    changed = load_pipeline(tuned, ["federated.local_lr=0.5"]).resolve()  # a step by hand is that of all
    assert {at_k(changed.federated, k).local_lr for k in (1, 2)} == {0.5}
    assert changed.alternatives is not None
    assert not changed.alternatives.own_data_settings.get("chestxray8")


def test_search_of_every_k_has_no_test_patient(home: Path) -> None:
    pipeline = with_validation(load_pipeline(FILE, SETTINGS), 0.3, everywhere=True)
    study = read_rows(load_pipeline(FILE, SETTINGS).resolve(), FILE, home / "synthetic_hospitals")
    sites = open_sites(pipeline.resolve(), FILE, home / "synthetic_hospitals")
    selection = make_selection(pipeline.resolve(), sites, study.machine, alone=True)
    for whole, used in zip(study.sites, selection.sites, strict=True):
        tested = set(whole.select(TEST).frame["patient"]) | set(whole.select(OWN_TEST).frame["patient"])
        groups = {role: set(used.select(role).frame["patient"]) for role in (TRAIN, TEST, VALID)}
        assert tested or whole.name not in study.joins
        assert not tested & set().union(*groups.values())
        assert not groups[TRAIN] & (groups[TEST] | groups[VALID])
    assert [bool(len(used.find(VALID))) for used in selection.sites] == [False, True, True, True, True]


def test_each_subject_has_its_own_images(home: Path) -> None:
    data = load_selection(home, SETTINGS)
    pipeline = with_validation(load_pipeline(FILE, SETTINGS), 0.3, everywhere=True)
    subjects = {subject.name: subject for subject in list_subjects(pipeline, data.sites, every_k=True)}
    made = {
        name: s.experiment(data, pipeline.resolve(), s.settings(pipeline.resolve())) for name, s in subjects.items()
    }
    alone = made["codasca:own_data:chestxray8"]
    assert [client.name for client in alone.clients] == ["chestxray8"]
    assert alone.test.site == "chestxray8"
    assert made["codasca:K=1"].test.site == "chexpert"
    assert made["codasca:centralized"].pipeline.federated.spec.pooled
    assert [subject.name for subject in list_subjects(pipeline, data.sites, every_k=False)] == ["codasca"]
    with assert_refused(ConfigError, "several methods", methods=("codasca", "fedavg")):
        two = load_pipeline(FILE, SETTINGS, methods=["codasca", "fedavg"])
        list_subjects(two, data.sites, every_k=True)


def test_settings_of_a_k_hold_there_alone(home: Path) -> None:
    more = [*SETTINGS, "federated.by_k={1: {local_lr: 0.02, dual_lr: 0.3}}"]
    data = load_selection(home, more)
    first, both = (form_federation(data, k).settings for k in (1, 2))
    base = load_pipeline(FILE, SETTINGS).resolve()
    assert (first.local_lr, first.algorithm.dual_lr) == (0.02, 0.3)  # type: ignore[attr-defined]
    assert both.local_lr == base.federated.local_lr
    assert "by_k" not in identity(base)["federated"]
    assert identity(load_pipeline(FILE, more).resolve())["federated"]["by_k"] == {
        "1": {"local_lr": 0.02, "dual_lr": 0.3}
    }
    for wrong in ("{0: {local_lr: 0.1}}", "{1: {window: 4}}", "{1: {local_lr: -1}}", "{1: {momentum: 0.5}}"):
        with assert_refused(ConfigError, "invalid value"):
            load_pipeline(FILE, [*SETTINGS, f"federated.by_k={wrong}"])


def test_steps_are_in_units_of_the_loss(home: Path) -> None:
    """The square AUC loss carries p(1-p): its range of steps is divided by that, a grid and other keys are not."""
    import torch

    assert AucMargin(torch.tensor([0.05, 0.5])).gradient_scale == pytest.approx((0.0475 + 0.25) / 2)
    data = load_selection(home, SETTINGS)
    pipeline = load_pipeline(FILE, SETTINGS, methods=["codasca"])
    (subject,) = list_subjects(pipeline, data.sites, every_k=False)
    experiment = subject.experiment(data, pipeline.resolve(), subject.settings(pipeline.resolve()))
    p = form_federation(experiment, 2).population.positive_ratio
    unit = float((p * (1 - p)).mean())
    steps, prox = Range(0.01, 1.0, log=True), Range(0.001, 0.1, log=True)
    scaled = subject.scale({"local_lr": steps, "prox": prox}, experiment)
    assert scaled["local_lr"].plain() == pytest.approx([0.01 / unit, 1 / unit, "log"])
    assert scaled["prox"] == prox
    plain = load_pipeline(FILE, SETTINGS, methods=["fedavg"])
    (other,) = list_subjects(plain, data.sites, every_k=False)
    of_loss = other.experiment(data, plain.resolve(), other.settings(plain.resolve()))
    assert other.scale({"local_lr": steps}, of_loss)["local_lr"] == steps


def test_written_settings_are_a_pipeline(tmp_path: Path) -> None:
    """`by_k` survives JSON and YAML, with numbers or words as keys."""
    text = yaml.safe_dump({"extends": str(FILE), "federated": {"by_k": {1: {"local_lr": 0.02}}}})
    (tmp_path / "a.yaml").write_text(text)
    settings = load_pipeline(tmp_path / "a.yaml").resolve().federated
    again = type(settings).model_validate(json.loads(settings.model_dump_json(exclude_unset=True)))
    assert again.by_k == {"1": {"local_lr": 0.02}}
    assert (at_k(again, 1).local_lr, at_k(again, 2).local_lr) == (0.02, settings.local_lr)
