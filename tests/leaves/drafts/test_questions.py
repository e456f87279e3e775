"""What `chestfed site new` asks, refuses and writes: one list of open questions, and nothing guessed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from chestfed.core.errors import ConfigError, SiteError
from chestfed.data.sites import load_site_config, open_site
from chestfed.data.sites.tables.codebook import read_book
from chestfed.leaves.drafts import command as new
from chestfed.reports.pages.site_report.meanings import describe_words
from tests.command_line import Called, call
from tests.leaves.drafts.campaign.maker import DISEASES, EN, NAMES, Place, Row, make_films, wide


@pytest.fixture
def bring(tmp_path: Path) -> Callable[..., Callable[..., Called]]:
    """Writes a wide table whose rows are changed, and calls `site new` on it."""

    def write(change: Callable[[Row, int], Row] = lambda cells, n: cells, **how: Any) -> Callable[..., Called]:
        place, made = Place(tmp_path), make_films(doubt=False)
        place.pictures(made)
        place.save([change(cells, n) for n, cells in enumerate(wide(made, **how))])
        names = ("--images", "images", "--labels", "labels.csv", "--no-input")
        return lambda *options: call("site", "new", "hospital", *names, *options, folder=tmp_path)

    return write


Bring = Callable[..., Callable[..., Called]]


def read_site(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "site_configs/hospital.yaml").read_text(encoding="utf-8"))


def test_certain_table_needs_no_answer(bring: Bring, tmp_path: Path) -> None:
    assert bring()().code == 0
    table = read_site(tmp_path)["table"]
    assert table["columns"]["split"] == "Split"
    config = load_site_config(tmp_path / "site_configs/hospital.yaml")
    assert len(open_site(config, tmp_path).frame) == 30


def test_everything_open_is_listed_at_once(bring: Bring, tmp_path: Path) -> None:
    def change(cells: Row, n: int) -> Row:
        cells = {"Code": cells.pop("Patient"), **cells, "cohort": "ABC"[n % 3]}
        cells |= {"Edema": 2 if cells["Edema"] == "yes" else 1, "BodyPart": ("CHEST", "RIB")[n % 2]}
        return {name: cell for name, cell in cells.items() if name != "Split"}

    result = bring(change)()
    assert result.code == 2
    for text in ("--column patient=Code", "cohort:a=", "labels:2=", "BodyPart:", "--column patient=none"):
        assert text in result.out
    assert not (tmp_path / "site_configs/hospital.yaml").exists()
    codes, problems = read_book(tmp_path / "site_configs/hospital.codes.csv")
    assert not problems
    assert {code.kind for code in codes if not code.is_known} == {"label"}


def test_hospital_without_a_split_is_asked(bring: Bring, tmp_path: Path) -> None:
    result = bring(roles=("view",))
    assert "--test-fraction 0.2" in result().out
    assert result("--test-fraction", "0.2").code == 0
    assert read_site(tmp_path)["splits"]["test_fraction"] == 0.2


def test_blanks_show_both_counts(bring: Bring) -> None:
    run = bring(lambda cells, n: {**cells, "Edema": cells["Edema"] if n % 2 else None})
    text = " ".join(run().out.split())
    used = [(n, film) for n, film in enumerate(make_films(doubt=False)) if film.view != "lateral"]
    told = [film.findings["edema"] for n, film in used if n % 2]
    positives = sum(value == 1 for value in told)
    assert f"edema {positives}/{len(told) - positives} or {positives}/{len(used) - positives}" in text
    assert run("--blank", "missing").code == 0


def assert_counts_as_opened(text: str, folder: Path) -> None:
    """The counts that are printed of edema are those of the rows that the site then has."""
    labels = open_site(load_site_config(folder / "site_configs/hospital.yaml"), folder).frame["edema"]
    assert f"[{(labels == 1).sum()} positive, {(labels == 0).sum()} negative]" in text


@pytest.mark.parametrize("key", ["", "views=[pa, ap, unknown]", "views=all", "default_view=pa"])
def test_rows_without_a_view_count_if_used(bring: Bring, tmp_path: Path, key: str) -> None:
    run = bring(lambda cells, n: {**cells, "View": (None, "n/a", cells["View"], cells["View"])[n % 4]})
    result = run(*(["--set", key] if key else []))
    assert result.code == 0
    assert_counts_as_opened(result.out, tmp_path)
    assert ("no known view" in " ".join(result.out.split())) == (not key)


def test_views_in_the_path_are_counted(tmp_path: Path) -> None:
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made, lambda film: f"images/{film.view}/{film.file}")
    place.save(wide(made, roles=("split",)))
    names = ("--images", "images", "--labels", "labels.csv", "--no-input", "--set", "from_path=^(?P<view>[^/]+)/")
    result = call("site", "new", "hospital", *names, folder=tmp_path)
    assert result.code == 0
    assert_counts_as_opened(result.out, tmp_path)


def test_number_needs_all_numbers(bring: Bring, tmp_path: Path) -> None:
    """One number other than 0 and 1: what 0 and 1 mean is asked too."""
    run = bring(codes={1: 2, 0: 1})
    assert run("--code", "2=positive").code == 2
    assert run("--code", "2=positive", "--code", "1=negative").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert 0 < frame["edema"].mean() < 1


def test_next_call_continues_from_the_book(bring: Bring, tmp_path: Path) -> None:
    run = bring(codes={1: "P", 0: "A"})
    assert run().code == 2
    book = tmp_path / "site_configs/hospital.codes.csv"
    text = book.read_text(encoding="utf-8")
    lines = [
        line.rstrip(",") + {"p": ",positive,yes", "a": ",negative,yes"}[line.split(",")[2]]
        if line.startswith(",label,")
        else line
        for line in text.splitlines()
    ]
    book.write_text("\n".join(lines), encoding="utf-8")
    assert run().code == 0
    book.write_text(book.read_text(encoding="utf-8").replace(",positive,yes", ",perhaps,yes"), encoding="utf-8")
    assert isinstance(run("--force").code, int)
    with pytest.raises(SiteError):
        new._read_book("hospital", tmp_path / "site_configs")


def test_dates_are_no_patients(bring: Bring) -> None:
    result = bring(lambda cells, n: {**cells, "Patient": f"2026-01-{n % 20 + 1:02d}"})()
    assert result.code == 2
    assert "dates" in result.out


@pytest.mark.parametrize(
    "options",
    [
        ("--column", "picture=File"),
        ("--column", "image=Nowhere"),
        ("--label", "cardiomgaly=Edema"),
        ("--label", "edema"),
        ("--code", "2=perhaps"),
        ("--code", "view:nowhere=pa"),
        ("--set", "colour=blue"),
        ("--set", "rows.colour=drop"),
        ("--set", "views=pa"),
        ("--set", "views=[pa, sideways]"),
        ("--set", "header_row=x"),
        ("--set", "from_path=("),
        ("--labels", "nowhere.csv"),
    ],
)
def test_answers_that_do_not_fit_are_refused(bring: Bring, tmp_path: Path, options: tuple[str, str]) -> None:
    assert bring()(*options).code == 1
    assert not (tmp_path / "site_configs/hospital.yaml").exists()


def test_no_patient_is_named(bring: Bring, tmp_path: Path) -> None:
    """Cells of few rows may be names: they are in the book, and nowhere else."""
    run = bring(lambda cells, n: {**cells, "Edema": "Zappa Frank" if n == 3 else cells["Edema"], "Remark": "Zappa"})
    result = run()
    assert result.code == 2
    assert "zappa" not in result.out.casefold()
    assert "zappa" in (tmp_path / "site_configs/hospital.codes.csv").read_text(encoding="utf-8")
    assert run("--code", "zappa frank=missing").code == 0
    text = (tmp_path / "site_configs/hospital.yaml").read_text(encoding="utf-8")
    assert not any(film.patient in text or film.name in text for film in make_films())


def test_existing_yaml_is_kept(bring: Bring, tmp_path: Path) -> None:
    run, path = bring(), tmp_path / "site_configs/hospital.yaml"
    assert run().code == 0
    assert run().code == 1
    edited = path.read_text(encoding="utf-8").replace("uncertain: missing", "uncertain: positive")
    path.write_text(edited, encoding="utf-8")
    assert run("--force").code == 0
    assert path.with_name("hospital.earlier.yaml").read_text(encoding="utf-8") == edited


def test_terminal_answers_become_options(bring: Bring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"columns": [], "labels": [], "codes": [], "keys": []}
    new.add_options(options, "--column 'image=A B' (why) ...")
    new.add_options(options, "--label edema=x --label edema=y --blank missing --no-split --test-fraction 0.3")
    assert options["columns"] == ["image=A B"]
    assert options["labels"] == ["edema=x", "edema=y"]
    assert (options["blank"], options["no_split"], options["test_fraction"]) == ("missing", True, 0.3)
    for wrong in ("7", "--column 'patient=A", "--test-fraction some", "--blank"):
        with pytest.raises(ConfigError):
            new.add_options(options, wrong)
    new.add_options(options, "--column 'ignore=Edema (0/1)' (nothing of these: the patient's)")
    assert options["columns"][-1] == "ignore=Edema (0/1)"
    bring(roles=("view",))
    monkeypatch.setattr(new, "is_terminal", lambda: True)
    monkeypatch.setattr(new.typer, "prompt", lambda text: "1")
    names = ("--images", "images", "--labels", "labels.csv")
    assert call("site", "new", "hospital", *names, folder=tmp_path).code == 0
    assert read_site(tmp_path)["splits"]["test_fraction"] == 0.2


def test_short_name_is_proposed(tmp_path: Path) -> None:
    Place(tmp_path).png("images/a.png")
    result = call("site", "new", "St. Anne", "--images", "images", "--no-input", folder=tmp_path)
    assert result.code == 1
    assert "st-anne" in result.err


def test_patient_in_two_splits_is_reported(bring: Bring, tmp_path: Path) -> None:
    result = bring(lambda cells, n: {**cells, "Split": ("train", "test")[n % 2]})()
    assert result.code == 1
    assert "patient in two splits" in result.err
    assert (tmp_path / "site_configs/hospital.yaml").exists()


def test_columns_of_one_disease_are_asked(bring: Bring) -> None:
    run = bring(lambda cells, n: {**cells, "Effusion": "no" if cells["Pleural Effusion"] == "yes" else "yes"})
    result = run()
    assert result.code == 2
    assert "differ in 36 of 36 rows" in " ".join(result.out.split())
    assert EN["pleural_effusion"] in result.out


def vote(cells: Row, n: int, *readers: str) -> Row:
    votes = {f"{name}_{reader}": (n + len(reader)) % 2 for name in ("edema", "mass") for reader in readers}
    return {**{name: cells[name] for name in ("File", "Patient", "View", "Split")}, **votes}


def test_votes_of_readers_are_asked(bring: Bring, tmp_path: Path) -> None:
    run = bring(lambda cells, n: vote(cells, n, "r1", "r22"))
    result = run()
    assert result.code == 2
    assert all(f"--raters {rule}" in result.out for rule in ("majority", "any", "all", "1", "22"))
    assert run("--raters", "all", "--set", "one_class=all").code == 0
    assert read_site(tmp_path)["table"]["raters"] == "all"


def test_consensus_goes_before_readers(bring: Bring, tmp_path: Path) -> None:
    run = bring(lambda cells, n: vote(cells, n, "r1", "r2", "r3", "consensus"))
    result = run()
    assert result.code == 0
    assert "not read: edema_r1, mass_r1, edema_r2, mass_r2, edema_r3, mass_r3" in " ".join(result.out.split())
    assert read_site(tmp_path)["labels"]["edema"] == ["edema_consensus"]


def test_folders_of_views_are_asked(tmp_path: Path) -> None:
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made, lambda film: f"images/{film.view}/{film.file}")
    place.save(wide(made, roles=("split",)))
    names = ("--images", "images", "--labels", "labels.csv", "--no-input")
    assert call("site", "new", "hospital", *names, folder=tmp_path).code == 2
    pattern = "from_path=^(?P<view>[^/]+)/"
    assert call("site", "new", "hospital", *names, "--set", pattern, folder=tmp_path).code == 0
    config = load_site_config(tmp_path / "site_configs/hospital.yaml")
    assert len(open_site(config, tmp_path).frame) == sum(film.view != "lateral" for film in made)


@pytest.mark.parametrize(
    "change",
    [
        lambda cells, n: {**cells, "Patient": cells["Patient"].lower() if n % 2 else cells["Patient"]},
        lambda cells, n: {**cells, "Mass (0/1)": n % 2},
    ],
    ids=["spellings", "unused"],
)
def test_silent_losses_are_asked(bring: Bring, change: Any) -> None:
    assert bring(change)().code == 2


def test_kind_of_examination_is_no_study(bring: Bring, tmp_path: Path) -> None:
    result = bring(lambda cells, n: {**cells, "Exam code": f"RX{n % 12 // 4}"})()
    assert result.code == 2
    assert "'ignore=Exam code'" in result.out
    assert bring(lambda cells, n: {**cells, "Exam no": f"RX{n % 12 // 4}"})().code == 0
    assert read_site(tmp_path)["table"]["columns"]["study"] == "Exam no"


def test_code_of_another_column_is_refused(bring: Bring) -> None:
    """A value that only rows left out have needs no code, and a code for it must be about its column."""
    run = bring(lambda cells, n: {**cells, "exclude": n % 2, "Edema": 7 if n % 2 else cells["Edema"]})
    filters = ("--code=exclude:1=drop", "--code=exclude:0=keep")
    assert run(*filters, "--code=Edema:7=missing", "--code=7=missing").code == 0
    for code in ("Consolidation:7=missing", "view:7=pa", f"Edema:{make_films(doubt=False)[1].age}=missing"):
        assert run(*filters, f"--code={code}", "--force").code == 1


@pytest.mark.parametrize("between", [" ", "; "])
def test_line_of_pandas_names_the_files(tmp_path: Path, between: str) -> None:
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made)
    pairs = [between.join(film.file for film in made[n : n + 2]) for n in range(0, len(made), 2)]
    place.save([{"Image file": pair, **cells} for pair, cells in zip(pairs, wide(made[::2]), strict=True)])
    names = ("--images", "images", "--labels", "labels.csv", "--no-input", "--column", "image=Image file")
    result = call("site", "new", "hospital", *names, folder=tmp_path)
    assert result.code == 2
    line = " ".join(result.out.split()).split("convert it with pandas: ")[1].split(" (docs/")[0]
    frame = eval(line, {"frame": pd.read_csv(tmp_path / "labels.csv", dtype=str)})
    assert frame["Image file"].tolist() == [film.file for film in made]


def test_names_in_other_capitals_are_not_cut(tmp_path: Path) -> None:
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made, lambda film: f"images/X-{film.name}.png")
    place.save(wide(made, file=lambda film: f"x-{film.file}"))
    names = ("--images", "images", "--labels", "labels.csv", "--no-input")
    result = call("site", "new", "hospital", *names, folder=tmp_path)
    assert result.code == 2
    assert ".str.split(" not in result.out


@pytest.mark.slow_but("exclude")
@pytest.mark.parametrize("name", ["exclude", "consent", "Einwilligung", "qualité", "BodyPart"])
def test_column_of_few_values_is_asked(bring: Bring, tmp_path: Path, name: str) -> None:
    """Whatever it is called, it may say which rows must not be used."""
    run = bring(lambda cells, n: {**cells, name: ("q", "z", None)[n % 3]})
    result = run()
    assert result.code == 2
    assert f"'{name}': (empty) (12), q (12), z (12)" in " ".join(result.out.split())
    assert not (tmp_path / "site_configs/hospital.yaml").exists()
    assert run("--column", f"ignore={name}").code == 0
    assert read_site(tmp_path)["table"]["ignore"] == [name]
    codes = (f"--code={name}:{value}" for value in ("q=keep", "z=drop", "(empty)=drop"))
    result = run(*codes, "--force")
    assert result.code == 0
    config = load_site_config(tmp_path / "site_configs/hospital.yaml")
    table = open_site(config, tmp_path)
    assert set(table.frame["row"] % 3) == {2}
    assert table.columns[name] == "filter"


def test_column_without_a_role_is_listed(bring: Bring, tmp_path: Path) -> None:
    result = bring(lambda cells, n: {**cells, "Remark": f"text {n}", "kV": 110})()
    assert result.code == 0
    assert "not read: Remark (36 different values), kV (one value)" in " ".join(result.out.split())
    columns = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).columns
    assert [name for name, role in columns.items() if not role] == ["Remark", "kV"]


def test_quiet_prints_what_is_open(bring: Bring, tmp_path: Path) -> None:
    bring(lambda cells, n: {**cells, "exclude": n % 2})
    names = ("--images", "images", "--labels", "labels.csv", "--no-input")
    result = call("site", "new", "hospital", *names, "--quiet", folder=tmp_path)
    assert result.code == 2
    assert "'exclude'" in result.err
    assert not result.out.strip()


def test_ignored_column_has_to_exist(bring: Bring) -> None:
    assert bring()("--column", "ignore=Remark").code == 1


def test_examination_is_not_the_patient(bring: Bring, tmp_path: Path) -> None:
    """A column called like the patient's, one value per image, beside one that groups the images."""

    def change(cells: Row, n: int) -> Row:
        return {**cells, "Patient": f"E{n}", "pseudonym": f"{n // 2}-x"}

    run = bring(change)
    result = run()
    assert result.code == 2
    assert "--column patient=pseudonym" in result.out
    assert run("--column", "patient=pseudonym").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert (frame.groupby("patient").size() <= 2).all()


