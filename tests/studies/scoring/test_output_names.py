"""The names of a model's outputs, in the spelling of whoever trained it."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.errors import ConfigError
from chestfed.studies.scoring.output_names import name_outputs, read_output_names, select_own_outputs
from tests.cases import assert_refused

FILE = Path("model.onnx")

#: `pathologies` of a TorchXRayVision model trained on NIH's images; outputs that it was not trained for are empty.
XRV = [
    *("Atelectasis", "Consolidation", "Infiltration", "Pneumothorax", "Edema", "Emphysema", "Fibrosis", "Effusion"),
    *("Pneumonia", "Pleural_Thickening", "Cardiomegaly", "Nodule", "Mass", "Hernia", "", "", "", "Lung Opacity"),
]


def test_case_and_aliases_do_not_matter() -> None:
    outputs = ["Cardiomegaly", "EDEMA", "consolidation ", "Pleural Thickening", "Pleural_Effusion"]
    names, notes = name_outputs(FILE, None, outputs)
    assert names == ("cardiomegaly", "edema", "consolidation", "pleural_thickening", "pleural_effusion")
    assert notes == ()
    for name in ("Effusion", "pleural-effusion", "Pleural Effusion"):
        assert name_outputs(FILE, None, [name])[0] == ("pleural_effusion",)


def test_an_output_may_be_any_disease() -> None:
    names, notes = name_outputs(FILE, None, XRV)
    assert names[7] == "pleural_effusion"
    assert names[9] == "pleural_thickening"
    assert names[14:] == ("-", "-", "-", "lung_opacity")
    assert notes == ()
    assert name_outputs(FILE, None, ["COVID-19", "Rib notching"])[0] == ("covid_19", "rib_notching")


def test_outputs_without_names_are_ignored() -> None:
    names, notes = name_outputs(FILE, None, ["Edema", "1st class", "mean"])
    assert names == ("edema", "-", "-")
    assert notes[0].startswith("2 of 3 outputs")


def test_misspelled_disease_is_refused() -> None:
    with assert_refused(ConfigError, "unknown output"):
        name_outputs(FILE, None, ["Cardiomegalie", "Edema"])


def test_missing_or_repeated_names_refused() -> None:
    for carried, declared, kind in (
        (None, None, "unnamed outputs"),
        (None, ["edema", "Edema"], "repeated output"),
        (None, ["1", "2"], "no disease"),
        (["edema", "mass"], ["mass", "edema"], "contradicted outputs"),
        (["edema", "mass"], ["edema"], "contradicted outputs"),
    ):
        with assert_refused(ConfigError, kind):
            name_outputs(FILE, carried, declared)


def test_carried_names_are_not_contradicted() -> None:
    assert name_outputs(FILE, ["Effusion", "Fracture"], ["pleural_effusion", "-"])[0] == ("pleural_effusion", "-")
    assert select_own_outputs(FILE, ["positive", "edema"], ["-", "Edema"]) == ("-", "edema")
    assert select_own_outputs(FILE, ["positive"], None) == ("positive",)
    with assert_refused(ConfigError, "contradicted outputs"):
        select_own_outputs(FILE, ["edema", "mass"], ["mass", "edema"])


def test_program_carries_a_list_of_names() -> None:
    assert read_output_names(FILE, '["edema"]') == ["edema"]
    assert read_output_names(FILE, None) is None
    for text in ("{", "[]", '"edema"', "[1]"):
        with assert_refused(ConfigError, "not a list of names"):
            read_output_names(FILE, text)
