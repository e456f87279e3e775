"""The table of all held-out sites."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from chestfed.core.provenance import Origin
from chestfed.evaluation.estimates import Estimate
from chestfed.evaluation.intervals.interval import Interval
from chestfed.results.held_out_table import FoldResult, HeldOutTable, as_json, metrics, render, write
from chestfed.results.table import Row


def row(edema: float, mass: float | None) -> Row:
    reason = "" if mass is not None else "no positive image"
    mean = edema if mass is None else (edema + mass) / 2
    aucs = (
        Estimate("edema", edema, Interval(0.4, 0.9), 3, 5, 0),
        Estimate("mass", mass, None, 2 if mass else 0, 6, 1, reason),
        Estimate("mean", mean, Interval(0.45, 0.85)),
    )
    return Row(1, ("b", "c"), aucs)


@pytest.fixture
def table() -> HeldOutTable:
    seen = {"b": row(0.8, 0.6), "c": row(0.9, None)}
    fold = FoldResult("a", 1234, "run-a", row(0.7, None).with_reasons({"mass": "a does not label it"}), seen)
    return HeldOutTable("Held out", "small DenseNet", "frontal-image", Origin.SYNTHETIC, (fold,))


def test_csv_and_json_have_every_scored_site_and_the_reasons(table: HeldOutTable, tmp_path: Path) -> None:
    folder = write(table, tmp_path)
    assert folder.name.startswith("synthetic-held-out-")
    found = pd.read_csv(folder / "held_out.csv")
    assert set(found["data"]) == {"synthetic"}
    assert found["scored_on"].tolist() == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert found["trained_on_it"].tolist() == [False] * 3 + [True] * 6
    missing = found[found["disease"] == "mass"].set_index("scored_on")
    assert missing.loc["a", "reason"] == "a does not label it"  # not what the labels of the fold look like
    assert missing.loc["c", "reason"] == "no positive image"
    assert found.set_index(["scored_on", "disease"]).loc[("b", "mean"), "auc"] == pytest.approx(0.7)
    plain = json.loads((folder / "held_out.json").read_text())
    assert plain == json.loads(json.dumps(as_json(table)))
    (fold,) = plain["folds"]
    assert fold["diseases"]["mass"] == {
        **{"auc": None, "interval": None, "positives": 0, "negatives": 6, "missing": 1},
        "reason": "a does not label it",
    }
    assert fold["sites_trained_on"]["c"]["mean_auc"] == pytest.approx(0.9)


def test_the_printed_table_has_the_held_out_site_and_the_mean_of_the_others(table: HeldOutTable) -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(table))
    text = console.export_text()
    for words in ("SYNTHETIC hospitals", "1,234", "0.700", "[0.40, 0.90]", "3+ / 5-", "sites trained on", "0.850"):
        assert words in text
    assert "a, Mass: a does not label it" in text


def test_the_metrics_are_the_means_at_held_out_and_at_trained_sites(table: HeldOutTable) -> None:
    assert metrics(table) == pytest.approx({"held_out_auc_mean_a": 0.7, "trained_on_auc_mean_a": 0.725})
