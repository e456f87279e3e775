"""Findings in words: the mapping table, what a person makes of it, and that no meaning is reversed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from chestfed.core.diseases import DISEASES, TITLES
from chestfed.core.errors import ConfigError, SiteError
from chestfed.inspection import check_site
from chestfed.new_site import Draft
from chestfed.sites import SiteTable, load_site_config, open_site
from chestfed.sites.reader import NEGATIVE
from chestfed.sites.spreadsheet.term_table import LEXICON, YES, TermRow, read_terms, terms_text
from chestfed.sites.terms import normal, parse_meaning
from tests.new_site.free_text import vocabulary
from tests.new_site.hospitals import bring, chestfed, draft, everything_said, keys, opened

MEANT = vocabulary()


def bring_findings(folder: Path, cells: Sequence[str | None], column: str = "Findings") -> None:
    bring(folder, [{"File": f"{n}", "Patient": f"p{n}", column: cell} for n, cell in enumerate(cells)])


def confirmed(made: Draft, meanings: Mapping[str, str]) -> Draft:
    """The draft with what a person wrote into its mapping table."""
    rows = [
        replace(row, meaning=meanings[row.term], confirmed=YES) if row.term in meanings else row for row in made.terms
    ]
    return replace(made, terms=tuple(rows))


def by_term(made: Draft) -> dict[str, TermRow]:
    return {row.term: row for row in made.terms}


def labels_of(table: SiteTable, disease: str) -> list[float | None]:
    return [None if math.isnan(label) else label for label in table.frame[disease].tolist()]


# --- what the lexicon writes ------------------------------------------------------------------------------------------


def test_no_finding_of_a_report_is_turned_round_by_the_lexicon(tmp_path: Path) -> None:
    """Phrases in five languages with planted truth; whatever nobody has confirmed is missing."""
    assert len(MEANT) >= 150
    for blank in (None, "negative"):
        bring_findings(tmp_path, list(MEANT))
        table = opened(tmp_path, draft(tmp_path, blank=blank, separator=";"))
        told = 0
        for row, (cell, truth) in enumerate(MEANT.items()):
            for disease, expected in truth.items():
                label = float(table.frame[disease].iloc[row])
                told += not math.isnan(label)
                assert math.isnan(label) or label == expected, (cell, disease, expected, label)
        assert told > (100 if blank else 50)


def test_what_a_person_confirms_is_what_comes_out(tmp_path: Path) -> None:
    bring_findings(tmp_path, list(MEANT))
    made = draft(tmp_path, blank="negative", separator=";")
    words = {1.0: "", 0.0: " absent", None: " uncertain"}
    meanings = {
        normal(cell): "; ".join(f"{disease}{words[told]}" for disease, told in truth.items())
        for cell, truth in MEANT.items()
    }
    table = opened(tmp_path, confirmed(made, meanings))
    for row, (cell, truth) in enumerate(MEANT.items()):
        found = {d: None if math.isnan(x := float(table.frame[d].iloc[row])) else x for d in truth}
        assert found == truth, cell


def test_only_terms_that_are_known_as_a_whole_need_no_confirmation(tmp_path: Path) -> None:
    expected = {
        "Pleuraerguss": "pleural_effusion",
        "no edema": "edema absent",
        "V.a. Erguss": "pleural_effusion uncertain",
        "edema?": "edema uncertain",
        "Plattenatelektase": "atelectasis",
        "scoliosis": "ignore",
        "normal": "normal",
        "keine Plattenatelektase": "",
        "no large effusion": "",
        "small left effusion": "",
        "effusion: none": "",
        "none": "",
        "edema (-)": "",
        "resolved edema": "",
        "Mr Zappa": "",
    }
    bring_findings(tmp_path, list(expected))
    made = draft(tmp_path)
    rows = by_term(made)
    assert {term: rows[term.lower()].meaning for term in expected} == expected
    assert all((row.confirmed == LEXICON) == bool(row.meaning) for row in made.terms)
    suggested = {"small left effusion": "pleural_effusion", "no large effusion": "pleural_effusion absent"}
    assert {term: rows[term].suggestion for term in suggested} == suggested
    assert rows["resolved edema"].suggestion == rows["effusion: none"].suggestion == ""
    assert rows["no edema"].rows == 1
    assert "zappa" not in everything_said(made).lower()


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_label_is_negative_unless_a_confirmed_meaning_says_so(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever the terms are, and whatever a person confirmed of them."""
    text = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="|;"), min_size=1)
    term = st.sampled_from(list(MEANT)) | text.filter(lambda word: word.strip() not in ("", "=") and word.isprintable())
    cells = data.draw(st.lists(st.lists(term, min_size=1, max_size=3), min_size=2, max_size=8))
    cells = [*cells, ["edema"]]
    bring_findings(tmp_path, [f"x {cell[0]}" if cell[0].startswith(("=", "[")) else "|".join(cell) for cell in cells])
    made = draft(tmp_path, columns={"findings": "Findings"}, separator="|")
    meanings = st.sampled_from(
        [
            "normal",
            "ignore",
            "missing",
            *(f"{d}{s}" for d in keys(made)["diseases"] for s in ("", " absent", " uncertain")),
        ]
    )
    chosen = data.draw(st.dictionaries(st.sampled_from([row.term for row in made.terms]), meanings))
    made = confirmed(made, chosen)
    try:
        table = opened(tmp_path, made)
    except SiteError as error:
        contradicts = {problem.kind for problem in error.problems} == {"contradictory labels"}
        assume(not contradicts)
        raise
    said = {row.term: row.meant for row in made.terms}
    for row, cell in enumerate(open_cells(tmp_path)):
        meant = [said[normal(part)] for part in cell.split("|") if part.strip()]
        for disease in table.diseases:
            if table.frame[disease].iloc[row] == 0:
                denied = any(one is not None and one.findings.get(disease) == NEGATIVE for one in meant)
                healthy = all(one is not None and one.understood for one in meant) and any(
                    one.healthy for one in meant if one
                )
                assert denied or healthy, (cell, disease)


