"""Findings in the words of reports: none that is there comes out as absent, and none that is absent as there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError, SiteError
from chestfed.new_site import words
from chestfed.new_site.terms import read_term
from chestfed.sites.spreadsheet.config import TableFormat
from chestfed.sites.spreadsheet.labels import grammar_of
from chestfed.sites.terms import together
from tests.new_site.free_text import vocabulary
from tests.new_site.hospitals import bring, draft, everything_said, keys, opened

MEANT = vocabulary()


def bring_findings(folder: Path, cells: Sequence[str | None], column: str = "Findings") -> None:
    bring(folder, [{"File": f"{n}", "Patient": f"p{n}", column: cell} for n, cell in enumerate(cells)])


@pytest.mark.parametrize("blank", [None, "negative"])
@pytest.mark.parametrize("times", [1, 3])
def test_no_finding_of_a_report_is_turned_round(tmp_path: Path, times: int, blank: str | None) -> None:
    cells = list(MEANT) * times
    bring_findings(tmp_path, cells)
    frame = opened(tmp_path, draft(tmp_path, blank=blank, separator=";")).frame
    right = wrong = told = 0
    turned = []
    for row, cell in enumerate(cells):
        for disease, truth in MEANT[cell].items():
            label = float(frame[disease].iloc[row])
            told += truth is not None and not math.isnan(label)
            right += truth == 1 and label == 1
            wrong += truth == 1 and label != 1
            if not math.isnan(label) and truth is not None and label != truth:
                turned.append((cell, disease, truth, label))
            if not math.isnan(label) and truth is None:
                turned.append((cell, disease, truth, label))
    assert len(MEANT) >= 150
    assert turned == []
    assert right >= 0.8 * (right + wrong)
    assert told > (0.6 if blank else 0.1) * 5 * len(cells)


PLACES = ("left", "right lower lobe", "bilateral", "basal", "mild", "severe", "stable", "new", "small", "chronic")
HEADS = {
    "cardiomegaly": "cardiomegaly",
    "enlarged heart": "cardiomegaly",
    "pulmonary edema": "edema",
    "consolidation": "consolidation",
    "atelectases": "atelectasis",
    "effusion": "pleural_effusion",
    "Kardiomegalie": "cardiomegaly",
    "Lungenödem": "edema",
    "Pleuraerguß": "pleural_effusion",
    "épanchement": "pleural_effusion",
    "œdème": "edema",
    "derrame pleural": "pleural_effusion",
    "consolidação": "consolidation",
}
STRANGE = ("resolved", "no longer", "not", "absent", "pericardial", "cleared", "Mr Zappa", "former", "un", "non", "ex")


@given(
    st.lists(st.sampled_from(PLACES), max_size=3),
    st.sampled_from(sorted(HEADS)),
    st.lists(st.sampled_from(PLACES), max_size=2),
    st.sampled_from(["", *words.NEGATIONS]),
    st.sampled_from(["", *words.DOUBTS]),
    st.booleans(),
)
def test_denial_doubt_and_place_together(
    before: list[str], head: str, behind: list[str], denial: str, doubt: str, capitals: bool
) -> None:
    denies = denial + ("" if denial.endswith(("'", "’")) or not denial else " ")
    doubts = doubt + ("" if doubt.endswith(("'", "’")) or not doubt else " ")
    text = denies + doubts + " ".join([*before, head, *behind])
    read = read_term(text.upper() if capitals and "ß" not in text else text)
    if denial and not doubt and (before or behind):
        assert read.kind == "open"
        return
    assert read.diseases == (HEADS[head],)
    assert (bool(read.denied), bool(read.doubted)) == (bool(denial), bool(doubt))


@given(
    st.permutations(["cardiomegaly", "left"]),
    st.sampled_from(STRANGE),
    st.integers(0, 2),
)
def test_a_word_that_is_not_known_leaves_a_finding_open(parts: list[str], strange: str, place: int) -> None:
    assert read_term(" ".join([*parts[:place], strange, *parts[place:]])).kind == "open"


def test_terms_that_are_not_understood_are_missing_and_said(tmp_path: Path) -> None:
    bring_findings(tmp_path, [*["edema"] * 4, *["heart is big and boggy"] * 3, "mr zappa's effusion", "normal"])
    made = draft(tmp_path)
    assert keys(made)["blank"] == "missing"
    assert any("heart is big and boggy (3), 1 that stand in fewer than 3 cells" in note for note in made.notes)
    assert any("--label DISEASE=TERM" in note and "missing" in note for note in made.notes)
    assert "zappa" not in everything_said(made).lower()


@pytest.mark.parametrize("beside", ["normal; heart borderline", "heart borderline; normal"])
def test_beside_what_is_not_understood_neither_normal_nor_silence_is_a_no(tmp_path: Path, beside: str) -> None:
    bring_findings(tmp_path, [beside, "edema", "cardiomegaly", "normal", "edema; heart borderline"])
    frame = opened(tmp_path, draft(tmp_path, blank="negative")).frame
    assert frame["cardiomegaly"].tolist() == pytest.approx([math.nan, 0, 1, 0, math.nan], nan_ok=True)
    assert frame["edema"].tolist() == pytest.approx([math.nan, 1, 0, 0, 1], nan_ok=True)


def test_silence_is_a_no_only_where_all_is_understood(tmp_path: Path) -> None:
    cells = ["edema", "effusion; scoliosis", "normal"] * 3
    bring_findings(tmp_path, cells)
    made = draft(tmp_path)
    assert keys(made)["blank"] == "negative"
    assert any("nothing to do with the diseases known here: scoliosis (3)" in note for note in made.notes)
    bring_findings(tmp_path, [*cells, "boggy"])
    assert keys(draft(tmp_path))["blank"] == "missing"
    made = draft(tmp_path, values={"boggy": "blank"})
    assert (keys(made)["blank"], keys(made)["table"]["others"]) == ("negative", ["boggy", "scoliosis"])


def test_a_part_that_is_denied_is_not_read_as_the_whole(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["large effusion", "no large effusion", "no effusion", "effusion"])
    made = draft(tmp_path)
    assert keys(made)["table"]["unlabelled"] == ["no large effusion"]
    found = opened(tmp_path, made).frame["pleural_effusion"].tolist()
    assert found == pytest.approx([1, math.nan, 0, 1], nan_ok=True)


def test_a_part_that_a_value_denies_is_not_read_as_the_whole(tmp_path: Path) -> None:
    says = [("left effusion", "yes"), ("left effusion", "no"), ("effusion", "no"), ("effusion", "yes"), ("edema", "no")]
    table = [{"File": n, "Patient": n, "Finding": name, "Value": value} for n, (name, value) in enumerate(says)]
    bring(tmp_path, table)
    frame = opened(tmp_path, draft(tmp_path, layout="long")).frame
    assert frame["pleural_effusion"].tolist()[1:4] == pytest.approx([math.nan, 0, 1], nan_ok=True)


@pytest.mark.parametrize(
    "cell",
    [
        *("no edema, effusion, or consolidation", "kein Erguss, Atelektase oder Ödem", "effusion, absent"),
        *("Erguss, nicht", "No effusion/edema", "No consolidation/effusion", "No effusion & edema", "edema & no mass/"),
        *("No consolidation, effusion, pneumothorax", "Kein Erguss, Atelektase, Pneumonie", "No fracture, effusion"),
        *("Sin derrame, edema y consolidación", "Sem derrame, consolidação", "no large effusion, edema"),
        *("Possible effusion/edema", "V.a. Erguss, Atelektase", "Effusion/edema?", "Effusion & edema (-)"),
        *("Effusion, edema absent", "Edema, effusion ruled out", "Effusion, edema: none", "Effusion, edema not seen"),
        *("Effusion, possible", "Effusion, unlikely", "Erguss, fraglich", "Effusion, -", "Effusion, 0", "Edema, ?"),
        *("Edema +/-", "Cardiomegaly + edema -"),
    ],
)
def test_a_denial_that_reaches_over_terms_is_refused(tmp_path: Path, cell: str) -> None:
    separator = next(sign for sign in ("&", "+", ",", "/") if sign in cell)
    bring_findings(tmp_path, [cell, f"cardiomegaly{separator} edema", f"edema{separator} effusion", "normal"] * 2)
    with pytest.raises(ConfigError, match=r"2 of 8 cells are sentences.*each with its own denial"):
        draft(tmp_path, separator=separator)


@pytest.mark.parametrize(
    ("cell", "separator", "labels"),
    [
        ("cardiomegaly, no effusion, no edema", ",", (1, 0, 0)),
        ("cardiomegaly, possible effusion", ",", (1, math.nan, 0)),
        ("effusion?, edema", ",", (0, math.nan, 1)),
        ("no effusion, scoliosis", ",", (0, 0, 0)),
        ("no effusion, no edema", ",", (0, 0, 0)),
        ("no effusion; edema", ";", (0, 0, 1)),
        ("no effusion|possible edema|cardiomegaly", "|", (1, 0, math.nan)),
        ("cardiomegaly + effusion", "+", (1, 1, 0)),
        ("cardiomegaly/no effusion", "/", (1, 0, 0)),
    ],
)
def test_a_denial_of_its_own_is_read(tmp_path: Path, cell: str, separator: str, labels: tuple[float, ...]) -> None:
    bring_findings(tmp_path, [cell, "edema", "normal", "effusion", "cardiomegaly"])
    frame = opened(tmp_path, draft(tmp_path, separator=separator, blank="negative")).frame
    found = frame[["cardiomegaly", "pleural_effusion", "edema"]].iloc[0].tolist()
    assert found == pytest.approx(labels, nan_ok=True)


@pytest.mark.parametrize(
    "cell",
    [
        *("Effusion (-)", "(-) Effusion", "Effusion? left", "Normal (?)", "no (?) effusion", "effusion (left?)"),
        *("effusion (+/-)", "clear (-)", "effusion ✗", "± effusion", "possible normal", "effusion - left"),
        *("Lung lesion", "pleural plaque", "COPD", "hyperinflation", "calcified granuloma", "effusion0"),
        *("No pulmão: nódulo", "No lobo inferior derrame", "no hemitórax direito: derrame", "cardiomegaly0"),
        *("effusion (?)", "Erguss (?)"),
    ],
)
def test_what_a_sign_or_a_word_may_turn_round_is_missing(tmp_path: Path, cell: str) -> None:
    usual = ["edema", "effusion", "mass", "nodule", "emphysema", "pleural thickening", "cardiomegaly", "normal"]
    bring_findings(tmp_path, [cell, *usual * 2])
    table = opened(tmp_path, draft(tmp_path, blank=None if "(?)" in cell else "negative"))
    named = {"effusion": "pleural_effusion", "erguss": "pleural_effusion"}.get(cell.lower().removesuffix(" (?)"))
    assert {d for d in table.diseases if not math.isnan(table.frame[d].iloc[0])} == (
        set() if named is None else set(table.diseases) - {named}
    )


@pytest.mark.parametrize(
    "cell", ["pulmonary edema|no edema", "left effusion|no effusion", "effusion|no pleural effusion"]
)
def test_a_disease_denied_under_its_plain_name_is_not_there_under_another(tmp_path: Path, cell: str) -> None:
    bring_findings(tmp_path, [cell, "edema|effusion", "pleural effusion|pulmonary edema", "left effusion", "normal"])
    with pytest.raises(SiteError, match=r"contradictory labels \(1\)"):
        opened(tmp_path, draft(tmp_path))


@pytest.mark.parametrize(
    ("cell", "contrary"),
    [("effusion|no large effusion", False), ("large effusion|no effusion", True), ("effusion?|no effusion", True)],
)
def test_a_part_that_is_denied_is_not_contrary_to_the_disease(cell: str, contrary: bool) -> None:
    columns = {"image": "image", "patient": "patient", "findings": "findings"}
    table = TableFormat.model_validate({"layout": "delimited", "columns": columns})
    grammar = grammar_of({"pleural_effusion": ["effusion", "large effusion"]}, table)
    pairs = [pair for term in cell.split("|") if (pair := grammar.read(term)) is not None]
    assert len(pairs) == 2
    assert together(pairs, grammar).contrary is contrary


class Asked:
    """Takes guesses but for some answers, and notes what it is asked."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def choose(self, what: str, flag: str, guess: str | None, candidates: Sequence[str], why: str) -> str:
        self.asked.append(what)
        answer = next((answer for word, answer in self.answers.items() if word in what), None)
        assert answer is None or answer in candidates
        return answer or guess or candidates[0]


