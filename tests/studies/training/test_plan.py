"""What a dry run says of the time: a span without the warm-up, and whether the machine is busy."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.table import Table
from torch import hub

from chestfed.app.studies import describe_variants
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.learning.engines.torchrun import Options
from chestfed.leaves.slurm.executor import ClusterExecutor
from chestfed.studies.experiment.device import Machine, prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.providers import Unwritten
from chestfed.studies.running import Executor, check, make_plans, run
from chestfed.studies.training import costs, plan_output
from chestfed.studies.training.costs import Timings, duration, estimated
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.data.sites import OWN_TEST, VALID
from chestfed.studies.training.plan import ImageCounts, StudyPlan, plan_study
from chestfed.studies.training.plan_output import _remarks, propose_settings
from tests.cases import assert_refused, each
from tests.command_line import call
from tests.studies.training.tiny_studies import FILE, SETTINGS, read_rows

FEATURES = ["model={name: features, network: densenet121}", "preprocess.size=64"]


def test_median_of_repeated_steps_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lengths = [0.0], iter([50.0, 1.0, 1.0, 2.0, 1.0])

    def act() -> None:
        clock[0] += next(lengths)

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert costs._seconds(act, 55.0) == 1.0


def test_time_of_others_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, own = [0.0], [0.0]

    def act() -> None:
        clock[0] += 11.0  # at a load of ten
        own[0] += 1.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(time, "process_time", lambda: own[0])
    assert costs._seconds(act, 55.0, threads=1) == 1.0
    assert costs._seconds(act, 55.0, threads=2) == 0.5


def test_several_threads_are_timed_as_one() -> None:
    """The time in which threads wait for each other on a busy machine is none of a step."""
    before, used = torch.get_num_threads(), []
    try:
        torch.set_num_threads(2)
        costs._seconds(lambda: used.append(torch.get_num_threads()), 0.0, threads=2)
        assert (used, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


def test_features_count_once_per_image() -> None:
    pipeline = load_pipeline(bundled("pipelines") / "source_addition_samples.yaml", FEATURES).resolve()
    timings = costs.time_steps(pipeline, prepare_machine(pipeline.runtime))
    assert timings.feature > 0
    client = ImageCounts("a", rows=30, positives=(1,), negatives=(1,), images=20)
    costs_of = [replace(timings, feature=seconds) for seconds in (0, 7)]
    plans = [StudyPlan("", pipeline, (client,), client, Origin.REAL, 0, of, 40) for of in costs_of]
    assert plans[1].feature_seconds == 7 * 40
    assert plans[1].training_seconds - plans[0].training_seconds == pytest.approx(7 * 40)


def test_few_test_patients_name_the_key() -> None:
    path, settings = bundled("pipelines") / "source_addition_samples.yaml", ["k=[1]", "diseases=[edema, consolidation]"]
    pipeline = load_pipeline(path, settings).resolve()
    client = ImageCounts("a", rows=30, positives=(9, 9), negatives=(9, 9), images=20)
    plan = StudyPlan("", pipeline, (client,), client, Origin.REAL, 0, Timings(1, 0, 0, 0, 0, None), 40)
    counts: dict[str, Any] = {"test_patients": ((2, 200), (1, 200)), "patients": ((90, 900), (3, 900))} | {
        "more_tested": ("A", "B")
    }
    (warning,) = [text for text in _remarks(replace(plan, **counts)) if text.startswith("Warning")]
    assert (
        "A; or B to test more patients with Edema. The hospital has too few patients for Consolidation (3 in all)"
        in warning
    )
    (warning,) = [text for text in _remarks(replace(plan, **counts | {"patients": ()})) if text.startswith("Warning")]
    assert warning.endswith("no verdict will rest on it")


def test_undrawn_samples_cost_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without them a dry run counts their drawing, and decodes more than nothing."""
    monkeypatch.setattr("chestfed.studies.running.time_steps", lambda *_: Timings(1, 0, 0, 0, 0, None))
    path = bundled("pipelines") / "source_addition_samples.yaml"
    (plan,) = make_plans(check(load_pipeline(path, ["samples.size=tiny"]), path, tmp_path))
    assert plan.write_seconds > 0
    assert plan.decode_seconds > 0
    assert plan.data_seconds == plan.write_seconds + plan.decode_seconds
    assert list(tmp_path.iterdir()) == []