def open_cells(folder: Path) -> list[str]:
    """The cells of the findings, as they were written."""
    import csv

    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        return [row["Findings"] for row in csv.DictReader(file)]


# --- what a person writes ---------------------------------------------------------------------------------------------


def test_what_is_not_confirmed_is_missing_and_counted(tmp_path: Path) -> None:
    cells = [
        "normal; heart borderline",
        "edema",
        "cardiomegaly",
        "normal",
        "edema; heart borderline",
        "old rib fracture",
    ]
    bring_findings(tmp_path, cells)
    made = draft(tmp_path, blank="negative")
    table = opened(tmp_path, made)
    assert labels_of(table, "cardiomegaly") == [None, 0, 1, 0, None, None]
    assert labels_of(table, "edema") == [None, 1, 0, 0, 1, None]
    assert any(note.startswith("2 of 5 terms, in 3 of 6 rows, wait for a person") for note in made.notes)
    assert table.not_understood == {"terms not confirmed": {"cardiomegaly": 3, "edema": 2}}
    (note,) = table.notes
    assert note.startswith("labels.csv: 2 terms of st-anne.terms.csv are not confirmed; in 3 of 6 images")
    report = check_site(load_site_config(tmp_path / "st-anne.yaml"), tmp_path, images=False)
    assert [problem.message for problem in report.warnings if problem.kind == "how the labels were read"] == [note]
    assert note in " ".join(chestfed("site", "stats", tmp_path / "st-anne.yaml").split("\n"))
    done = opened(tmp_path, confirmed(made, {"heart borderline": "ignore", "old rib fracture": "ignore"}))
    assert labels_of(done, "edema") == [0, 1, 0, 0, 1, 0]
    assert done.notes == ()


def test_a_list_of_what_is_present_says_where_its_negatives_come_from(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["edema"] * 5 + ["normal"] * 3 + ["effusion"])
    made = draft(tmp_path)
    assert keys(made)["blank"] == "missing"
    (note,) = opened(tmp_path, made).notes
    assert "negatives: 3 of 9 images, all from terms that mean normal" in note
    assert opened(tmp_path, draft(tmp_path, blank="negative")).notes == ()


