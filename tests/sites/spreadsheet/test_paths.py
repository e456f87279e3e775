"""Labels in the names of folders and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError, SiteError
from chestfed.sites import SiteTable, load_site_config, open_site
from tests.cases import each
from tests.sites.small_sites import CONFIGS

GUANGZHOU = CONFIGS / "films" / "guangzhou.yaml"
FILMS = ("NORMAL/IM-0432-0001.jpeg", "NORMAL/NORMAL2-IM-1236-0001.jpeg", "PNEUMONIA/person7_virus_9.jpeg")


def opened(root: Path, *names: str, overrides: tuple[str, ...] = (), site: Path = GUANGZHOU) -> SiteTable:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return open_site(load_site_config(site, overrides), root)


def test_folders_are_labels_and_files_name_patients(tmp_path: Path) -> None:
    table = opened(tmp_path, *(f"guangzhou/{name}" for name in FILMS))
    assert table.frame["image"].tolist() == list(FILMS)
    assert table.frame["patient"].tolist() == ["IM-0432", "NORMAL2-IM-1236", "person7"]
    assert table.labels()[:, 0].tolist() == [0, 0, 1]
    assert set(table.frame["view"]) == {"ap"}


def test_view_and_split_may_be_in_the_path(tmp_path: Path) -> None:
    pattern = r"reader.pattern='(?P<split>train|test)/(?P<label>NORMAL|PNEUMONIA)/(?P<view>pa|ap)_(?P<patient>p\d)'"
    names = ("guangzhou/train/NORMAL/pa_p1.png", "guangzhou/test/PNEUMONIA/ap_p2.png")
    table = opened(tmp_path, *names, overrides=(pattern,))
    assert table.frame["split"].tolist() == ["test", "train"]
    assert table.frame["view"].tolist() == ["ap", "pa"]


@each("place", ["guangzhou", "open_films/guangzhou"])
def test_a_site_may_be_in_several_places(tmp_path: Path, place: str) -> None:
    assert opened(tmp_path, f"{place}/{FILMS[0]}").root == tmp_path / place


@each(
    ("name", "kind"),
    [("NORMAL/other.jpeg", "unknown path"), ("COVID/person7_virus_9.jpeg", "unknown path"), (None, "missing file")],
)
def test_an_image_that_does_not_fit_is_reported(tmp_path: Path, name: str | None, kind: str) -> None:
    (tmp_path / "guangzhou").mkdir()
    with pytest.raises(SiteError) as caught:
        opened(tmp_path, *([] if name is None else [f"guangzhou/{FILMS[0]}", f"guangzhou/{name}"]))
    assert [problem.kind for problem in caught.value.problems] == [kind]
    assert "person7" not in str(caught.value)


def test_a_label_of_no_disease_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SiteError) as caught:
        opened(tmp_path, f"guangzhou/{FILMS[0]}", overrides=("reader.normal=[]",))
    assert [problem.kind for problem in caught.value.problems] == ["bad label value"]


@each("pattern", ["(", "(?P<label>x)", "(?P<label>x)(?P<patient>y)(?P<age>z)"])
def test_a_pattern_without_its_groups_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        load_site_config(GUANGZHOU, [f"reader.pattern={pattern}"])


@each(("site", "example"), [("montgomery", "MCUCXR"), ("shenzhen", "CHNCXR")])
def test_the_last_digit_of_a_name_is_a_label(tmp_path: Path, site: str, example: str) -> None:
    names = [f"{site}/CXR_png/{example}_000{number}_{number % 2}.png" for number in (1, 2)]
    table = opened(tmp_path, *names, f"{site}/other/{example}_1_1.png", site=CONFIGS / "films" / f"{site}.yaml")
    assert table.labels()[:, 0].tolist() == [1, 0]
    assert table.diseases == ("tuberculosis",)
