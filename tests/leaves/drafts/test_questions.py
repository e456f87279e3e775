"""What `chestfed site new` asks, refuses and writes: one list of open questions, and nothing guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    for text in ("--column patient=Code", "split:a=", "labels:2=", "BodyPart:", "--column patient=none"):
        assert text in result.out
    assert not (tmp_path / "site_configs/hospital.yaml").exists()
    codes, problems = read_book(tmp_path / "site_configs/hospital.codes.csv")
    assert not problems
    assert {code.kind for code in codes if not code.is_known} == {"label", "split", "keep"}


def test_hospital_without_a_split_is_asked(bring: Bring, tmp_path: Path) -> None:
    result = bring(roles=("view",))
    assert "--test-fraction 0.2" in result().out
    assert result("--test-fraction", "0.2").code == 0
    assert read_site(tmp_path)["splits"]["test_fraction"] == 0.2


def test_blanks_show_both_counts(bring: Bring) -> None:
    run = bring(lambda cells, n: {**cells, "Edema": cells["Edema"] if n % 2 else None})
    text = " ".join(run().out.split())
    positives = sum(film.findings["edema"] == 1 for film in make_films(doubt=False)[1::2])
    assert f"edema {positives}/{18 - positives} or {positives}/{36 - positives}" in text
    assert run("--blank", "missing").code == 0


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
    with pytest.raises(ConfigError):
        new.add_options(options, "7")
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
    assert bring(lambda cells, n: vote(cells, n, "r1", "r2", "r3", "consensus"))().code == 0
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


def test_known_body_parts_need_no_answer(bring: Bring, tmp_path: Path) -> None:
    result = bring(lambda cells, n: {**cells, "BodyPart": ("CHEST", "HAND")[n % 3 == 0]})()
    assert result.code == 0
    assert "'hand' (12)" in result.out
    assert len(open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame) == 18


def test_totals_and_copies_are_left_out(tmp_path: Path) -> None:
    place, made = Place(tmp_path), make_films(doubt=False)
    place.pictures(made)
    rows = wide(made)
    place.save([*rows, rows[3], {**dict.fromkeys(rows[0]), "File": "Total", "Edema": 12}])
    names = ("--images", "images", "--labels", "labels.csv", "--no-input")
    assert call("site", "new", "hospital", *names, folder=tmp_path).code == 0
    assert read_site(tmp_path)["rows"] == {"total": "drop", "duplicate": "drop"}


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
    assert run("--label", "edema=edema_consensus", "--raters", "majority").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["edema"].tolist() == [float(row % 2 == 0) for row in frame["row"]]
    assert read_site(tmp_path)["labels"]["pleural_effusion"] == ["effusion_r{reader}"]
    assert run("--raters", "majority", "--force").code == 0
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
    positives = sum(1.7 + 3.1 * n >= 50 for n in range(36))
    assert f"[{positives} positive, {36 - positives} negative]" in result.out
    assert frame["edema"].tolist() == [float(1.7 + 3.1 * (row - 2) >= 50) for row in frame["row"]]


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
    assert run("--label", "edema=edema_radiologist", "--label", "pleural_effusion=effusion_AI").code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    assert frame["edema"].tolist() == [float(row % 2) for row in frame["row"]]
    assert frame["pleural_effusion"].tolist() == [float((row - 2) % 3 == 0) for row in frame["row"]]


def test_unused_columns_are_shown(bring: Bring) -> None:
    result = bring(lambda cells, n: {**cells, "Edema_consensus": ("yes", "no")[n % 2]})()
    assert result.code == 0
    assert "not used: Edema_consensus" in result.out


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


def test_program_is_no_vote_beside_votes(bring: Bring, tmp_path: Path) -> None:
    """With a rule for annotators, their columns vote and the program's does not; it is listed."""

    def change(cells: Row, n: int) -> Row:
        votes = {f"{name}_{who}": ("no", "yes")[n % 2] for name in ("edema", "effusion") for who in ("r1", "r2")}
        votes |= {f"{name}_AI": ("no", "yes")[n % 3 == 0] for name in ("edema", "effusion")}
        return {name: cells[name] for name in ("File", "Patient", "View", "Split")} | votes

    run = bring(change)
    assert run().code == 2
    result = run("--raters", "all")
    assert result.code == 0
    assert "not used: edema_AI" in result.out
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


def test_columns_with_label_values_are_shown(bring: Bring) -> None:
    out = bring(lambda cells, n: {**cells, "Hydrops": cells["Edema"]})().out
    assert "not used: Hydrops" in " ".join(out.split())


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
        return {**cells, "Heart size normal": 1 - cells.pop("Cardiomegaly")}

    call_new = bring(change)
    given = ("--label", "cardiomegaly=Heart size normal")
    assert "may say that cardiomegaly is absent" in " ".join(call_new(*given, "--out", "plain").out.split())
    codes = (f"--code=Heart size normal:{value}={meaning}" for value, meaning in ((1, "negative"), (0, "positive")))
    assert call_new(*given, *codes).code == 0
    frame = open_site(load_site_config(tmp_path / "site_configs/hospital.yaml"), tmp_path).frame
    opposite = open_site(load_site_config(tmp_path / "plain/hospital.yaml"), tmp_path).frame
    assert (frame["cardiomegaly"] == 1 - opposite["cardiomegaly"]).all()
    assert (frame["edema"] == opposite["edema"]).all()


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


def test_columns_of_two_diseases_are_named(bring: Bring) -> None:
    def change(cells: Row, n: int) -> Row:
        return {**cells, "Mass and effusion": n % 2, "Nodule and effusion": n % 2}

    out = " ".join(bring(change)().out.split())
    assert "Mass and effusion (mass, pleural_effusion); Nodule and effusion (nodule, pleural_effusion)" in out


def test_left_out_words_are_counted(bring: Bring, tmp_path: Path) -> None:
    def change(cells: Row, n: int) -> Row:
        terms = ("cardiomegaly and zebra lines", "no finding", "edema and effusion")
        return {name: cells[name] for name in ("File", "Patient", "View", "Split")} | {"Findings": terms[n % 3]}

    assert "1 proposed meanings in the code book leave out words" in " ".join(bring(change)().out.split())
    codes, _ = read_book(tmp_path / "site_configs/hospital.codes.csv")
    evidence = {code.value: code.evidence for code in codes if code.kind == "finding"}
    assert "leaves out 'zebra', 'lines'" in evidence["cardiomegaly and zebra lines"]
    assert "leaves out" not in evidence["edema and effusion"]