@pytest.mark.slow_but("Zentrum", "prefix")
@pytest.mark.parametrize("center", ["Zentrum", "country", "folder", "prefix"])
def test_centers_that_number_alike_are_asked(tmp_path: Path, center: str) -> None:
    place, made = Place(tmp_path), make_films(40, doubt=False, lateral=False)
    names = {film.name: ("BER", "MUC")[n >= 20] for n, film in enumerate(made)}
    signs = {"folder": "/", "prefix": "_"}
    places = {film.name: names[film.name] + signs[center] if center in signs else "" for film in made}
    place.pictures(made, lambda film: f"images/{places[film.name]}{film.file}")
    rows = [{**cells, "Patient": n // 2 % 10} for n, cells in enumerate(wide(made, roles=("view", "age")))]
    if center == "prefix":
        rows = [{**cells, "Bild": f"{places[film.name]}{film.file}"} for cells, film in zip(rows, made, strict=True)]
    if center not in signs:
        rows = [{**cells, center: name} for cells, name in zip(rows, names.values(), strict=True)]
    place.save(rows)
    options = ("--images", "images", "--labels", "labels.csv", "--no-input", "--no-split")
    result = call("site", "new", "hospital", *options, folder=tmp_path)
    assert result.code == 2
    assert f"--column site={center}" in result.out
    assert call("site", "new", "hospital", *options, "--column", f"site={center}", folder=tmp_path).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["patient"].nunique() == 20


def test_number_with_dots_is_a_spelling(bring: Bring) -> None:
    result = bring(lambda cells, n: {**cells, "Patient": f"1.{n // 2:03}" if n % 2 else f"1{n // 2:03}"})()
    assert result.code == 2
    assert "written in several ways" in " ".join(result.out.split())


def test_test_set_goes_before_the_drawn_one(bring: Bring, tmp_path: Path) -> None:
    """A column that may be the split is asked about although a share is given, and a known one too."""

    def change(cells: Row, n: int) -> Row:
        split = cells.pop("Split")
        return {**cells, "is_holdout": int(split == "test")}

    run, drawn = bring(change), ("--test-fraction", "0.2")
    result = run(*drawn)
    assert result.code == 2
    answer = "--column split=is_holdout --code split:0=train --code split:1=test --test-fraction 0"
    assert answer in " ".join(result.out.split())
    assert run(*drawn, *answer.split()).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    films = {film.file: film.split for film in make_films(doubt=False)}
    assert frame["split"].tolist() == [films[image.rpartition("/")[2]] for image in frame["image"]]
    known = bring()
    assert known(*drawn, "--force").code == 2
    assert known("--test-fraction", "0", "--force").code == 0


@pytest.mark.slow_but("New {}")
@pytest.mark.parametrize("kind", ["New {}", "Left {}", "stable {}", "{} basal", "Akute {}"])
def test_kind_denies_no_disease(bring: Bring, tmp_path: Path, kind: str) -> None:
    name = kind.format("pleural effusion")

    def change(cells: Row, n: int) -> Row:
        present = int(cells.pop("Pleural Effusion") == "yes")
        return {**cells, name: present}

    run = bring(change)
    result = run()
    assert result.code == 2
    answers = [f"--label=pleural_effusion={name}", f"--code={name}:0=missing", "--set=one_class=[pleural_effusion]"]
    assert f"'{name}:0=missing'" in " ".join(result.out.split())
    assert run(*answers).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert set(frame["pleural_effusion"].dropna()) == {1}
    assert frame["pleural_effusion"].isna().any()


def test_sides_together_are_the_disease(bring: Bring, tmp_path: Path) -> None:
    def change(cells: Row, n: int) -> Row:
        sides = {
            f"{side} pleural effusion": cells["Pleural Effusion"] if (side == "Left") == bool(n % 2) else "no"
            for side in ("Left", "Right")
        }
        return {name: cell for name, cell in {**cells, **sides}.items() if name != "Pleural Effusion"}

    assert bring(change)().code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert set(frame["pleural_effusion"]) == {0, 1}


@pytest.mark.slow_but("k.A.")
@pytest.mark.parametrize("word", ["n/a", "NA", "N.A.", "null", "k.A.", "NaN"])
def test_no_answer_is_not_absence(bring: Bring, tmp_path: Path, word: str) -> None:
    """Beside empty cells it is missing, whatever an empty cell means; without any it is asked about."""

    def change(cells: Row, n: int) -> Row:
        return {**cells, "Edema": (word, None, "yes", "no")[n % 4]}

    assert bring(change)("--blank", "negative").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert set((frame["row"][frame["edema"].isna()] - 2) % 4) == {0}
    assert frame["edema"].notna().sum() > 20


@pytest.mark.slow
def test_no_answer_without_empty_cells_is_asked(bring: Bring) -> None:
    result = bring(lambda cells, n: {**cells, "Edema": ("k.A.", "yes", "no")[n % 3]})("--blank", "negative")
    assert result.code == 2
    assert "labels:k.a.=missing" in result.out


def test_totals_and_copies_are_left_out(tmp_path: Path) -> None:
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made)
    rows = wide(made)
    place.save([*rows, rows[3], {**dict.fromkeys(rows[0]), "File": "Total", "Edema": 12}])
    names = ("--images", "images", "--labels", "labels.csv", "--no-input")
    assert call("site", "new", "hospital", *names, folder=tmp_path).code == 0
    assert read_site(tmp_path)["rows"] == {"total": "drop", "duplicate": "drop"}


@pytest.mark.slow
def test_joint_label_is_no_annotator(bring: Bring, tmp_path: Path) -> None:
    """A column `edema_consensus` beside votes is neither a vote nor overlooked: a person says which count."""

    def change(cells: Row, n: int) -> Row:
        votes = {f"edema_r{k}": ("no", "yes")[(n + k) % 4 < 2] for k in (1, 2, 3)}
        votes |= {f"effusion_r{k}": ("no", "yes")[(n + k) % 4 < 2] for k in (1, 2, 3)}
        joint = {"edema_consensus": ("yes", "no")[n % 2]}
        return {name: cells[name] for name in ("File", "Patient", "View", "Split")} | votes | joint

    run = bring(change)
    result = run()
    assert result.code == 2
    assert "--label edema=edema_consensus" in result.out
    ignored = [f"--column=ignore=edema_r{k}" for k in (1, 2, 3)]
    assert run("--label", "edema=edema_consensus", "--raters", "majority", *ignored).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["edema"].tolist() == [float(row % 2 == 0) for row in frame["row"]]
    assert read_site(tmp_path)["labels"]["pleural_effusion"] == ["effusion_r{reader}"]
    assert run("--raters", "majority", "--force", "--column", "ignore=edema_consensus").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["edema"].tolist() == [float((row - 2) % 4 >= 2) for row in frame["row"]]


def test_column_like_votes_is_asked(bring: Bring) -> None:
    def change(cells: Row, n: int) -> Row:
        names = [f"{name}_{who}" for name in ("edema", "effusion") for who in ("reader1", "reader2", "reader_final")]
        votes = dict.fromkeys(names, ("no", "yes")[n % 2])
        return {name: cells[name] for name in ("File", "Patient", "View", "Split")} | votes

    result = bring(change)("--raters", "any")
    assert result.code == 2
    assert "edema_reader_final" in result.out


@pytest.mark.slow_but("{:.1f} %-50")
@pytest.mark.parametrize(("form", "half"), [("{:.1f} %", 50), ("{:.1f}", 50), ("{:.0f}%", 50)])
def test_percent_is_read_as_it_is_counted(bring: Bring, tmp_path: Path, form: str, half: int) -> None:
    """The proposed threshold has the unit of the cells, and the counts shown are those of the site."""

    def change(cells: Row, n: int) -> Row:
        return {**cells, "Edema": form.format(1.7 + 3.1 * n).replace(".", ",")}

    run = bring(change)
    result = run()
    assert f"--set threshold={half}" in result.out
    result = run("--set", f"threshold={half}")
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    positives = int(frame["edema"].sum())
    assert f"[{positives} positive, {len(frame) - positives} negative]" in result.out
    assert frame["edema"].tolist() == [float(1.7 + 3.1 * (row - 2) >= 50) for row in frame["row"]]


@pytest.mark.slow
def test_one_side_is_no_annotator(bring: Bring, tmp_path: Path) -> None:
    def change(cells: Row, n: int) -> Row:
        sides = {f"Edema_{side}": ("no", "yes")[n % 2] for side in ("r", "l")}
        return {name: cells[name] for name in ("File", "Patient", "View", "Split", "Cardiomegaly")} | sides

    run, labels = bring(change), ("--label", "edema=Edema_r", "--label", "edema=Edema_l")
    result = run()
    assert result.code == 2
    assert "--raters" not in result.out
    assert " ".join(labels) in " ".join(result.out.split())
    assert run(*labels).code == 0
    assert read_site(tmp_path)["labels"]["edema"] == ["Edema_r", "Edema_l"]


def test_words_in_the_path_are_asked(bring: Bring, tmp_path: Path) -> None:
    """What `from_path` takes from the names of the images goes into the code book like the cells of a column."""
    run = bring(roles=("split",))
    option = ("--set", r"from_path=(?P<view>\d)\.png$")
    result = run(*option)
    assert result.code == 2
    assert "--code view:0=" in result.out
    codes = [f"--code=view:{digit}={'lateral' if digit == 9 else 'pa'}" for digit in range(10)]
    assert run(*option, *codes).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert set(frame["view"]) == {"pa"}
    assert not frame["image"].str.contains(r"9\.png$").any()


@pytest.mark.slow
def test_header_below_a_title_is_found(tmp_path: Path) -> None:
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made)
    rows = wide(made)
    lines = ["Radiographs of 2024", ",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (tmp_path / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    names = ("--images", "images", "--labels", "labels.csv", "--no-input")
    result = call("site", "new", "hospital", *names, folder=tmp_path)
    assert result.code == 0
    assert "header_row" in result.out
    assert call("site", "new", "hospital", *names, "--set", "header_row=2", "--force", folder=tmp_path).code == 0


def test_printed_pattern_must_be_filled_in(tmp_path: Path) -> None:
    """The option as it is printed must not take any three letters of the names for the patients."""
    made = make_films(doubt=False)
    folders = ("NORMAL", "PNEUMONIA")
    Place(tmp_path).pictures(made, lambda film: f"images/{folders[film.findings['edema'] == 1]}/{film.file}")
    names = ("site", "new", "hospital", "--images", "images", "--no-input", "--no-split")
    out = call(*names, folder=tmp_path).out
    pattern = next(line.split("'")[1] for line in out.splitlines() if "--set 'from_path=" in line)
    result = call(*names, "--set", pattern, folder=tmp_path)
    assert result.code == 2
    assert "from_path does not fit" in result.out
    assert call(*names, "--set", "from_path=(", folder=tmp_path).code == 1
    assert call(*names, "--set", "from_path=(?P<patient>.)", folder=tmp_path).code == 1


def test_program_is_no_annotator(bring: Bring, tmp_path: Path) -> None:
    """Of a radiologist's and a program's columns a person says which count; they are not joined."""

    def change(cells: Row, n: int) -> Row:
        answers = {f"{name}_radiologist": ("no", "yes")[n % 2] for name in ("edema", "effusion")}
        answers |= {f"{name}_AI": ("no", "yes")[n % 3 == 0] for name in ("edema", "effusion")}
        return {name: cells[name] for name in ("File", "Patient", "View", "Split")} | answers

    run = bring(change)
    assert run().code == 2
    ignored = ("--column=ignore=edema_AI", "--column=ignore=effusion_radiologist")
    assert run("--label", "edema=edema_radiologist", "--label", "pleural_effusion=effusion_AI", *ignored).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["edema"].tolist() == [float(row % 2) for row in frame["row"]]
    assert frame["pleural_effusion"].tolist() == [float((row - 2) % 3 == 0) for row in frame["row"]]


def test_facts_of_dropped_rows_are_shown(tmp_path: Path) -> None:
    """Ages in rows without an image, as in REDCap's base rows, are not announced as the site's ages."""
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made)
    rows: list[Row] = []
    for cells in wide(made):
        rows += [{name: cells[name] if name in ("Patient", "Age") else None for name in cells}, {**cells, "Age": None}]
    place.save(rows)
    names = ("--images", "images", "--labels", "labels.csv", "--no-input", "--set", "rows.unnamed=drop")
    result = call("site", "new", "hospital", *names, folder=tmp_path)
    assert result.code == 0
    assert "only rows without an image have Age" in " ".join(result.out.split())
    assert "age" not in read_site(tmp_path)["table"]["columns"]


