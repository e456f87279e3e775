"""Hospitals that leave a study, come late or come back: the tables are those of the hospitals that took part."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.leaves.federation.server import conversation
from chestfed.leaves.federation.server.membership import Membership
from chestfed.leaves.federation.server.study import require_members, run_over_hospitals
from chestfed.reports.pages.page import make_report
from chestfed.results.evaluation.estimates import Estimate
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.frames import read_row
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.experiment import load_images, make_experiment
from chestfed.studies.training.data.sites import open_sites
from chestfed.studies.training.reporting import Reporters
from chestfed.studies.training.run import run_study
from tests.cases import assert_refused
from tests.leaves.federation.straight_line import Clock
from tests.leaves.federation.test_study import FILE, NAMES, SETTINGS, absences, federation, line_at, pipeline, run_at

#: Of a study in which a hospital may be absent.
TWO_KS = ["k=[2,4]", "methods.codasca.absent=drop"]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "time", Clock())


def aucs_in_process(home: Path, names: list[str], k: int) -> tuple[Estimate, ...]:
    """The AUCs of K of a study of these hospitals alone, in one process."""
    folder = FILE.parents[1] / "site_configs" / "synthetic"
    sites = "sites=[" + ",".join(f"{{config: {folder / name}.yaml}}" for name in names) + "]"
    alone = load_pipeline(FILE, [*SETTINGS, sites, f"k=[{k}]"]).resolve()
    machine = prepare_machine(alone.runtime)
    rows = make_experiment(alone, open_sites(alone, FILE, home / "synthetic_hospitals"), machine)
    (experiment,) = load_images([rows], home / "cache")
    return read_row(run_study(experiment, "alone", home / "alone").folder / f"k{k}").aucs


def aucs_at(folder: Path, k: int) -> tuple[Estimate, ...]:
    return read_row(folder / f"k{k}").aucs


def stop_in(done: int, at: int) -> None:
    if done == at:
        raise KeyboardInterrupt


@pytest.mark.slow
def test_absent_hospital_is_not_in_the_study(home: Path) -> None:
    line = line_at(home, "gone")
    line.away = {"padchest"}
    with pytest.raises(TrainingError) as refused:
        run_at(home, line, "gone_out", settings=TWO_KS, give_up_after=5)
    assert "padchest" in str(refused.value)
    members = federation(home, least_hospitals=2)
    (members.keys / "padchest.pub").unlink()  # `federation remove` before `run --without`
    with assert_refused(ConfigError, "not members", hospitals=["padchest"]):
        require_members(NAMES, members)
    about = (pipeline(*TWO_KS), FILE.stem, members, line, home / "gone_out", Reporters(), line.log.append)
    folder = run_over_hospitals(*about, without=["padchest"]).folder
    others = [name for name in NAMES if name != "padchest"]
    assert aucs_at(folder, 4) == aucs_in_process(home, others, 3)
    assert read_row(folder / "k4").clients == ("chexpert", "chestxray8", "mimic_cxr")
    assert "3 of 4 took part: chexpert, chestxray8, mimic_cxr" in make_report(RunFolder.open(folder)).html


@pytest.mark.slow
def test_hospital_leaves_in_the_middle_of_k(home: Path) -> None:
    line = line_at(home, "middle")
    with pytest.raises(KeyboardInterrupt):
        run_at(home, line, "middle_out", lambda done: stop_in(done, 2), ["k=[3]"])
    line.away = {"padchest"}
    folder = run_at(home, line, "middle_out", settings=["k=[3]"], without=["padchest"]).folder
    rounds = len((folder / "k3" / "rounds.jsonl").read_text().splitlines())
    assert absences(home / "middle_out") == {number: ["padchest"] for number in range(3, rounds + 1)}
    (change,) = json.loads((folder / "federation.json").read_text())["changes"]
    assert (change["hospital"], change["event"], change["k"], change["round"]) == ("padchest", "left", 3, 2)
    run = RunFolder.open(folder)
    gap = f"padchest in 2 of {rounds} rounds"
    assert f"two other hospitals ({gap})" in answer_study(load_results(run)).sentence
    assert gap in pd.read_csv(folder / "table.csv")["added"].iloc[-1]
    assert f"K=3 adds chestxray8; {gap}." in make_report(run).html
    hospitals = json.loads((folder / "hospitals.json").read_text())
    assert "padchest" not in [entry["name"] for entry in hospitals["hospitals"]]


@pytest.mark.slow
def test_late_hospital_joins_at_its_k(home: Path) -> None:
    line, settings = line_at(home, "late"), ["k=[2,5]"]
    line.away = {"vindr"}

    with pytest.raises(KeyboardInterrupt):
        run_at(home, line, "late_out", lambda done: stop_in(done, 2), settings, without=["vindr"])
    line.away = set()
    (first,) = (home / "late_out").glob("*source_addition_samples-*")
    assert (first / "k2" / "state.safetensors").exists()
    folder = run_at(home, line, "late_out", settings=settings, rejoin=["vindr"]).folder
    assert folder == first
    for k in (2, 5):
        assert aucs_at(folder, k) == aucs_in_process(home, list(NAMES), k)


@pytest.mark.slow
def test_decentralized_k_begins_anew(home: Path) -> None:
    line, settings = line_at(home, "ring"), ["k=[4]", "methods=[{algorithm: pdmm}]", "model.norm=group"]
    with pytest.raises(KeyboardInterrupt):
        run_at(home, line, "ring_out", lambda done: stop_in(done, 2), settings)
    line.away = {"padchest"}
    folder = run_at(home, line, "ring_out", settings=settings, without=["padchest"]).folder
    assert not any("absent" in entry for entry in RunFolder(folder).rounds(4))
    assert read_row(folder / "k4").clients == ("chexpert", "chestxray8", "mimic_cxr")


def test_impossible_departures_are_refused(tmp_path: Path) -> None:
    members = Membership(tmp_path / "members.json", NAMES, least=4)
    with assert_refused(ConfigError, kind="target leaves"):
        members.change(["chexpert"], [])
    with assert_refused(ConfigError, kind="unknown hospital", hospital="anne"):
        members.change(["anne"], [])
    with assert_refused(ConfigError, kind="too few hospitals", needed=4):
        members.change(["vindr", "padchest"], [])
    members.change(["vindr"], [])
    assert Membership(tmp_path / "members.json", NAMES).present == NAMES[:4]
    (tmp_path / "members.json").write_text('{"gone": 3}')
    with assert_refused(ConfigError, kind="damaged file"):
        Membership(tmp_path / "members.json", NAMES)
