"""The allow-list of DICOM elements: what may be named, what is read, and what is not."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from pydicom.datadict import tag_for_keyword
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

import chestfed
from chestfed.data.dicom import tags as dicom_tags
from chestfed.data.dicom.tags import DESCRIPTIONS, KEYS, PIXELS, ROLES, quiet, read, reason, refusal
from chestfed.data.images.decode import decode
from tests.data.images.test_decode import RAMP, dicom, save

#: Of the basic profile's table, one or more of each kind: names, numbers, dates, places, staff, free text.
IDENTIFYING = (
    *("PatientName", "PatientBirthDate", "PatientBirthTime", "PatientAddress", "PatientTelephoneNumbers"),
    *("OtherPatientIDs", "OtherPatientNames", "PatientMotherBirthName", "PatientBirthName", "MilitaryRank"),
    *("ReferringPhysicianName", "ReferringPhysicianAddress", "PerformingPhysicianName", "OperatorsName"),
    *("NameOfPhysiciansReadingStudy", "PhysiciansOfRecord", "RequestingPhysician", "ScheduledPerformingPhysicianName"),
    *("InstitutionName", "InstitutionAddress", "InstitutionalDepartmentName", "StationName", "DeviceSerialNumber"),
    *("StudyDate", "SeriesDate", "AcquisitionDateTime", "ContentTime", "AdmittingDate", "LastMenstrualDate"),
    *("PatientComments", "AdditionalPatientHistory", "Occupation", "EthnicGroup", "PatientReligiousPreference"),
    *("ResponsiblePerson", "ResponsibleOrganization", "PersonAddress", "VerifyingObserverName", "PersonName"),
    *("SOPInstanceUID", "FrameOfReferenceUID", "MedicalAlerts", "Allergies", "InsurancePlanIdentification"),
)


def test_only_one_module_opens_dicom_files() -> None:
    openers = set()
    root = Path(chestfed.__file__).parent
    names = {"dcmread", "read_file", "read_partial", "dcmread_deferred", "read_dataset"}
    texts = {file: file.read_text(encoding="utf-8") for file in root.rglob("*.py")}
    for file in (file for file, text in texts.items() if any(name in text for name in names)):
        for node in ast.walk(ast.parse(texts[file])):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            imported = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            if {name, *imported} & names:
                openers.add(file.relative_to(root).as_posix())
    assert openers == {"data/dicom/tags.py"}


def test_every_listed_element_is_standard() -> None:
    names = {*PIXELS, *KEYS, *DESCRIPTIONS, *(tag for tags in ROLES.values() for tag in tags)}
    assert [name for name in names if tag_for_keyword(name) is None] == []


@pytest.mark.parametrize("tag", IDENTIFYING)
def test_identifying_elements_are_refused(tag: str) -> None:
    assert tag_for_keyword(tag) is not None
    for role in ROLES:
        reason = refusal(role, tag)
        assert reason is not None
        assert tag in reason
        assert "PS3.15" in reason


@pytest.mark.parametrize("tag", KEYS)
def test_names_of_patients_only_group(tag: str) -> None:
    allowed = [role for role in ROLES if refusal(role, tag) is None]
    assert allowed == ["patient", "study"]
    assert "only group images" in str(refusal("sex", tag))


def test_elements_are_named_by_keyword() -> None:
    for tag in ("(0010,0010)", "00100010", "(0009,1001)", "Secret", ""):
        assert refusal("findings", tag) is not None


def test_unlisted_elements_cannot_be_read(tmp_path: Path) -> None:
    path = save(dicom((RAMP * 4095).astype(np.uint16)), tmp_path / "a.dcm")
    with pytest.raises(ValueError, match="allow-list"):
        read(path, ["PatientName"])


def test_reading_leaves_only_what_is_named(tmp_path: Path) -> None:
    item, lut = Dataset(), Dataset()
    item.PatientName = "Inside^Sequence"
    lut.LUTDescriptor, lut.LUTExplanation, lut.LUTData = [4096, 0, 16], "Doe's own", list(range(4096))
    source = dicom((RAMP * 4095).astype(np.uint16), OtherPatientIDsSequence=Sequence([item]))
    source.VOILUTSequence = Sequence([lut])
    source["VOILUTSequence"].value[0]["LUTDescriptor"].VR = "US"
    source["VOILUTSequence"].value[0]["LUTData"].VR = "US"
    source.ImageComments = "Edema"
    source.private_block(0x0009, "DOE", create=True).add_new(1, "LO", "Private^Jane")
    source.file_meta.SourceApplicationEntityTitle = "META"
    with quiet():
        header = read(save(source, tmp_path / "a.dcm"), ["ImageComments"])
        assert set(header.dir()) <= {"ImageComments", "SpecificCharacterSet"}
        assert len(header) == 1
        assert [element.keyword for element in header.file_meta] == ["TransferSyntaxUID"]
        whole = read(tmp_path / "a.dcm", (), pixels=True)
    assert {element.keyword for element in whole} <= {*PIXELS, "SpecificCharacterSet"}
    assert {element.keyword for element in whole.VOILUTSequence[0]} == {"LUTDescriptor", "LUTData"}
    assert decode(tmp_path / "a.dcm").shape == RAMP.shape


def test_overlays_and_burned_in_are_listed(tmp_path: Path) -> None:
    source = dicom((RAMP * 4095).astype(np.uint16), BurnedInAnnotation="YES")
    source.add_new((0x6002, 0x0010), "US", 64)
    source.add_new((0x6002, 0x0022), "LO", "Doe^Jane")
    with quiet():
        header = read(save(source, tmp_path / "a.dcm"), dicom_tags.BURNED_IN)
    assert (header.BurnedInAnnotation, header[0x6002, 0x0010].value, len(header)) == ("YES", 64, 2)


def test_the_reason_repeats_no_word() -> None:
    message = reason(ValueError("Invalid value 'Doe^Jane' for VR"))
    assert message == "its pixels are truncated or do not match its header (ValueError)"
    assert reason(OSError("unexpected end in 'Doe^Jane'")) == "it ends too early (OSError)"
    assert reason(FileNotFoundError(2, "No such file or directory", "Doe^Jane.dcm")) == "No such file or directory"
