"""Where the image of a row is looked for: in folders below a root, and under names with accents."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.sites.folders import Folders
from chestfed.sites.spreadsheet.config import Images
from chestfed.sites.spreadsheet.image_paths import in_roots
from tests.cases import each
from tests.sites.own_tables import onehot, open_table, problems, save_dicom
from tests.sites.small_sites import column

BELOW: dict[str, Any] = {"layout": "onehot", "images": {"roots": ["img"], "suffix": ".png", "recursive": True}}


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_file_is_found_in_any_folder_below_a_root(tmp_path: Path) -> None:
    touch(tmp_path / "site", "img/Doe/a/1.png", "img/Roe/2.png", "elsewhere/2.png", "img/.trash/1.png")
    rows = [onehot(1, File="1"), onehot(2, File="Roe\\2.png"), onehot(3, File="3")]
    table = open_table(tmp_path, BELOW, rows)
    assert column(table, "image") == ["img/Doe/a/1.png", "img/Roe/2.png", "img/3.png"]


def test_a_name_that_several_files_have_is_a_problem_of_its_row_and_no_folder_is_named(tmp_path: Path) -> None:
    touch(tmp_path / "site", "img/Doe/1.png", "img/Roe/1.png", "img/Roe/2.png")
    found = problems(tmp_path, BELOW, [onehot(1, File="1"), onehot(2, File="2"), onehot(3, File="Doe/1")])
    assert [(problem.kind, problem.row) for problem in found] == [("ambiguous image", 2)]
    assert not [name for name in ("Doe", "Roe") if name in str(found)]


def test_the_path_below_the_root_tells_what_from_path_asks_for(tmp_path: Path) -> None:
    touch(tmp_path / "site", "img/P7/1.png", "img/P9/2.png")
    columns = {"image": "File"}
    table = {**BELOW, "columns": columns, "from_path": "^(?P<patient>[^/]+)/"}
    assert column(open_table(tmp_path, table, [onehot(1, File="1"), onehot(2, File="2")]), "patient") == ["P7", "P9"]


@each(("disk", "cell"), [("NFD", "NFC"), ("NFC", "NFD")])
@each("recursive", [False, True])
def test_accents_may_be_stored_either_way(tmp_path: Path, disk: Any, cell: Any, recursive: bool) -> None:
    file = unicodedata.normalize(disk, "img/Prénom/größe.png")
    touch(tmp_path / "site", file)
    images = {"roots": ["img"], "recursive": recursive}
    rows = [onehot(1, File=unicodedata.normalize(cell, "Prénom/größe.png"))]
    assert column(open_table(tmp_path, {**BELOW, "images": images}, rows), "image") == [file]


PARTS = st.lists(st.sampled_from(["a", "b", "ä", "a\u0308"]), min_size=1, max_size=3).map("/".join)


@given(files=st.lists(PARTS, min_size=1, max_size=6, unique=True), asked=PARTS)
def test_of_the_files_below_a_root_exactly_those_fit_whose_path_ends_so(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], asked: str
) -> None:
    root = tmp_path_factory.mktemp("site")
    for name in files:
        if not any((root / part).is_file() for part in [name, *map(str, Path(name).parents)]):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if not (root / name).exists():
                (root / name).touch()
    there = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]

    def plain(path: str) -> tuple[str, ...]:
        return Path(unicodedata.normalize("NFC", path)).parts

    fitting = [path for path in there if plain(path)[-len(plain(asked)) :] == plain(asked)]
    placed = in_roots(pd.Series([asked], dtype=object), Images(recursive=True), Folders(root))
    assert bool(placed.ambiguous[0]) == (len(fitting) > 1)
    assert placed.images[0] == (fitting[0] if len(fitting) == 1 else asked)


def test_any_ending_is_not_searched_for_in_all_folders() -> None:
    with pytest.raises(ValueError, match="cannot be combined"):
        Images(suffix="any", recursive=True)


def test_a_folder_has_images_without_an_ending_and_no_hidden_ones(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        for name in ("IM1", "IM2.dcm"):
            save_dicom(tmp_path / "site" / folder / name)
        (tmp_path / "site" / folder / "._IM2.dcm").write_bytes(b"of a Mac")
        (tmp_path / "site" / folder / "report").write_text("no image")
    (tmp_path / "site/b/IM3").touch()  # perhaps a damaged one
    save_dicom(tmp_path / "site/c/1.dcm")
    (tmp_path / "site/c/done").touch()
    rows = [onehot(number, File=folder) for number, folder in enumerate("abc")]
    table = open_table(tmp_path, {"layout": "onehot", "images": {"folder": True}}, rows)
    assert table.frame["image"].tolist() == ["a/IM1", "a/IM2.dcm", "b/IM1", "b/IM2.dcm", "b/IM3", "c/1.dcm"]
