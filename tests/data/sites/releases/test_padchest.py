"""The PadChest reader on small files in the release's format."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError
from chestfed.data.sites import SiteTable
from chestfed.data.sites.releases.padchest import tree
from tests.cases import assert_refused, each
from tests.data.sites.small_sites import column, list_problems, load_bundled, open_files

NAME = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
HEADER = (
    ",ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,PatientBirth,PatientSex_DICOM,ViewPosition_DICOM,Projection,"
    "MethodProjection,Pediatric,PhotometricInterpretation_DICOM,ReportID,Report,MethodLabel,Labels,Localizations,"
    "LabelsLocalizationsBySentence\n"
)


SILENT = [None] * 5
NEGATIVE = [0] * 5
REFUSED = "bad label value"
#: Cells of `Labels` and of `LabelsLocalizationsBySentence` -> labels of the five diseases, or the kind of problem.
CELLS = [
    # The ordinary ones, with stray blanks, empty terms, capitals and places.
    ("['normal']", "", NEGATIVE),
    ("['cardiomegaly', 'pleural effusion ']", "", [1, 0, 0, 0, 1]),
    ("[' Cardiomegaly', '', 'loc right']", "", [1, 0, 0, 0, 0]),
    ('["cardiomegaly", "scoliosis"]', "", [1, 0, 0, 0, 0]),
    ("['laminar atelectasis', 'pulmonary  edema']", "", [0, 1, 0, 1, 0]),
    ("['pericardial effusion', 'costophrenic angle blunting']", "", NEGATIVE),
    ("['calcified pleural thickening', 'COPD signs', 'hypoexpansion basal']", "", NEGATIVE),
    # Terms below a disease in the tree, and beside it.
    ("['air bronchogram']", "", [0, 0, 1, 0, 0]),
    ("['alveolar pattern', 'infiltrates']", "", NEGATIVE),
    ("['atelectasis basal', 'consolidation']", "", [0, 0, 1, 1, 0]),
    ("['round atelectasis']", "", [0, 0, 0, 1, 0]),
    ("['loculated fissural effusion']", "", [0, 0, 0, 0, 1]),
    ("['hydropneumothorax']", "", [0, 0, 0, 0, 1]),
    ("['hemothorax', 'total atelectasis']", "", [0, 0, 0, 1, 1]),
    ("['fissure thickening', 'pneumothorax']", "", NEGATIVE),
    # As numpy prints a list.
    ("['cardiomegaly' 'pleural effusion']", "", [1, 0, 0, 0, 1]),
    ("['consolidation'\n 'atelectasis']", "", [0, 0, 1, 1, 0]),
    ("['scoliosis' '' 'cardiomegaly']", "", [1, 0, 0, 0, 0]),
    # Without a term.
    ("", "", SILENT),
    ("nan", "", SILENT),
    ("[]", "", SILENT),
    ("['', ' ']", "", SILENT),
    ("['loc basal']", "", SILENT),
    # Terms that the tree does not have: they may be the disease.
    ("['cardiomegally']", "", SILENT),
    ("['normal', 'plural effusion']", "", SILENT),
    ("['cardiomegaly', 'pulmonary oedema']", "", [1, None, None, None, None]),
    ("['cardiomegaly, pleural effusion']", "", SILENT),
    ("['no cardiomegaly']", "", SILENT),
    ("['cardiomegaly|edema']", "", SILENT),
    # Studies without a sure negative.
    ("['exclude']", "", SILENT),
    ("['suboptimal study']", "[['suboptimal study'], ['normal']]", SILENT),
    ("['suboptimal study', 'pleural effusion']", "", [None, None, None, None, 1]),
    ("['unchanged']", "", SILENT),
    ("['unchanged']", "[['unchanged']]", SILENT),
    ("['unchanged']", "[['abnormal'], ['unchanged', 'loc normal']]", SILENT),
    ("['unchanged']", "[['unchanged'], ['normal', 'loc cardiac'], ['normal']]", NEGATIVE),
    ("['unchanged', 'cardiomegaly']", "[['unchanged'], ['cardiomegaly']]", [1, None, None, None, None]),
    ("['unchanged', 'cardiomegaly']", "[['unchanged'], ['cardiomegaly'], [ 'Normal ' ]]", [1, 0, 0, 0, 0]),
    ("['unchanged', 'exclude']", "[['normal']]", SILENT),
    ("['normal', 'cardiomegaly']", "", [1, 0, 0, 0, 0]),
    # Not a list of terms.
    ("cardiomegaly", "", REFUSED),
    ("['cardiomegaly'", "", REFUSED),
    ("['cardiomegaly''consolidation']", "", REFUSED),
    ("['cardiomegaly' ... 'consolidation']", "", REFUSED),
    ("[['cardiomegaly'], ['normal']]", "", REFUSED),
    ("[\"['cardiomegaly']\"]", "", REFUSED),
    ("['cardiomegaly', None]", "", REFUSED),
    ("[cardiomegaly]", "", REFUSED),
    ("{'a': 1}", "", REFUSED),
    ("[1]", "", REFUSED),
    ("__import__('os')", "", REFUSED),
]


def row(
    image: str,
    labels: str = "['normal']",
    projection: str = "PA",
    folder: str = "0",
    photometric: str = "MONOCHROME2",
    method: str = "Physician",
    birth: str = "1938.0",
    sentences: str = "",
    pediatric: str = "No",
) -> str:
    cells = (
        f"0,{image}.png,{folder},20140915,s{image},p{image},{birth},F,POSTEROANTERIOR,{projection},Manual,{pediatric},"
    )
    quoted = [cell.replace('"', '""') for cell in (labels, "['loc basal']", sentences)]
    return cells + f'{photometric},1,"sin hallazgos, ok",{method},' + ",".join(f'"{cell}"' for cell in quoted) + "\n"


def read_labels(folder: Path, cell: str, *overrides: str) -> list[float | None]:
    table = open_files(folder, "padchest", {NAME: HEADER + row("1", cell)}, *overrides)
    return [column(table, disease)[0] for disease in table.diseases]  # type: ignore[misc]


def find_note(table: SiteTable, words: str) -> str:
    (note,) = [note for note in table.notes if words in note]
    return note


def test_no_odd_cell_is_silently_negative(tmp_path: Path) -> None:
    read = [case for case in CELLS if case[2] != REFUSED]
    refused = [case for case in CELLS if case[2] == REFUSED]
    rows = [row(str(number), cell, sentences=sentences) for number, (cell, sentences, _) in enumerate(read)]
    table = open_files(tmp_path, "padchest", {NAME: HEADER + "".join(rows)})
    columns = zip(*(column(table, disease) for disease in table.diseases), strict=True)
    for (cell, sentences, expected), labels in zip(read, columns, strict=True):
        assert list(labels) == expected, (cell, sentences)
    assert "6 of 40 rows" in (note := find_note(table, "PadChest's tree"))
    assert "6 different" in note
    assert "'cardiomegally' (1)" in note
    assert "5 of 40 rows" in find_note(table, "no term")
    assert "4 of 40 rows" in find_note(table, "excluded or suboptimal")
    assert "4 of 40 rows" in (note := find_note(table, "without a normal sentence"))
    assert "3 have one" in note
    assert "1 of 40 rows" in find_note(table, "beside another term")
    problems = list_problems(
        tmp_path, "padchest", {NAME: HEADER + "".join(row(str(n), cell) for n, (cell, _, _) in enumerate(refused))}
    )
    assert [(problem.kind, problem.file, problem.row) for problem in problems] == [
        (REFUSED, NAME, number) for number in range(2, 2 + len(refused))
    ]


def test_unchanged_needs_sentences(tmp_path: Path) -> None:
    header = "ImageID,StudyID,PatientID,Projection,Labels\n"
    table = open_files(tmp_path, "padchest", {NAME: header + "a.png,1,2,PA,['unchanged']\n"})
    assert column(table, "edema") == [None]
    assert "which the file lacks" in find_note(table, "unchanged")


@each(
    "override",
    [
        "labels.edema=[pulmonary oedema]",
        "labels.pleural_effusion=[plural effusion]",
        "labels.edema=[Pulmonary Edema]",
        "labels.edema=[edema]",
    ],
)
def test_an_unknown_label_name_is_refused(tmp_path: Path, override: str) -> None:
    (problem,) = list_problems(tmp_path, "padchest", {NAME: HEADER + row("1")}, override)
    assert problem.kind == "unknown label name"
    assert ("pleural effusion" if "effusion" in override else "edema'?") in problem.message


def test_an_unknown_no_label_term_is_refused() -> None:
    with assert_refused(ConfigError, "invalid value", key="reader.no_label"):
        load_bundled("padchest", "reader.no_label=[excluded]")


def test_the_tree_has_no_circle() -> None:
    assert len(tree()) == 197
    assert all(term in above and above <= tree().keys() for term, above in tree().items())
    assert tree()["air bronchogram"] == {"air bronchogram", "consolidation", "alveolar pattern", "infiltrates"}
    assert sum("atelectasis" in above for above in tree().values()) == 7
    assert sum("pleural effusion" in above for above in tree().values()) == 6


def test_images_of_children_are_left_out(tmp_path: Path) -> None:
    text = HEADER + row("1", pediatric="PED") + row("2") + row("3", pediatric="")
    table = open_files(tmp_path, "padchest", {NAME: text})
    assert column(table, "row") == [3, 4]
    assert "1 of 3 rows" in find_note(table, "children")
    site_table = open_files(tmp_path, "padchest", {}, "reader.pediatric=keep")
    assert column(site_table, "row") == [2, 3, 4]
    assert site_table.notes == ()


def test_excluded_images_follow_the_policy(tmp_path: Path) -> None:
    assert read_labels(tmp_path, "['exclude']", "reader.no_label=[]") == [0] * 5
    assert read_labels(tmp_path, "['exclude']", "blank=negative") == [0] * 5


@each(
    ("projection", "view"),
    [("PA", "pa"), ("AP", "ap"), ("AP_horizontal", "ap"), ("L", "lateral"), ("COSTAL", "other"), ("EXCLUDE", "other")],
)
def test_projections_become_views(tmp_path: Path, projection: str, view: str) -> None:
    table = open_files(tmp_path, "padchest", {NAME: HEADER + row("1", projection=projection)}, "views=all")
    assert column(table, "view") == [view]


def test_only_frontal_images_are_kept(tmp_path: Path) -> None:
    text = HEADER + "".join(
        row(str(number), projection=name)
        for number, name in enumerate(["PA", "L", "AP", "COSTAL", "AP_horizontal", "EXCLUDE"])
    )
    table = open_files(tmp_path, "padchest", {NAME: text})
    assert column(table, "row") == [2, 4, 6]


def test_an_unknown_projection_is_refused(tmp_path: Path) -> None:
    (problem,) = list_problems(tmp_path, "padchest", {NAME: HEADER + row("1", projection="OBLIQUE")})
    assert (problem.kind, problem.row) == ("unknown view", 2)


def test_images_are_in_their_folder(tmp_path: Path) -> None:
    text = HEADER + row("1", folder="0") + row("2", folder="54.0") + row("3", folder="")
    flat = open_files(tmp_path, "padchest", {NAME: text})
    assert column(flat, "image") == ["1.png", "2.png", "3.png"]
    table = open_files(tmp_path, "padchest", {"0/1.png": b"", "54/2.png": b""})
    assert column(table, "image") == ["0/1.png", "54/2.png", "3.png"]


def test_the_folder_column_may_be_absent(tmp_path: Path) -> None:
    header = "ImageID,StudyID,PatientID,Projection,Labels\n"
    table = open_files(tmp_path, "padchest", {NAME: header + "a.png,1,2,PA,['cardiomegaly']\n"})
    assert column(table, "image") == ["a.png"]
    assert column(table, "inverted") == [False]
    assert column(table, "age") == [None]


def test_monochrome1_is_told_by_its_column(tmp_path: Path) -> None:
    table = open_files(tmp_path, "padchest", {NAME: HEADER + row("1") + row("2", photometric="MONOCHROME1")})
    assert column(table, "inverted") == [False, True]


def test_age_is_from_the_years(tmp_path: Path) -> None:
    text = HEADER + row("1") + row("2", birth="") + row("3", birth="1800")
    assert column(open_files(tmp_path, "padchest", {NAME: text}), "age") == [76.0, None, None]


def test_network_labels_may_be_left_out(tmp_path: Path) -> None:
    text = HEADER + row("1", "['cardiomegaly']", method="RNN_model") + row("2", "['cardiomegaly']")
    table = open_files(tmp_path, "padchest", {NAME: text})
    assert column(table, "cardiomegaly") == [1.0, 1.0]
    table = open_files(tmp_path, "padchest", {}, "reader.methods=[Physician]")
    assert column(table, "cardiomegaly") == [None, 1.0]
    (problem,) = list_problems(
        tmp_path,
        "padchest",
        {NAME: text.replace("Physician", "Radiologist").replace("RNN", "R")},
        "reader.methods=[Physician]",
    )
    assert "found: R_model, Radiologist" in problem.message


@pytest.mark.parametrize("name", [NAME, f"{NAME}.gz"])
def test_compression_is_in_the_content(tmp_path: Path, name: str) -> None:
    text = (HEADER + row("1")).encode()
    for folder, content in (("plain", text), ("packed", gzip.compress(text))):
        (tmp_path / folder).mkdir()
        assert len(open_files(tmp_path / folder, "padchest", {name: content}).frame) == 1


def test_patients_can_be_set_aside(tmp_path: Path) -> None:
    text = HEADER + "".join(row(str(number)) for number in range(100))
    overrides = ["splits.valid_fraction=0.1", "splits.test_fraction=0.3"]
    table = open_files(tmp_path, "padchest", {NAME: text}, *overrides)
    counts = table.frame["split"].value_counts().to_dict()
    assert counts == {"train": 60, "test": 30, "valid": 10}
    again = open_files(tmp_path, "padchest", {}, *overrides)
    assert column(again, "split") == column(table, "split")
    other = open_files(tmp_path, "padchest", {}, *overrides, "splits.seed=2")
    assert column(other, "split") != column(table, "split")


def test_any_term_can_be_a_disease(tmp_path: Path) -> None:
    keys = ["diseases=[rib_fracture, tuberculosis]", "uncertain=negative", "blank=missing"]
    keys += ["labels={rib_fracture: [rib fracture], tuberculosis: [tuberculosis]}"]
    rows = row("1", "['callus rib fracture']") + row("2")
    table = open_files(tmp_path, "padchest", {NAME: HEADER + rows}, *keys)
    assert column(table, "rib_fracture") == [1, 0]
    assert column(table, "tuberculosis") == [0, 0]
