"""The table that a study of held-out sites gets."""

from __future__ import annotations

import csv
from pathlib import Path

from chestfed.core.bundled import bundled
from tests.studies.training.tiny_studies import run, study

PIPELINE = bundled("pipelines") / "leave_one_site_out.yaml"
SITES = [f"{{config: {bundled('site_configs')}/synthetic/{name}.yaml}}" for name in ("chexpert", "padchest", "vindr")]


def test_thresholds_are_transferred(home: Path) -> None:
    settings = (f"sites=[{', '.join(SITES)}]", "held_out.sites=[vindr,chexpert]")
    result = run(home, study(str(PIPELINE), "--out", "runs", *(part for one in settings for part in ("--set", one))))
    assert result.code == 0, result.err
    (file,) = (home / "runs").glob("synthetic-held-out-*/transfer.csv")
    with file.open(encoding="utf-8") as text:
        rows = list(csv.DictReader(text))
    assert {row["held_out"] for row in rows} == {"chexpert", "vindr"}
    assert {row["images"] for row in rows if row["way"] == "transferred"} == {"0"}
    for row in rows:
        assert all(0 <= float(row[name]) <= 1 for name in ("sensitivity", "specificity", "brier", "ece"))
    assert "Threshold and probabilities at a new hospital" in result.out
