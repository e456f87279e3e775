"""What the words of a table mean, and that nothing is taken for what it only resembles."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.config import Document
from chestfed.new_site.diseases import disease_of
from chestfed.new_site.terms import look_at_terms, read_term
from chestfed.new_site.words import VIEWS, plain, view_of
from chestfed.new_site.yaml_text import Page, flow


@pytest.mark.parametrize(
    ("name", "disease"),
    [
        ("Pleural Effusion", "pleural_effusion"),
        ("effusion", "pleural_effusion"),
        ("pleural_fluid", "pleural_effusion"),
        ("Left pleural effusion", "pleural_effusion"),
        ("PleuralEffusion", "pleural_effusion"),
        ("Plueral effusion", "pleural_effusion"),
        ("Pleuraerguss", "pleural_effusion"),
        ("Pleuraerguß", "pleural_effusion"),
        ("derrame pleural izquierdo", "pleural_effusion"),
        ("Épanchement pleural", "pleural_effusion"),
        ("Enlarged heart", "cardiomegaly"),
        ("HERZVERGRÖSSERUNG", "cardiomegaly"),
        ("Cardiomegalia", "cardiomegaly"),
        ("Lung edema", "edema"),
        ("pulmonary oedema", "edema"),
        ("Lungenödem", "edema"),
        ("Edema agudo de pulmón", "edema"),
        ("œdème pulmonaire", "edema"),
        ("Consolidação", "consolidation"),
        ("Konsolidierung", "consolidation"),
        ("Atelektase", "atelectasis"),
        ("laminar atelectasis", "atelectasis"),
        ("Pneumotórax", "pneumothorax"),
    ],
)
def test_a_name_means_a_disease_in_several_languages(name: str, disease: str) -> None:
    match = disease_of(name)
    assert match is not None
    assert match.disease == disease


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Pericardial effusion",
            "Enlarged Cardiomediastinum",
            "subcutaneous emphysema",
            "Pleural Other",
            "Lung Opacity",
        ),
        *("Fracture", "Rippenfraktur", "scoliosis", "Support Devices", "", "heart", "lung", "left", "no finding"),
    ],
)
def test_what_only_resembles_a_disease_is_none(name: str) -> None:
    assert disease_of(name) is None


@pytest.mark.parametrize("name", ["Effusion (-)", "edema?", "no: (?) edema", "+/- edema", "Edema (left?)", "edema-"])
def test_a_header_with_a_sign_that_may_turn_it_round_is_no_disease(name: str) -> None:
    assert disease_of(name) is None


@pytest.mark.parametrize("name", ["cardiomegaly0", "effusion2", "cardiomegalyno", "Atelectasis1", "consolidationex"])
def test_letters_behind_a_name_make_no_spelling_near_to_it(name: str) -> None:
    assert disease_of(name) is None


@pytest.mark.parametrize(
    "name", ["Pleural_Effusion", "Effusion (left)", "e\u0301panchement", "plate-like atelectasis", "Konsolidierungen"]
)
def test_signs_that_only_divide_words_leave_a_name_clear(name: str) -> None:
    assert disease_of(name) is not None


def test_a_spelling_near_to_a_name_says_so() -> None:
    match = disease_of("Cardiomegely")
    assert match is not None
    assert (match.disease, match.how) == ("cardiomegaly", "a spelling near to it")


@pytest.mark.parametrize(
    ("term", "word", "denied", "doubted"),
    [
        ("No edema", "edema", "no", ""),
        ("possible Edema", "edema", "", "possible"),
        ("Effusion?", "effusion", "", "?"),
        ("sin derrame pleural", "derrame pleural", "sin", ""),
        ("V.a. Pleuraerguss", "pleuraerguss", "", "v.a."),
        ("kein  Lungenödem", "lungenödem", "kein", ""),
    ],
)
def test_denial_and_doubt_are_taken_off_a_term(term: str, word: str, denied: str, doubted: str) -> None:
    read = read_term(term)
    assert (read.word, read.denied, read.doubted) == (word, denied, doubted)
    assert read.diseases


@pytest.mark.parametrize("term", ["-edema", "edema-", "edema: no", "!edema", "edema?!", "~normal"])
def test_signs_that_may_turn_a_term_round_make_it_unknown(term: str) -> None:
    assert not read_term(term).known


def test_no_finding_is_no_denied_finding() -> None:
    assert read_term("No finding").kind == "healthy"
    assert not read_term("possible normal").known


@pytest.mark.parametrize("separator", ["|", ";", ",", "/"])
def test_the_separator_is_the_one_that_yields_known_terms(separator: str) -> None:
    cells = [f"edema{separator} effusion", "normal", f"mass{separator}nodule{separator}atelectasis"] * 5
    found = look_at_terms(pd.Series(cells, name="x"), sample=True)
    assert found is not None
    assert found.separator == separator
    assert found.diseases == {"edema", "pleural_effusion", "mass", "nodule", "atelectasis"}


def test_names_are_compared_without_accents_capitals_and_signs() -> None:
    assert plain("ID_Paciente") == plain("idPaciente") == "id paciente"
    assert plain("Größe (cm)") == "grosse cm"


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(st.lists(TEXTS | st.sampled_from(["1e3", "no", "- a", "{x}", "a: b", "#", "~"])))
def test_any_text_comes_back_from_the_yaml_as_it_was(texts: list[str]) -> None:
    page = Page()
    page.section("a", "a comment with: signs # of YAML")
    page.key("long", texts, "why\nnot")
    for number, text in enumerate(texts):
        page.key(f"k{number}", text, "c" * 100)
    page.key("map", dict.fromkeys(texts, "x"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.yaml")
        path.write_text(page.text(), encoding="utf-8")
        data = Document(path).data["a"]
    assert data["long"] == texts
    assert [data[f"k{number}"] for number in range(len(texts))] == texts
    assert list(data["map"]) == list(dict.fromkeys(texts))


def test_values_stand_on_one_line_in_flow_style() -> None:
    assert flow({"a": ["b", "1", True]}) == '{a: [b, "1", true]}'


@pytest.mark.parametrize(
    "name", ["No Pleural Effusion", "no_enlarged_heart", "ohne Lungenkonsolidierung", "NOCONSOLIDATION"]
)
def test_a_denied_name_is_not_near_to_the_name(name: str) -> None:
    assert disease_of(name) is None


@pytest.mark.parametrize(
    ("word", "view"),
    [
        *((word, "pa") for word in ("dorsoventral", "dorso-ventral", "p.a. stehend", "Thorax p.a.", "face PA")),
        *(
            (word, "ap")
            for word in ("ventrodorsal", "face couchée", "face au lit", "a.p. liegend", "liegend", "im Liegen")
        ),
        *((word, "ap") for word in ("decúbito", "decúbito supino", "couché", "supine", "portable AP", "AP semi-erect")),
        *((word, "ap") for word in ("AP_horizontal", "bedside", "decubitus dorsal", "mobile chest", "AP (bedside)")),
        *((word, "frontal") for word in ("face", "de frente", "frontal debout")),
        *(
            (word, "lateral")
            for word in ("seitl.", "seitlich links", "de profil", "RX TORAX LAT IZQ", "lateral supine")
        ),
        *((word, "lateral") for word in ("left lateral", "lateral izquierda", "L", "LL li.")),
        *((word, "other") for word in ("left lateral decubitus", "decúbito lateral izquierdo", "oblique")),
        *(
            (word, None)
            for word in ("debout", "stehend", "de pie", "erect", "PA/LAT", "pa lateral", "2 views", "1", "R")
        ),
        *((word, None) for word in ("Müller", "", "left", "chest")),
    ],
)
def test_a_view_is_told_by_its_words_whatever_stands_beside_them(word: str, view: str | None) -> None:
    assert view_of(word) == view


@pytest.mark.parametrize("view", sorted(VIEWS))
@pytest.mark.parametrize("beside", ["links", "stehend", "chest", "de pie"])
def test_side_and_posture_change_no_view(view: str, beside: str) -> None:
    assert view_of(f"{view} {beside}") == view_of(view) == VIEWS[view]
    assert view_of(f"{beside} {view}") == VIEWS[view]
