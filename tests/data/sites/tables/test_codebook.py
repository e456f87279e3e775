"""The code book's file: what is read of it, however a program saved it, and that only confirmed codes count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chestfed.core.diseases import TITLES
from chestfed.data.sites import load_site_config, open_site
from chestfed.data.sites.tables.codebook import COLUMNS as BOOK
from chestfed.data.sites.tables.codebook import EMPTY, Code, parse_code, read_book, write_book
from tests.cases import each
from tests.data.sites.own_tables import TERMS, open_table, person, problems, refusals
from tests.data.sites.small_sites import column

N = None


def test_a_code_book_is_read_as_written(tmp_path: Path) -> None:
    codes = [
        Code("", "finding", "", 3, "", "", "missing", "yes"),
        Code("", "finding", "=cmd", 1),
        Code("", "finding", "(empty)", 1, "edema", "a word, 'x'", "edema absent; mass uncertain", "lexicon"),
        Code("-Heart", "label", "-1", 12, "", "", "uncertain", "yes"),
        Code("", "age", "85 or more", 1, "", "", "85", "yes"),
        Code("Part", "keep", "hand", 1, "drop", "", "drop", "yes"),
    ]
    write_book(tmp_path / "x.codes.csv", codes)
    text = (tmp_path / "x.codes.csv").read_text()
    assert not [cell for line in text.splitlines() for cell in line.split(",") if cell.startswith(("=", "-", "@"))]
    assert read_book(tmp_path / "x.codes.csv", ["edema", "mass"]) == (codes, [])


@each("how", ["utf-8-sig", "utf-16", "cp1252", "semicolons", "quotes", "blank rows"])
def test_any_program_may_save_a_code_book(tmp_path: Path, how: str) -> None:
    code = Code("", "finding", "kein ödem größer", 3, "", "", "edema absent", "yes")
    path = tmp_path / "x.codes.csv"
    write_book(path, [code])
    text = path.read_text(encoding="utf-8").replace(",yes", ",X")
    change: dict[str, Callable[[], str]] = {
        "semicolons": lambda: text.replace(",", ";"),
        "quotes": lambda: "\n".join('"' + line.replace(",", '","') + '"' for line in text.splitlines()),
        "blank rows": lambda: text.replace("\n", "\r\n\r\n"),
    }
    path.write_bytes(change.get(how, lambda: text)().encode(how if how[:2] in ("ut", "cp") else "utf-8"))
    assert read_book(path, ["edema"]) == ([code], [])


@each(
    ("line", "kind"),
    [
        (",finding,x,1,,,oedemaa,yes", "unknown meaning"),
        (",finding,x,1,,,mass,yes", "unknown meaning"),
        (",finding,x,1,,,,yes", "unknown meaning"),
        (",finding,x,1,,,edema,maybe", "unknown confirmation"),
        (",finding,EDEMA ,1,,,ignore,yes", "duplicate value"),
        (",finding,,1,,,edema,yes", "blank name"),
        (",word,x,1,,,edema,yes", "unknown kind"),
        (",label,x,1,,,edema,yes", "unknown meaning"),
        (",age,x,1,,,130,yes", "unknown meaning"),
    ],
)
def test_a_code_book_mistake_has_its_row(tmp_path: Path, line: str, kind: str) -> None:
    path = tmp_path / "x.codes.csv"
    path.write_text(f"{','.join(BOOK)}\n,finding,edema,1,,,edema,yes\n{line}\n")
    codes, (problem,) = read_book(path, ["edema"])
    assert (problem.kind, problem.file, problem.row) == (kind, "x.codes.csv", 3)
    assert not any(code.is_known for code in codes if code.value != "edema")
    reported = problems(tmp_path, {**TERMS, "codes": "x.codes.csv"}, [person(1, Findings="Edema")], diseases=["edema"])
    assert reported == [problem]


@each("text", ["", "column,kind\n", '"' + "a" * 200_000, f'{",".join(BOOK)}\n,finding,"a,1,,,edema,yes\n'])
def test_another_file_is_no_code_book(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.codes.csv").write_text(text)
    reported = problems(tmp_path, {**TERMS, "codes": "x.codes.csv"}, [person(1, Findings="Edema")])
    assert reported[0].kind in ("malformed CSV", "missing column")
    assert reported[0].file == "x.codes.csv"


def test_a_denial_needs_a_safe_separator(tmp_path: Path) -> None:
    code = Code("", "finding", "no edema", 1, "", "", "edema absent", "yes")
    write_book(tmp_path / "x.codes.csv", [code])
    for separator, kinds in ((",", ["unsafe separator"]), (";", [])):
        assert [problem.kind for problem in read_book(tmp_path / "x.codes.csv", ["edema"], separator)[1]] == kinds


def test_only_confirmed_codes_count(tmp_path: Path) -> None:
    codes = [Code("", "finding", "edema", meaning="edema", confirmed="yes")]
    codes.append(Code("", "finding", "fluid", meaning="edema"))
    write_book(tmp_path / "x.codes.csv", codes)
    rows = [person(1, Findings="Edema"), person(2, Findings="fluid")]
    table = {**TERMS, "codes": "x.codes.csv"}
    assert refusals(tmp_path, table, rows) == [("unknown finding", 3)]
    for other in ("missing", "ignore"):
        opened = open_table(tmp_path, {**table, "other_terms": other}, rows, blank="negative", diseases=["edema"])
        assert column(opened, "edema") == [1, N]
        assert opened.not_understood == {"terms not confirmed": {"edema": 1}}
        assert "1 findings of x.codes.csv are not confirmed; in 1 of 2 images" in opened.notes[0]
    write_book(tmp_path / "x.codes.csv", [codes[0], replace(codes[1], confirmed="lexicon")])
    assert column(open_table(tmp_path, table, rows, diseases=["edema"]), "edema") == [1, 1]
    write_book(tmp_path / "x.codes.csv", [codes[0], replace(codes[1], meaning="missing", confirmed="yes")])
    opened = open_table(tmp_path, table, rows, diseases=["edema"])
    assert opened.not_understood == {"terms that say nothing": {"edema": 1}}


def test_every_meaning_can_be_read_back() -> None:
    for text in ("normal", "ignore", "missing", *(f"{d}{s}" for d in TITLES for s in ("", " absent", " uncertain"))):
        assert parse_code("finding", text) == text
    assert parse_code("finding", " Pleural  Effusion ; mass ABSENT") == "pleural_effusion; mass absent"
    assert EMPTY not in ("normal", "ignore")


def test_files_of_a_yaml_are_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_book(tmp_path / "x.codes.csv", [Code("", "finding", "edema", meaning="edema", confirmed="yes")])
    (tmp_path / "site.splits.csv").write_text("patient,split\np1,test\n")
    splits = {"file": "site.splits.csv"}
    open_table(tmp_path, {**TERMS, "codes": "x.codes.csv"}, [person(1, Findings="Edema")], splits=splits)
    other = tmp_path / "elsewhere/other.yaml"
    other.parent.mkdir()
    other.write_text("extends: ../site.yaml\ntitle: Other\n")
    monkeypatch.chdir(tmp_path)
    for path in (other, Path("elsewhere/other.yaml"), Path("site.yaml")):
        table = open_site(load_site_config(path), tmp_path)
        assert (column(table, "edema"), column(table, "split")) == ([1.0], ["test"])
