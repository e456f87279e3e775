"""The study's table as CSV, JSON and text."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console

from chestfed.core.diseases import DISEASES
from chestfed.core.provenance import Origin
from chestfed.evaluation.estimates import as_csv
from chestfed.evaluation.labeled import Scored
from chestfed.results.table import Row, StudyTable, as_json, frame, paper_table, render


def make_table(origin: Origin, *, paper: bool, no_edema: bool = False) -> StudyTable:
    rng = np.random.default_rng(0)
    labels = (rng.random((60, 5)) < 0.4).astype(np.float32)
    labels[0, 2] = np.nan
    if no_edema:
        labels[:, 1] = 0
    rows = []
    for k in (1, 2):
        scores = (rng.random((60, 5)) + np.nan_to_num(labels) * 0.4 * k).astype(np.float32)
        clients = ["chexpert", "chestxray8"][:k]
        rows.append(Row.of_scores(k, clients, Scored(scores, labels, np.arange(60), DISEASES), resamples=50))
    reference = paper_table("densenet121") if paper else None
    return StudyTable("A study", "DenseNet121", "frontal-image, valid split", 60, 60, origin, tuple(rows), reference)


def printed(table: StudyTable) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(render(table))
    return console.export_text()


def test_the_csv_has_a_line_per_k_and_disease_and_the_mean_at_full_precision() -> None:
    table = make_table(Origin.REAL, paper=True)
    rows = list(csv.DictReader(io.StringIO(as_csv(frame(table)))))
    assert len(rows) == 2 * 6
    assert float(rows[0]["auc"]) == table.rows[0].diseases[0].value
    assert int(rows[2]["positives"]) + int(rows[2]["negatives"]) == 59
    assert rows[2]["missing"] == "1"
    assert rows[5]["disease"] == "mean"
    assert float(rows[5]["auc"]) == pytest.approx(np.mean([float(row["auc"]) for row in rows[:5]]))
    assert [row["paper_auc"] for row in rows[6:]] == [
        "0.9027",
        "0.9586",
        "0.9542",
        "0.9065",
        "0.9583",
        "0.9361",
    ]


def test_the_json_holds_what_the_csv_holds() -> None:
    table = make_table(Origin.SYNTHETIC, paper=False)
    plain = json.loads(json.dumps(as_json(table), allow_nan=False))
    assert (plain["synthetic"], plain["data"]) == (True, "synthetic")
    assert plain["rows"][1]["diseases"]["edema"]["auc"] == table.rows[1].diseases[1].value
    low, high = plain["rows"][1]["mean_interval"]
    assert low < plain["rows"][1]["mean_auc"] < high


def test_a_disease_with_one_class_is_undefined_with_its_reason_and_out_of_the_mean() -> None:
    table = make_table(Origin.REAL, paper=False, no_edema=True)
    edema = as_json(table)["rows"][0]["diseases"]["edema"]
    assert edema["auc"] is None
    assert edema["interval"] is None
    assert edema["reason"] == "no positive image"
    assert (
        next(row for row in csv.DictReader(io.StringIO(as_csv(frame(table)))) if row["disease"] == "edema")["auc"] == ""
    )
    defined = [one.value for one in table.rows[0].diseases if one.value is not None]
    assert table.rows[0].mean.value == pytest.approx(np.mean(defined))
    assert "Edema: no positive image" in printed(table)


def test_the_papers_figures_stand_beside_and_a_synthetic_table_says_so() -> None:
    real = printed(make_table(Origin.REAL, paper=True))
    assert "0.9007" in real
    assert "SYNTHETIC" not in real
    made = printed(make_table(Origin.SYNTHETIC, paper=False))
    assert "SYNTHETIC hospitals (phantoms, no patients, no clinical meaning)" in made
    assert "synthetic" in as_csv(frame(make_table(Origin.SYNTHETIC, paper=False))).splitlines()[1]


def test_a_table_with_real_patients_and_phantoms_says_both() -> None:
    table = make_table(Origin.MIXED, paper=False)
    shown = printed(table)
    assert "PARTLY SYNTHETIC (phantoms among real hospitals" in shown
    assert "no patients" not in shown
    assert {row["data"] for row in csv.DictReader(io.StringIO(as_csv(frame(table))))} == {"mixed"}
    assert (as_json(table)["synthetic"], as_json(table)["data"]) == (True, "mixed")


def test_the_papers_averages_are_the_means_of_its_columns_but_for_four_that_it_prints_otherwise() -> None:
    """As published; docs/study.md names the four."""
    otherwise = []
    for model in ("densenet121", "densenet161"):
        rows = paper_table(model)
        assert [row["sources"] for row in rows] == [1, 2, 3, 4, 5]
        for row in rows:
            if abs(row["average"] - np.mean([row[disease] for disease in DISEASES])) > 1.01e-4:
                otherwise.append((model, int(row["sources"])))
    assert otherwise == [("densenet121", 1), ("densenet161", 2), ("densenet161", 3), ("densenet161", 4)]


def test_a_row_is_read_as_it_was_written() -> None:
    row = make_table(Origin.REAL, paper=False, no_edema=True).rows[1]
    plain = json.loads(json.dumps(row.to_plain(), allow_nan=False))
    assert Row.from_plain(plain) == row
