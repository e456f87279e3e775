"""What the words of a table mean, and that nothing is taken for what it only resembles."""

from __future__ import annotations

from importlib import resources

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.diseases import TITLES
from chestfed.data.sites import lexicon
from chestfed.data.sites.lexicon import WORDS, name_disease, name_side, name_view, plain, suggest
from chestfed.data.sites.reader import NEGATIVE
from tests.cases import each

#: Columns, and the disease that each is about.
COLUMNS = {
    "pleural_effusion": "Pleural Effusion; effusion; pleural_fluid; PleuralEffusion; Pleuraerguss; Pleuraerguß; "
    "derrame pleural; Épanchement pleural; e\u0301panchement",
    "cardiomegaly": "Enlarged heart; HERZVERGRÖSSERUNG; Cardiomegalia; 3. Cardiomegaly",
    "edema": "Lung edema; pulmonary oedema; Lungenödem; Edema agudo de pulmón; œdème pulmonaire",
    "consolidation": "Consolidação; Konsolidierung",
    "atelectasis": "Atelektase; Atelektasen",
    "pneumothorax": "Pneumotórax",
}
#: Names that only resemble one, are denied, have a sign that may reverse them, or letters added.
NONE = (
    "Pericardial effusion; Enlarged Cardiomediastinum; subcutaneous emphysema; Pleural Other; Lung Opacity; "
    "Fracture; heart; Rippenfraktur; scoliosis; Support Devices; lung; left; no finding; Effusion (-); edema?; "
    "no: (?) edema; +/- edema; Edema (left?); edema-; cardiomegaly0; effusion2; cardiomegalyno; Atelectasis1; "
    "Plueral effusion; Cardiomegely; consolidationex; No Pleural Effusion; no_enlarged_heart; "
    "ohne Lungenkonsolidierung; NOCONSOLIDATION; Left pleural effusion; New edema; laminar atelectasis;"
)


def test_columns_in_languages_name_a_disease() -> None:
    for disease, names in COLUMNS.items():
        for name in names.split("; "):
            assert name_disease(name) == disease, name


def test_side_of_a_disease_is_named() -> None:
    for name in ("Left pleural effusion", "derrame pleural izquierdo", "Effusion (left)", "Erguss_re"):
        assert name_side(name) == "pleural_effusion"
    for name in ("Pleural effusion", "New pleural effusion", "left", "left pericardial effusion"):
        assert name_side(name) is None


def test_what_resembles_a_disease_is_none() -> None:
    for name in NONE.split("; "):
        assert name_disease(name.removesuffix(";")) is None, name
    assert name_disease("") is None


def test_lexicon_holds_text_for_one_disease() -> None:
    data = yaml.safe_load(resources.files("chestfed.data.sites").joinpath("lexicon.yaml").read_text(encoding="utf-8"))

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
    both = {name for name, _ in of} & (
        lexicon.LOOKALIKES | lexicon.UNRELATED | lexicon.NO_FINDING | lexicon.MAYBE_NORMAL
    )
    assert not both


@given(st.text(max_size=30), st.sampled_from(sorted(lexicon.NAMES)), st.text(max_size=30))
def test_no_denial_or_doubt_is_certain(before: str, name: str, behind: str) -> None:
    suggestion = suggest(" ".join(f"{before} {name} {behind}".lower().split()))
    if suggestion.certain:
        assert suggestion.meaning is not None
        assert NEGATIVE not in suggestion.meaning.findings.values()


@pytest.mark.parametrize(
    ("term", "meaning", "certain"),
    [
        ("edema", "edema", True),
        ("no finding", "normal", True),
        ("rib fracture", "ignore", True),
        ("no edema", "edema absent", False),
        ("v.a. lungenödem", "edema uncertain", False),
        ("edema?", "edema uncertain", False),
        ("small left effusion", "pleural_effusion", False),
        ("no plattenatelektase", "None", False),
        ("no edema, effusion", "None", False),
        ("pericardial effusion and edema", "edema", False),
        ("müller", "None", False),
        ("z.n. pneumonie", "None", False),
        ("history of pneumonia", "None", False),
        ("kardiomegalie (grenzwertig)", "None", False),
        ("dd pneumonie", "None", False),
        ("ausschluss lungenödem", "None", False),
        ("v.a. kardiomegalie / erguss", "None", False),
        ("r/o pneumonia", "None", False),
    ],
)
def test_terms_are_proposed(term: str, meaning: str, certain: bool) -> None:
    assert (str(suggest(term).meaning), suggest(term).certain) == (meaning, certain)


def test_names_ignore_accents_and_capitals() -> None:
    assert plain("ID_Paciente") == plain("idPaciente") == "id paciente"
    assert plain("Größe (cm)") == "grosse cm"


VIEW_WORDS = {
    "pa": "dorsoventral; dorso-ventral; p.a. stehend; Thorax p.a.; face PA",
    "ap": "ventrodorsal; face couchée; face au lit; a.p. liegend; liegend; im Liegen; decúbito; decúbito supino; "
    "couché; supine; portable AP; AP semi-erect; AP_horizontal; bedside; decubitus dorsal; mobile chest; AP (bedside)",
    "frontal": "face; de frente; frontal debout",
    "lateral": "seitl.; seitlich links; de profil; RX TORAX LAT IZQ; lateral supine; left lateral; LL li.; "
    "lateral izquierda",
    "other": "left lateral decubitus; decúbito lateral izquierdo; oblique",
    None: "debout; stehend; de pie; erect; PA/LAT; pa lateral; 2 views; 1; R; L; Müller; left; chest; ",
}


def test_view_is_read_beside_posture() -> None:
    for view, words in VIEW_WORDS.items():
        for word in words.split("; "):
            assert name_view(word) == view, word
    for word, view in WORDS["view"].items():
        for beside in ("links", "stehend", "chest", "de pie"):
            assert name_view(f"{word} {beside}") == name_view(f"{beside} {word}") == name_view(word) == view, word


@pytest.mark.parametrize("term", ["-edema", "edema-", "edema: no", "!edema", "edema?!", "~normal", "possible normal"])
def test_reversing_signs_are_for_a_person(term: str) -> None:
    assert not suggest(term).certain


@each(
    ("kind", "value", "meaning", "opposite"),
    [
        ("label", "no", "positive", True),
        ("label", "nein", "positive", True),
        ("label", "yes", "negative", True),
        ("label", "yes", "uncertain", False),
        ("label", "1", "negative", False),
        ("sex", "male", "F", True),
        ("sex", "m", "F", False),
        ("view", "lateral", "frontal", True),
        ("view", "pa", "frontal", False),
        ("split", "training", "test", True),
        ("split", "validation", "test", False),
        ("finding", "no edema", "edema", True),
        ("finding", "edema", "edema absent", True),
        ("finding", "edema", "normal", True),
        ("finding", "no finding", "edema", True),
        ("finding", "edema", "edema uncertain", False),
        ("finding", "edema in remission", "edema absent", False),
        ("finding", "edema", "ignore", False),
    ],
)
def test_opposite_meanings_are_known(kind: str, value: str, meaning: str, opposite: bool) -> None:
    assert lexicon.is_opposite(kind, value, meaning) == opposite
