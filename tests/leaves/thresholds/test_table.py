"""The table that a study of held-out sites gets."""

from __future__ import annotations

import csv
from pathlib import Path


def test_thresholds_are_transferred(held_out_study: Path) -> None:
    (file,) = (held_out_study / "runs").glob("synthetic-held-out-*/transfer.csv")
    with file.open(encoding="utf-8") as text:
        rows = list(csv.DictReader(text))
    assert {row["held_out"] for row in rows} == {"chexpert", "vindr"}
    assert {row["images"] for row in rows if row["way"] == "transferred"} == {"0"}
    for row in rows:
        assert all(0 <= float(row[name]) <= 1 for name in ("sensitivity", "specificity", "brier", "ece"))
    printed = (held_out_study / "printed.txt").read_text(encoding="utf-8")
    assert "Threshold and probabilities at a new hospital" in printed