@pytest.mark.slow
def test_program_is_no_vote_beside_votes(bring: Bring, tmp_path: Path) -> None:
    """With a rule for annotators, their columns vote and the program's does not; it is listed."""

    def change(cells: Row, n: int) -> Row:
        votes = {f"{name}_{who}": ("no", "yes")[n % 2] for name in ("edema", "effusion") for who in ("r1", "r2")}
        votes |= {f"{name}_AI": ("no", "yes")[n % 3 == 0] for name in ("edema", "effusion")}
        return {name: cells[name] for name in ("File", "Patient", "View", "Split")} | votes

    run = bring(change)
    assert run().code == 2
    assert run("--raters", "all").code == 2
    assert run("--raters", "all", "--column", "ignore=edema_AI", "--column", "ignore=effusion_AI").code == 0
    assert "edema_AI" not in str(read_site(tmp_path)["labels"])
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["edema"].tolist() == [float(row % 2) for row in frame["row"]]


def test_constant_label_is_one_class(bring: Bring, tmp_path: Path) -> None:
    run = bring(lambda cells, n: {name: cell for name, cell in cells.items() if name not in NAMES})
    assert "--label DISEASE=all" in run().out
    assert run("--label", "covid_19=all", "--label", "pneumonia=all").code == 0
    config = load_site_config(tmp_path / "site_configs/hospital.yaml")
    frame = open_site(config, tmp_path).frame
    assert (frame[["covid_19", "pneumonia"]] == 1).all(axis=None)
    assert describe_words(config)["covid_19"] == "every image is positive"


