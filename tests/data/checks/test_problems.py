"""Problems of rows are made when they are read, and are the same as those that are kept."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.errors import Problem
from chestfed.data.checks.problems import REPEATED, Inspection, Problems, split_by_severity
from chestfed.data.sites.opening import survey_site
from tests.data.checks.planted import Hospital, get_row
from tests.data.sites.own_tables import config


def test_problems_of_rows_are_a_sequence(tmp_path: Path) -> None:
    Hospital(tmp_path).save()
    site = Inspection(survey_site(config(tmp_path, {}), tmp_path), None)
    rows = site.report_rows(REPEATED, [3, 5, 4], lambda row, image: f"{image} {row}", "look")
    expected = [
        Problem(REPEATED, "labels.csv", f"{site.survey.table.frame['image'][n]} {n}", get_row(n), "look")
        for n in (3, 5, 4)
    ]
    assert [*rows] == expected
    assert (rows[0], rows[-1], rows[1:], len(rows)) == (expected[0], expected[2], expected[1:], 3)
    single = [Problem("blank name", "labels.csv", "no patient", 9), Problem(REPEATED, "other.csv", "", None, "fix")]
    several = Problem("unknown label", "other.csv", "", None, "", (7, 8))
    errors, warnings = split_by_severity([single, rows, [several]])
    assert [*errors] == [single[0], several]
    assert [*warnings] == [single[1], *expected]
    assert [warnings[place] for place in (0, 1, 3, -1)] == [single[1], expected[0], expected[2], expected[2]]
    assert warnings[1:3] == expected[:2]
    assert repr(errors) == repr([single[0], several])
    everything = Problems([single, rows, [several]])
    assert {kind: len(members) for kind, members in everything.kinds.items()} == {
        "blank name": 1,
        REPEATED: 4,
        "unknown label": 1,
    }
    assert everything.kinds[REPEATED].advice == ["fix", "look"]
    places = {file: lines.tolist() for file, lines in everything.list_rows().items()}
    assert places == {"labels.csv": [9, get_row(3), get_row(5), get_row(4)], "other.csv": [7, 8]}
    assert not Problems([[], site.report_rows(REPEATED, [], lambda row, image: "", "")])