def test_a_meaning_may_name_several_diseases(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["wet heart", "edema", "cardiomegaly"])
    made = confirmed(draft(tmp_path, blank="negative"), {"wet heart": "Cardiomegaly; edema uncertain"})
    table = opened(tmp_path, made)
    assert labels_of(table, "cardiomegaly") == [1, 0, 1]
    assert labels_of(table, "edema") == [None, 1, 0]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("term,wet lungs,3,,,oedema,yes", "unknown meaning"),
        ("term,wet lungs,3,,,oedema,", "unknown meaning"),
        ("term,wet lungs,3,,,,yes", "unknown meaning"),
        ("term,wet lungs,3,,,edema absent; edema,yes", "unknown meaning"),
        ("term,wet lungs,3,,,hernia,yes", "unknown meaning"),
        ("term,wet lungs,3,,,edema,perhaps", "unknown confirmation"),
        ("term,  EDEMA ,3,,,edema,yes", "duplicate term"),
        ("term,,3,,,edema,yes", "blank name"),
        ("view,quer,3,,,sideways,yes", "unknown meaning"),
        ("age,wet lungs,3,,,130,yes", "unknown meaning"),
        ("column,wet lungs,3,,,edema,yes", "unknown kind"),
    ],
)
def test_a_mistake_in_the_mapping_table_is_an_error_with_file_and_row(tmp_path: Path, line: str, kind: str) -> None:
    bring_findings(tmp_path, ["edema", "normal"])
    opened(tmp_path, draft(tmp_path))
    with (tmp_path / "st-anne.terms.csv").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(SiteError) as caught:
        open_site(load_site_config(tmp_path / "st-anne.yaml"), tmp_path)
    (problem,) = caught.value.problems
    assert (problem.kind, problem.file, problem.row) == (kind, "st-anne.terms.csv", 4)
    assert problem.advice
    assert "wet lungs" not in str(problem)


def test_a_term_that_the_mapping_table_lacks_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["edema", "normal"])
    opened(tmp_path, draft(tmp_path))
    bring_findings(tmp_path, ["edema", "mr zappa's effusion; edema"])
    with pytest.raises(SiteError) as caught:
        open_site(load_site_config(tmp_path / "st-anne.yaml"), tmp_path)
    (problem,) = caught.value.problems
    assert (problem.kind, problem.file, problem.row) == ("unknown finding", "labels.csv", 3)
    assert "zappa" not in str(problem)
    (tmp_path / "st-anne.terms.csv").unlink()
    with pytest.raises(SiteError) as caught:
        open_site(load_site_config(tmp_path / "st-anne.yaml"), tmp_path)
    assert "missing file" in {problem.kind for problem in caught.value.problems}


def test_the_mapping_table_is_read_however_a_spreadsheet_program_saves_it(tmp_path: Path) -> None:
    rows = [
        TermRow("-", 4, "", "unknown", "negative", YES, "value"),
        TermRow("", 2),
        TermRow("größe; a, b", 3, "edema", "why", "edema absent", YES),
        TermRow("-edema", 1),
        TermRow("=1+1"),
        TermRow("'@"),
        TermRow("(empty)"),
        TermRow("-", 1),
    ]
    text = terms_text(rows)
    assert "\nterm,'-edema," in text
    path = tmp_path / "x.terms.csv"
    for saved in (text.encode("utf-8-sig"), text.encode("utf-16"), text.replace("\n", "\r\n").encode("cp1252")):
        path.write_bytes(saved)
        assert read_terms(path) == (rows, [])
    import csv
    import io

    semicolons = io.StringIO()
    csv.writer(semicolons, delimiter=";").writerows(csv.reader(io.StringIO(text)))
    path.write_text(semicolons.getvalue(), encoding="cp1252")
    assert read_terms(path) == (rows, [])
    path.write_text("term,meaning\nedema,edema\n", encoding="utf-8")
    assert [problem.kind for problem in read_terms(path)[1]] == ["missing column"]