@pytest.mark.slow
def test_constant_stands_beside_columns(bring: Bring, tmp_path: Path) -> None:
    assert bring()("--label", "covid_19=all").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert (frame["covid_19"] == 1).all()
    assert 0 < frame["edema"].mean() < 1


def test_folder_of_one_class_needs_no_table(tmp_path: Path) -> None:
    Place(tmp_path).png(*(f"images/a/{name}.png" for name in ("anna_1", "anna_2", "bert_1")))
    names = ("--images", "images", "--no-split", "--no-input", "--label", "covid_19=all")
    assert "--column patient=prefix" in call("site", "new", "hospital", *names, folder=tmp_path).out
    assert call("site", "new", "hospital", *names, "--column", "patient=prefix", folder=tmp_path).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["patient"].tolist() == ["anna", "anna", "bert"]
    assert (frame["covid_19"] == 1).all()


def test_scores_beside_findings_are_asked(tmp_path: Path) -> None:
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made)
    place.save(
        [
            {"File": film.file, "Patient": film.patient, "Finding": disease, "score": film.findings[disease]}
            for film in made
            for disease in DISEASES
        ]
    )
    names = ("--images", "images", "--labels", "labels.csv", "--no-input", "--no-split", "--blank", "missing")
    assert "--column value=score" in call("site", "new", "hospital", *names, folder=tmp_path).out
    assert call("site", "new", "hospital", *names, "--column", "value=score", folder=tmp_path).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert all(0 < frame[disease].mean() < 1 for disease in DISEASES)


