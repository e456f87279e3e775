"""A finished study with another method of intervals: nothing is trained, every number but the intervals stays."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from chestfed.reports.pages.page import make_report
from chestfed.results.evaluation.estimates import auc_estimates
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.tables.predictions import load_predictions
from chestfed.results.tables.run_folder import RunFolder
from tests.studies.training.tiny_studies import command, run


@pytest.fixture(scope="module")
def before(tiny_study: Path) -> Path:
    (run,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    return run


@pytest.fixture(scope="module")
def after(home: Path, before: Path) -> Path:
    """The same study, run again with `evaluation.interval=bca` in a copy of its folder."""
    shutil.copytree(before, home / "runs" / before.name)
    called = run(home, command("runs", "--no-tracking", "--set", "evaluation.interval=bca", "--verbose"))
    assert called.code == 0, called.err
    assert called.out.count("from the earlier run") == 2
    assert "bca" in called.out
    return home / "runs" / before.name


@pytest.mark.slow
def test_resamples_change_intervals_alone(furnish: Callable[[Path], Path], after: Path, tmp_path: Path) -> None:
    """Of a bootstrap, for Obuchowski's intervals have no resamples."""
    furnish(tmp_path)
    shutil.copytree(after, tmp_path / "runs" / after.name)
    settings = ("--set", "evaluation.interval=bca", "--set", "evaluation.resamples=50")
    called = run(tmp_path, command("runs", "--no-tracking", *settings))
    assert (called.code, called.out.count("from the earlier run")) == (0, 2), called.err
    old, new = (pd.read_csv(home / after.name / "table.csv") for home in (after.parent, tmp_path / "runs"))
    assert old["auc"].equals(new["auc"])
    assert not old["low"].equals(new["low"])
    assert RunFolder(tmp_path / "runs" / after.name).row(1).resamples == 50


@pytest.mark.slow
@pytest.mark.parametrize("table", ["table", "significance", "hospitals", "hospital_gains"])
def test_new_tables_keep_aucs(before: Path, after: Path, table: str) -> None:
    old, new = (pd.read_csv(folder / f"{table}.csv") for folder in (before, after))
    assert set(old["interval_method"]) == {"obuchowski"}
    assert set(new["interval_method"]) == {"bca"}
    value = "auc" if "auc" in old else "difference"
    pd.testing.assert_series_equal(old[value], new[value])
    known = old["low"].notna() & new["low"].notna()
    assert known.sum() > 3
    assert (old["low"] != new["low"])[known & old[value].between(0.01, 0.99)].all()


def test_versions_are_those_of_the_numbers(before: Path, after: Path) -> None:
    old, new = RunFolder(before).about, RunFolder(after).about
    assert new["configuration"]["evaluation"].pop("interval") == "bca"
    del old["configuration"]["evaluation"]["interval"]
    assert new == old


def test_intervals_of_the_new_method(after: Path) -> None:
    (scored,) = load_predictions(after, 2).scored(RunFolder(after).diseases)
    assert RunFolder(after).row(2).aucs == auc_estimates(scored, Intervals("bca", RunFolder(after).row(2).resamples))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_report_with_another_method(before: Path, after: Path) -> None:
    stored = {file: file.read_bytes() for file in before.rglob("*.json")}
    html = make_report(RunFolder.open(before), interval="bca").html
    assert {file: file.read_bytes() for file in stored} == stored
    shown = re.sub(r"\s+", " ", html)
    for row in (RunFolder(after).row(k) for k in (1, 2)):
        assert row.mean.interval is not None
        assert "[{:.3f}, {:.3f}]".format(*row.mean.interval) in shown
    gains = pd.read_csv(after / "hospital_gains.csv").query("disease == 'mean'")
    for low, high in zip(gains["low"], gains["high"], strict=True):
        assert f"[{low:+.3f}, {high:+.3f}]".replace("-", "−") in shown
    assert "(obuchowski)" not in html
    assert "(bca)" in html
