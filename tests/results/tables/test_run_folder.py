"""The one reader of a run folder: what it gives, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.provenance import Origin
from chestfed.results.tables.collect import collect, load_results, write_comparison
from chestfed.results.tables.frames import read_differences, read_estimates, read_row
from chestfed.results.tables.predictions import load_predictions
from chestfed.results.tables.run_folder import RunFolder, Settings
from tests.cases import assert_refused
from tests.results.tables.finished_runs import IMAGES, NAMES, write_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.open(write_run(tmp_path / "synthetic-small-0123456789ab"))


def test_folder_has_settings_and_finished_k(run: RunFolder) -> None:
    known = run.settings
    assert (run.title, run.origin, known.seed, known.protocol) == ("Study", Origin.SYNTHETIC, 1, "frontal-image")
    assert (known.algorithm, known.window) == ("codasca", 4)
    assert (run.ks, known.ks, run.diseases) == ((1, 2), (1, 2), NAMES)
    assert run.pipeline_name == "small"
    assert run.folder() == run.path / "k2"
    with assert_refused(ConfigError, "no such K", k=3, finished=(1, 2)):
        run.folder(3)


def test_algorithm_with_options_read_by_name(run: RunFolder) -> None:
    federated = {"algorithm": {"name": "mine", "prox": 0.1}, "objective": {"name": "auc"}, "window": 7}
    known = Settings.of({**run.configuration, "federated": federated})
    assert (known.algorithm, known.window) == ("mine", 7)


def test_frame_is_the_written_table(run: RunFolder) -> None:
    results = load_results(run)
    pd.testing.assert_frame_equal(results.estimates, read_estimates(run.path), check_exact=True)
    pd.testing.assert_frame_equal(results.differences, read_differences(run.path), check_exact=True)
    assert results.view("study")["positives"].dtype == "Int64"
    assert read_row(run.path / "k1") == run.row(1)


def test_k_is_readable_before_the_study_ends(run: RunFolder) -> None:
    (run.path / "k2" / "result.json").unlink()
    assert load_results(run).view("study")["k"].unique().tolist() == [1]
    assert len(run.predictions()) == IMAGES
    assert [entry["seconds"] for entry in run.rounds()] == [0.5, 1.0]
    with assert_refused(ChestfedError, "not finished", missing=(2,)):
        run.check_finished()


@pytest.mark.usefixtures("unchecked")
def test_a_damaged_file_is_named(run: RunFolder) -> None:
    def read_all(folder: Path) -> None:
        run_folder = RunFolder.open(folder)
        run_folder.check_finished()
        assert len(load_results(run_folder).gains("study"))
        for k in run_folder.ks:
            run_folder.columns(k)
            run_folder.rounds(k)
        assert run_folder.sites["sites"] == []
        assert run_folder.thumbnails == {}

    read_all(run.path)
    for name, content in (
        ("study.json", b"{}"),
        ("k1/result.json", b"{}"),
        ("k1/predictions.parquet", b"PAR1"),
        ("k2/rounds.jsonl", b'{"round": 1'),
        ("k2/rounds.jsonl", b""),
        ("thumbnails.npz", b"PK"),
        ("sites.json", b""),
        ("significance.csv", b"]"),
    ):
        copy = Path(shutil.copytree(run.path, run.path.parent / "copy"))
        (copy / name).write_bytes(content)
        with pytest.raises(ChestfedError) as caught:
            read_all(copy)
        assert str(caught.value).startswith(f"{copy / name}: cannot be read"), name
        shutil.rmtree(copy)


@pytest.mark.parametrize("name", ["study.json", "table.csv", "k1/result.json", "k2/predictions.parquet"])
def test_altered_file_is_refused(run: RunFolder, name: str) -> None:
    RunFolder.open(run.path).check_finished()
    file = run.path / name
    if file.suffix == ".parquet":
        pd.read_parquet(file).assign(score_edema=0.5).to_parquet(file)
    else:
        file.write_text(file.read_text().replace("0", "1"))
    with assert_refused(ChestfedError, "damaged or missing", files=(file.name,)):
        RunFolder.open(run.path).check_finished()
    with assert_refused(ChestfedError, "damaged or missing", files=(file.name,)):
        load_predictions(run.path, 2 if "k2" in name else 1)


def test_only_a_folder_of_one_study_opens(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    assert RunFolder.open(tmp_path / "runs").path.name == "one"
    write_run(tmp_path / "runs" / "two", seed=2)
    with assert_refused(ConfigError, "several studies", studies=("one", "two"), comparisons=()):
        RunFolder.open(tmp_path / "runs")
    with assert_refused(ConfigError, "no such folder"):
        RunFolder.open(tmp_path / "nowhere")
    with assert_refused(ConfigError, "not a run folder"):
        RunFolder.open(tmp_path)
    runs = [RunFolder(tmp_path / "runs" / name) for name in ("one", "two")]
    together = write_comparison(collect(runs), tmp_path / "runs")
    with assert_refused(ConfigError, "several studies", studies=("one", "two"), comparisons=(together.name,)):
        RunFolder.open(tmp_path / "runs")
    for opened in (RunFolder.open, load_predictions):
        with assert_refused(ConfigError, "comparison of studies", studies=("one", "two")):
            opened(together)
