"""Two groups train, submit, and are ranked on a third machine's page, with a forged file beside theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from chestfed.core.pseudonyms import VARIABLE
from tests.leaves.leaderboard.submissions import forge
from tests.leaves.leaderboard.test_board import fix_split
from tests.studies.training.tiny_studies import SETTINGS, study


def run(home: Path, *words: str, code: int = 0) -> str:
    """A command in a process, folder and home of its own, with the key that it makes there."""
    environment = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "CHESTFED_DATA")}
    environment |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def fill_home(home: Path, hospitals: Path) -> Path:
    home.mkdir()
    shutil.copytree(hospitals, home / "synthetic_hospitals")
    return home


@pytest.mark.slow
def test_two_groups_are_ranked(tiny_hospitals: Path, tmp_path: Path) -> None:
    benchmark = str(fix_split(tmp_path, tiny_hospitals))
    chestfed, files = [sys.executable, "-m", "chestfed"], tmp_path / "files"
    files.mkdir()
    for method in ("codasca", "fedavg"):
        home = fill_home(tmp_path / f"alice-{method}", tiny_hospitals)
        run(home, *study("--methods", method, "--seeds", "2", "--no-tracking", settings=SETTINGS))
        runs = sorted(str(file.parent) for file in home.glob("runs/*/study.json"))
        run(home, *chestfed, "submit", *runs, "--benchmark", benchmark, "--out", str(files / f"{method}.zip"))
    for file in files.iterdir():
        assert b"alice" not in file.read_bytes()
    forged = Path(shutil.copy(files / "codasca.zip", files / "forged.zip"))
    forge(forged, lambda _, lines: lines.append(lines[-1]))
    home, page = fill_home(tmp_path / "judge", tiny_hospitals), tmp_path / "page.html"
    ranked = run(
        home,
        *(*chestfed, "leaderboard", str(files), "--benchmark", benchmark, "--output", str(page), "--strict"),
        code=2,
    )
    assert "2 submissions, 1 refused" in ranked
    assert "forged.zip" in page.read_text()
    table = pd.read_csv(page.with_suffix(".csv"))
    for method in ("codasca", "fedavg"):
        (results,) = (tmp_path / f"alice-{method}").glob("runs/*comparison*/table.csv")
        theirs = pd.read_csv(results).query("k == 2").set_index("disease")["auc"]
        ours = table.query("what == 'auc' and model == @method and k == 2").set_index("disease")["auc"]
        for disease in ("edema", "atelectasis"):
            assert ours[disease] == pytest.approx(theirs[disease], abs=1e-12)
