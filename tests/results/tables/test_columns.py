"""Columns of the stored tables: types, one declaration each, and folders that earlier releases wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import pytest

from chestfed.core.errors import ConfigError
from chestfed.reports.pages.page import make_page
from chestfed.results.evaluation.training_seeds import REFERENCES
from chestfed.results.tables import older
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import collect, load_results, read_comparison, write_comparison
from chestfed.results.tables.columns import Below, EstimateRow, find_below, list_types, make_frame
from chestfed.results.tables.frames import (
    list_difference_rows,
    list_records,
    list_stored_gains,
    read_differences,
    select,
)
from chestfed.results.tables.run_folder import RunFolder
from tests.cases import assert_refused
from tests.results.tables.finished_runs import write_run

#: Folders that release 0.2.0 wrote, without pictures and with smaller models.
STORED = Path(__file__).parent / "stored" / "version_1"


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    """Two seeds of a study of K=1 and K=2."""
    runs = [RunFolder(write_run(tmp_path / f"run-{seed}", seed=seed)) for seed in (1, 2)]
    return write_comparison(collect(runs, "Study"), tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_methods_named_like_k_are_compared(tmp_path: Path) -> None:
    runs = [RunFolder(write_run(tmp_path / name, method=name, ks=(2,))) for name in ("K=a", "K=b")]
    results = collect(runs, "Two methods")
    assert not results.by_k
    assert results.view("study")["method"].unique().tolist() == ["K=a", "K=b"]
    answer = answer_study(results)
    assert answer.question == "Which method has the highest mean AUC?"
    page = make_page(read_comparison(write_comparison(results, tmp_path)))
    assert answer.question in page.html
    assert "help?" not in page.html


def test_rows_say_what_they_are_about(comparison: Path) -> None:
    results = read_comparison(comparison)
    study = results.view("study", disease="mean")
    assert study[["design", "method", "window", "k", "kind"]].to_numpy().tolist() == [
        ["comparison", "codasca", 4, k, "common"] for k in (1, 2)
    ]
    (gain,) = results.list_differences("study", disease="mean")
    assert (gain["method"], gain["k"], gain["kind"]) == ("codasca", 2, "common")
    assert (gain["reference_method"], gain["reference_k"], gain["reference_kind"]) == ("codasca", 1, "common")


def test_mean_over_seeds_has_an_interval(comparison: Path) -> None:
    rows = [row for row in read_comparison(comparison).list_estimates("study") if row["auc"] is not None]
    assert rows
    for row in rows:
        if row["low"] is None or row["high"] is None:
            assert row["reason"]
        else:
            assert row["low"] < row["auc"] < row["high"]  # type: ignore[operator]
            assert row["interval_reference"] == REFERENCES[0]
    assert any(row["low"] is not None for row in rows)


def test_missing_columns_are_empty(comparison: Path) -> None:
    whole = read_comparison(comparison)
    for name in ("table.csv", "significance.csv"):
        frame = pd.read_csv(comparison / name)
        frame.drop(columns=["window", "protocol", "missing"]).to_csv(comparison / name, index=False)
    read = read_comparison(comparison)
    for frame, other in ((read.view("study"), whole.view("study")), (read.gains("study"), whole.gains("study"))):
        assert frame.dtypes.to_dict() == other.dtypes.to_dict()
        assert frame["window"].isna().all()
        assert set(frame["protocol"]) == {""}
        kept = [name for name in frame if name not in ("window", "protocol", "missing")]
        pd.testing.assert_frame_equal(frame[kept], other[kept], check_exact=True)


def test_gains_of_one_view_are_as_all(comparison: Path) -> None:
    gains = list_stored_gains(comparison, "study")
    every = list_difference_rows(select(read_differences(comparison), "study"))
    assert gains
    for gain, row in zip(gains, every, strict=True):
        assert {**row, **gain} == {"view": "study", **row}


def test_records_are_plain_values() -> None:
    frame = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [np.float64(2), "x"], "c": [0.5, np.nan]})
    records = list_records(frame)
    assert records == [{"a": 1, "b": 2.0, "c": 0.5}, {"a": None, "b": "x", "c": None}]
    assert [type(value) for value in records[0].values()] == [int, float, float]


def test_tables_of_a_later_release_are_refused(comparison: Path) -> None:
    (comparison / "tables.json").write_text('{"version": 99}')
    with assert_refused(ConfigError, "later version", version=99):
        read_comparison(comparison)


def test_a_column_is_one_line() -> None:
    """Type, reader and form in tables come from its declaration."""

    class Longer(EstimateRow):
        lowest: Annotated[float | None, Below("lowest {:.3f}")]

    assert list_types(Longer)["lowest"] == "float64"
    assert find_below(Longer)["lowest"] == "lowest {:.3f}"
    frame = make_frame([{"auc": 0.5, "lowest": 0.25}, {"auc": 0.5}], Longer)
    assert frame["lowest"].tolist()[0] == 0.25
    assert frame["lowest"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("texts", "columns"),
    [
        ({"model": "K=3", "reference": "K=1"}, {"design": "comparison", "k": 3, "kind": "common", "reference_k": 1}),
        ({"model": "gate", "reference": "own data alone"}, {"kind": "gate", "reference_kind": "own_data"}),
        ({"model": "codasca, I=8"}, {"method": "codasca", "window": 8, "kind": "common"}),
        ({"model": "K=3 with 80 target images"}, {"design": "target_images", "k": 3, "target_images": 80}),
        ({"model": "K=3", "hospital": "nih in nih + vindr"}, {"hospital": "nih", "subset": "nih + vindr"}),
        ({"model": "K=2 with all target images"}, {"design": "target_images", "target_images": None}),
    ],
)
def test_texts_of_version_1_are_columns(texts: dict[str, str], columns: dict[str, object]) -> None:
    head = {"algorithm": "codasca", "hospital": "", "reference": ""}
    (row,) = older.complete(pd.DataFrame([head | texts])).to_dict("records")
    assert {name: row[name] for name in columns} == columns


def test_a_stored_study_is_readable() -> None:
    run = RunFolder.open(next(STORED.glob("*samples-*")))
    results = load_results(run)
    assert results.by_k
    assert [row["k"] for row in results.list_estimates("study", disease="mean")] == [1, 2]
    gains = results.list_differences("hospitals", disease="mean")
    assert [(row["hospital"], row["k"], row["kind"], row["reference_k"]) for row in gains] == [
        ("chexpert", 2, "common", 1),
        ("chestxray8", 2, "common", 1),
    ]
    stored = pd.read_csv(run.path / "hospital_gains.csv")
    assert [row["difference"] for row in gains] == stored[stored["disease"] == "mean"]["difference"].tolist()
    assert answer_study(results).question == "Does adding hospitals help at chexpert?"


def test_a_stored_comparison_is_readable(undrawn: None) -> None:
    (folder,) = STORED.glob("*comparison-*")
    results = read_comparison(folder)
    study = pd.read_csv(folder / "table.csv")
    assert results.by_k
    assert results.view("study")["k"].tolist() == study["k"].tolist()
    assert results.view("study")["auc"].tolist() == study["auc"].tolist()
    (gain,) = results.list_differences("study", disease="mean")
    assert (gain["k"], gain["kind"], gain["reference_k"]) == (2, "common", 1)
    answer = answer_study(results)
    assert answer.sentence.startswith(
        "No significant difference: trained with one other hospital the mean AUC falls from 0.610 to 0.507"
    )
    assert answer.seeds == 14
    assert str(answer.sentence) in make_page(results).html
