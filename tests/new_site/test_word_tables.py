"""Label values and words of views, splits, sexes and ages in the mapping table."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.core.errors import ConfigError, SiteError
from chestfed.sites import SiteTable, load_site_config, open_site
from chestfed.sites.spreadsheet.term_table import LEXICON, YES, TermRow, read_terms, terms_text
from tests.new_site.hospitals import bring, chestfed, draft, keys, opened, rows
from tests.sites.small_sites import column

MEANINGS = {
    "正面": "PA",
    "側面": "lateral",
    "w.": "f",
    "k. a.": "missing",
    "85 plus": "85",
    "menge b": "test",
    "2": "missing",
}


def hospital(folder: Path, **more: list[object]) -> list[object]:
    """Thirty images whose words nobody knows; the command that describes them."""
    table = rows(
        30,
        View=["正面", "側面"],
        Sex=["W.", "M", "k. A."],
        Age=["63"] * 14 + ["85 plus"],
        Set=["train"] * 2 + ["Menge B"] * 2,
        **more,
    )
    for number, row in enumerate(table):
        row["Oedema"] = number % 3
    bring(folder, table)
    command = ["site", "new", "st-anne", "--images", folder / "images", "--labels", folder / "labels.csv", "--yes"]
    return [*command, "--out", folder, "--data", folder, "--force"]


def fill(path: Path, meanings: dict[str, str] = MEANINGS) -> None:
    """What a radiologist does in a spreadsheet program."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    for place, line in enumerate(lines):
        word = line.split(",")[1]
        if word in meanings and line.endswith(",,"):
            lines[place] = f"{line[:-2]},{meanings[word]},yes"
    path.write_text("\n".join(lines), encoding="utf-8")


def site(folder: Path) -> SiteTable:
    return open_site(load_site_config(folder / "st-anne.yaml"), folder)


def test_unknown_words_stop_until_the_mapping_table_says_what_they_mean(tmp_path: Path) -> None:
    command = hospital(tmp_path)
    path = tmp_path / "st-anne.terms.csv"
    with pytest.raises(ConfigError, match=r"st-anne.terms.csv has them: enter MEANING and yes"):
        chestfed(*command)
    assert not (tmp_path / "st-anne.yaml").exists()
    fill(path)
    chestfed(*command)
    table = site(tmp_path)
    assert set(column(table, "view")) == {"pa"}
    assert column(table, "sex")[:3] == ["F", None, "M"]
    assert set(column(table, "age")) == {63.0, 85.0}
    assert set(column(table, "split")) == {"train", "test"}
    assert table.frame["edema"].fillna(-1).tolist()[:3] == [0, -1, 1]
    kinds = {row.kind for row in read_terms(path)[0]}
    assert kinds == {"value", "view", "split", "sex", "age"}


def test_the_mapping_table_of_words_serves_the_next_export(tmp_path: Path) -> None:
    command = hospital(tmp_path)
    path = tmp_path / "st-anne.terms.csv"
    with pytest.raises(ConfigError):
        chestfed(*command)
    fill(path)
    chestfed(*command)
    hospital(tmp_path, Room=["A"])
    chestfed(*command)
    found = {(row.kind, row.term): row for row in read_terms(path)[0]}
    assert (found["view", "側面"].meaning, found["view", "側面"].confirmed, found["view", "側面"].rows) == (
        "lateral",
        YES,
        15,
    )
    assert (found["value", "1"].meaning, found["value", "1"].confirmed) == ("positive", LEXICON)
    text = path.read_text(encoding="utf-8-sig")
    path.write_text(text.replace("lateral,yes", "lateral,"), encoding="utf-8")
    with pytest.raises(SiteError, match="unknown view"):
        site(tmp_path)


def test_a_flag_writes_into_the_mapping_table(tmp_path: Path) -> None:
    command = hospital(tmp_path)
    flags = ["--word=view:正面=pa", "--word=view:側面=lateral", "--word=sex:w.=F", "--word=sex:k. A.=missing"]
    flags += ["--word=age:85 plus=85", "--word=split:Menge B=test", "--value=2=negative"]
    chestfed(*command, *flags)
    said = {(row.kind, row.term): row.meaning for row in read_terms(tmp_path / "st-anne.terms.csv")[0]}
    assert said["value", "2"] == "negative"
    chestfed(*command)  # without the flags
    assert said == {(row.kind, row.term): row.meaning for row in read_terms(tmp_path / "st-anne.terms.csv")[0]}


def test_a_label_that_is_missing_is_never_taken_for_a_blank_one(tmp_path: Path) -> None:
    table = rows(12)
    for number, row in enumerate(table):
        row["Oedema"] = ("x", "", "n.e.")[number % 3]
    bring(tmp_path, table)
    made = draft(tmp_path, words={"value": {"n.e.": "missing"}}, blank="negative")
    assert opened(tmp_path, made).frame["edema"].tolist()[:2] == [1, 0]
    assert opened(tmp_path, made).frame["edema"].isna().sum() == 4


def test_a_word_that_counts_as_empty_does_so_in_its_own_column_only(tmp_path: Path) -> None:
    table = rows(30, Sex=["F", "k.a."])
    table[0]["Patient"] = table[1]["Patient"] = "k.a."
    bring(tmp_path, table)
    made = draft(tmp_path)
    assert opened(tmp_path, made).frame["patient"].tolist()[:2] == ["k.a.", "k.a."]
    assert keys(made)["table"]["columns"]["sex"] == "Sex"


def test_a_mapping_table_that_was_saved_in_an_encoding_of_its_country_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.terms.csv"
    text = terms_text(
        [TermRow("正面", 3, "", "", "pa", YES, "view"), TermRow("側面", 3, "", "", "lateral", YES, "view")]
    )
    path.write_text(text, encoding="cp932")
    rows, problems = read_terms(path)
    assert problems or [row.term for row in rows] == ["正面", "側面"]
    path.write_text(text.replace("側面", "臥位a→p"), encoding="cp932")  # not recognized
    rows, problems = read_terms(path)
    assert rows == []
    assert [problem.kind for problem in problems] == ["wrong encoding"]


def test_a_column_of_words_of_doubt_beside_findings_is_a_question(tmp_path: Path) -> None:
    table: list[dict[str, object]] = [
        {"File": f"{n}.png", "Patient": f"p{n}", "Finding": finding, "Certainty": ("definite", "possible")[n % 2]}
        for n in range(12)
        for finding in ("Cardiomegaly", "Edema")
    ]
    bring(tmp_path, table, [f"{n}.png" for n in range(12)])
    with pytest.raises(ConfigError, match="--value-column"):
        draft(tmp_path)
    made = draft(
        tmp_path, columns={"value": "Certainty"}, words={"value": {"definite": "positive"}}, uncertain="missing"
    )
    assert opened(tmp_path, made).frame["edema"].fillna(-1).tolist() == [1, -1] * 6


def test_a_column_of_words_of_doubt_beside_label_columns_is_said_not_to_be_used(tmp_path: Path) -> None:
    bring(tmp_path, rows(12, **{"Edema certainty": ["definite", "possible"]}))
    assert any(note.startswith("Edema certainty: words of doubt") for note in draft(tmp_path).notes)


def test_cells_are_not_cut_at_a_comma_if_a_part_is_in_doubt(tmp_path: Path) -> None:
    cells = ["Edema, concerning for pneumonia", "Effusion, edema"]
    bring(tmp_path, [{"File": f"{n}", "Patient": f"p{n}", "Findings": cells[n % 2]} for n in range(8)])
    assert {row.term for row in draft(tmp_path).terms} == {cell.lower() for cell in cells}
