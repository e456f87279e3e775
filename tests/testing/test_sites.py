"""`check_site` passes what is right and finds each thing that is wrong with a reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.testing import CHECKS, ContractError, check_site
from tests.data.sites import own_tables
from tests.data.sites.own_tables import save_rows, wide
from tests.testing.plain_site import write_reader, write_site


def find_broken(config: Path, root: Path) -> ContractError:
    """The error of `check_site`."""
    with pytest.raises(ContractError) as caught:
        check_site(config, root)
    return caught.value


@pytest.mark.parametrize(
    "name",
    ["padchest", *(pytest.param(n, marks=pytest.mark.slow) for n in ("chestxray8", "chexpert", "mimic_cxr", "vindr"))],
)
def test_sites_conform_on_samples(tiny_hospitals: Path, name: str) -> None:
    counts = check_site(bundled("site_configs") / "synthetic" / f"{name}.yaml", tiny_hospitals)
    assert set(counts) == set(CHECKS)
    assert all(counts.values()), counts


@pytest.mark.slow
def test_a_table_below_other_lines_conforms(tmp_path: Path) -> None:
    for number in range(1, 5):
        gray = np.random.default_rng(number).integers(0, 255, (48, 40), dtype=np.uint8)
        (tmp_path / "site").mkdir(exist_ok=True)
        Image.fromarray(gray).save(tmp_path / f"site/{number}.png")
    for above, row in (("sep=;\n", 1), ("Films, of 2019\n\n", 3)):
        path = tmp_path / "site/labels.csv"
        save_rows(path, [wide(n, File=f"{n}.png", MRN=f"p{n}", Edema=n % 2) for n in range(1, 5)], delimiter=";")
        path.write_text(above + path.read_text())
        own_tables.config(tmp_path, {"delimiter": ";", "header_row": row})
        assert check_site(tmp_path / "site.yaml", tmp_path)["missing columns"] >= 12


def test_a_good_reader_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch)
    before = {path: path.read_bytes() for path in (tmp_path / "plain").rglob("*") if path.is_file()}
    counts = check_site(config, tmp_path)
    assert (counts["site check"], counts["missing columns"]) == (6, 5)
    assert before == {path: path.read_bytes() for path in (tmp_path / "plain").rglob("*") if path.is_file()}
    with pytest.raises(ConfigError):
        check_site(config, tmp_path, overrides=["raters=any"])


#: What breaks a check: the check, a piece of the plain reader's source, and what replaces it.
BROKEN = [
    ("site check", '"image": "pictures/"', '"image": "missing/"'),
    ("site check", '"image": "pictures/"', '"image": "../pictures/"'),
    ("site check", '"view": "pa"', '"view": "PA"'),
    ("site check", "column_findings(source, path, frame)", "dict.fromkeys(source.config.diseases, np.int8(-3))"),
    ("site check", '"patient-5", "test", "train")', 'None, "test", np.where(frame.index % 2, "valid", "train"))'),
    ("site check", "    columns = {", "    frame['nothing']\n    columns = {"),
    ("repeatable", '"view": "pa"', '"view": "pa", "age": np.random.default_rng().uniform(1, 99, len(frame))'),
    ("site check", "    columns = {", '    open("plain/labels.csv").close()\n    columns = {'),
    ("missing columns", '"edema", "heart"], ["ward"])', '"heart"], ["edema", "ward"])'),
    ("damaged label files", "if path is None else source", "if path is None or not path.stat().st_size else source"),
    ("untouched", "    columns = {", '    (source.root / "seen").touch()\n    columns = {'),
]


@pytest.mark.slow
def test_broken_reader_fails_its_check(tmp_path: Path) -> None:
    for number, (check, old, new) in enumerate(BROKEN):
        folder = tmp_path / str(number)
        config = write_site(folder)
        with pytest.MonkeyPatch.context() as patch:
            write_reader(folder, patch, old, new)
            assert find_broken(config, folder).broken == [check], (check, new)


def test_a_reader_bound_to_a_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch, "    columns = {", '    open("plain/labels.csv").close()\n    columns = {')
    monkeypatch.chdir(tmp_path)
    assert "FileNotFoundError" in str(find_broken(config, tmp_path))


def test_a_bad_image_of_the_site_is_found(tmp_path: Path) -> None:
    for number, (content, kind) in enumerate(
        ((None, "missing image"), (b"GIF89a" * 50, "unreadable"), (b"", "unread"))
    ):
        folder = tmp_path / str(number)
        config, image = write_site(folder), folder / "plain/pictures/picture-1.png"
        image.unlink()
        if content is not None:
            image.write_bytes(content)
        with pytest.MonkeyPatch.context() as patch:
            write_reader(folder, patch)
            assert kind in str(find_broken(config, folder))
