"""What a dry run says of a study whose data are not here yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.bundled import bundled
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.costs import Timings
from chestfed.studies.training.forecast import forecast_study
from tests.command_line import Called, call

WORDS = ("study", "source_addition_densenet121", "--dry-run")


@pytest.fixture(autouse=True)
def _timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a third of a second on the one core of this machine."""
    timings = Timings(1000, 0, 0.32, 0.32, 0.01, None)
    monkeypatch.setattr("chestfed.studies.training.forecast.time_steps", lambda *_: timings)
    monkeypatch.setattr("chestfed.studies.training.forecast.cores", lambda: 1)
    monkeypatch.delenv("CHESTFED_DATA", raising=False)


def list_sites(called: Called) -> list[str]:
    """The sites of the table."""
    lines = [line.split() for line in called.out.splitlines()]
    return [words[0] for words in lines if words[-1:] == ["h"] and words[0] not in ("decode", "stage")]


def test_sizes_are_shown_before_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where the missing weights belong, and that the plan is a forecast."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    called = call(*WORDS, folder=tmp_path)
    assert called.code == 1
    weights, end = called.out.splitlines()[-2:]
    assert weights.startswith("first weights: densenet121-")
    assert weights.endswith(f"put it into {tmp_path / 'torch' / 'hub' / 'checkpoints'}")
    assert "forecast from published sizes" in end
    assert "--data DIR" in called.err
    (line,) = [line for line in called.out.splitlines() if line.startswith("mimic_cxr ")]
    assert line.split() == ["mimic_cxr", "377,110", "570.0", "GB", "38.6", "GB", "6.3", "h"]
    assert "https://physionet.org/content/mimic-cxr-jpg/" in called.out
    # 2 epochs of 223,648 images in batches of 32; 94 rounds of 32 steps of 1 to 5 clients
    hours = 0.32 * (2 * 223_648 / 32 + 94 * 32 * 15) / 3600 + (439 + 45 + 1000 + 570 + 192) / 0.025 / 3600
    assert f"Estimated total: {hours:.1f} h" in called.out
    rows = [line.split() for line in called.out.splitlines() if line.startswith("stage ")]
    assert rows[0][:5] == ["stage", "1", "1", f"{2 * 223_648 // 32:,}", f"{2 * 223_648:,}"]
    assert [row[3:7] for row in rows[1:]] == [
        [str(k), f"{94 * 32:,}", f"{94 * 32 * k * 32:,}", "94"] for k in range(1, 6)
    ]
    assert rows[5][7:11] == ["3.8", "MB"] * 2  # each way two vectors of 1000 weights and few dual numbers
    assert "Disk: 91.3 GB of decoded images" in called.out


def test_quick_study_decodes_few_images(tmp_path: Path) -> None:
    called = call(*WORDS, "--quick", folder=tmp_path)
    (line,) = [line for line in called.out.splitlines() if line.startswith("mimic_cxr ")]
    assert line.split() == ["mimic_cxr", "377,110", "570.0", "GB", "5.7", "MB", "85", "s"]
    rows = [line.split() for line in called.out.splitlines() if line.startswith("stage 1")]
    assert rows[0][3:5] == ["250", "8,000"]  # 20 epochs of 400 images


def test_present_sites_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "data" / "chexpert").mkdir(parents=True)
    called = call(*WORDS, "--data", "data", folder=tmp_path)
    assert called.code == 1
    assert "4 of 5 sites have no folder" in called.err
    assert list_sites(called) == ["padchest", "mimic_cxr", "vindr"]  # decoding ChestX-ray8 takes minutes
    assert "chexpert: " not in called.out


@pytest.mark.parametrize("folder", ["absent", "empty"])
def test_folder_without_sites_has_a_forecast(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    called = call(*WORDS, "--data", folder, folder=tmp_path)
    assert called.code == 1
    assert list_sites(called) == ["chexpert", "padchest", "mimic_cxr", "vindr"]
    missing = "no such folder" if folder == "absent" else "5 of 5 sites have no folder"
    assert missing in called.err


def test_other_sites_have_no_forecast(tmp_path: Path) -> None:
    for name in ("source_addition_samples", "nih_parts"):
        path = bundled("pipelines") / f"{name}.yaml"
        assert forecast_study(load_pipeline(path).resolve(), path, tmp_path) is None