def test_names_before_conversion_are_matched(bring: Bring, tmp_path: Path) -> None:
    """The table has the names of the DICOM files that the folder's PNG files were made of."""
    assert bring(lambda cells, n: {**cells, "File": str(cells["File"]).replace(".png", ".dcm")})().code == 0
    assert read_site(tmp_path)["table"]["images"]["suffix"] == "any"


def run_line(out: str, table: Path, column: str) -> pd.DataFrame:
    """The table after the printed line of pandas."""
    text = " ".join(out.split())
    line = text[text.index(f"pandas: frame['{column}']") :].removeprefix("pandas: ").split(" (docs/convert.md)")[0]
    frame = pd.read_csv(table, dtype=str)
    exec(line, {"pd": pd, "frame": frame})
    return frame


@pytest.mark.parametrize(
    ("form", "more"),
    [("%d.%m.%Y", ""), ("%m/%d/%Y", ""), ("%d.%m.%Y %H:%M", ""), ("%Y/%m/%d", ""), ("%d.%m.%Y", "01.03.49")],
)
def test_dates_of_birth_give_ages(bring: Bring, tmp_path: Path, form: str, more: str) -> None:
    def change(cells: Row, n: int) -> Row:
        taken = pd.Timestamp(2026, 1, n % 28 + 1).strftime(form)
        return {**cells, "Age": pd.Timestamp(1949, 3, n % 28 + 1).strftime("%d.%m.%Y"), "Exam": taken}

    run = bring(lambda cells, n: change(cells, n) | ({"Age": more} if more and n == 5 else {}))
    words = ["--column", "birth=Age", "--column", "date=Exam"]
    assert " ".join(words) in " ".join(run().out.split())
    result = run(*words)
    assert result.code == 0, result.err
    table = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path)
    assert set(table.frame["age"].dropna()) == {76}
    assert any("no age for 1 row:" in note for note in table.notes) == bool(more)