def test_terms_with_a_word_of_a_disease_are_asked_for(tmp_path: Path) -> None:
    open_ones = ["boggy heart", "wet oedematous lungs", "edema of the ankle"]
    bring_findings(tmp_path, ["cardiomegaly", "edema", "effusion", "normal", "sail"] * 3 + open_ones * 3)
    chooser = Asked(boggy="cardiomegaly", ankle="nothing")
    made = draft(tmp_path, chooser=chooser)
    assert [what for what in chooser.asked if "'" in what] == [f"'{term}'" for term in open_ones]
    frame = opened(tmp_path, made).frame
    assert frame["cardiomegaly"].tolist()[-3:] == pytest.approx([1, math.nan, math.nan], nan_ok=True)
    assert keys(made)["table"]["others"] == ["edema of the ankle"]


def test_a_said_term_comes_beside_the_guessed_ones(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["cardiomegaly", "KTR", "normal", "edema", "no KTR"])
    made = draft(tmp_path, labels={"cardiomegaly": ["KTR", "Typo"], "edema": []})
    assert set(keys(made)["labels"]["cardiomegaly"]) == {"cardiomegaly", "ktr", "typo"}
    assert keys(made)["diseases"] == ["cardiomegaly"]
    assert any("no cell holds the term typo" in note for note in made.notes)
    assert opened(tmp_path, made).frame["cardiomegaly"].tolist()[:3] == [1, 1, 0]


