"""Models that are worse than chance where they were trained."""

from __future__ import annotations

from pathlib import Path

import pytest

import chestfed
from chestfed.core.provenance import Origin
from chestfed.evaluation.estimates import Estimate
from chestfed.evaluation.intervals.interval import Interval
from chestfed.report.page import make_report
from chestfed.results.chance import describe_chance, list_hospitals
from chestfed.results.hospital_table import AtHospital, HospitalTable
from chestfed.results.run_folder import RunFolder
from tests.results.finished_runs import write_run


def aucs(edema: float, high: float, atelectasis: float = 0.6) -> tuple[Estimate, ...]:
    diseases = (
        Estimate("edema", edema, Interval(edema - 0.1, high), 5, 5, 0),
        Estimate("atelectasis", atelectasis, None),
    )
    return (*diseases, Estimate("mean", (edema + atelectasis) / 2))


def test_a_mean_below_a_half_is_named_with_clear_diseases() -> None:
    text = describe_chance([("K=1", aucs(0.2, 0.4)), ("K=2", aucs(0.3, 0.6)), ("K=3", aucs(0.7, 0.9))])
    assert "K=1 0.400 (Edema: 95% interval below 0.5)" in text
    assert "K=2 0.450" in text
    assert text.count("Edema") == 1
    assert "K=3" not in text
    assert describe_chance([("K=3", aucs(0.7, 0.9)), ("K=4", (Estimate("mean", None),))]) == ""


def test_hospitals_that_trained_nothing_do_not_count() -> None:
    models = {"K=1": aucs(0.2, 0.4), "K=2": aucs(0.2, 0.4)}
    none = dict.fromkeys(models, (None, None, None))
    hospitals = tuple(AtHospital(name, 9, 9, joins, models, none, None) for name, joins in (("a", 1), ("b", 2)))
    table = HospitalTable(Origin.SYNTHETIC, hospitals, (), {"K=1": 1, "K=2": 2}, 1, "obuchowski")
    assert [name for name, _ in list_hospitals(table)] == ["K=1 at a", "K=2 at a", "K=2 at b"]


@pytest.mark.usefixtures("undrawn")
def test_page_and_summary_of_reversed_labels_say_so(tmp_path: Path) -> None:
    for expected in (False, True):
        folder = write_run(tmp_path / str(expected), reversed_labels=expected)
        summary = chestfed.Study.load(folder).summary
        assert "With K=2" in summary
        for text in (summary, make_report(RunFolder.open(folder)).html):
            assert ("Labels may be reversed" in text) == expected