def test_confirmed_meanings_are_kept_for_the_next_export(tmp_path: Path) -> None:
    command = ["site", "new", "st-anne", "--images", tmp_path / "images", "--labels", tmp_path / "labels.csv", "--yes"]
    command += ["--out", tmp_path, "--force"]
    bring_findings(tmp_path, ["edema", "wet lungs", "boggy", "normal"])
    chestfed(*command)
    path = tmp_path / "st-anne.terms.csv"
    text = path.read_text(encoding="utf-8-sig")
    lines = [line if "wet lungs" not in line else "term,wet lungs,1,,,edema,yes" for line in text.splitlines()]
    path.write_text("\n".join(lines), encoding="utf-8")
    bring_findings(tmp_path, ["edema", "wet lungs", "wet lungs", "new one", "normal"])
    said = chestfed(*command)
    assert "5 terms, 1 of them new" not in said
    assert "4 terms, 1 of them new" in said
    rows, problems = read_terms(path)
    assert problems == []
    known = {row.term: (row.rows, row.meaning, row.confirmed) for row in rows}
    assert known["wet lungs"] == (2, "edema", YES)
    assert known["new one"] == (1, "", "")
    assert "boggy" not in known
    path.write_text(path.read_text(encoding="utf-8-sig").replace("edema,yes", "oedema,yes"), encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(SiteError, match="unknown meaning"):
        chestfed(*command)
    assert path.read_bytes() == before


def test_a_confirmed_term_that_a_later_export_lacks_stays_with_no_rows(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["edema", "normal"])
    made = draft(tmp_path, terms=[TermRow("wet lungs", 7, "", "", "edema", YES), TermRow("boggy", 2)])
    assert by_term(made)["wet lungs"].rows == 0
    assert "boggy" not in by_term(made)
    opened(tmp_path, made)


def test_every_meaning_that_can_be_written_can_be_read_back() -> None:
    for disease in TITLES:
        for text in (disease, f"{disease} absent", f"{disease} uncertain"):
            assert str(parse_meaning(text.upper().replace("_", " "))) == text
    for text in ("normal", "ignore", "missing", "edema; mass absent"):
        assert str(parse_meaning(text)) == text
    for text in ("", "edema;", "no edema", "absent", "edema absent absent", "normal; edema", "edema maybe"):
        with pytest.raises(ValueError, match="meaning"):
            parse_meaning(text)


# --- flags, cutting, other columns ------------------------------------------------------------------------------------


def test_a_value_for_a_term_cannot_make_every_disease_negative(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["effusion: none", "cardiomegaly", "normal"] * 3)
    with pytest.raises(ConfigError, match="--value effusion: none: enter what a term means in the column MEANING"):
        draft(tmp_path, words={"value": {"effusion: none": "negative"}})
    table = opened(tmp_path, confirmed(draft(tmp_path), {"effusion: none": "pleural_effusion absent"}))
    assert labels_of(table, "pleural_effusion")[:3] == [0, None, 0]
    assert labels_of(table, "cardiomegaly")[:3] == [None, 1, 0]


def test_a_term_can_be_given_on_the_command_line_and_a_disease_left_out(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["cardiomegaly", "KTR", "normal", "edema"])
    made = draft(tmp_path, labels={"cardiomegaly": ["KTR"], "edema": []})
    assert keys(made)["diseases"] == ["cardiomegaly"]
    assert (by_term(made)["ktr"].meaning, by_term(made)["ktr"].confirmed) == ("cardiomegaly", YES)
    assert by_term(made)["edema"].meaning == "ignore"
    assert labels_of(opened(tmp_path, made), "cardiomegaly") == [1, 1, 0, None]
    with pytest.raises(ConfigError, match="the findings have no term 'typo'"):
        draft(tmp_path, labels={"cardiomegaly": ["Typo"]})


def test_cells_in_which_a_denial_may_reach_over_a_comma_are_not_cut(tmp_path: Path) -> None:
    for cell in ("No edema, effusion", "Effusion, edema absent", "possible effusion/edema", "Effusion, -", "Edema +/-"):
        sign = next(sign for sign in (",", "/") if sign in cell)
        bring_findings(tmp_path, [cell, f"cardiomegaly{sign} edema", "effusion", "normal"] * 2)
        made = draft(tmp_path, columns={"findings": "Findings"})
        assert by_term(made)[normal(cell)].meaning == ""
        assert labels_of(opened(tmp_path, made), "edema")[0] is None
        with pytest.raises(ConfigError, match="2 of 4 cells with it negate or doubt"):
            draft(tmp_path, separator=sign)


def test_a_denial_in_a_table_that_is_cut_at_commas_is_refused_when_it_is_read_back(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["edema, effusion", "mass, edema", "normal"])
    made = draft(tmp_path)
    assert keys(made)["table"]["separator"] == ","
    with pytest.raises(SiteError) as caught:
        opened(tmp_path, confirmed(made, {"mass": "edema absent"}))
    assert {problem.kind for problem in caught.value.problems} == {"unsafe separator"}


def test_the_separator_is_the_one_that_yields_known_terms(tmp_path: Path) -> None:
    for separator in ("|", ";", ",", "/"):
        bring_findings(
            tmp_path, [f"edema{separator} effusion", "normal", f"mass{separator}nodule{separator}atelectasis"] * 5
        )
        made = draft(tmp_path)
        assert keys(made)["table"]["separator"] == separator
        assert set(keys(made)["diseases"]) == {"edema", "pleural_effusion", "mass", "nodule", "atelectasis"}


def test_a_row_per_finding_is_not_cut_and_a_value_is_part_of_its_term(tmp_path: Path) -> None:
    names = ["edema", "Nodule/Mass", "normal", "normal", "mass", "nodule"] * 3
    bring(tmp_path, [{"File": n // 2, "Patient": n // 2, "class_name": name} for n, name in enumerate(names)])
    made = draft(tmp_path, layout="long")
    assert by_term(made)["nodule/mass"].confirmed == ""
    assert labels_of(opened(tmp_path, made), "mass")[:3] == [None, 0, 1]
    says = [
        ("left effusion", "ja"),
        ("left effusion", "nein"),
        ("effusion", "nein"),
        ("effusion", "ja"),
        ("edema", "nein"),
    ]
    bring(
        tmp_path, [{"File": n, "Patient": n, "Finding": name, "Value": value} for n, (name, value) in enumerate(says)]
    )
    made = draft(tmp_path, layout="long")
    assert by_term(made)["left effusion = nein"].confirmed == ""
    assert by_term(made)["effusion = nein"].meaning == "pleural_effusion absent"
    assert labels_of(opened(tmp_path, made), "pleural_effusion")[:4] == [None, None, 0, 1]


def test_a_table_in_a_language_that_the_lexicon_lacks_gets_its_mapping_table(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["胸水", "肺水腫", "異常なし", "胸水"])
    with pytest.raises(ConfigError, match=r"too few known terms.*--findings-column"):
        draft(tmp_path)
    made = draft(tmp_path, columns={"findings": "Findings"})
    assert keys(made)["diseases"] == list(DISEASES)
    assert [row.confirmed for row in made.terms] == [""] * 3
    table = opened(tmp_path, confirmed(made, {"胸水": "pleural_effusion", "異常なし": "normal"}))
    assert labels_of(table, "pleural_effusion") == [1, None, 0, 1]
    assert labels_of(table, "edema") == [None, None, 0, None]


def test_an_empty_cell_says_nothing_until_a_person_says_what_it_means(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["edema", None, "normal"])
    made = draft(tmp_path, blank="negative")
    assert by_term(made)[""].rows == 1
    assert labels_of(opened(tmp_path, made), "edema") == [1, None, 0]
    assert labels_of(opened(tmp_path, confirmed(made, {"": "normal"})), "edema") == [1, 0, 0]


def test_other_columns_of_findings_are_named(tmp_path: Path) -> None:
    pairs = [("cardiomegaly;edema", "cardiomegaly"), ("normal", "no finding")] * 3
    bring(tmp_path, [{"File": n, "Patient": n, "reader1": one, "reader2": two} for n, (one, two) in enumerate(pairs)])
    for columns, left in (({}, "reader2"), ({"findings": "reader2"}, "reader1")):
        notes = draft(tmp_path, columns=columns).notes
        assert any(f"'{left}' holds findings too: not used (--findings-column" in note for note in notes)


def test_a_disease_whose_column_holds_formulas_is_reported_as_lost(tmp_path: Path) -> None:
    table = [{"File": n, "Patient": n, "Edema": n % 2, "Effusion": f"=B{n}", "Sum": f"=C{n}"} for n in range(6)]
    bring(tmp_path, table)
    notes = draft(tmp_path).notes
    assert any("formulas" in note and "'Effusion' (6), 'Sum' (6)" in note for note in notes)
    assert any(note.startswith("pleural_effusion is not read, because 'Effusion' contains formulas") for note in notes)
    bring(tmp_path, [{**row, "Edema": "=A1"} for row in table])
    with pytest.raises(ConfigError, match=r"edema is not read, because 'Edema' contains formulas"):
        draft(tmp_path)