# --- codes, other columns, formulas -----------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [None, ";"])
@pytest.mark.parametrize("findings", [None, "Diag"])
def test_codes_that_flags_explain_are_terms(tmp_path: Path, separator: str | None, findings: str | None) -> None:
    bring_findings(tmp_path, ["I51.7;J81", "J90", "OB", None] * 2, "Diag")
    labels = {"cardiomegaly": ["I51.7"], "edema": ["J81"], "pleural_effusion": ["J90"]}
    columns = {} if findings is None else {"findings": findings}
    made = draft(tmp_path, labels=labels, columns=columns, separator=separator)
    assert keys(made)["table"]["separator"] == ";"
    assert "8 of 8 terms are known, in 6 of 6 cells" in made.text
    assert any("in the 2 rows whose cell is empty" in note for note in made.notes)
    assert opened(tmp_path, made).frame["edema"].tolist()[:4] == pytest.approx([1, 0, 0, math.nan], nan_ok=True)


def test_a_column_of_findings_of_which_nothing_is_known_shows_its_frequent_terms(tmp_path: Path) -> None:
    bring_findings(tmp_path, ["KAR", "ERG", "Zappa"] * 3 + ["Moon"], "Diag")
    with pytest.raises(ConfigError, match=r"'Diag': no term.*'kar' \(3\).*--label DISEASE=TERM") as refusal:
        draft(tmp_path, columns={"findings": "Diag"})
    assert "moon" not in str(refusal.value).lower()


