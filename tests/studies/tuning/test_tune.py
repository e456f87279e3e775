"""`chestfed tune`: ranges, the search, its resumption, and that no test image is used before it ends."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from rich.console import Console

import chestfed
from chestfed.app.commands.tune import run as tune_run
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.provenance import Origin
from chestfed.reports.tracking.recording import MlflowRecord
from chestfed.reports.tracking.store import connect, local_store
from chestfed.results.evaluation.labeled import Scored
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.ranges import Grid, Range, select_ranges
from chestfed.studies.experiment.stage_2 import get_part_name
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.data.experiment import Experiment, make_selection
from chestfed.studies.training.data.sites import TEST, TRAIN, open_sites, with_validation
from chestfed.studies.training.reporting import Trial
from chestfed.studies.tuning import search
from chestfed.studies.tuning.outcome import choose, find_best, render, widen_ranges, write_tuned
from chestfed.studies.tuning.search import collect_ranges, list_grid
from chestfed.studies.tuning.subjects import Subject
from tests.cases import assert_refused
from tests.command_line import Called, call

DIGITS = bundled("pipelines") / "digits_ih.yaml"
TINY = """\
extends: {file}
model: {{init_features: 2, growth_rate: 2, blocks: [1]}}
preprocess: {{size: 32}}
pretrain: {{epochs: 0.05}}
federated: {{window: 2, batch_size: 4, stages: 1, stage_steps: 4}}
evaluation: {{every: 2, resamples: 10}}
search: {{prox: null}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a pipeline of seconds."""
    (tmp_path / "digits.yaml").write_text(TINY.format(file=DIGITS))
    return tmp_path


def tune(home: Path, *words: str, trials: int = 3) -> Called:
    common = ["tune", "digits.yaml", "--methods", "fedprox,gossip", "--seeds", "2", "--trials", str(trials)]
    return call(*common, "--confirm", "2", "--no-tracking", *words, folder=home)


def results(home: Path) -> pd.DataFrame:
    (folder,) = (home / "runs").glob("tune-*")
    return pd.read_csv(folder / "trials.csv")


def trial(number: int, value: float, mean: float | None) -> Trial:
    about = Path(), "x", "fedprox", number, {"local_lr": value}, {}
    return Trial(*about, {1: mean or 0.0}, mean, "" if mean else "why", 1.0, None)  # type: ignore[arg-type]


def test_ranges_of_options_may_be_replaced() -> None:
    pipeline = load_pipeline(DIGITS)

    def list_ranges(name: str, **options: Any) -> dict[str, list[Any]]:
        return {key: space.plain() for key, space in select_ranges(pipeline.resolve(name).federated, options).items()}

    every = {name: list_ranges(name) for name in (method.name for method in pipeline.selected_methods)}
    assert {tuple(ranges["local_lr"]) for ranges in every.values()} == {(0.01, 1.0, "log")}
    assert set(every["fedprox"]) == {"local_lr", "prox"}
    assert set(every["local_scgdam"]) == {"local_lr", "inner_rate", "momentum_rate", "objective.inner_lr"}
    assert set(every["pdmm"]) == {"local_lr"}  # its eta is `auto`
    assert list_ranges("pdmm", eta=[1, 2, "linear"])["eta"] == [1.0, 2.0, "linear"]
    assert set(list_ranges("fedprox", prox=None)) == {"local_lr"}
    adam = {"name": "adam", "algorithm": "fedavg", "server_optimizer": {"kind": "adam"}}
    served = load_pipeline(DIGITS, [f"methods=[{json.dumps(adam)}]", "selected=null"])
    assert set(collect_ranges(served)["adam"]) == {"local_lr", "server_optimizer.lr"}
    changed = search.apply_settings(served, "adam", {"server_optimizer.lr": 0.25}).resolve("adam").federated
    assert changed.server_optimizer.lr == 0.25
    with assert_refused(ConfigError, "unknown setting", keys=("momentum",)):
        collect_ranges(load_pipeline(DIGITS, ["search.momentum=[0.1, 0.2, log]"], methods=["fedprox"]))
    with assert_refused(ConfigError, "invalid range", method="local_sgdm"):
        collect_ranges(load_pipeline(DIGITS, ["search.momentum=[0.5, 2.0, log]"], methods=["local_sgdm"]))
    for wrong in ("[1, 0.1, log]", "[0, 1, log]", "[1]", "3", "[a, 1, log]", "[0, 1, cubic]"):
        with assert_refused(ConfigError, "invalid value", place="--set search.local_lr"):
            load_pipeline(DIGITS, [f"search.local_lr={wrong}"])


def test_range_is_widened_at_its_edge() -> None:
    steps = Range(0.01, 1.0, log=True, bounds=(0.0, math.inf))
    assert steps.widened(0.1) == steps
    assert (steps.widened(0.9).low, steps.widened(0.9).high) == pytest.approx((0.01, 4.0))
    assert (steps.widened(0.011).low, steps.widened(0.011).high) == pytest.approx((0.0025, 1.0))
    rate = Range(0.5, 0.99, log=False, bounds=(0.0, 1.0))
    assert rate.widened(0.98) == rate
    assert rate.at_edge(0.98)
    assert rate.widened(0.51).low == pytest.approx(0.255)
    tried = [trial(1, 0.9, 0.8), trial(2, 0.1, 0.9), trial(3, 0.02, None), trial(4, 0.95, 0.95), trial(5, 0.2, 0.1)]
    ranges = [widen_ranges({"local_lr": steps}, tried[:count])["local_lr"].high for count in range(6)]
    assert ranges == pytest.approx([1, 1, 1, 1, 4, 4])


def test_best_value_is_bracketed() -> None:
    """The best value of a key has a tried one on either side, a factor of four away at most."""
    steps = Range(0.01, 1.0, log=True, bounds=(0.0, math.inf))
    assert steps.open_ends(0.3, [0.3, 0.1, 1.0]) == []
    assert steps.open_ends(0.3, [0.3, 0.1]) == [1.2]
    assert steps.open_ends(0.3, [0.3, 0.1, 2.0]) == [1.2]  # too far to say where it falls
    assert steps.open_ends(0.3, [0.3, 0.29, 0.31]) == [0.075, 1.2]  # too near
    rate = Range(0.5, 0.99, log=False, bounds=(0.0, 1.0))
    assert rate.open_ends(0.9, [0.9, 0.8]) == [0.95]
    assert rate.open_ends(0.98, [0.98, 0.8]) == []
    assert Range(2, 64, log=True, integer=True).open_ends(8, [8, 20]) == [2]
    assert Grid((0.1, 0.2, 0.3)).open_ends(0.3, [0.3]) == []
    tried = [trial(1, 0.3, 0.7), trial(2, 0.06, 0.6), trial(3, 0.9, 0.8), trial(4, 0.02, 0.5)]
    spaces = {"local_lr": steps}
    found = search.find_open_end(tried, spaces, spaces, find_best(tried))
    assert found is not None
    assert (found[0], found[1]["local_lr"].plain()) == ({"local_lr": 3.6}, [0.01, 3.6, "log"])
    beyond = [*tried, replace(trial(5, 3.6, None), purpose="edge"), trial(6, 0.4, 0.7)]
    assert search.find_open_end(beyond, spaces, spaces, find_best(beyond)) is None
    better = [*tried, replace(trial(5, 3.6, 0.9), purpose="edge")]
    assert (search.find_open_end(better, spaces, spaces, find_best(better)) or [{}])[0] == {"local_lr": 14.4}
    confirmed = replace(trial(5, 3.6, 0.79), purpose="edge")  # best over more seeds, at the edge
    assert search.find_open_end([*tried, confirmed], spaces, spaces, tried[2]) is None
    assert (search.find_open_end([*tried, confirmed], spaces, spaces, confirmed) or [{}])[0] == {"local_lr": 14.4}


@pytest.mark.parametrize(("count", "warned"), [(2, True), (3, False)])
def test_too_few_trials_for_edges_are_noted(count: int, warned: bool) -> None:
    ranges = {"local_lr": [0.01, 1.0, "log"]}
    trials = [replace(trial(number, 0.1, 0.8), ranges=ranges, origin=Origin.REAL) for number in range(1, count + 1)]
    console = Console(width=200, file=io.StringIO())
    console.print(render({"fedprox": trials}))
    assert ("edges not checked" in console.file.getvalue()) is warned  # type: ignore[attr-defined]


def test_best_over_all_seeds_is_chosen() -> None:
    """A setting that further seeds do not confirm is not chosen, whatever its first seeds gave."""
    lucky, steady = replace(trial(1, 0.9, 0.9), confirmed={3: 0.5}), replace(trial(2, 0.1, 0.8), confirmed={3: 0.8})
    untried = trial(3, 0.5, 0.79)
    assert choose([lucky, steady, untried]) is steady
    assert choose([replace(lucky, confirmed={}), replace(steady, confirmed={}), untried]).values == {"local_lr": 0.9}
    assert choose([replace(steady, mean=None), untried]) is untried
    assert choose([trial(1, 0.9, None)]) is None


@pytest.mark.slow
def test_tuned_settings_run_as_a_study(home: Path) -> None:
    plan = tune(home, "--dry-run")
    assert plan.code == 0, plan.err
    assert "24 runs" in plan.out  # 2 methods x (3 trials x 2 seeds + 3 finalists x 2)
    assert not (home / "runs").exists()
    done = tune(home)
    assert done.code == 0, done.err
    table = results(home)
    searched = table.query("purpose == 'search'")
    assert searched.groupby("algorithm")["trial"].nunique().to_dict() == {"fedprox": 3, "gossip": 3}
    assert set(table["seed"]) == {1001, 1002, 1003, 1004}
    confirmed = table.query("seed > 1002")
    assert confirmed.groupby("algorithm")["trial"].nunique().to_dict() == {"fedprox": 3, "gossip": 3}
    assert set(table["data"]) == {"real"}
    tried = searched.query("seed < 1003").groupby("algorithm")["local_lr"].apply(list)
    assert tried["fedprox"] == tried["gossip"]  # evenly spread, and the same for all
    (tuned,) = (home / "runs").glob("tune-*/tuned.yaml")
    written = yaml.safe_load(tuned.read_text())
    finalists = table.merge(confirmed[["algorithm", "trial"]].drop_duplicates())
    means = finalists.groupby(["algorithm", "local_lr"])["validation_auc"].mean()
    entries = {get_part_name(entry["algorithm"]): entry for entry in written["methods"]}
    for name in ("fedprox", "gossip"):
        assert entries[name]["local_lr"] == means[name].idxmax()
        settings = load_pipeline(tuned).resolve(name).federated
        assert settings.local_lr == means[name].idxmax()
    assert load_pipeline(tuned).resolve("fedprox").federated.algorithm.model_dump()["prox"] == 0.01  # as it was
    runs = {path.name for path in (home / "runs").iterdir()}
    again = call("study", tuned, "--no-tracking", folder=home)
    assert again.code == 0, again.err
    assert "from the earlier run" in again.out
    assert {path.name for path in (home / "runs").iterdir()} == runs


@pytest.mark.slow
def test_killed_search_repeats_its_trials(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_run.Session, "run", lambda *_: None)  # the search alone
    whole = home / "whole"
    whole.mkdir()
    (whole / "digits.yaml").write_text((home / "digits.yaml").read_text())
    trained, real, limit = [], search.train_federated, [10_000]

    def until_killed(setup: Experiment, *more: Any) -> Any:
        trained.append(setup.pipeline.federated.local_lr)
        if len(trained) == limit[0]:
            raise KeyboardInterrupt
        return real(setup, *more)

    monkeypatch.setattr(search, "train_federated", until_killed)
    assert tune(whole, trials=6).code == 0
    count, limit[0] = len(trained), 8
    assert count >= 2 * (6 * 2 + 3 * 2)
    trained.clear()
    assert tune(home, trials=5).code == 130
    assert len(results(home)) == 6  # three trials of two seeds; the fourth was killed
    for state in (home / "runs").glob("pretrained-*/state.safetensors"):
        state.write_bytes(b"damaged")
    again = tune(home, trials=6)
    assert (again.code, again.out.count("this part is trained again")) == (0, 2), again.err
    assert len(trained) == 8 + count - 6  # nothing that was finished is trained again
    pd.testing.assert_frame_equal(results(home), results(whole))
    assert tune(home, trials=2).code == 0
    fewer = results(home)
    assert fewer.groupby("algorithm")["trial"].max().to_dict() == {"fedprox": 2, "gossip": 2}
    assert fewer.query("best_so_far")["algorithm"].nunique() == 2


def test_another_search_has_another_folder(home: Path) -> None:
    """Ranges, and fixed keys of any method, are part of a search's name; the number of trials is not."""
    whole = load_pipeline(home / "digits.yaml").resolve()
    data = load_collection(whole, None, prepare_machine(whole.runtime), validation=0.25)

    def name_folder(*overrides: str, trials: int = 3) -> str:
        pipeline = load_pipeline(home / "digits.yaml", overrides, methods=["fedprox", "gossip"])
        subjects = tuple(Subject(name, name, whole.k[-1]) for name in ("fedprox", "gossip"))
        unused: Any = None
        about = (pipeline, "digits", subjects, trials, (1001,), (1002,), data, home, unused, unused, unused)
        return search.Search(*about).folder.name

    first = name_folder()
    assert first == name_folder(trials=9) == name_folder("search.local_lr=[0.01, 1, log]")
    overrides = (
        "search.local_lr=[0.02, 2, log]",
        "search.local_lr=[0.1, 0.2]",
        "methods.fedprox.algorithm.prox=0.3",
        "methods.gossip.batch_size=8",
    )
    assert len({first, *map(name_folder, overrides)}) == 5


@pytest.mark.slow
def test_trials_of_other_ranges_kept_apart(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_run.Session, "run", lambda *_: None)
    for ranges in ("[0.01, 1.0, log]", "[0.1, 0.2, log]"):
        words = [
            "--trials",
            "1",
            "--seeds",
            "1",
            "--confirm",
            "0",
            "--methods",
            "fedprox",
            "--set",
            f"search.local_lr={ranges}",
        ]
        done = call("tune", "digits.yaml", *words, folder=home)
        assert done.code == 0, done.err
    client = connect(local_store(home / "runs"))
    runs = client.search_runs([client.get_experiment_by_name("chestfed").experiment_id])
    assert {run.data.params["range.local_lr"] for run in runs} == {"[0.01, 1.0, 'log']", "[0.1, 0.2, 'log']"}


@pytest.mark.slow
def test_diverged_trials_are_counted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_run.Session, "run", lambda *_: None)
    real, limit = search.train_federated, [0.1]

    def diverges(setup: Experiment, *more: Any) -> Any:
        if setup.pipeline.federated.local_lr > limit[0]:
            raise TrainingError("not finite")
        return real(setup, *more)

    monkeypatch.setattr(search, "train_federated", diverges)
    assert tune(home).code == 0
    table = results(home)
    assert (table["state"] == "diverged").tolist() == (table["local_lr"] > 0.1).tolist()
    assert {"diverged", "finished"} == set(table["state"])
    assert table.loc[table["state"] == "diverged", "validation_auc"].isna().all()
    limit[0] = 0.0
    failed = tune(home, "--set", "seed=2")
    assert failed.code == 1
    assert "diverged" in failed.err
    assert "local_lr" in failed.err


