"""What a check finds in pictures, labels and headers fails or warns as documented, as often as it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chestfed.data.checks import CheckReport, check_site
from chestfed.data.checks.problems import (
    FLAT,
    HEADERS_DIFFER,
    HEADERS_UNREAD,
    NEAR_REPEATED,
    NORMAL_AND_FINDING,
    OPPOSITE_LABELS,
    SPLITS_NEAR,
    SPLITS_SHARE_HEADER,
    TURNED,
)
from chestfed.data.checks.shortcuts import score_column
from chestfed.data.images.decoding.polarity import MEAN_FILM
from chestfed.data.sites import open_site
from chestfed.reports.pages.site_report import SiteReport
from chestfed.reports.pages.site_report.render import as_markdown
from tests.cases import each
from tests.data.checks.planted import Hospital, dicom, get_row, picture
from tests.data.checks.planted import save as save_dicom
from tests.data.sites.own_tables import COLUMNS, config

MEAN = np.asarray(Image.open(MEAN_FILM).resize((96, 120), Image.Resampling.BICUBIC))


def check(folder: Path, table: dict[str, Any] | None = None, **keys: Any) -> CheckReport:
    return check_site(config(folder, table or {}, **keys), folder, cache_root=folder / "cache", workers=1)


def list_rows(report: CheckReport, kind: str) -> list[int | None]:
    return [problem.row for problem in report.kinds.get(kind, ())]


def film(number: int) -> np.ndarray:
    """A picture that no other number has, and that tells that it is no negative."""
    return ((picture(number) + 2.0 * np.asarray(Image.fromarray(MEAN).resize((96, 96)))) / 3).astype(np.uint8)


def copy(hospital: Hospital, number: int, source: int, change: Any = lambda gray: gray) -> None:
    """An image becomes a changed copy of a film, as PNG, with its labels."""
    Image.fromarray(film(source)).save(hospital.image(source))
    kept = {name: hospital.rows[number][name] for name in ("File", "MRN", "Set")}
    hospital.rows[number] = {**hospital.rows[source], **kept, "File": f"copy{number}.png"}
    Image.fromarray(change(film(source))).save(hospital.image(number))


COPIES = {
    "brighter": lambda gray: np.clip(gray.astype(int) + 30, 0, 255).astype(np.uint8),
    "more contrast": lambda gray: np.clip((gray - 128.0) * 1.3 + 128, 0, 255).astype(np.uint8),
    "less contrast": lambda gray: (gray * 0.5 + 60).astype(np.uint8),
    "gamma": lambda gray: (255 * (gray / 255) ** 0.6).astype(np.uint8),
    "inverted": lambda gray: 255 - gray,
    "rotated": lambda gray: np.asarray(Image.fromarray(gray).rotate(1.5, Image.Resampling.BICUBIC)),
    "turned": lambda gray: np.asarray(Image.fromarray(gray).rotate(5, Image.Resampling.BICUBIC)),
    "cropped": lambda gray: gray[4:-4, 4:-4],
}


@pytest.mark.slow_but("6-brighter", "18-inverted", "18-rotated", "18-cropped")
@pytest.mark.parametrize("change", [*COPIES])
@pytest.mark.parametrize("place", [6, 18])
def test_near_copies_fail_across_splits(tmp_path: Path, change: str, place: int) -> None:
    hospital = Hospital(tmp_path)
    copy(hospital, place, 0, COPIES[change])
    hospital.save()
    report = check(tmp_path)
    assert report.passed == (place == 6)
    assert list_rows(report, SPLITS_NEAR if place == 18 else NEAR_REPEATED) == [get_row(place)]
    if place == 18:
        assert check(tmp_path, allow=[SPLITS_NEAR]).passed


def test_opposite_labels_of_one_picture_fail(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    copy(hospital, 6, 0)
    hospital.rows[6]["Effusion"] = "0" if hospital.rows[0]["Effusion"] == "1" else "1"
    hospital.save()
    assert list_rows(check(tmp_path), OPPOSITE_LABELS) == [get_row(6)]
    assert not check(tmp_path).passed
    assert check(tmp_path, allow=[OPPOSITE_LABELS]).passed


def test_no_finding_beside_a_finding_fails(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    labels = ("Cardiomegaly", "Edema", "Pulmonary Edema", "Consolidation", "Atelectasis", "Effusion")
    for row in hospital.rows:
        row["No Finding"] = "0" if any(row.get(name) == "1" for name in labels) else "1"
    hospital.save()
    assert check(tmp_path).passed
    sick = next(place for place, row in enumerate(hospital.rows) if row["No Finding"] == "0")
    hospital.rows[sick]["No Finding"] = "1"
    hospital.save()
    assert list_rows(check(tmp_path), NORMAL_AND_FINDING) == [get_row(sick)]
    assert check(tmp_path, allow=[NORMAL_AND_FINDING]).passed


@pytest.mark.slow
@each("turn", [0, 1, 2, 3])
def test_turned_films_are_listed(tmp_path: Path, turn: int) -> None:
    hospital = Hospital(tmp_path)
    for place in (0, 3):
        gray = MEAN if place == 0 else np.rot90(MEAN, turn)
        Image.fromarray(np.ascontiguousarray(gray)).save(hospital.image(place))
    hospital.save()
    assert list_rows(check(tmp_path), TURNED) == ([get_row(3)] if turn else [])


@pytest.mark.slow
@each(("low", "high"), [(0, 40), (220, 255), (100, 150)])
def test_flat_pictures_are_listed(tmp_path: Path, low: int, high: int) -> None:
    hospital = Hospital(tmp_path)
    gray = (low + picture(3) * ((high - low) / 255)).astype(np.uint8)
    Image.fromarray(gray).save(hospital.image(3))
    hospital.save()
    assert list_rows(check(tmp_path), FLAT) == [get_row(3)]


def make_dicoms(folder: Path) -> Hospital:
    """A hospital of DICOM files with views, patients, sexes and ages in their headers as in the table."""
    hospital = Hospital(folder)
    for number, row in enumerate(hospital.rows):
        row |= {"File": f"{number}.dcm", "Projection": "PA", "Sex": "F", "Age": "63"}
        header = {"PatientID": row["MRN"], "ViewPosition": "PA", "PatientSex": "F", "PatientAge": "063Y"}
        save_dicom(dicom(picture(number), **header), hospital.image(number))
    hospital.save()
    return hospital


def test_headers_that_differ_are_listed(tmp_path: Path) -> None:
    hospital = make_dicoms(tmp_path)
    assert HEADERS_DIFFER not in check(tmp_path).kinds
    headers = {"PatientID": "p0", "ViewPosition": "LL", "PatientSex": "M", "PatientAge": "021Y"}
    save_dicom(dicom(picture(18), **headers), hospital.image(18))
    report = check(tmp_path)
    assert sorted(list_rows(report, HEADERS_DIFFER), key=str) == [get_row(18)] * 3 + [None]
    assert list_rows(report, SPLITS_SHARE_HEADER) == [get_row(18)]
    assert "p0" not in str([*report.errors])


def test_columns_of_named_files_come_from_headers(tmp_path: Path) -> None:
    make_dicoms(tmp_path)
    named = {name: COLUMNS[name] for name in ("image", "patient", "split")}
    report = check(tmp_path, {"columns": named})
    assert len(list_rows(report, HEADERS_UNREAD)) == 3
    elements = {"patient": "PatientID", "view": "ViewPosition", "sex": "PatientSex", "age": "PatientAge"}
    table = {"columns": {**named, **elements}, "images": {"elements": [*elements.values()]}}
    table["codes"] = {"view": {"PA": "pa"}, "sex": {"F": "F"}}
    frame = open_site(config(tmp_path, table), tmp_path).frame
    assert set(frame["view"]) == {"pa"}
    assert (set(frame["sex"]), set(frame["age"])) == ({"F"}, {63.0})
    assert frame["patient"].tolist() == [f"p{number // 2}" for number in range(24)]
    assert {HEADERS_UNREAD, HEADERS_DIFFER}.isdisjoint(check(tmp_path, table).kinds)


def test_a_column_alone_has_its_auc() -> None:
    half = np.arange(4000) % 2 == 0
    labels = (np.arange(4000) % 10 < 5).astype(np.float32)
    group = np.where(np.arange(4000) % 10 < 8, labels, 1 - labels).astype(int)
    noise = np.random.default_rng(0).integers(0, 40, 4000)
    assert score_column(group, labels, half) == pytest.approx(0.8, abs=0.03)
    assert score_column(noise, labels, half) == pytest.approx(0.5, abs=0.04)
    labels[5:] = np.nan
    assert score_column(group, labels, half) is None


@pytest.mark.slow
def test_a_selection_is_in_the_shortcuts(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    rows = []
    for number in range(120):
        row = dict(hospital.rows[number % 24], File=f"{number}.png", MRN=f"q{number}")
        row |= {"Edema": str(number % 3 % 2), "Source": f"list {number % 3 % 2}", "Note": f"text {number}"}
        Image.fromarray(picture(number)).save(tmp_path / "site" / f"{number}.png")
        rows.append(row)
    hospital.rows = rows
    hospital.save()
    report = check(tmp_path)
    assert report.shortcuts["Source"]["edema"] == 1.0
    assert "Note" not in report.shortcuts
    site = SiteReport(config(tmp_path, {}), report)
    place = [*report.inspection.survey.table.columns].index("Source") + 1
    assert "| Source |" in as_markdown(site, named=True)
    assert "Source" not in as_markdown(site)  # a card leaves the hospital, and a heading may name a person
    assert f"| column {place} |" in as_markdown(site)
    assert f"without the image: column {place} (Edema 1.000" in as_markdown(site)


def test_a_named_group_is_in_the_shortcuts(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    hospital.rows = [
        dict(
            hospital.rows[0],
            File=f"{n}.png",
            MRN=f"q{n}",
            Edema=str(n // 2 % 2),
            Cardiomegaly=str(n // 4 % 2),
            Source="ab"[n // 2 % 2],
        )
        for n in range(80)
    ]
    hospital.save()
    for groups in ({"choice": "Source"}, {"choice": {"a": "a.txt", "b": "b.txt"}}):
        for name, part in (("a", 0), ("b", 1)):
            lines = [f"{40 * 'f'} {n}.png" for n in range(80) if n // 2 % 2 == part]
            (tmp_path / "site" / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
        report = check_site(config(tmp_path, {}, groups=groups), tmp_path, images=False, cache_root=tmp_path / "cache")
        alone = report.shortcuts["choice"]
        assert (alone["edema"], alone["cardiomegaly"]) == (1.0, pytest.approx(0.5, abs=0.1))
        assert ("Source" in report.shortcuts) == isinstance(groups["choice"], dict)
        words = as_markdown(SiteReport(config(tmp_path, {}, groups=groups), report))  # a name of the YAML is shown
        assert "without the image: choice (Edema 1.000)" in words
