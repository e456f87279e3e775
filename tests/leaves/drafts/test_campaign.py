"""Made hospitals of many shapes: none may be read wrongly; `pytest -m campaign` here writes the table."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.leaves.drafts.campaign import files, further, people, terms, wide
from tests.leaves.drafts.campaign.maker import FURTHER, SHAPES, Case, Place
from tests.leaves.drafts.campaign.review import REVIEW
from tests.leaves.drafts.campaign.run import MOST_CALLS, describe, format_table, run

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
MODULES = (files, further, people, terms, wide)
#: A sample, with those that gave silent errors before.
FEW = (
    *(
        "language_de",
        "language_ja",
        "plain",
        "absent_first",
        "possible_between",
        "not_assessed",
        "crosses",
        "redcap_labels",
    ),
    *(
        "votes_in_columns",
        "scores",
        "contradicting_columns",
        "sides",
        "is_test",
        "cohort",
        "folds",
        "own_views",
        "sex_hm",
    ),
    *("two_sites", "dates_as_patients", "body_parts", "german_findings", "nih_list", "long_annotators", "in_headers"),
    *("label_folders", "folders_told", "accession_numbers", "running_numbers"),
    *("double_readings", "consensus", "patient_capitals", "view_folders", "broken_headers"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_made_hospital_is_right(name: str, tmp_path: Path) -> None:
    outcome = describe(name, tmp_path.resolve())
    assert outcome.right, outcome
    assert outcome.cells >= 60


@pytest.mark.campaign
def test_campaign_has_no_silent_error() -> None:
    outcomes = run(list(SHAPES))
    (RESULTS / "new_hospitals.md").write_text(format_table(outcomes) + "\n", encoding="utf-8")
    assert len(outcomes) >= 150
    assert [outcome.name for outcome in outcomes if outcome.wrong] == []
    assert sum(outcome.right for outcome in outcomes) >= 0.85 * len(outcomes)
    assert statistics.median(outcome.informed or MOST_CALLS for outcome in outcomes) == 1


@pytest.mark.campaign
def test_further_exports_are_right() -> None:
    outcomes = run(list(FURTHER))
    text = further.format_results(outcomes)
    (RESULTS / "further_hospitals.md").write_text(text + "\n", encoding="utf-8")
    assert [outcome.name for outcome in outcomes if outcome.wrong or (outcome.calls and outcome.missing)] == []
    assert sum(outcome.right for outcome in outcomes) >= 0.9 * len(outcomes)


@pytest.mark.slow_but("html_called_xls", "sas", "label_studio", "transposed", "two_header_rows")
@pytest.mark.parametrize("name", [name for name, (group, _) in REVIEW.items() if group == "forms"])
def test_foreign_form_has_a_way(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, name, REVIEW[name])
    outcome = describe(name, tmp_path.resolve())
    assert outcome.right or "docs/convert.md" in outcome.text


@pytest.mark.parametrize("name", ["two_sheets", "bids", "study_as_patient_pid", "split_in_test", "merged_names"])
def test_table_of_the_review_is_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, name, REVIEW[name])
    assert describe(name, tmp_path.resolve()).right


@pytest.mark.campaign
def test_review_has_no_silent_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, made in REVIEW.items():
        monkeypatch.setitem(SHAPES, name, made)
    outcomes = run(list(REVIEW))
    assert [outcome.name for outcome in outcomes if outcome.wrong] == []
    assert sum(outcome.right for outcome in outcomes) >= 0.82 * len(outcomes)


def test_wrong_cell_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about, make = SHAPES["plain"]

    def make_wrong(place: Place) -> Case:
        case = make(place)
        labels = next(iter(case.truth.values()))
        labels["edema"] = 1 - (labels["edema"] or 0)
        return case

    monkeypatch.setitem(SHAPES, "plain", (about, make_wrong))
    outcome = describe("plain", tmp_path.resolve())
    assert outcome.wrong + outcome.missing == 1
