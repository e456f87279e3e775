"""DICOM files with a recognizable string in every element that could hold one, and the search for these strings.

The strings go into every text element of the standard's dictionary but the few that a site's YAML uses, and into
private elements, nested sequences, the file meta information, overlays, the preamble and the padding at the end.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pydicom.datadict import DicomDictionary
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

#: Begins every planted text.
MARK = "ZQXKANAR"
#: Within every planted UID; a planted date; a planted number; a name that is not ASCII.
UID, DATE, NUMBER, NAME = "98761234567", "19470813", "73421779", "Müllerschönbär"

_TEXTS = {"AE", "CS", "LO", "LT", "PN", "SH", "ST", "UC", "UR", "UT"}
#: Elements that are set to what the site needs, or that change how pixels are read.
_USED = {"SpecificCharacterSet", "PhotometricInterpretation", "ViewPosition", "PatientSex", "ImageComments"}
_USED |= {"VOILUTFunction", "PixelPresentation", "PatientOrientation", "BodyPartExamined"}


def planted(pixels: np.ndarray, patient: int, comments: str) -> Dataset:
    """A radiograph of uint16 `[h, w]` with the strings; what the site's YAML names is set to plain words."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.SpecificCharacterSet = "ISO_IR 192"
    _plant_dictionary(dataset)
    dataset.PatientName = f"{MARK}^{NAME}"
    dataset.PatientID, dataset.StudyInstanceUID = f"{MARK}P{patient:04d}", f"1.2.{UID}.{patient}"
    dataset.ViewPosition, dataset.PatientSex, dataset.PatientAge = "PA", "F", "063Y"
    dataset.ImageComments = comments
    dataset.SOPClassUID = DigitalXRayImageStorageForPresentation

    inner = Dataset()
    inner.PatientName, inner.PatientID = f"{MARK}INNER^{NAME}", f"{MARK}INNER"
    inner.private_block(0x0009, f"{MARK} NESTED", create=True).add_new(1, "LO", f"{MARK}DEEP")
    dataset.OtherPatientIDsSequence = Sequence([inner])
    dataset.RequestAttributesSequence = Sequence([inner])
    dataset["RequestAttributesSequence"].is_undefined_length = True
    private = dataset.private_block(0x0011, f"{MARK} PRIVATE", create=True)
    private.add_new(1, "LO", f"{MARK}LO")
    private.add_new(2, "OB", MARK.encode())
    private.add_new(3, "SQ", Sequence([inner]))

    height, width = pixels.shape
    dataset.add_new((0x6000, 0x0010), "US", 8)
    dataset.add_new((0x6000, 0x0011), "US", 8 * len(MARK))
    dataset.add_new((0x6000, 0x0022), "LO", f"{MARK}OVERLAY")
    dataset.add_new((0x6000, 0x0040), "CS", "G")
    dataset.add_new((0x6000, 0x0050), "SS", [1, 1])
    dataset.add_new((0x6000, 0x0100), "US", 1)
    dataset.add_new((0x6000, 0x0102), "US", 0)
    dataset.add_new((0x6000, 0x3000), "OB", MARK.encode() * 8)
    dataset.add_new((0xFFFC, 0xFFFC), "OB", MARK.encode())

    dataset.Rows, dataset.Columns = height, width
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    dataset.WindowCenter, dataset.WindowWidth = "2048", "4096"
    dataset.PixelData = pixels.astype(np.uint16).tobytes()

    meta = dataset.file_meta
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = dataset.SOPClassUID, dataset.SOPInstanceUID
    meta.SourceApplicationEntityTitle = meta.ImplementationVersionName = f"{MARK}META"
    meta.PrivateInformationCreatorUID, meta.PrivateInformation = f"1.2.{UID}", MARK.encode()
    dataset.preamble = (MARK.encode() * 16)[:128]
    return dataset


def save(dataset: Dataset, path: Path) -> Path:
    """Write it as a DICOM file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path


def found_in(folders: list[Path], texts: list[str], also: list[str] | None = None) -> list[str]:
    """Where a planted string is: in the path or the bytes of any file below the folders, or in the texts.

    `also` are further strings to look for.
    """
    words = {word.lower() for word in _spellings(also or [])}
    places = []

    def look(where: str, content: bytes, around: int) -> None:
        lower = content.lower()  # a search per word takes a ninth of the time of one expression of all
        if hits := [place for word in words if (place := lower.find(word)) >= 0]:
            part = content[max(0, min(hits) - around) : min(hits) + 2 * around]
            places.append(f"{where}: ...{part!r}...")

    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            for what, content in (("name", path.relative_to(folder).as_posix().encode()), *_contents(path)):
                look(f"{path} {what}", content, 40)
    for text in texts:
        look("output", text.encode(), 80)
    return places


def _plant_dictionary(dataset: Dataset) -> None:
    for number, (vr, _, _, _, keyword) in DicomDictionary.items():
        group = number >> 16
        if group < 0x0008 or group >= 0x5000 or not keyword or keyword in _USED:
            continue
        if vr in _TEXTS:
            dataset.add_new(number, vr, f"{MARK}{number:08X}")
        elif vr == "UI":
            dataset.add_new(number, vr, f"1.2.{UID}.{number}")
        elif vr == "DA":
            dataset.add_new(number, vr, DATE)
        elif vr == "DT":
            dataset.add_new(number, vr, f"{DATE}101112")
        elif vr in ("DS", "IS") and group in (0x0010, 0x0020, 0x0040):
            dataset.add_new(number, vr, NUMBER)


def _spellings(also: list[str]) -> Iterator[bytes]:
    """The strings in plain, UTF-16, hexadecimal digits and base64; what is not ASCII in three codes."""
    for text in (MARK, UID, DATE, NUMBER, *also):
        plain = text.encode()
        yield from (plain, text.encode("utf-16-le"), text.encode("utf-16-be"), plain.hex().encode())
        for shift in range(3):  # base64 depends on what stands before; its ends are cut, for they mix with neighbors
            coded = base64.b64encode(b"\0" * shift + plain + b"\0" * (-(shift + len(plain)) % 3))
            start = -(-shift * 8 // 6)
            yield coded[start : start + (len(plain) * 8 - (6 - shift * 8 % 6) % 6) // 6]
    for code in ("utf-8", "latin-1", "utf-16-le"):
        yield NAME.encode(code)


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    yield "bytes", path.read_bytes()
    if path.suffix == ".parquet":  # compressed inside
        frame = pd.read_parquet(path)
        yield "cells", frame.to_csv().encode()
        yield "attributes", repr(frame.attrs).encode()
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            for name in arrays.files:
                yield name, arrays[name].tobytes()
