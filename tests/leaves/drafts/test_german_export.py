"""A German export as its hospital wrote it: files are named otherwise than cells, a header has two findings."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from chestfed.data.sites import load_site_config, open_site
from chestfed.leaves.drafts import command as new
from tests.command_line import Called, call
from tests.leaves.drafts.campaign.maker import Place, Row, make_films

NAMES = {"cardiomegaly": "Kardiomegalie", "edema": "Ödem", "consolidation": "Konsolidierung/Infiltrat"}
FILMS = make_films(36, doubt=False)
CASES = {film.name: f"{21 + n % 2}/{100200 + 7 * n:07d}" for n, film in enumerate(FILMS)}
ANSWERS = [
    *("--column=split=Testdatensatz", "--code=split:(empty)=train", "--code=split:x=test"),
    *("--label=consolidation=Konsolidierung/Infiltrat", "--code=labels:n.b.=missing", "--code=labels:v.a.=uncertain"),
    *("--uncertain=missing", "--blank=missing"),
    *("--code=Einwilligung widerrufen:nein=keep", "--code=Einwilligung widerrufen:ja=drop"),
]


def withdraws(n: int) -> bool:
    return n // 2 in (2, 8)


def write_row(n: int) -> Row:
    film = FILMS[n]
    findings = {name: "ja" if film.findings[disease] else "nein" for disease, name in NAMES.items()}
    findings |= {"Ödem": "V.a."} if n % 9 == 4 else {"Kardiomegalie": "n.b."} if n % 9 == 7 else {}
    view = {"pa": "p.a.", "ap": "a.p. liegend", "lateral": "seitlich"}[film.view]
    about = {"Fallnummer": CASES[film.name], "Pat.-Pseudonym": f"P-{film.patient}", "Projektion": view}
    marks = {"Einwilligung widerrufen": "ja" if withdraws(n) else "nein"}
    return {**about, **findings, **marks, "Testdatensatz": "x" if film.split == "test" else None}


@pytest.fixture
def describe(tmp_path: Path) -> Callable[..., Called]:
    """Calls `site new` on the export."""
    place = Place(tmp_path)
    numbers = {film.name: CASES[film.name].replace("/", "-") for film in FILMS}
    place.pictures(FILMS, lambda film: f"Bilder/20{numbers[film.name][:2]}/{numbers[film.name]}_thx.png")
    place.save([write_row(n) for n in range(len(FILMS))])
    names = ("--images", "Bilder", "--labels", "labels.csv", "--no-input")
    return lambda *options: call("site", "new", "hospital", *names, *options, folder=tmp_path)


def test_export_is_asked_with_answers(describe: Callable[..., Called]) -> None:
    result = describe()
    text = " ".join(result.out.split())
    assert result.code == 2
    assert "--column split=Testdatensatz --code 'split:(empty)=train' --code split:x=test" in text
    assert "--label consolidation=Konsolidierung/Infiltrat --label infiltration" in text
    assert "--code labels:n.b.=missing --code labels:v.a.=uncertain" in text
    assert "patient=Fallnummer" not in text
    assert "site=folder)" in text  # years are no centers, which is said
    *_, last = result.out.strip().splitlines()
    assert "?" not in last
    assert "Testdatensatz" not in last
    blocks = text.partition("not read:")[2].split(" --")
    assert "ignore=" not in blocks[1]
    assert "ignore=" in blocks[-1]


def test_export_is_read_as_it_is(describe: Callable[..., Called], tmp_path: Path) -> None:
    assert describe(*ANSWERS).code == 0
    path = tmp_path / "site_configs/hospital.yaml"
    frame = open_site(load_site_config(path), tmp_path).frame
    used = [n for n, film in enumerate(FILMS) if film.view != "lateral" and not withdraws(n)]
    assert sorted(frame["row"] - 2) == used
    for n, cells in zip(frame["row"] - 2, frame.to_dict("records"), strict=True):
        film = FILMS[n]
        assert [cells[name] for name in ("view", "split", "patient")] == [film.view, film.split, f"P-{film.patient}"]
        assert cells["image"].endswith(f"{CASES[film.name].replace('/', '-')}_thx.png")
        expected = None if n % 9 == 4 else film.findings["edema"]
        assert (None if math.isnan(cells["edema"]) else cells["edema"]) == expected
    positive = sum(film.findings["consolidation"] == 1 for n, film in enumerate(FILMS) if n in used)
    line = next(line for line in path.read_text(encoding="utf-8").splitlines() if "Konsolidierung/Infiltrat" in line)
    assert line.endswith(f"# {positive} positive, {len(used) - positive} negative")


def test_small_numbers_in_names_are_asked(tmp_path: Path) -> None:
    """A running number is in the name of some file by chance."""
    place = Place(tmp_path)
    numbers = {film.name: n + 1 for n, film in enumerate(FILMS)}
    place.pictures(FILMS, lambda film: f"Bilder/IMG_{numbers[film.name]}.png")
    place.save([{**write_row(n), "Fallnummer": f"E{n * 77}", "lfd Nr": n + 1} for n in range(len(FILMS))])
    names = ("site", "new", "hospital", "--images", "Bilder", "--labels", "labels.csv", "--no-input")
    result = call(*names, folder=tmp_path)
    assert result.code == 2
    assert "--column 'image=lfd Nr'" in result.out
    assert call(*names, "--column=image=lfd Nr", *ANSWERS, folder=tmp_path).code == 0
    table: dict[str, Any] = yaml.safe_load((tmp_path / "site_configs/hospital.yaml").read_text(encoding="utf-8"))
    assert table["table"]["images"]["path"] == "IMG_{image}"


def test_name_of_several_films_is_refused(tmp_path: Path) -> None:
    """Two films of a case differ behind its number: none of them is taken."""
    place = Place(tmp_path)
    numbers = {film.name: CASES[FILMS[n // 2].name].replace("/", "-") for n, film in enumerate(FILMS)}
    ends = {film.name: "ab"[n % 2] for n, film in enumerate(FILMS)}
    place.pictures(FILMS, lambda film: f"Bilder/{numbers[film.name]}_{ends[film.name]}.png")
    place.save([write_row(n) for n in range(len(FILMS) // 2)])
    result = call("site", "new", "h", "--images", "Bilder", "--labels", "labels.csv", "--no-input", folder=tmp_path)
    assert result.code == 2
    assert "image column: no column" in result.out


def test_interrupted_call_resumes_nothing(describe: Callable[..., Called], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(new, "_draft", stop)
    result = describe()
    assert result.code == 130
    assert "resume" not in result.err
