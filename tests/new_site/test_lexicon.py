"""What the words of a table mean, and that nothing is taken for what it only resembles."""

from __future__ import annotations

import tempfile
from importlib import resources
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.config import Document
from chestfed.core.diseases import TITLES
from chestfed.new_site import lexicon
from chestfed.new_site.describe import Said, flow, yaml_text
from chestfed.new_site.diseases import disease_of, suggest, suggest_value
from chestfed.new_site.lexicon import VIEWS, plain, view_of
from chestfed.sites.reader import NEGATIVE

#: Columns, and the disease that each is about.
COLUMNS = {
    "pleural_effusion": "Pleural Effusion; effusion; pleural_fluid; Left pleural effusion; PleuralEffusion; "
    "Plueral effusion; Pleuraerguss; Pleuraerguß; derrame pleural izquierdo; Épanchement pleural; "
    "e\u0301panchement; Effusion (left)",
    "cardiomegaly": "Enlarged heart; HERZVERGRÖSSERUNG; Cardiomegalia; Cardiomegely",
    "edema": "Lung edema; pulmonary oedema; Lungenödem; Edema agudo de pulmón; œdème pulmonaire",
    "consolidation": "Consolidação; Konsolidierung; Konsolidierungen",
    "atelectasis": "Atelektase; laminar atelectasis; plate-like atelectasis",
    "pneumothorax": "Pneumotórax",
}
#: Names that only resemble one, are denied, have a sign that may reverse them, or letters added.
NONE = (
    "Pericardial effusion; Enlarged Cardiomediastinum; subcutaneous emphysema; Pleural Other; Lung Opacity; "
    "Fracture; heart; Rippenfraktur; scoliosis; Support Devices; lung; left; no finding; Effusion (-); edema?; "
    "no: (?) edema; +/- edema; Edema (left?); edema-; cardiomegaly0; effusion2; cardiomegalyno; Atelectasis1; "
    "consolidationex; No Pleural Effusion; no_enlarged_heart; ohne Lungenkonsolidierung; NOCONSOLIDATION;"
)


def test_a_column_is_about_a_disease_in_several_languages() -> None:
    for disease, names in COLUMNS.items():
        for name in names.split("; "):
            match = disease_of(name)
            assert match is not None, name
            assert match.disease == disease, name


def test_what_only_resembles_a_disease_is_none() -> None:
    for name in NONE.split("; "):
        assert disease_of(name.removesuffix(";")) is None, name
    assert disease_of("") is None


def test_the_lexicon_holds_only_text_and_no_name_of_two_diseases() -> None:
    data = yaml.safe_load(resources.files("chestfed.new_site").joinpath("lexicon.yaml").read_text(encoding="utf-8"))

    def texts(node: object) -> list[object]:
        if isinstance(node, dict):
            return [*node, *(text for inner in node.values() for text in texts(inner))]
        return [text for inner in node for text in texts(inner)] if isinstance(node, list) else [node]

    assert all(isinstance(text, str) and text for text in texts(data))
    assert set(data["diseases"]) <= set(TITLES)
    of = [
        (plain(name), disease)
        for disease, names in data["diseases"].items()
        for inner in names.values()
        for name in inner
    ]
    assert len({name for name, _ in of}) == len(set(of))
    both = {name for name, _ in of} & (lexicon.LOOKALIKES | lexicon.UNRELATED | lexicon.NORMAL | lexicon.MAYBE_NORMAL)
    assert not both


@given(
    st.sampled_from(sorted(lexicon.NAMES)),
    st.sampled_from(["", *lexicon.DENIALS]),
    st.sampled_from(["", *lexicon.DOUBTS]),
)
def test_only_a_denial_in_front_of_a_whole_name_denies_without_a_person(name: str, denial: str, doubt: str) -> None:
    def joined(first: str, rest: str) -> str:
        return rest if not first else first + rest if first.endswith(("'", "’")) else f"{first} {rest}"

    found = suggest(joined(denial, joined(doubt, name)))
    denies = found.meaning is not None and NEGATIVE in found.meaning.findings.values()
    assert not (found.exact and denies) or (denial and not doubt and not lexicon.NAMES[name].kind)
    if denial and not doubt and not lexicon.NAMES[name].kind:
        assert found.exact
        assert denies


