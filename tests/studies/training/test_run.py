"""A whole study on tiny synthetic hospitals: tables, resuming, and what it leaves on disk."""

from __future__ import annotations

import csv
import itertools
import json
import multiprocessing
import os
import re
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chestfed.core import checkpoint
from chestfed.core.checkpoint import load_checkpoint
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.views import describe_stage_1
from chestfed.studies.training import loop
from tests.results.tables.finished_runs import seal_run
from tests.studies.training.tiny_studies import command, run


def find_folder(home: Path, out: str) -> Path:
    (folder,) = (home / out).glob("synthetic-source_addition_samples-*")
    return folder


@pytest.fixture(scope="module")
def finished(home: Path) -> Path:
    """The run folder of an uninterrupted study."""
    result = run(home, command("whole", "--no-tracking"))
    assert result.code == 0, result.err
    assert "SYNTHETIC hospitals" in result.out
    return find_folder(home, "whole")


def test_tables_and_parts_are_written(finished: Path) -> None:
    rows = list(csv.DictReader((finished / "table.csv").open(encoding="utf-8")))
    assert [(row["k"], row["disease"]) for row in rows][:2] == [("1", "cardiomegaly"), ("1", "edema")]
    assert {row["data"] for row in rows} == {"synthetic"}
    assert len(rows) == 12
    study = json.loads((finished / "study.json").read_text())
    assert study["synthetic"] is True
    assert study["stage_batches"] == [4, 4]
    assert set(study["inputs"]) == {"chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr", "test set"}
    assert finished.name.endswith(study["digest"])
    history = [json.loads(line) for line in (finished / "k2" / "rounds.jsonl").read_text().splitlines()]
    assert [(entry["stage"], entry["round"]) for entry in history] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert all(entry["gradients"] == 4 and entry["images"] == 8 for entry in history)


def test_stage_1_is_scored_alone(finished: Path) -> None:
    aucs = json.loads((finished / "stage_1.json").read_text())["auc"]
    rows = list(csv.DictReader((finished / "table.csv").open(encoding="utf-8")))
    of_k1 = {row["disease"]: float(row["auc"]) for row in rows if row["k"] == "1"}
    assert list(aucs) == list(of_k1)
    assert aucs["mean"] == pytest.approx(sum(aucs[name] for name in of_k1 if name != "mean") / 5)
    assert all(0 <= value <= 1 for value in aucs.values())
    assert aucs["mean"] != pytest.approx(of_k1["mean"], abs=1e-9)  # its own classifier, and no stage 2
    assert "After stage 1 alone" in describe_stage_1(load_results(RunFolder(finished)))


def test_each_k_compared_with_smallest(finished: Path) -> None:
    rows = list(csv.DictReader((finished / "significance.csv").open(encoding="utf-8")))
    assert {(row["reference"], row["model"], row["data"]) for row in rows} == {("K=1", "K=2", "synthetic")}
    aucs = {(r["k"], r["disease"]): r["auc"] for r in csv.DictReader((finished / "table.csv").open(encoding="utf-8"))}
    for row in rows:
        expected = float(aucs["2", row["disease"]]) - float(aucs["1", row["disease"]])
        assert float(row["difference"]) == pytest.approx(expected)


def test_written_files_name_no_patient(finished: Path, home: Path) -> None:
    names = re.compile(rb"patient\d{5}|\d{8}_\d{3}\.png|p1\d{7}|view\d_frontal")
    files = [*finished.rglob("*"), *(home / "cache").rglob("*")]
    assert len(files) > 20
    for file in files:
        if file.is_file() and file.name != "pixels.u8":
            assert not names.search(file.read_bytes()), file


@pytest.mark.slow
def test_finished_study_gets_new_groups(home: Path, finished: Path) -> None:
    before, file = (finished / "table.csv").read_bytes(), finished / "k2" / "predictions.parquet"
    whole, earlier = file.read_bytes(), pd.read_parquet(file)
    earlier["group_sex"] = "F"
    earlier.to_parquet(file, index=False, write_page_checksum=True)
    seal_run(finished)
    result = run(home, command("whole", "--no-tracking"))
    assert result.code == 0, result.err
    assert file.read_bytes() == whole
    assert result.out.count("from the earlier run") == 2
    assert (finished / "table.csv").read_bytes() == before
    assert find_folder(home, "whole") == finished