@pytest.mark.parametrize("forms", [("HC-", "hc "), ("HC-", "hc-"), ("7", "07"), ("HC-", "HC-0")])
def test_line_for_patients_makes_them_alike(bring: Bring, tmp_path: Path, forms: tuple[str, str]) -> None:
    out = bring(lambda cells, n: {**cells, "Patient": f"{forms[n % 2]}{n // 2:04}"})().out
    patients = run_line(out, tmp_path / "labels.csv", "Patient")["Patient"]
    assert patients.nunique() == 18
    assert patients.str.startswith(forms[0]).all()


@pytest.mark.parametrize("words", [("m", "w"), ("M", "F"), ("male", "female")])
def test_sexes_of_any_column_are_offered(bring: Bring, tmp_path: Path, words: tuple[str, str]) -> None:
    sexes = ["M", "F"]
    run = bring(lambda cells, n: {**{k: v for k, v in cells.items() if k != "Sex"}, "Pat.-G.": words[n // 2 % 2]})
    asked = " ".join(run().out.split())
    assert "--column sex=Pat.-G." in asked
    assert "--column split=Pat.-G." not in asked
    assert run("--column", "sex=Pat.-G.").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert set(frame["sex"]) == set(sexes)


def test_column_of_a_finding_is_offered(bring: Bring) -> None:
    text = " ".join(bring(lambda cells, n: {**cells, "Stauung": ("nein", "V.a.", "ja")[n % 3]})().out.split())
    assert "--label DISEASE=Stauung" in text


def test_repetitions_are_no_differences(bring: Bring, tmp_path: Path) -> None:
    first = wide(make_films(doubt=False))

    def change(cells: Row, n: int) -> Row:
        other = "yes" if first[0]["Edema"] == "no" else "no"
        return {1: {**first[0], "Edema": other}, 3: first[2]}.get(n, cells)

    text = " ".join(bring(change)().out.split())
    assert "1 image with several rows (rows 2, 3) that differ in 'Edema'" in text


def test_spellings_of_patients_are_shown(bring: Bring) -> None:
    out = bring(lambda cells, n: {**cells, "Patient": f"{('HC-', 'hc ')[n % 2]}{n // 2:04}"})(
        "--column", "patient=Patient"
    ).out
    assert "values of 'Patient' are written in several ways" in " ".join(out.split())


def test_patient_without_candidates_is_named(bring: Bring) -> None:
    out = bring(lambda cells, n: {"Story": f"no {n // 2}", **{k: v for k, v in cells.items() if k != "Patient"}})().out
    assert "--column patient=NAME" in out


def test_opposite_column_is_coded_alone(bring: Bring, tmp_path: Path) -> None:
    def change(cells: Row, n: int) -> Row:
        cells |= {name: int(cells[name] == "yes") for name in NAMES}
        normal = 1 - cells.pop("Cardiomegaly")
        return {**cells, "Heart size normal": normal}

    call_new = bring(change)
    given = ("--label", "cardiomegaly=Heart size normal")
    assert "may say that cardiomegaly is absent" in " ".join(call_new(*given, "--out", "plain").out.split())
    codes = (f"--code=Heart size normal:{value}={meaning}" for value, meaning in ((1, "negative"), (0, "positive")))
    assert call_new(*given, *codes).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    opposite = open_site(load_site_config(tmp_path / "plain/hospital.yaml"), tmp_path).frame
    assert (frame["cardiomegaly"] == 1 - opposite["cardiomegaly"]).all()
    assert (frame["edema"] == opposite["edema"]).all()


@pytest.mark.slow
def test_percent_column_beside_0_and_1(bring: Bring, tmp_path: Path) -> None:
    def change(cells: Row, n: int) -> Row:
        cells |= {name: int(cells[name] == "yes") for name in NAMES if name in cells}
        return {**cells, "Edema (%)": (0, 50, 100)[n % 3], "Edema": None}

    run = bring(change)
    assert "{edema: 50}" in run().out
    run("--set", "threshold={edema: 50}")
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["edema"].tolist() == [float((row - 2) % 3 > 0) for row in frame["row"]]
    assert 0 < frame["cardiomegaly"].mean() < 1


def test_left_out_words_are_counted(bring: Bring, tmp_path: Path) -> None:
    def change(cells: Row, n: int) -> Row:
        terms = ("cardiomegaly and zebra lines", "no finding", "edema and effusion")
        return {name: cells[name] for name in ("File", "Patient", "View", "Split")} | {"Findings": terms[n % 3]}

    assert "1 proposed meanings in the label map leave out words" in " ".join(bring(change)().out.split())
    codes, _ = read_book(tmp_path / "site_configs/hospital.codes.csv")
    evidence = {code.value: code.evidence for code in codes if code.kind == "finding"}
    assert "leaves out 'zebra', 'lines'" in evidence["cardiomegaly and zebra lines"]
    assert "leaves out" not in evidence["edema and effusion"]


def test_findings_without_a_row_are_asked(tmp_path: Path) -> None:
    """A row per finding with its state: what an image's missing rows mean is asked, and no code is needed for it."""
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made)
    rows = [
        {"File": film.file, "Patient": film.patient, "Finding": EN[disease], "state": ("new", "gone")[n % 2]}
        for n, film in enumerate(made)
        for disease in DISEASES
        if film.findings[disease] == 1
    ]
    place.save([*rows, {**rows[0], "Finding": "Normal", "File": made[1].file, "Patient": made[1].patient}])
    names = ("--images", "images", "--labels", "labels.csv", "--no-input", "--no-split")
    result = call("site", "new", "hospital", *names, "--column", "value=state", folder=tmp_path)
    assert result.code == 2
    assert "--blank negative" in result.out
    assert "labels:new=" in result.out
    codes = ("--code", "labels:new=positive", "--code", "labels:gone=negative", "--blank", "negative")
    assert call("site", "new", "hospital", *names, "--column", "value=state", *codes, folder=tmp_path).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert not frame[[*DISEASES]].isna().any(axis=None)


@pytest.mark.parametrize(
    ("header", "per_year"), [("Age (months)", 12), ("age_in_days", 365.25), ("Alter Wochen", 52.18)]
)
def test_ages_have_the_unit_of_the_name(bring: Bring, tmp_path: Path, header: str, per_year: float) -> None:
    def change(cells: Row, n: int) -> Row:
        return {**cells, header: int(per_year * (n // 2) + per_year / 2)}

    result = bring(change, roles=("view", "split", "sex"))()
    assert result.code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["age"].tolist() == [(row - 2) // 2 for row in frame["row"]]


def test_ages_that_no_one_reaches_are_asked(bring: Bring) -> None:
    result = bring(lambda cells, n: {**cells, "Age": 700 + n})()
    assert result.code == 2
    assert "--column age=none" in result.out


@pytest.mark.parametrize("word", ["lat", "años", "anni", "jaar", "let", "år"])
def test_ages_have_words_of_units(bring: Bring, tmp_path: Path, word: str) -> None:
    result = bring(lambda cells, n: {**cells, "wiek": f"{30 + n} {word}"}, roles=("view", "split", "sex"))
    assert "if they are ages, --column age=wiek" in " ".join(result().out.split())
    assert result("--column", "age=wiek", "--force").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["age"].tolist() == [28 + row for row in frame["row"]]


def test_ages_of_unknown_units_are_converted(bring: Bring) -> None:
    result = bring(lambda cells, n: {**cells, "wiek": f"{30 + n} urte"})("--column", "age=wiek")
    text = " ".join(result.err.split())
    assert (result.code, "36 of 36 cells are a number and 'urte'" in text) == (1, True)
    assert "frame['wiek'].str.extract(r\"(\\d+)\", expand=False)" in text


def test_ages_of_the_code_book_are_taken(bring: Bring, tmp_path: Path) -> None:
    run = bring(lambda cells, n: {**cells, "wiek": f"{30 + n % 2} urte"})
    options = ("--column", "age=wiek", "--code", "age:30 urte=30", "--code", "age:31 urte=31")
    assert run(*options).code == 0
    book = (tmp_path / "site_configs/hospital.codes.csv").read_text(encoding="utf-8")
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["age"].tolist() == [30 + row % 2 for row in frame["row"]]
    assert run("--column", "age=wiek", "--force").code == 0
    assert (tmp_path / "site_configs/hospital.codes.csv").read_text(encoding="utf-8") == book


@pytest.mark.parametrize("words", [("M", "K"), ("żeńska", "męska")])
def test_words_that_may_be_sexes_are_offered(bring: Bring, words: tuple[str, str]) -> None:
    """Also the column of views that has other words besides."""

    def change(cells: Row, n: int) -> Row:
        view = {"pa": "PA", "ap": "AP leżące", "lateral": "bok"}[str(cells.pop("View")).lower()]
        return {**cells, "płeć": words[n // 2 % 2], "projekcja": view}

    text = " ".join(bring(change, roles=("view", "split", "age"))().out.split())
    assert "--column 'sex=płeć' (the patient's sex)" in text
    assert "--column view=projekcja" in text


def test_role_goes_before_ignore(bring: Bring, tmp_path: Path) -> None:
    run = bring(lambda cells, n: {**cells, "exclude": n % 2})
    result = run("--label", "edema=Edema", "--set", "ignore=[Edema, exclude]")
    assert result.code == 0
    assert "'Edema' is ignored by one option" in result.out
    assert read_site(tmp_path)["table"]["ignore"] == ["exclude"]


@pytest.mark.slow
def test_examination_behind_the_patient_is_asked(bring: Bring) -> None:
    run = bring(lambda cells, n: {**cells, "Patient": f"P{n // 2}_{n % 2}"})
    result = run()
    assert result.code == 2
    assert "rsplit('_', n=1)" in " ".join(result.out.split())
    assert run("--column", "patient=Patient", "--test-fraction", "0").code == 0


@pytest.mark.slow
def test_values_of_lost_rows_need_no_code(tmp_path: Path) -> None:
    """Rows that name no image, and are left out, say nothing of what values mean."""
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made)
    place.save([*wide(made), {**wide(made)[0], "File": "Anzahl", "Edema": 12}])
    names = ("--images", "images", "--labels", "labels.csv", "--no-input", "--set", "rows.missing_image=drop")
    assert call("site", "new", "hospital", *names, folder=tmp_path).code == 0


def test_columns_of_one_name_are_not_used(bring: Bring, tmp_path: Path) -> None:
    run = bring(lambda cells, n: {**cells, "Remark": "nan", "Remark 2": f"text {n}"})
    table = tmp_path / "labels.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("Remark 2", "Remark", 1), encoding="utf-8")
    result = run()
    assert result.code == 0
    assert "2 of 13 columns have no name, or one that others have" in " ".join(result.out.split())


def is_healthy(cells: Row) -> bool:
    return all(cells[name] == "no" for name in NAMES)


#: Column, its cells, and whether they say that a row may have to be used in another way.
FREE = [
    ("No Finding", lambda cells, n: int(is_healthy(cells)), False),
    ("No Finding", lambda cells, n: n % 2, True),
    ("Befund", lambda cells, n: "kein" if is_healthy(cells) else "ja", False),
    ("Spacing[x", lambda cells, n: ("0.168", "0.171", "0.143", "0.139", "0.1943")[n % 5], False),
    ("share", lambda cells, n: ("0.333", "0.667", "1", "0")[n % 4], True),
    ("Modality", lambda cells, n: ("CR", "DX")[n % 2], False),
    ("Modality", lambda cells, n: ("CR", "CT")[n % 2], True),
    ("Frontal/Lateral", lambda cells, n: "Lateral" if cells["View"] == "lateral" else "Frontal", False),
    ("Frontal/Lateral", lambda cells, n: ("Lateral", "Frontal")[n % 2], True),
]


@pytest.mark.slow_but("Befund-<lambda>-False", "share-<lambda>-True")
@pytest.mark.parametrize(("name", "cell", "asked"), FREE)
def test_only_open_columns_are_asked(bring: Bring, name: str, cell: Any, asked: bool) -> None:
    result = bring(lambda cells, n: {**cells, name: cell(cells, n)})()
    assert result.code == (2 if asked else 0)
    assert name in result.out


@pytest.mark.parametrize(
    ("cell", "words"),
    [("1949-03-{:02d}", "36 of 36 cells are dates"), ("194903{:02d}", "are dates"), ("19{:02d}", "calendar years")],
)
def test_dates_of_birth_are_no_ages(bring: Bring, cell: str, words: str) -> None:
    run = bring(lambda cells, n: {**cells, "Age": cell.format(n % 28 + 10), "Exam": f"2026-01-{n % 20 + 1:02d}"})
    result = run()
    text = " ".join(result.out.split())
    assert (result.code, words in text, "--column age=none" in text) == (2, True, True)
    assert ("--column birth=Age --column date=Exam" in text) == ("dates" in words)
    assert run("--column", "age=Age").code == 1
    assert run("--column", "age=none").code == 0


def test_dates_of_birth_are_offered(bring: Bring) -> None:
    born = (f"19{number}-03-04" for number in range(40, 100))
    of_patient: defaultdict[str, str] = defaultdict(lambda: next(born))
    run = bring(
        lambda cells, n: {k: v for k, v in cells.items() if k != "Age"} | {"Born": of_patient[cells["Patient"]]}
    )
    assert "--column date=NAME" in run("--column", "birth=Born", "--column", "date=none").err
    result = run("--column", "date=none")
    assert "if they are dates of birth, --column birth=Born gives ages" in " ".join(result.out.split())


def test_rows_without_a_file_are_named(bring: Bring) -> None:
    result = bring(lambda cells, n: {**cells, "File": "Jane Doe" if n == 7 else cells["File"]})()
    text = " ".join(result.out.split())
    assert "image column 'File': 1 of 36 cells name no file of the folder (row 9)" in text
    assert "Jane" not in text


def test_differing_rows_are_left_out_as_advised(bring: Bring, tmp_path: Path) -> None:
    films = [film.file for film in make_films(doubt=False)]

    def change(cells: Row, n: int) -> Row:  # the second image also has the row of the first, with another label
        edema = "yes" if wide(make_films(doubt=False))[0]["Edema"] == "no" else "no"
        return {**wide(make_films(doubt=False))[0], "Edema": edema} if n == 1 else cells

    run = bring(change)
    text = " ".join(run().out.split())
    assert "(rows 2, 3) that differ in 'Edema'" in text
    assert run("--set", "rows.duplicate=drop", "--set", "rows.contradictory=drop").code == 0
    config = load_site_config(tmp_path / "site_configs/hospital.yaml")
    table = open_site(config, tmp_path)
    assert table.left_out == {"contradictory": 2}
    assert not set(films[:2]) & {Path(name).name for name in table.frame["image"]}


def test_empty_label_column_is_refused(bring: Bring) -> None:
    result = bring(lambda cells, n: {**cells, "Edema": None})("--label", "edema=Edema")
    assert result.code == 1
    assert "--label edema=Edema: all 36 cells are empty" in " ".join(result.err.split())
