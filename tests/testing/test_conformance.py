"""The conformance kit passes what is right and finds each thing that is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from chestfed.cli import bundled
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.objectives.auc_margin import AucMargin
from chestfed.samples import write_hospitals
from chestfed.sites import SiteTable, load_site_config, open_site
from chestfed.testing import CHECKS, ConformanceError, ConformanceReport, check_site, image_checks, table_checks
from chestfed.testing.case import Case, raw_rows_of
from tests.sites import own_tables
from tests.sites.own_tables import COLUMNS, Row, onehot, save_dicom, save_rows
from tests.sites.releases import test_chestxray8, test_chexpert, test_mimic_cxr, test_padchest, test_vindr
from tests.sites.small_sites import CONFIGS, write_files
from tests.testing.plain_site import write_reader, write_site

SITES = ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")

#: Label files of the readers' own tests, each with other words than the samples have.
SMALL: dict[str, dict[str, str | bytes]] = {
    "chexpert": {
        "train.csv": test_chexpert.HEADER
        + test_chexpert.row(test_chexpert.P1, labels={"Edema": "-1.0"})
        + test_chexpert.row(test_chexpert.P2, labels={"Edema": "1.0"}),
        "valid.csv": test_chexpert.HEADER + test_chexpert.row(test_chexpert.V1),
    },
    "chestxray8": {"Data_Entry_2017.csv": test_chestxray8.QUOTED + test_chestxray8.THREE},
    "padchest": {
        test_padchest.NAME: test_padchest.HEADER
        + test_padchest.row("a1", "['laminar atelectasis']")
        + test_padchest.row("b2", "['exclude']", photometric="MONOCHROME1")
    },
    "mimic_cxr": dict(test_mimic_cxr.release()),
    "vindr": {test_vindr.TRAIN: test_vindr.PHYSIONET},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_hospitals(folder, seed=1, size="tiny", workers=1)
    return folder


def draw(path: Path, seed: int = 1) -> None:
    """A small PNG of noise, whatever the file is called."""
    path.parent.mkdir(parents=True, exist_ok=True)
    grey = np.random.default_rng(seed).integers(0, 255, (48, 40), dtype=np.uint8)
    Image.fromarray(grey).save(path, format="PNG")


@pytest.mark.parametrize("name", SITES)
def test_the_five_sites_conform_on_their_samples(tiny: Path, name: str) -> None:
    report = check_site(bundled("site_configs") / "synthetic" / f"{name}.yaml", tiny)
    assert report.checked == tuple(CHECKS)
    assert report.not_checked == ()


@pytest.mark.parametrize("name", SITES)
def test_the_five_sites_conform_on_the_files_of_their_readers_tests(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, SMALL[name])
    config = load_site_config(CONFIGS / f"{name}.yaml", ["root=site"])
    for number, image in enumerate(open_site(config, tmp_path).frame["image"]):
        draw(tmp_path / "site" / image, number)
    check_site(CONFIGS / f"{name}.yaml", tmp_path, overrides=["root=site"])


def test_the_commented_example_conforms(tmp_path: Path) -> None:
    header = "Filename;Patient;Accession;Projection;Set;Sex;Age;Enlarged heart;Oedema;Pulmonary oedema;Consolidation;"
    lines = [f"{header}Atelectasis;Effusion"]
    for number in range(1, 5):
        split = "held out" if number > 2 else "training"
        lines.append(f"000{number};A{number}77;2019-{number};PA;{split};W;63;1;0;0;?;true;0")
        draw(tmp_path / f"st-anne/images/2019-{number}/000{number}.png", number)
    (tmp_path / "st-anne/labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = check_site(CONFIGS / "example/table.yaml", tmp_path)
    assert report.rows == 4


@pytest.mark.parametrize(("above", "row"), [("sep=;\n", 1), ("Films, of 2019\n\n", 3)], ids=["sep=", "title"])
def test_a_table_below_other_lines_conforms(tmp_path: Path, above: str, row: int) -> None:
    rows = [onehot(number, File=f"{number}.png", MRN=f"p{number}") for number in range(1, 5)]
    for number in range(1, 5):
        draw(tmp_path / f"site/{number}.png", number)
    path = tmp_path / "site/labels.csv"
    save_rows(path, rows, delimiter=";")
    path.write_text(above + path.read_text())
    own_tables.config(tmp_path, {"layout": "onehot", "delimiter": ";", "header_row": row})
    report = check_site(tmp_path / "site.yaml", tmp_path, skip=["training", "images"])
    assert {"rows", "shuffled rows", "missing columns"} <= set(report.checked) - {key for key, _ in report.not_checked}


def test_a_good_reader_conforms_and_the_report_says_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch)
    before = {path: path.read_bytes() for path in sorted((tmp_path / "plain").rglob("*")) if path.is_file()}
    report = check_site(config, tmp_path, skip=["training"])
    assert "training" not in report.checked
    assert "site 'plain' (6 images) conforms" in str(report)
    assert "not checked: training: left out by the caller" in str(report)
    assert before == {path: path.read_bytes() for path in sorted((tmp_path / "plain").rglob("*")) if path.is_file()}
    with pytest.raises(ConfigError, match="no check is called trainning"):
        check_site(config, tmp_path, skip=["trainning"])


#: Check -> what breaks it in the source of the plain reader.
BROKEN = {
    "schema": ('"patient": frame["patient"]', '"patient": frame["patient"].where(frame["row"] > 2, "")'),
    "labels": ("column_findings(source, path, frame)", "dict.fromkeys(source.config.diseases, np.int8(-3))"),
    "rows": ('frame["row"].to_numpy()', 'frame["row"].to_numpy() - 1'),
    "image paths": ('"pictures/" + frame["file"]', '"missing/" + frame["file"]'),
    "deterministic": ('"view": "pa"', '"view": "pa", "age": np.random.default_rng().uniform(1, 99, len(frame))'),
    "elsewhere": ("        columns = {", "        path.read_text()\n        columns = {"),
    "shuffled rows": ('frame["patient"] + "/1"', 'frame["patient"] + "/" + frame.index.astype(str)'),
    "missing columns": (
        '"edema", "heart"], ["ward"])',
        '"heart"], ["edema", "ward"])',
    ),
    "damaged label files": ("if path is None else source", "if path is None or not path.stat().st_size else source"),
    "images": ('"pictures/" + frame["file"]', 'np.where(frame["row"] == 3, "labels.csv", "pictures/" + frame["file"])'),
    "damaged images": (
        "        columns = {",
        '        frame = frame[[(source.root / "pictures" / name).exists() for name in frame["file"]]]\n'
        "        frame = frame.reset_index(drop=True)\n        columns = {",
    ),
}


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_reader_is_found_by_the_check_that_is_meant_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch, *BROKEN[check])
    report = report_of(config, tmp_path, only=check)
    assert {violation.check for violation in report.violations} == {check}, str(report)


def report_of(config: Path, root: Path, only: str) -> ConformanceReport:
    with pytest.raises(ConformanceError) as caught:
        check_site(config, root, skip=[key for key in CHECKS if key != only])
    assert isinstance(caught.value, AssertionError)
    return caught.value.report


@pytest.mark.parametrize(
    ("check", "file", "content"),
    [
        ("image paths", "plain/pictures/picture-1.png", None),
        ("images", "plain/pictures/picture-1.png", b"GIF89a" * 50),
        ("images", "plain/pictures/picture-1.png", b""),
    ],
    ids=["missing", "format", "empty"],
)
def test_a_bad_image_of_the_site_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, file: str, content: bytes | None
) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    assert report_of(config, tmp_path, check).violations


def test_a_constant_image_and_a_link_out_of_the_root_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch)
    first, second = (tmp_path / f"plain/pictures/picture-{number}.png" for number in (1, 2))
    Image.fromarray(np.full((40, 40), 7, np.uint8)).save(first)
    second.rename(tmp_path / "elsewhere.png")
    second.symlink_to(tmp_path / "elsewhere.png")
    assert "row 3: every pixel is the same" in str(report_of(config, tmp_path, "images"))
    assert "row 4: a link leads the image's path out" in str(report_of(config, tmp_path, "image paths"))


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    config_file = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch)
    config = load_site_config(config_file)
    table = open_site(config, tmp_path)
    raw = raw_rows_of(config, table.root)
    return Case(config, config_file, (), tmp_path, table, raw, tmp_path / "scratch", 4, 4, 1)


Change = Callable[[pd.DataFrame], pd.DataFrame]


@pytest.mark.parametrize(
    ("check", "change", "message"),
    [
        (table_checks.schema, lambda f: f.drop(columns="age"), "column 'age' is missing"),
        (table_checks.schema, lambda f: f.assign(ward="x"), "column 'ward' is none of a site table"),
        (
            table_checks.schema,
            lambda f: f.assign(edema=f["edema"].astype("float64")),
            "'edema' is float64, not float32",
        ),
        (table_checks.schema, lambda f: f.assign(view="pa"), "column 'view' is no category"),
        (table_checks.schema, lambda f: f.assign(image="one.png"), "an image has several rows"),
        (table_checks.schema, lambda f: f.assign(repeats=2), "rows outside of train are repeated"),
        (
            table_checks.labels,
            lambda f: f.assign(edema=np.float32(0.5)),
            "'edema' is neither 0, 1 nor missing in 6 rows",
        ),
        (table_checks.unlabelled_diseases, lambda f: f.assign(atelectasis=np.float32(0)), "'atelectasis' is not among"),
        (table_checks.patients, lambda f: f.assign(patient="one"), "1 patients are in two splits"),
        (table_checks.image_paths, lambda f: f.assign(image="../x.png"), "not relative to the root"),
    ],
)
def test_a_table_that_is_none_is_found(case: Case, check: Callable[[Case], Any], change: Change, message: str) -> None:
    assert list(check(case)) == []
    broken = dataclasses.replace(case, table=case.table.with_frame(change(case.table.frame)))
    assert message in "; ".join(check(broken))


def test_a_table_that_cannot_be_pickled_is_found(case: Case) -> None:
    frame = case.table.frame.copy()
    frame.attrs["reader"] = lambda: None
    broken = dataclasses.replace(case, table=case.table.with_frame(frame))
    assert "cannot be pickled" in "; ".join(CHECKS["elsewhere"](broken))


@pytest.mark.parametrize("kind", ["image", "patient", "study"])
def test_a_name_in_a_file_of_the_cache_is_found(case: Case, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    name = str(case.table.frame[kind].iat[0])
    fill = image_checks.fill_cache

    def leaking(table: SiteTable, root: Path, *arguments: Any, **options: Any) -> Any:
        found = fill(table, root, *arguments, **options)
        (found.folder / "log.txt").write_text(f"decoded {name}", encoding="utf-8")
        return found

    case.scratch.mkdir()
    assert list(image_checks.cache(case)) == []
    monkeypatch.setattr(image_checks, "fill_cache", leaking)
    assert f"{kind} names (log.txt)" in "; ".join(image_checks.cache(case))


def test_a_damaged_image_that_is_taken_for_readable_is_found(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.scratch.mkdir()
    assert list(image_checks.damaged_images(case)) == []
    monkeypatch.setattr(image_checks, "fill_cache", lambda *_, **__: None)
    assert "an image that is cut short is taken for readable" in list(image_checks.damaged_images(case))

    def silent(*_: Any, **__: Any) -> None:
        raise ChestfedError("something is wrong")

    monkeypatch.setattr(image_checks, "fill_cache", silent)
    assert "neither file nor row is named" in "; ".join(image_checks.damaged_images(case))


def test_a_missing_label_with_a_gradient_is_found(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.scratch.mkdir()
    assert list(image_checks.training(case)) == []
    loss = AucMargin.loss
    monkeypatch.setattr(AucMargin, "loss", lambda self, x, y, a, b: loss(self, x, y.nan_to_num(), a, b))
    assert list(image_checks.training(case)) == ["a missing label has a gradient"]


def test_a_site_that_does_not_open_is_one_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch, '"view": "pa"', '"view": frame["nothing"]')
    with pytest.raises(ConformanceError, match="opens: KeyError, not a ChestfedError"):
        check_site(config, tmp_path)


def test_a_large_site_is_not_copied(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.testing.case.MOST_FILES", 3)
    with pytest.raises(ChestfedError, match="too many to be copied"):
        case.copy()


def own_rows(findings: tuple[str, ...] = ("",), **cells: str) -> list[Row]:
    """Four images, each with a row per finding."""
    return [
        {**onehot(number, number % 2, 0, 1, 0, 0), "MRN": f"patient{number}", "Finding": finding, **cells}
        for number in range(1, 5)
        for finding in findings
    ]


MEANINGS = {"terms": own_tables.meanings()}
TERMS = {"separator": "|", **MEANINGS}
LAYOUTS: dict[str, tuple[dict[str, Any], list[Row], str]] = {
    "xlsx": ({"layout": "onehot"}, own_rows(), "labels.xlsx"),
    "parquet": ({"layout": "onehot"}, own_rows(), "labels.parquet"),
    "csv.gz": ({"layout": "onehot"}, own_rows(), "labels.csv.gz"),
    "long": (
        {"layout": "long", "columns": {**COLUMNS, "finding": "Finding"}, **MEANINGS},
        own_rows(("Edema", "Effusion")),
        "labels.csv",
    ),
    "delimited": (
        {"layout": "delimited", "columns": {**COLUMNS, "findings": "Finding"}, **TERMS},
        own_rows(("Edema|Effusion",)),
        "labels.tsv",
    ),
    "readers": (
        {"layout": "readers", "columns": {**COLUMNS, "reader": "Finding"}},
        own_rows(("R1", "R2")),
        "labels.csv",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layouts_of_a_hospitals_own_table_conform(tmp_path: Path, layout: str) -> None:
    table, rows, file = LAYOUTS[layout]
    save_rows(tmp_path / "site" / file, rows)
    own_tables.config(tmp_path, table, file)
    for number in range(1, 5):
        draw(tmp_path / f"site/{number}.png", number)
    check_site(tmp_path / "site.yaml", tmp_path, skip=["elsewhere", "training"])


def test_labels_in_dicom_headers_conform(tmp_path: Path) -> None:
    columns = {"patient": "PatientID", "study": "StudyInstanceUID", "findings": "ImageComments"}
    table = {"layout": "dicom", "columns": columns, **TERMS}
    for number in range(3):
        path = tmp_path / f"site/{number}.dcm"
        pixels = np.random.default_rng(number).integers(0, 4000, (32, 32)).astype("<u2").tobytes()
        about = {"PatientID": f"patient{number}", "StudyInstanceUID": f"1.2.{number}", "ImageComments": "Edema"}
        save_dicom(path, Rows=32, Columns=32, PixelData=pixels, **about)
    own_tables.config(tmp_path, table, label_files={"images": ["*.dcm"]})
    report = check_site(tmp_path / "site.yaml", tmp_path, skip=["elsewhere", "training"])
    assert ("missing columns", "no label file has a header of columns") in report.not_checked