#: A new interpreter would import for seconds.
FORK = multiprocessing.get_context("fork")
#: Seconds between saves, number of the file, and when.
KILLED = [(0, 2, "middle"), (0, 2, "after"), (60, 3, "middle"), (0, 3, "middle"), (60, 4, "after"), (0, 5, "middle")]


def run_and_die(home: Path, seconds: float, count: int, moment: str) -> None:
    """Run the study until it kills itself at the `count`-th file that is put in place: in the middle, or after."""
    original = checkpoint.write_atomically

    def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
        nonlocal count
        count -= 1
        if count == 0 and moment == "middle":
            original(path, lambda temporary: (write(temporary), os.kill(os.getpid(), signal.SIGKILL)))
        original(path, write)
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.write_atomically, checkpoint.SECONDS_BETWEEN_SAVES = write_atomically, seconds
    run(home, command("killed", "--no-tracking"))


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is a POSIX signal")
def test_killed_study_has_same_tables(home: Path, finished: Path) -> None:
    for case in KILLED:
        child = FORK.Process(target=run_and_die, args=(home, *case))
        child.start()
        child.join(300)
        assert child.exitcode == -signal.SIGKILL, case
    result = run(home, command("killed", "--no-tracking"))
    assert result.code == 0, result.err
    again = find_folder(home, "killed")
    for name in (
        "table.csv",
        "significance.csv",
        "k1/result.json",
        "k2/result.json",
        "k2/rounds.jsonl",
        "k2/model.safetensors",
    ):
        assert (again / name).read_bytes() == (finished / name).read_bytes(), name


@pytest.mark.skipif(os.name == "nt", reason="SIGTERM is a POSIX signal")
def test_stopped_study_has_same_tables(home: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, run_round = itertools.count(1), loop.Training.run_round

    def stopped_in_round_5(*given: Any) -> Any:  # the first one of K=2, in the middle of a stage
        if next(rounds) == 5:
            signal.raise_signal(signal.SIGTERM)
        return run_round(*given)

    with monkeypatch.context() as patched:
        patched.setattr(loop.Training, "run_round", stopped_in_round_5)
        stopped = run(home, command("stopped", "--no-tracking"))
    assert (stopped.code, "run the same command again" in stopped.err) == (143, True)
    assert "Traceback" not in stopped.err
    folder = find_folder(home, "stopped")
    _, saved = load_checkpoint(folder / "k2" / "state.safetensors")
    assert len(saved["history"]) == 1
    resumed = run(home, command("stopped", "--no-tracking"))
    assert resumed.code == 0
    assert "resuming K=2 after round 1 of" in resumed.out
    assert "resuming K=3" not in resumed.out
    assert (folder / "table.csv").read_bytes() == (finished / "table.csv").read_bytes()


def test_dry_run_draws_samples_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied_hospitals: None
) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    result = run(tmp_path / "here", command("nowhere", "--dry-run"))
    assert result.code == 0, result.err
    assert "What would run" in result.out
    assert not list((tmp_path / "here").iterdir())
    assert not list((tmp_path / "temporary").glob("chestfed-*"))


def test_dry_run_writes_nothing(home: Path) -> None:
    before = sorted(str(path) for path in home.rglob("*"))
    result = run(home, command("nowhere", "--dry-run"))
    assert result.code == 0, result.err
    assert "stage 2, K=2" in result.out
    assert "Nothing was written" in result.out
    assert sorted(str(path) for path in home.rglob("*")) == before


@pytest.mark.slow
def test_missing_tracking_server_is_no_stop(home: Path, finished: Path) -> None:
    result = run(home, command("untracked", "--tracking-uri", "http://127.0.0.1:9", "--quiet"))
    assert result.code == 0, result.err
    assert "MLflow tracking stopped" in result.err
    assert result.out.count("\n") == 1  # the answer
    assert (find_folder(home, "untracked") / "table.csv").read_bytes() == (finished / "table.csv").read_bytes()


def test_second_process_in_folder_refused(home: Path, finished: Path) -> None:
    from filelock import FileLock

    with FileLock(finished / ".lock"):
        result = run(home, command("whole", "--no-tracking"))
    assert result.code == 1
    assert "another process is running this study" in result.err


def test_mistake_has_no_traceback(home: Path) -> None:
    result = run(home, command("x", "--set", "federated.widow=3"))
    assert result.code == 1
    assert "did you mean 'window'" in result.err
    assert "Traceback" not in result.err