def test_a_plan_warns_of_missing_images(tiny_hospitals: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_hospitals, tmp_path / "data")
    pipeline = load_pipeline(FILE, SETTINGS).resolve()
    study, timings = read_rows(pipeline, FILE, tmp_path / "data"), Timings(1, 0, 0, 0, 0, None)
    assert not any("missing" in remark for remark in plan_study("", study, timings).remarks)
    for file in (tmp_path / "data" / "synthetic-chestxray8").rglob("*.png"):
        file.unlink()
    (warning,) = [remark for remark in plan_study("", study, timings).remarks if "missing" in remark]
    assert warning.startswith("Warning: chestxray8: 20 of 20 images that were looked for are missing")
    assert not any("missing" in remark for remark in plan_study("", study, timings, Unwritten(1, 1)).remarks)


def test_a_plan_says_what_tests_more_patients(tiny_hospitals: Path) -> None:
    timings, more = Timings(1, 0, 0, 0, 0, None), [f"sites.{place}.test_fraction=0.3" for place in (0, 1)]
    study = read_rows(load_pipeline(FILE, SETTINGS).resolve(), FILE, tiny_hospitals)
    plan = plan_study("", study, timings)
    split = study.pipeline.evaluation.split
    assert plan.more_tested == (f"Raise splits.{split}_fraction in the site's YAML",)
    assert not any("own test split" in remark for remark in plan.remarks)
    fixed = replace(study, sites=(replace(study.sites[0], splits_file="ward/x.csv"), *study.sites[1:]))
    (text,) = plan_study("", fixed, timings).more_tested
    assert text.startswith(f"Move training patients to {split} in x.csv")

    study = read_rows(load_pipeline(FILE, [*SETTINGS, *more, "evaluation.split=test"]).resolve(), FILE, tiny_hospitals)
    plan = plan_study("", study, timings)
    assert plan.more_tested == ("Raise test_fraction in the pipeline's sites",)
    site = study.sites[1]
    own = int((site.table.frame["split"] == "test").sum())
    assert f"{site.name}: {own} images of its own test split are not used" in " ".join(plan.remarks)
    assert any("own test split are not used" in note for note in study.notes[site.name])


