"""Patients who are written unlike in two splits, and sites of which no view is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.data.checks import check_site
from chestfed.data.sites import load_site_config, open_site
from chestfed.data.sites.reader import group_spellings, plain_id
from tests.cases import each
from tests.data.checks.planted import Hospital, get_row
from tests.data.checks.test_check import check, list_problems
from tests.data.checks.test_splits import site_check
from tests.data.sites.own_tables import config

KIND = "similar patients"


def renamed(folder: Path, names: dict[int, str], splits: dict[int, str] | None = None) -> Hospital:
    """A hospital in which the images of these numbers have other patients; 0 to 15 are in train."""
    hospital = Hospital(folder)
    for number, name in names.items():
        hospital.rows[number]["MRN"] = name
    for number, split in (splits or {}).items():
        hospital.rows[number]["Set"] = split
    hospital.save()
    return hospital


PAIRS = [
    ("0012", "12"),
    ("12", "12.0"),
    ("0012", "12,0"),
    ("G0", "g0"),
    ("ZAPPA7", "Zappa007"),
    ("Zappa 1", "Zappa\u00a01"),
    ("HC-1", "hc 1"),
    ("HC\u20131", "HC_001"),
]


def test_accents_written_two_ways_are_one(tmp_path: Path) -> None:
    renamed(tmp_path, {4: "Za\u0308ppa", 5: "Za\u0308ppa", 20: "Z\u00e4ppa", 21: "Z\u00e4ppa"})
    assert list_problems(check(tmp_path, images=False)) == [("patient in two splits", get_row(20))]


@pytest.mark.slow_but("mark", "override")
@pytest.mark.parametrize(
    ("sign", "name"),
    [
        ("\ufeff", "{}G0"),
        ("\u200b", "G{}0"),
        ("\u200d", "G0{}"),
        ("\u00ad", " {} G0"),
        ("\u2060", "{}G0"),
        ("\u202e", "G{}0"),
    ],
    ids=["mark", "space", "joiner", "hyphen", "word joiner", "override"],
)
def test_invisible_sign_makes_no_patient(tmp_path: Path, sign: str, name: str) -> None:
    renamed(tmp_path, {4: "G0", 5: name.format(sign), 20: "G0", 21: name.format(sign)})
    expected = [("patient in two splits", get_row(20)), ("how the labels were read", None)]
    assert list_problems(check(tmp_path, images=False)) == expected
    config(tmp_path, {})
    assert site_check(tmp_path, "--fix-splits", "--no-images").exit_code == 0
    table = open_site(load_site_config(tmp_path / "site_fixed.yaml"), tmp_path)
    assert set(table.frame["patient"].iloc[[4, 5, 20, 21]]) == {"G0"}
    assert table.frame["split"].iloc[[4, 5, 20, 21]].nunique() == 1
    (note,) = (note for note in table.notes if "invisible" in note)
    assert "1 name" in note
    assert "G0" not in note


def test_splits_may_have_invisible_signs(tmp_path: Path) -> None:
    renamed(tmp_path, {4: "G0", 5: "G0"})
    config(tmp_path, {})
    assert site_check(tmp_path, "--fix-splits", "--no-images").exit_code == 0
    splits = tmp_path / "site.splits.csv"
    splits.write_text(splits.read_text().replace("G0", "G\u200b0"), encoding="utf-8")
    assert list_problems(check_site(load_site_config(tmp_path / "site_fixed.yaml"), tmp_path, images=False)) == []


@each(("train", "test"), PAIRS)
def test_spellings_in_two_splits_are_refused(tmp_path: Path, train: str, test: str) -> None:
    renamed(tmp_path, {4: train, 5: train, 20: test, 21: test})
    report = check(tmp_path, images=False)
    assert list_problems(report) == [(KIND, get_row(20))]
    assert not report.passed
    (problem,) = report.errors
    assert f"is in 'train' at labels.csv:{get_row(4)}" in str(problem)
    assert train not in str(report.errors)
    assert test not in str(report.errors)


@each("names", [("A12", "B12"), ("1.2.10", "1.2.1"), ("12", "120"), ("a1b", "a01b"), ("1-1", "11"), ("A-1-2", "A-12")])
def test_other_names_are_other_patients(tmp_path: Path, names: tuple[str, str]) -> None:
    renamed(tmp_path, {4: names[0], 5: names[0], 20: names[1], 21: names[1]})
    assert list_problems(check(tmp_path, images=False)) == []


def test_spellings_in_one_split_pass(tmp_path: Path) -> None:
    renamed(tmp_path, {4: "G0", 5: "g0", 20: "0012", 21: "12"})
    assert list_problems(check(tmp_path, images=False)) == []


def test_crossing_name_is_reported_once(tmp_path: Path) -> None:
    renamed(tmp_path, {4: "G0", 5: "G0", 20: "G0", 21: "G0"})
    assert list_problems(check(tmp_path, images=False)) == [("patient in two splits", get_row(20))]


def test_fixed_splits_join_spellings(tmp_path: Path) -> None:
    renamed(tmp_path, {4: "G0", 5: "G0", 6: "g0", 20: "g 0", 21: "h21"})
    config(tmp_path, {})
    assert site_check(tmp_path, "--fix-splits", "--no-images").exit_code == 0
    fixed = load_site_config(tmp_path / "site_fixed.yaml")
    assert list_problems(check_site(fixed, tmp_path, images=False)) == []
    frame = open_site(fixed, tmp_path).frame
    assert frame["split"].tolist() == ["train"] * 16 + ["test"] * 4 + ["train"] + ["test"] * 3


def test_new_splits_join_spellings(tmp_path: Path) -> None:
    names = {number: f"{number // 2:0{3 if number % 2 else 1}d}" for number in range(24)}  # 7 and 007
    renamed(tmp_path, names, dict.fromkeys(range(24), "train"))
    config(tmp_path, {})
    assert site_check(tmp_path, "--fix-splits", "--no-images").exit_code == 0
    frame = open_site(load_site_config(tmp_path / "site_fixed.yaml"), tmp_path).frame
    assert set(frame["split"]) == {"train", "valid", "test"}
    assert (frame["split"].to_numpy()[::2] == frame["split"].to_numpy()[1::2]).all()


NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@given(name=NAMES, sign=st.sampled_from("\u200b\ufeff\u00ad\u00a0 \t"), place=st.integers(0, 12))
def test_invisible_signs_never_differ(name: str, sign: str, place: int) -> None:
    assert plain_id(name[:place] + sign + name[place:]) == plain_id(name)


@given(st.integers(0, 10**9), st.integers(0, 9), st.sampled_from(["", "P", "pat-"]))
def test_zeros_never_differ_and_numbers_do(number: int, zeros: int, before: str) -> None:
    assert (
        plain_id(f"{before}{'0' * zeros}{number}")
        == plain_id(f"{before.upper()}{number}.0")
        == plain_id(f"{before}{number}")
    )
    assert plain_id(f"{before}{number + 1}") != plain_id(f"{before}{number}")


@given(st.lists(NAMES, max_size=8))
def test_groups_have_one_spelling(names: list[str]) -> None:
    for group in group_spellings(names):
        assert len(group) == len(set(group)) > 1
        assert len({plain_id(name) for name in group}) == 1


def test_unknown_views_warn(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for row in hospital.rows:
        row["Projection"] = ""
    hospital.save()
    report = check(tmp_path, images=False)
    assert list_problems(report) == [("views not known", None)]
    assert "no view of the 24 images is known: laterals, if any" in report.warnings[0].message
    site = config(tmp_path, {"default_view": "frontal"})
    assert not check_site(site, tmp_path, images=False).warnings
    hospital.rows[3]["Projection"] = "PA"
    hospital.save()
    assert list_problems(check(tmp_path, images=False)) == []