def test_search_reads_no_test_label_or_image(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search scores only images that are neither in the test set nor in the training set."""
    pipeline = load_pipeline(home / "digits.yaml")
    machine = prepare_machine(pipeline.resolve().runtime)
    study, selected = (load_collection(pipeline.resolve(), None, machine, validation=share) for share in (None, 0.25))

    def images(data: Experiment) -> tuple[set[bytes], set[bytes]]:
        train = {digest for client in data.clients for digest in client.images.digests.tolist()}
        return train, set(data.test.images.digests.tolist())

    test, (train, chosen_on) = images(study)[1], images(selected)
    assert len(chosen_on) > 300
    assert not test & (train | chosen_on)
    assert not train & chosen_on
    scored: list[np.ndarray] = []
    real = Scored.columns

    def columns(self: Scored) -> Any:
        scored.append(self.labels)
        return real(self)

    monkeypatch.setattr(Scored, "columns", columns)
    monkeypatch.setattr(tune_run.Session, "run", lambda *_: None)
    assert tune(home, trials=1).code == 0
    assert scored
    assert {len(labels) for labels in scored} == {len(selected.test.labels)} != {len(study.test.labels)}


def test_hospitals_are_searched_without_test(tiny_hospitals: Path) -> None:
    file = bundled("pipelines") / "source_addition_samples.yaml"
    pipeline = with_validation(load_pipeline(file, ["samples.size=tiny", "diseases=[cardiomegaly]"]).resolve(), 0.3)
    assert [entry.validation_fraction for entry in pipeline.sites] == [0.3, None, None, None, None]
    sites = open_sites(pipeline, file, tiny_hospitals)
    rows = make_selection(pipeline, sites, prepare_machine(pipeline.runtime))
    (validation,) = rows.select_scored()[0].values()
    test = sites[0].select(TEST)
    patients = [set(part.frame["patient"]) for part in (validation, test, rows.sites[0].select(TRAIN))]
    assert all(patients)
    assert not patients[0] & patients[1]
    assert not patients[0] & patients[2]
    assert not set(test.frame["image"]) & set(rows.sites[0].table.frame["image"][rows.sites[0].in_use])


def test_tuned_settings_extend_the_pipeline(tmp_path: Path) -> None:
    base = bundled("pipelines") / "source_addition_samples.yaml"
    (tmp_path / "own.yaml").write_text(f"extends: {base}\ntitle: Own\n")
    folder = tmp_path / "runs/tune"
    folder.mkdir(parents=True)
    pipeline = load_pipeline(tmp_path / "own.yaml")
    trial = Trial(folder, "own", "fedprox", 1, {"local_lr": 0.3}, {}, {1: 0.7}, 0.7, "", 1.0, Origin.SYNTHETIC)
    subjects = [Subject("fedprox", "fedprox", 5)]
    tuned = write_tuned(folder, tmp_path / "own.yaml", [], pipeline, subjects, {"fedprox": [trial]}, 2)
    assert yaml.safe_load(tuned.read_text())["extends"] == "../../own.yaml"
    tuned_pipeline = load_pipeline(tuned)
    assert tuned_pipeline.resolve("fedprox").federated.local_lr == 0.3
    assert [(folder / site.config).resolve() for site in tuned_pipeline.sites] == [
        (base.parent / site.config).resolve() for site in load_pipeline(base).sites
    ]


def test_tuned_settings_find_sites_through_a_link(tmp_path: Path) -> None:
    """`..` in a bundled file leads above the folder that a link points to, not above the link."""
    (tmp_path / "pipelines").symlink_to(bundled("pipelines"))
    own, folder = tmp_path / "own.yaml", tmp_path / "runs"
    own.write_text("extends: pipelines/nih_parts.yaml\n")
    folder.mkdir()
    pipeline, about = load_pipeline(own), (Origin.REAL,)
    trial = Trial(folder, "own", "fedavg", 1, {"local_lr": 0.3}, {}, {1: 0.7}, 0.7, "", 1.0, *about)
    given = [Subject("fedavg", "fedavg", 4)], {"fedavg": [trial]}, 2
    for overrides in ([], ["federated.window=4"]):
        tuned = load_pipeline(write_tuned(folder, own, overrides, pipeline, *given))
        (site,) = tuned.sites
        assert (folder / site.config).samefile(bundled("site_configs") / "films" / "nih_five.yaml")


def test_what_cannot_be_tuned_is_refused(home: Path) -> None:
    held_out = call("tune", bundled("pipelines") / "leave_one_site_out.yaml", folder=home)
    assert held_out.code == 1
    assert "held_out" in held_out.err
    assert not (home / "runs").exists()


@pytest.mark.slow
def test_grid_is_tried_point_by_point(home: Path) -> None:
    words = ("--set", "search={local_lr: [0.1, 0.5], window: [2, 4], prox: null}")
    plan = tune(home, "--dry-run", *words, trials=9)
    assert "28 runs of stage 2" in " ".join(plan.out.split())
    done = tune(home, *words, trials=9)
    assert done.code == 0, done.err
    table = results(home)
    for _, part in table.groupby("algorithm"):
        points = part.groupby("trial")[["local_lr", "window"]].first().to_numpy().tolist()
        assert points == [[0.1, 2], [0.5, 2], [0.1, 4], [0.5, 4]]
    (tuned,) = (home / "runs").glob("tune-*/tuned.yaml")
    pipeline = load_pipeline(tuned)
    best = table.groupby(["algorithm", "trial"])["validation_auc"].mean()["fedprox"]
    method = pipeline.resolve("fedprox")
    assert method.tuning is not None
    assert (method.tuning.trials, method.tuning.seeds, method.tuning.grid) == (4, [1001, 1002], True)
    assert method.tuning.validation_auc == pytest.approx(best.max(), abs=1e-6)
    assert isinstance(method.federated.window, int)
    (compared,) = (home / "runs").glob("comparison-*")
    assert set(chestfed.Comparison.load(compared).settings()["chosen"]) == {"grid: 4 trials of 2 seeds, confirmed on 2"}
    for change in ("federated.local_lr=0.2", "methods.fedprox.local_lr=0.2"):  # then they were not found by it
        assert load_pipeline(tuned, [change]).resolve("fedprox").tuning is None


def test_part_of_a_grid_is_drawn_by_the_seed() -> None:
    spaces = {"a": Grid((1, 2, 3)), "b": Grid((10, 20, 30))}
    few = list_grid(spaces, 4, 1)
    assert len({tuple(point.values()) for point in few}) == 4
    assert few == list_grid(spaces, 4, 1) != list_grid(spaces, 4, 2)
    assert len(list_grid(spaces, 20, 1)) == 9
    assert list_grid(spaces | {"c": Range(0.1, 1, log=True)}, 20, 1) == []


def test_whole_numbers_stay_whole() -> None:
    pipeline = load_pipeline(DIGITS, ["search.window=[2, 64, log]"], methods=["fedprox"])
    space = collect_ranges(pipeline)["fedprox"]["window"]
    assert [space.as_written(space.at(share)) for share in (0, 0.5, 1)] == [2, 11, 64]
    for wrong in ("[2]", "[2, 2]", "[2, .inf]"):
        with pytest.raises(ConfigError):
            load_pipeline(DIGITS, [f"search.window={wrong}"])
    with assert_refused(ConfigError, "invalid range", method="fedprox"):
        collect_ranges(load_pipeline(DIGITS, ["search.window=[2.5, 8]"], methods=["fedprox"]))


def test_windows_are_tuned_one_by_one(home: Path) -> None:
    plan = call("tune", "digits.yaml", "--methods", "fedprox,scaffold", "--trials", "2", "--seeds", "1", "--dry-run",
                "--set", "windows=[2, 4]", folder=home)  # fmt: skip
    assert plan.code == 0, plan.err
    for name in ("fedprox:I=2", "fedprox:I=4", "scaffold:I=2", "scaffold:I=4"):
        assert name in plan.out


def test_dry_run_shows_ranges_as_tried(home: Path) -> None:
    """The gradients of the AUC loss carry p(1-p): its step sizes are about ten times as large. No GPU is needed."""
    plan = call("tune", "digits.yaml", "--methods", "fedprox,codasca", "--trials", "2", "--seeds", "1", "--dry-run",
                "--set", "runtime.device=cuda", folder=home)  # fmt: skip
    assert plan.code == 0, plan.err
    shown = dict(re.findall(r"(fedprox|codasca) +local_lr +([0-9.]+) to", plan.out))
    assert float(shown["fedprox"]) == 0.01
    assert 0.05 < float(shown["codasca"]) < 0.2
    assert "Ranges of step sizes of codasca are divided" in " ".join(plan.out.split())


def test_dry_run_of_undivided_ranges_is_silent(home: Path) -> None:
    plan = call("tune", "digits.yaml", "--methods", "fedprox,scaffold", "--trials", "2", "--seeds", "1", "--dry-run",
                folder=home)  # fmt: skip
    assert plan.code == 0, plan.err
    assert "divided" not in plan.out


@pytest.mark.slow
def test_every_trial_is_one_run_in_mlflow(tmp_path: Path) -> None:
    record = MlflowRecord(local_store(tmp_path), tmp_path / "artifacts")
    trial = Trial(
        tmp_path / "1", "digits", "fedprox", 1, {"local_lr": 0.1}, {"local_lr": [0.01, 1.0, "log"]},
        {1001: 0.8, 1002: 0.9}, 0.85, "", 2.0, Origin.SYNTHETIC,
    )  # fmt: skip
    for reused in (False, True):
        record.trial_done(trial, reused=reused)
    record.trial_done(replace(trial, folder=tmp_path / "2", number=2, mean=None, diverged="why"), reused=False)
    client = connect(local_store(tmp_path))
    runs = client.search_runs([client.get_experiment_by_name("chestfed").experiment_id])
    second, first = sorted(runs, key=lambda run: run.data.tags["trial"], reverse=True)
    assert first.data.metrics["validation_auc/mean"] == 0.85
    assert first.data.metrics["validation_auc/seed_1002"] == 0.9
    assert first.data.params["local_lr"] == "0.1"
    assert (first.data.tags["diverged"], second.data.tags["diverged"]) == ("no", "why")
    assert first.info.run_name.startswith(str(Origin.SYNTHETIC))
    assert "validation_auc/mean" not in second.data.metrics
