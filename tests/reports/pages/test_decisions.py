"""`chestfed report --threshold`: matrix, shares and decision curve of the largest K."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError
from chestfed.reports.pages.page import make_report
from chestfed.results.tables.run_folder import RunFolder
from tests.cases import assert_refused


@pytest.fixture(scope="module")
def run(tiny_study: Path) -> RunFolder:
    (folder,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    return RunFolder.open(folder)


@pytest.mark.usefixtures("undrawn")
def test_page_has_decisions_at_the_threshold(run: RunFolder) -> None:
    plain, report = make_report(run), make_report(run, thresholds=["0.3"])
    assert "Decisions at a threshold" not in plain.html
    section = report.html.partition("Decisions at a threshold")[2].partition("<h3>")[0]
    (column,) = [column for column in run.columns() if column.disease == "pleural_effusion"]
    called = column.score >= 0.3
    counts = [(called & column.positive).sum(), (called & ~column.positive).sum()]
    counts += [(~called & column.positive).sum(), (~called & ~column.positive).sum()]
    assert " / ".join(map(str, counts)) in re.sub(r"\s+", " ", section)
    bounds = re.findall(r"\[([^,\]]*), ([^\]]*)\]", section)
    assert any(low.startswith("−") for low, _ in bounds)  # of a net benefit, with the sign that its value has
    assert not any("-" in end for both in bounds for end in both)
    names = {picture.name for picture in report.pictures} - {picture.name for picture in plain.pictures}
    assert names == {f"decision-{disease}" for disease in run.diseases}


@pytest.mark.usefixtures("undrawn")
def test_threshold_of_no_disease_is_refused(run: RunFolder) -> None:
    with assert_refused(ConfigError, "invalid threshold", option="threshold"):
        make_report(run, thresholds=["hernia=0.2"])
