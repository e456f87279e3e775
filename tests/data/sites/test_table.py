"""The site table: selection, ratios, digest, the whole report, the synthetic mark, roots."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ConfigError, SiteError
from chestfed.data.images.copies import open_database
from chestfed.data.images.place import AUTO, find_cache
from chestfed.data.sites import SiteTable, open_site
from chestfed.data.sites.phantoms import MARKER, is_phantoms, write_marker
from tests.cases import assert_refused
from tests.data.sites.releases.test_chestxray8 import HEADER, THREE, A, B, C, row
from tests.data.sites.small_sites import column, list_problems, load_bundled, open_files, write_files

ENTRIES = "Data_Entry_2017.csv"
LISTS = {"train_val_list.txt": f"{A}\n{B}\n", "test_list.txt": f"{C}\n"}


def open_entries(folder: Path, text: str = HEADER + THREE, *overrides: str) -> SiteTable:
    return open_files(folder, "chestxray8", {ENTRIES: text, **LISTS}, *overrides)


def test_the_frame_has_its_columns_and_types(tmp_path: Path) -> None:
    frame = open_entries(tmp_path).frame
    start = ["image", "patient", "study", "view", "split", "sex", "age", "row", "inverted"]
    assert list(frame.columns) == [*start, *DISEASES, "repeats"]
    assert [frame[name].dtype.kind for name in ("row", "inverted", "repeats", "age", *DISEASES)] == list("ibiffffff")
    assert {str(frame[name].dtype) for name in ("age", *DISEASES)} == {"float32"}
    assert all(isinstance(frame[name].dtype, pd.CategoricalDtype) for name in ("view", "split", "sex"))
    assert all(isinstance(cell, str) for name in ("image", "patient", "study") for cell in frame[name])


def test_rows_are_selected_by_split_and_view(tmp_path: Path) -> None:
    table = open_entries(tmp_path)
    assert column(table.select(split="train"), "row") == [2, 3]
    assert column(table.select(views=("ap",)), "row") == [4]
    assert column(table.select("train", ("ap",)), "row") == []
    assert list(table.select("test").frame.index) == [0]
    assert column(table.select(), "row") == [2, 3, 4]


def test_labels_have_a_column_per_disease(tmp_path: Path) -> None:
    labels = open_entries(tmp_path).labels()
    assert labels.dtype == np.float32
    assert labels.shape == (3, len(DISEASES))


def test_ratios_leave_missing_labels_out(tmp_path: Path) -> None:
    text = HEADER + row(A, "Edema") + row(B, "No Finding", "2") + row(C, "", "3")
    table = open_files(tmp_path, "chestxray8", {ENTRIES: text}, "upsample={edema: 2}")
    assert column(table, "repeats") == [3, 1, 1]
    np.testing.assert_array_equal(table.positive_ratios(), [0, 0.75, 0, 0, 0])
    assert np.isnan(table.select(split="valid").positive_ratios()).all()


def test_all_problems_come_in_one_report(tmp_path: Path) -> None:
    text = HEADER + row(A, "Oedema") + row(A, view="LL") + row("../x.png", patient="") + "short,row\n" + row(C)
    with pytest.raises(SiteError) as caught:
        open_files(tmp_path, "chestxray8", {ENTRIES: text, **LISTS})
    kinds = [problem.kind for problem in caught.value.problems]
    assert set(kinds) == {
        "bad label value",
        "unknown view",
        "image without a split",
        "malformed row",
        "blank name",
        "path outside the root",
        "contradictory rows",
        "patient in two splits",
    }
    report = str(caught.value)
    assert f"{ENTRIES}:2: unknown finding 'Oedema'" in report
    assert f"{ENTRIES}:5: 2 cells where the header has 11" in report
    assert "-> " in report


def test_views_that_keep_nothing_are_refused(tmp_path: Path) -> None:
    (problem,) = list_problems(tmp_path, "chestxray8", {ENTRIES: HEADER + THREE}, "views=[lateral]")
    assert problem.message == "no image has one of the views lateral; found: pa (2), ap (1)"


def test_a_missing_root_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SiteError) as caught:
        open_site(load_bundled("chestxray8"), tmp_path)
    (problem,) = caught.value.problems
    assert problem.kind == "missing root"
    assert problem.file == str(tmp_path / "site")
    assert "set 'root' in the YAML of 'chestxray8'" in problem.advice


def test_a_root_may_have_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {ENTRIES: HEADER + THREE})
    for root in (str(tmp_path / "site"), "$MY_CHEST_FILES/site"):
        monkeypatch.setenv("MY_CHEST_FILES", str(tmp_path))
        config = load_bundled("chestxray8").model_copy(update={"root": root})
        assert open_site(config, Path("/nowhere")).root == tmp_path / "site"
    monkeypatch.delenv("MY_CHEST_FILES")
    with assert_refused(ConfigError, "environment variable not set", variable="MY_CHEST_FILES"):
        open_site(config, tmp_path)


@pytest.mark.parametrize("place", ["SYNTHETIC.txt", "../SYNTHETIC.txt"])
def test_stray_marker_makes_nothing_public(tmp_path: Path, tiny_hospitals: Path, place: str) -> None:
    copied = (tiny_hospitals / "synthetic-chestxray8" / MARKER).read_bytes()
    for marker in (b"", copied, b"digest: 0 files, cae66941d9efbd404e4d88758ea67670\n"):
        table = open_files(tmp_path, "chestxray8", {ENTRIES: HEADER + THREE, place: marker})
        assert not table.synthetic
        assert not table.phantoms
        assert any(MARKER in note for note in table.notes)


def test_synthetic_in_a_yaml_publishes_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, {ENTRIES: HEADER + THREE})
    config = load_bundled("chestxray8").model_copy(update={"root": str(tmp_path / "site"), "synthetic": True})
    table = open_site(config, tmp_path)
    assert (table.synthetic, table.phantoms) == (True, False)


def test_phantoms_are_known_by_their_digest(tmp_path: Path, tiny_hospitals: Path) -> None:
    name = "synthetic-chestxray8"
    config = load_bundled("chestxray8").model_copy(update={"root": name})
    table = open_site(config, tiny_hospitals)
    assert table.phantoms
    assert table.title == "ChestXray8 (synthetic)"
    labels = next((tiny_hospitals / name).glob("Data_Entry*"))
    assert open_site(config, Path("/nowhere"), labels).phantoms
    changed = {"labels": labels.name, "picture": "", "another file": "new.png", "hidden": ".real/new.png"}
    for change, file_name in changed.items():
        shutil.copytree(tiny_hospitals / name, tmp_path / change / name)
        file = tmp_path / change / name / file_name if file_name else next((tmp_path / change).rglob("*.png"))
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(file.read_bytes() + b"\n" if file.exists() else b"")
        assert not open_site(config, tmp_path / change).phantoms


def test_other_pictures_are_no_phantoms(tmp_path: Path, tiny_hospitals: Path) -> None:
    """Of the same names and sizes: uncompressed DICOM of one detector has one size."""
    name = "synthetic-chestxray8"
    shutil.copytree(tiny_hospitals / name, tmp_path / name)
    assert is_phantoms(tmp_path / name)
    picture = next((tmp_path / name).rglob("*.png"))
    picture.write_bytes(bytes(picture.stat().st_size))
    assert not is_phantoms(tmp_path / name)


def test_cache_leaves_phantoms_what_they_are(tmp_path: Path) -> None:
    """The cache is beside a site's root, which may be the folder of the images alone."""
    root = tmp_path / "images"
    root.mkdir()
    (root / "a.png").write_bytes(b"a")
    write_marker(tmp_path, "")
    place = find_cache(AUTO, "mine", root)
    open_database(place, "mine").create()
    assert place.is_relative_to(tmp_path)
    assert is_phantoms(root)
    (place / "mine/images.png").write_bytes(b"")
    assert not is_phantoms(root)


def test_opening_a_site_needs_no_image(tmp_path: Path) -> None:
    assert len(open_entries(tmp_path).frame) == 3