def test_every_image_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clients, of the test set, and of patients whom hospitals hold out, who may be in it."""
    monkeypatch.setattr("chestfed.studies.running.time_steps", lambda *_: Timings(1, 0, 0, 0, 0, None))
    path = bundled("pipelines") / "source_addition_samples.yaml"
    keys = [f"sites.{number}.{key}_fraction=0.3" for number in range(2) for key in ("test", "validation")]
    keys += ["evaluation.split=test", "samples.size=tiny"]
    opened: list[Experiment] = []

    def plan_and_keep(label: str, study: Experiment, *rest: Any) -> StudyPlan:
        opened.append(study)
        return plan_study(label, study, *rest)

    monkeypatch.setattr("chestfed.studies.running.plan_study", plan_and_keep)
    (plan,) = make_plans(check(load_pipeline(path, keys), path, tmp_path))
    names = [(site.table.root, name) for site in opened[0].sites for name in site.table.frame["image"][site.in_use]]
    assert plan.images == len(names) == len(set(names))
    parts = [len(site.find(role)) for role in (VALID, OWN_TEST) for site in opened[0].sites]
    assert plan.at_hospitals > 0  # scored again, not read again
    assert plan.images == sum(client.images for client in plan.clients) + plan.test.images + sum(parts)


def test_total_is_lines_times_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the methods of a seed and split share runs once for each of these."""
    totals: list[float] = []

    def note_total(total: float, _: Timings) -> str:
        totals.append(total)
        return ""

    monkeypatch.setattr(plan_output, "estimated", note_total)
    monkeypatch.setattr(plan_output, "duration", str)
    monkeypatch.setattr("chestfed.studies.running.time_steps", lambda *_: Timings(1, 0, 0.3, 0.2, 0.01, None))
    path = bundled("pipelines") / "source_addition_samples.yaml"
    keys = ["samples.size=tiny", "seeds=3", "splits=2", "selected=[codasca, npa]", "k=[2]", "evaluation.split=test"]
    keys += [f"sites.{number}.{key}_fraction=0.3" for number in range(5) for key in ("test", "validation")]
    own = "own_data: true, centralized: null, fine_tuned: {epochs: [2], lr_factors: [1]}, gate: {}"
    studies = check(load_pipeline(path, [*keys, f"alternatives={{{own}}}"]), path, tmp_path)
    (plan,) = make_plans(studies)
    studies.design.render_plans([plan], studies.machine)
    table = plan_output.tabulate_parts(plan, [variant.pipeline for variant in studies.variants])
    assert isinstance(table, Table)
    names, seconds, runs = ([str(cell) for cell in table.columns[place].cells] for place in (0, -2, -1))
    assert totals == [pytest.approx(sum(float(time) * int(count) for time, count in zip(seconds, runs, strict=True)))]
    counts = dict(zip(names, map(int, runs), strict=True))
    once = ["draw the synthetic hospitals", "decode what is not cached"]
    own_data = ["own data alone, {}, 2 models", "own data and validation patients, {}, 2 models"]
    of_seeds = ["stage 1", *(name.format("stage 1") for name in own_data)]
    of_studies = ["stage 2, K=2", *(name.format("stage 2") for name in own_data), "fine-tuned, 2 models"]
    expected = dict.fromkeys(once, 1) | dict.fromkeys(of_seeds, 6) | dict.fromkeys(of_studies, 12)
    assert counts == expected


def test_most_target_images_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.studies.running.time_steps", lambda *_: Timings(1, 0, 0, 0, 0, None))
    path = bundled("pipelines") / "source_addition_samples.yaml"
    keys = ["samples.size=tiny", "k=[1]"]
    files = [load_pipeline(path, [*keys, f"target_images.counts={counts}"]) for counts in ("[8, all]", "[all]")]
    plans = [make_plans(check(file, path, tmp_path))[0] for file in files]
    assert plans[0].clients[0] == plans[1].clients[0]


def test_many_studies_are_one_line() -> None:
    pipelines = [
        SimpleNamespace(method=method, seed=seed, split=0, federated=SimpleNamespace(window=8))
        for method in ("a", "b", "c")
        for seed in range(90)
    ]
    variants: Any = [SimpleNamespace(pipeline=pipeline, label="x") for pipeline in pipelines]
    assert describe_variants(variants) == "3 methods x 90 seeds"
    assert describe_variants(variants[:2]) == "x, x"


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.2, "12 s"), (89, "89 s"), (600, "10 min"), (5300, "88 min"), (10800, "3.0 h")]
)
def test_duration_has_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_busy_machine_is_named() -> None:
    def describe(load: float | None) -> str:
        return estimated(60, Timings(1, 0, 0, 0, 0, load))

    assert "BUSY" in describe(2.5)
    assert "BUSY" not in describe(0.2) + describe(None)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_a_gpu_elsewhere_is_planned_for(tmp_path: Path) -> None:
    path = bundled("pipelines") / "source_addition_samples.yaml"
    for device in ("cuda", "cuda:1"):
        file = load_pipeline(path, ["samples.size=tiny", f"runtime.device={device}"])
        with pytest.raises(ConfigError):
            check(file, path, tmp_path)
        studies = check(file, path, tmp_path, planned=True)
        (plan,) = make_plans(studies)
        assert plan.timings.absent == device
        assert f"{device} is not on this machine" in estimated(60, plan.timings)
        assert studies.machine.name == f"{device} (not on this machine)"


