"""A flag is followed or refused, and the image column is not a running number."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import ConfigError
from tests.new_site.hospitals import LABELS, bring, chestfed, draft, everything_said, keys, opened, rows, without
from tests.sites.own_tables import save_dicom
from tests.sites.small_sites import column


def findings(**cells: Any) -> list[dict[str, object]]:
    words = ["edema", "normal", "effusion"]
    return [{**without(row, *LABELS), "Findings": words[n % 3], **cells} for n, row in enumerate(rows())]


def test_a_flag_that_would_have_no_effect_is_an_error(tmp_path: Path) -> None:
    readers = [{**row, "rad_id": f"R{reader}"} for row in findings() for reader in (1, 2, 3)]
    onehot: list[dict[str, object]] = rows()
    for table, choices, flag in (
        (readers, {"layout": "long", "columns": {"reader": "rad_id"}}, "--reader-column: layout 'long' has none"),
        (readers, {"layout": "long", "raters": "majority"}, "--raters: layout 'long' has no annotators"),
        (onehot, {"raters": "any"}, "--raters: layout 'onehot' has no annotators"),
        (onehot, {"columns": {"reader": "Patient"}}, "--reader-column: layout 'onehot' has none"),
        (onehot, {"columns": {"value": "Oedema"}}, "--value-column: only layout 'long' has one"),
        (onehot, {"separator": ";"}, "--separator: layout 'onehot' has none"),
        (onehot, {"values": {"7": "positive"}}, "--value 7: no cell of a label column is '7'"),
        (findings(), {"values": {"edema": "positive"}}, "--value edema: what a term means is written into"),
        (onehot, {"sheet": "A"}, "--sheet does not apply to labels.csv"),
    ):
        bring(tmp_path, table)
        with pytest.raises(ConfigError) as caught:
            draft(tmp_path, **choices)
        assert flag in str(caught.value), choices
    bring(tmp_path, onehot, file="labels.xlsx")
    for choices in ({"delimiter": ";"}, {"encoding": "utf-8"}):
        with pytest.raises(ConfigError, match=r"does not apply to labels\.xlsx"):
            draft(tmp_path, "labels.xlsx", **choices)


def test_a_flag_for_a_table_is_an_error_where_the_labels_are_in_headers(tmp_path: Path) -> None:
    for n in range(4):
        save_dicom(tmp_path / f"images/{n}.dcm", PatientID=f"P{n}", StudyDescription=("Edema", "Normal")[n % 2])
    for choices, flag in (
        ({"columns": {"patient": "AccessionNumber"}}, "--patient-column"),
        ({"columns": {"view": "none"}}, "--view-column"),
        ({"layout": "delimited"}, "--layout"),
        ({"delimiter": ";"}, "--delimiter"),
    ):
        with pytest.raises(ConfigError, match=flag):
            draft(tmp_path, None, **choices)
    assert keys(draft(tmp_path, None, separator="+"))["table"]["separator"] == "+"


def test_an_age_column_that_holds_no_ages_is_an_error_if_a_flag_names_it(tmp_path: Path) -> None:
    bring(tmp_path, rows(Code=["x", "y"], Empty=[None]))
    for name in ("Code", "Empty"):
        with pytest.raises(ConfigError, match=f"--age-column {name}"):
            draft(tmp_path, columns={"age": name})


def test_a_running_number_is_not_the_image_column_while_another_looks_like_file_names(tmp_path: Path) -> None:
    numbers = list(range(1, 41))
    random.Random(1).shuffle(numbers)
    for name, cell in (("Dateiname", "img_{}.png"), ("Export", "img_{}.png"), ("Image", "x{}")):
        table = [
            {"Nr": n, name: cell.format(number), "PatNr": f"p{n // 2}", "Oedema": n % 2}
            for n, number in enumerate(numbers, start=1)
        ]
        bring(tmp_path, table, [f"{n}.png" for n in range(1, 41)])
        with pytest.raises(
            ConfigError, match=f"'Nr' name files, but that may be by chance.*'{name}' looks like"
        ) as caught:
            draft(tmp_path)
        assert ".png" not in str(caught.value)
        assert keys(draft(tmp_path, columns={"image": "Nr"}))["table"]["columns"]["image"] == "Nr"
    bring(tmp_path, [without(row, "Image") for row in table], [f"{n}.png" for n in range(1, 41)])
    assert keys(draft(tmp_path))["table"]["columns"]["image"] == "Nr"


def test_five_rows_and_their_files_are_shown_on_the_terminal_and_written_nowhere(tmp_path: Path) -> None:
    bring(tmp_path, rows(12))
    made = draft(tmp_path)
    assert made.examples == tuple(f"row {row} -> img{row - 2:03d}.png" for row in (2, 4, 7, 10, 13))
    assert "img0" not in everything_said(made)
    assert column(opened(tmp_path, made), "image")[5] == "images/img005.png"
    command = ["site", "new", "x", "--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--yes"]
    said = chestfed(*command, "--out", tmp_path)
    assert all(example in said for example in made.examples)
    assert "img0" not in (tmp_path / "x.yaml").read_text(encoding="utf-8")
