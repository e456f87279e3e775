"""A few of the made hospitals of benchmarks/new_hospitals.py; the table in docs/new_site.md has all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hospital_shapes import SHAPES
from benchmarks.new_hospitals import describe

FEW = ("language_de", "russian_findings", "own_views", "running_numbers", "long_annotators", "accession_numbers")
FEW += ("sentences", "folders_told", "some_views", "nine_is_blank", "rows_of_studies")


def test_there_are_hospitals_of_sixty_shapes_and_forty_that_were_not_tried_before() -> None:
    assert len(SHAPES) >= 60
    assert sum(not known for _, known, _ in SHAPES.values()) >= 40


@pytest.mark.parametrize("name", FEW)
def test_a_made_hospital_is_described_by_documented_means_and_no_cell_is_wrong(name: str, tmp_path: Path) -> None:
    outcome = describe(name, tmp_path.resolve())
    assert outcome.right, outcome
    assert outcome.compared.cells >= 60


def test_a_wrong_cell_is_noticed(tmp_path: Path) -> None:
    """The comparison itself: a film is given another label than the table says."""
    about, known, make = SHAPES["zeros_and_ones"]

    def wrong(place: object) -> object:
        case = make(place)  # type: ignore[arg-type]
        image = next(iter(case.truth))
        edema = case.truth[image]["edema"]
        case.truth[image]["edema"] = 1 - (edema or 0)
        return case

    SHAPES["wrong"] = (about, known, wrong)  # type: ignore[assignment]
    try:
        outcome = describe("wrong", tmp_path.resolve())
    finally:
        del SHAPES["wrong"]
    assert outcome.wrong + outcome.compared.missing == 1