@pytest.mark.usefixtures("no_gpu")
def test_jobs_check_their_own_gpu(tmp_path: Path) -> None:
    """But features are taken before the jobs are sent."""

    class Elsewhere(Executor):
        elsewhere = True

    path, settings = bundled("pipelines") / "source_addition_samples.yaml", ["runtime.device=cuda"]
    assert check(load_pipeline(path, settings), path, tmp_path, Elsewhere()).machine.device.type == "cuda"
    assert ClusterExecutor.elsewhere
    with pytest.raises(ConfigError):
        check(load_pipeline(path, [*settings, *FEATURES]), path, tmp_path, Elsewhere())


def test_time_is_of_the_busiest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    timings = Timings(1, 0, 1, 2, 0, None)
    stage_2 = SimpleNamespace(steps=10, taking_part=lambda k: k, spec=SimpleNamespace(pooled=False))
    pretrain = SimpleNamespace(steps=lambda rows: 100)
    options = Options(name="torchrun")
    pipeline: Any = SimpleNamespace(engine=options, federated=stage_2, pretrain=pretrain, evaluated_rounds=[])
    client = ImageCounts("a", rows=1, positives=(), negatives=(), images=1)
    study = StudyPlan("", pipeline, (client,), client, Origin.REAL, 0, timings, 1)
    assert (study.stage_1_seconds, study.stage_2_seconds(5)) == (100, 60)


def test_network_ending_in_one_pixel_timed() -> None:
    """Batch normalization refuses a batch of one such image."""
    small = ["preprocess.size=64", "model.pool=2", "model.norm=batch"]
    pipeline = load_pipeline(bundled("pipelines") / "source_addition_samples.yaml", small).resolve()
    assert costs.time_steps(pipeline, prepare_machine(pipeline.runtime)).parameters > 0


@each(("device", "autocast", "proposed"), [("cuda", False, 1), ("cuda", True, 0), ("cpu", False, 0)])
def test_bf16_is_proposed_on_a_gpu(monkeypatch: pytest.MonkeyPatch, device: str, autocast: bool, proposed: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    machine = Machine(torch.device(device), 1, autocast, True, 0)
    assert len(propose_settings(machine)) == proposed
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert propose_settings(machine) == []


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without ImageNet's weights and without a network."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(hub, "get_dir", lambda: str(tmp_path / "torch"))
    monkeypatch.setattr(hub, "download_url_to_file", refuse)


@pytest.mark.usefixtures("offline")
def test_dry_run_needs_no_weights(tmp_path: Path) -> None:
    """It names them, and what disk and memory the study needs."""
    weights = "model={name: densenet121, initial_weights: imagenet}"
    words = ("study", "digits_ih", "--methods", "coda", "--seeds", "1", "--set", weights, "--set", "model.norm=batch")
    shown = call(*words, "--dry-run", folder=tmp_path)
    assert shown.code == 0, shown.err
    output = "".join(shown.out.split())  # lines are folded
    assert "densenet121-a639ec97.pth is not on this machine" in shown.out
    assert str(tmp_path / "torch" / "checkpoints") in output
    assert "pytorch.org/models/densenet121-a639ec97.pth" in output
    assert "of models and states in --out" in shown.out
    assert "Memory: at least" in shown.out
    assert not list(tmp_path.iterdir())
    refused = call(*words, "--no-tracking", folder=tmp_path)
    assert "no network" in refused.err
    assert not list(tmp_path.glob("runs/digits*"))


@pytest.mark.usefixtures("offline")
def test_data_are_checked_before_weights(tmp_path: Path) -> None:
    """All sites that are missing are named at once."""
    path = bundled("pipelines") / "source_addition_densenet121.yaml"
    studies = check(load_pipeline(path), path, tmp_path)
    for act in (make_plans, partial(run, out=tmp_path / "runs", cache=tmp_path / "cache")):
        sites = ["chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr"]
        with assert_refused(ConfigError, "missing folders", sites=sites):
            act(studies)
