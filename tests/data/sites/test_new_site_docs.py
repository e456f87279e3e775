"""docs/new_site.md, its examples and the commented example: every file that it shows is read and every YAML is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from chestfed.core.diseases import DISEASES
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.data.sites.tables.codebook import read_book
from chestfed.data.sites.tables.schema import ROLES, Columns, Images, Join, TableFormat
from tests.cases import each
from tests.command_line import call
from tests.data.sites.own_tables import labels, save_dicom
from tests.data.sites.small_sites import CONFIGS, column

PAGE = (CONFIGS.parent / "docs" / "new_site.md").read_text(encoding="utf-8")
EXAMPLES = CONFIGS.parent / "docs" / "examples" / "tables"
#: Name -> content of the files of the examples.
FILES = {
    file.relative_to(EXAMPLES).as_posix(): file.read_text(encoding="utf-8")
    for file in EXAMPLES.rglob("*")
    if file.is_file()
}
#: Name -> content of those that the page shows itself.
SHOWN = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SITES = sorted(name for name, text in FILES.items() if name.endswith(".yaml") and "\nsite: " in f"\n{text}")
EXAMPLE = CONFIGS / "example" / "table.yaml"
N = None


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the files of the examples, and the images that its first table names."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    pixels = np.random.default_rng(1).integers(0, 255, (12, 64, 64), dtype=np.uint8)
    (tmp_path / "data/st-anne/images").mkdir()
    for number, gray in enumerate(pixels, start=1):
        Image.fromarray(gray).save(tmp_path / f"data/st-anne/images/{number:04d}.png")
    save_dicom(tmp_path / "data/dicom/a/1.dcm", StudyInstanceUID="1.2", ImageComments="Edema|no effusion")
    save_dicom(tmp_path / "data/dicom/b/2.dcm", PatientID="4712", ImageComments="Normal")
    for number, view in enumerate(("PA", "LL", "AP")):
        order = {"AccessionNumber": f"000047{1 + number // 2}", "PatientID": f"P{number // 2}"}
        save_dicom(tmp_path / f"data/orders/CD/{number}", **order, ViewPosition=view)
    for name in ("train/NORMAL/p1_1.jpg", "train/PNEUMONIA/p2_1.jpg", "test/NORMAL/p3.png"):
        (tmp_path / "data/folders" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data/folders" / name).touch()
    for number in (1, 2):
        (tmp_path / f"data/below/images/Doe/{number}").mkdir(parents=True)
        (tmp_path / f"data/below/images/Doe/{number}/{number}.png").touch()
    return tmp_path


def opened(home: Path, name: str) -> SiteTable:
    return open_site(load_site_config(home / name), home / "data")


def test_every_yaml_of_the_page_is_run() -> None:
    included = re.findall(r"^```\{literalinclude\} examples/tables/(\S+)$", PAGE, re.MULTILINE)
    assert sorted([*included, *SHOWN]) == sorted(FILES)
    assert SHOWN.items() <= FILES.items()
    shared = ("common.yaml", "wide.yaml")
    assert {*SITES, *shared} == {name for name in FILES if name.endswith(".yaml")}
    assert set(SITES) == {*EXPECTED, "st_anne.yaml"}


def test_the_first_hospital_is_read(home: Path) -> None:
    table = opened(home, "st_anne.yaml")
    assert column(table, "image") == [f"images/{number:04d}.png" for number in range(1, 13) if number != 8]
    assert column(table, "split") == ["train"] * 8 + ["test"] * 3
    assert labels(table)[5:7] == [[0, N, 0, 0, 0], [0, 0, 0, 0, N]]


def test_the_statistics_are_the_pages(home: Path) -> None:
    output = run(home, "site", "stats", "st_anne.yaml", "--data", "data")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    printed = [line.split() for line in output.splitlines()]
    for line in shown.splitlines():
        assert line.split() in printed, output


EXPECTED: Mapping[str, list[list[float | None]]] = {
    "findings.yaml": [[1, 0, N, N, N], [0] * 5, [N, 1, N, N, 1], [N] * 5, [N] * 5],
    "long.yaml": [[1, 0, N, N, N], [0] * 5],
    "readers.yaml": [[1, 0, 0, 0, 0]],
    "dicom.yaml": [[N, 1, N, N, 0], [0] * 5],
    "joined.yaml": [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0] * 5],
    "paths.yaml": [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
    "folders.yaml": [[0], [0], [1]],
    "orders.yaml": [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
    "below.yaml": [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
}


@each("name", EXPECTED)
def test_the_other_shapes_are_read(home: Path, name: str) -> None:
    assert labels(opened(home, name)) == EXPECTED[name]


def test_joined_files_and_paths_are_read(home: Path) -> None:
    joined, paths = opened(home, "joined.yaml"), opened(home, "paths.yaml")
    assert [column(joined, name) for name in ("sex", "age")] == [["F", "F", "M"], [63, 63, 85]]
    assert column(paths, "patient") == ["patient7", "patient7", "patient9"]
    assert column(paths, "study")[0] == "patient7/study1"
    assert column(paths, "view") == ["frontal", "lateral", "frontal"]
    assert column(paths, "split") == ["train", "train", "test"]


def test_files_in_patient_folders_are_found(home: Path) -> None:
    assert column(opened(home, "below.yaml"), "image") == ["images/Doe/1/1.png", "images/Doe/2/2.png"]


def test_the_pages_label_table_is_right(home: Path) -> None:
    rows = re.findall(r"^\| (\d\.png) \| (.*) \|$", PAGE, re.MULTILINE)
    shown = [[N if cell == "–" else float(cell) for cell in cells.split(" | ")] for _, cells in rows]
    assert shown == labels(opened(home, "findings.yaml"))


def test_the_commented_example_is_read(tmp_path: Path) -> None:
    header = "Filename;Patient;Accession;Projection;Set;Sex;Age;Enlarged heart;Oedema;Pulmonary oedema;Consolidation;"
    first = "/archive/export/0001;A17;2019-0001;PA;training;W;63;1;0;0;?;true;\n"
    second = "0002.png;A18;2019-0002;LAT;held out;D;n/a;0;1;1;?;no;yes\n"
    folder = tmp_path / "st-anne"
    (folder / "more_images/2019-0002").mkdir(parents=True)
    (folder / "more_images/2019-0002/0002.png").touch()
    (folder / "labels.csv").write_text(f"{header}Atelectasis;Effusion\n{first}{second}", encoding="utf-8-sig")
    table = open_site(load_site_config(EXAMPLE, ["views=all", "one_class=all"]), tmp_path)
    assert column(table, "image") == ["images/2019-0001/0001.png", "more_images/2019-0002/0002.png"]
    assert [column(table, name) for name in ("view", "split", "sex", "age")] == [
        ["pa", "lateral"],
        ["train", "test"],
        ["F", None],
        [63, None],
    ]
    assert labels(table) == [[1, 0, 0, 1, N], [0, 1, 0, 0, 1]]


def test_the_example_shows_every_key() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    for keys in (*(model.model_fields for model in (TableFormat, Columns, Images, Join)), ROLES):
        for name in set(keys) - {"encoding"}:
            assert re.search(rf"^[-# ]*{name}:", text, re.MULTILINE), name


def test_commented_keys_are_valid() -> None:
    """The keys of findings in words, taken out of their comments, make a valid table with their defaults."""
    text = EXAMPLE.read_text(encoding="utf-8")
    keys = re.findall(r"^# ((?:separator|other_terms|raters):.*)$", text, re.MULTILINE)
    findings = re.search(r"^#   (findings: \{Oedema.*)$", text, re.MULTILINE)
    assert findings
    columns = {"image": "a", "patient": "b", "findings": "c", "reader": "d"}
    shown = {**yaml.safe_load("\n".join(keys)), "codes": yaml.safe_load(findings[1])}
    assert shown.keys() == {"separator", "other_terms", "raters", "codes"}
    table, default = (TableFormat.model_validate({"columns": columns, **keys}) for keys in (shown, {}))
    assert table.model_dump(exclude={"codes"}) == default.model_dump(exclude={"codes"})


def test_the_pages_code_book_is_valid(home: Path) -> None:
    codes, problems = read_book(home / "findings.codes.csv", DISEASES, "|")
    assert all(code.is_known for code in codes)
    assert not problems


def run(home: Path, *arguments: str) -> str:
    """What a command prints."""
    result = call(*arguments, folder=home)
    assert result.code == 0, result.err + result.out
    return result.out