@given(st.text(max_size=30), st.sampled_from(sorted(lexicon.NAMES)), st.text(max_size=30))
def test_text_around_a_name_never_denies_it_without_a_person(before: str, name: str, behind: str) -> None:
    term = " ".join(f"{before} {name} {behind}".lower().split())
    found = suggest(term)
    if found.exact and found.meaning is not None and NEGATIVE in found.meaning.findings.values():
        assert any(term.startswith(denial) for denial in lexicon.DENIALS), term


def test_a_value_beside_a_finding_denies_only_whole_names() -> None:
    for term, says, meaning, exact in (
        ("edema", "positive", "edema", True),
        ("edema", "negative", "edema absent", True),
        ("edema", "uncertain", "edema uncertain", True),
        ("left edema", "negative", "edema absent", False),
        ("plattenatelektase", "negative", "atelectasis absent", False),
        ("normal", "negative", "None", False),
        ("no edema", "negative", "None", False),
        ("edema", "blank", "None", False),
        ("edema", None, "None", False),
    ):
        found = suggest_value(term, says)
        assert (str(found.meaning), found.exact) == (meaning, exact), (term, says)


def test_names_are_compared_without_accents_capitals_and_signs() -> None:
    assert plain("ID_Paciente") == plain("idPaciente") == "id paciente"
    assert plain("Größe (cm)") == "grosse cm"


VIEW_WORDS = {
    "pa": "dorsoventral; dorso-ventral; p.a. stehend; Thorax p.a.; face PA",
    "ap": "ventrodorsal; face couchée; face au lit; a.p. liegend; liegend; im Liegen; decúbito; decúbito supino; "
    "couché; supine; portable AP; AP semi-erect; AP_horizontal; bedside; decubitus dorsal; mobile chest; AP (bedside)",
    "frontal": "face; de frente; frontal debout",
    "lateral": "seitl.; seitlich links; de profil; RX TORAX LAT IZQ; lateral supine; left lateral; L; LL li.; "
    "lateral izquierda",
    "other": "left lateral decubitus; decúbito lateral izquierdo; oblique",
    None: "debout; stehend; de pie; erect; PA/LAT; pa lateral; 2 views; 1; R; Müller; left; chest; ",
}


def test_a_view_is_recognized_whatever_words_of_side_and_posture_are_beside_it() -> None:
    for view, words in VIEW_WORDS.items():
        for word in words.split("; "):
            assert view_of(word) == view, word
    for word, view in VIEWS.items():
        for beside in ("links", "stehend", "chest", "de pie"):
            assert view_of(f"{word} {beside}") == view_of(f"{beside} {word}") == view_of(word) == view, word


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(st.lists(TEXTS | st.sampled_from(["1e3", "no", "- a", "{x}", "a: b", "#", "~"])))
def test_any_text_comes_back_from_the_yaml_as_it_was(texts: list[str]) -> None:
    keys = {f"k{number}": Said(text, "c" * 100) for number, text in enumerate(texts)}
    keys = {"long": Said(texts, "why\nnot"), **keys, "map": Said(dict.fromkeys(texts, "x"))}
    text = yaml_text([{"a": Said(keys, "a comment with: signs # of YAML")}])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.yaml")
        path.write_text(text, encoding="utf-8")
        data = Document(path).data["a"]
    assert data["long"] == texts
    assert [data[f"k{number}"] for number in range(len(texts))] == texts
    assert list(data["map"]) == list(dict.fromkeys(texts))


def test_values_are_on_one_line_in_flow_style() -> None:
    assert flow({"a": ["b", "1", True]}) == '{a: [b, "1", true]}'


@pytest.mark.parametrize("term", ["-edema", "edema-", "edema: no", "!edema", "edema?!", "~normal", "possible normal"])
def test_signs_and_doubts_that_may_reverse_a_term_leave_it_to_a_person(term: str) -> None:
    assert not suggest(term).exact