def test_other_columns_of_findings_are_named(tmp_path: Path) -> None:
    table = [
        {"File": n, "Patient": n, "reader1": first, "reader2": second}
        for n, (first, second) in enumerate([("cardiomegaly;edema", "cardiomegaly"), ("none", "no finding")] * 3)
    ]
    bring(tmp_path, table)
    for columns, left in (({}, "reader2"), ({"findings": "reader2"}, "reader1")):
        notes = draft(tmp_path, columns=columns).notes
        assert any(f"'{left}' holds findings too: not used (--findings-column" in note for note in notes)


def test_a_disease_whose_column_holds_formulas_is_told_to_be_lost(tmp_path: Path) -> None:
    table = [{"File": n, "Patient": n, "Edema": n % 2, "Effusion": f"=B{n}", "Sum": f"=C{n}"} for n in range(6)]
    bring(tmp_path, table)
    notes = draft(tmp_path).notes
    assert any("formulas" in note and "'Effusion' (6), 'Sum' (6)" in note for note in notes)
    assert any(note.startswith("pleural_effusion is lost, for 'Effusion' holds formulas") for note in notes)
    bring(tmp_path, [{**row, "Edema": "=A1"} for row in table])
    with pytest.raises(ConfigError, match=r"edema is lost, for 'Edema' holds formulas"):
        draft(tmp_path)


def test_a_row_per_finding_is_not_cut(tmp_path: Path) -> None:
    names = ["edema", "Nodule/Mass", "normal", "normal", "mass", "nodule"] * 3
    table = [{"File": n // 2, "Patient": n // 2, "class_name": name} for n, name in enumerate(names)]
    bring(tmp_path, table)
    made = draft(tmp_path, layout="long")
    assert keys(made)["table"]["unlabelled"] == ["nodule/mass"]
    assert opened(tmp_path, made).frame["mass"].tolist()[:3] == pytest.approx([math.nan, 0, 1], nan_ok=True)
