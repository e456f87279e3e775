"""Named groups of a site: columns of its table and lists of images, in the site table and in predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chestfed.core.errors import ConfigError
from chestfed.results.evaluation.summary import group_columns
from chestfed.results.tables.predictions import stored_groups
from tests.data.sites.own_tables import config, open_table, refusals, wide

ROWS: list[dict[str, Any]] = [wide(number, Source="pa"[number % 2] * 3, Ward=f"w{number}") for number in range(60)]
LISTS = {"choice": {"even": "even.txt", "odd": "odd.txt"}}


def write_lists(folder: Path, place: str, **lists: range) -> None:
    for name, numbers in lists.items():
        path = folder / place / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{number}.png\n" for number in numbers), encoding="utf-8")


def test_a_column_is_a_group(tmp_path: Path) -> None:
    frame = open_table(tmp_path, {}, ROWS, groups={"source": "Source"}).frame
    assert frame["group_source"].tolist() == ["pa"[number % 2] * 3 for number in range(60)]
    assert group_columns(frame, by_image=True)["source"].tolist() == frame["group_source"].tolist()
    assert "group_source" in stored_groups(group_columns(frame, by_image=True))
    assert "source" not in group_columns(frame, by_image=False)  # a study may have images of two groups


@pytest.mark.parametrize("place", ["", "site"])
def test_lists_are_beside_yaml_or_in_root(tmp_path: Path, place: str) -> None:
    write_lists(tmp_path, place, even=range(0, 60, 2), odd=range(1, 30, 2))
    groups = open_table(tmp_path, {}, ROWS, groups=LISTS).frame["group_choice"]
    assert groups[::2].tolist() == ["even"] * 30
    assert groups[1::2].tolist()[:15] == ["odd"] * 15
    assert groups[1::2].isna().sum() == 15  # in no list


def test_names_of_persons_are_no_groups(tmp_path: Path) -> None:
    """A column that tells patients apart has no value that leaves."""
    assert set(open_table(tmp_path, {}, ROWS, groups={"ward": "Ward"}).frame["group_ward"]) == {"others"}
    rows = [wide(n, Ward=f"w{n // 11}") for n in range(11 * 21)]
    assert refusals(tmp_path, {}, rows, groups={"ward": "Ward"}) == [("too many groups", None)]


def test_wrong_lists_and_columns_are_reported(tmp_path: Path) -> None:
    assert refusals(tmp_path, {}, ROWS, groups={"source": "Sourse"}) == [("group without images", None)]
    assert refusals(tmp_path, {}, ROWS, groups=LISTS) == [("missing file", None)]
    write_lists(tmp_path, "site", even=range(0, 60, 2), odd=range(57, 60))
    assert refusals(tmp_path, {}, ROWS, groups=LISTS) == [("image in two lists", 2)]
    write_lists(tmp_path, "site", odd=range(100, 120))
    assert refusals(tmp_path, {}, ROWS, groups=LISTS) == [("group without images", None)]


def test_a_group_has_a_name_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        config(tmp_path, {}, groups={"view": "Source"})
    with pytest.raises(ConfigError):
        config(tmp_path, {}, groups={"choice": {}})


def test_a_site_without_groups_has_no_column(tmp_path: Path) -> None:
    frame: pd.DataFrame = open_table(tmp_path, {}, ROWS).frame
    assert not [name for name in frame if str(name).startswith("group_")]
