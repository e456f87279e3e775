"""Where a film goes in each hospital's layout, and how its file is encoded."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image

from chestfed.core.randomness import numpy_stream
from chestfed.leaves.samples.patients import Film

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

#: The largest stored value of 12-bit content.
MAX_12_BIT = 4095
#: That of PadChest's files.
MAX_16_BIT = 65_535

#: Written into every picture file.
COMMENT: Final = "SYNTHETIC phantom, no patient"

_PNG: Final = b"\x89PNG\r\n\x1a\n"
#: PNG's color types of gray and RGBA.
_COLOR_TYPES: Final = {"L": 0, "I;16": 0, "RGBA": 6}


def identifier(*name: object, length: int = 32) -> str:
    """A name that looks like those of the real set, from the parts that identify the film."""
    return hashlib.blake2b("/".join(map(str, name)).encode(), digest_size=16).hexdigest()[:length]


def chexpert_path(film: Film) -> str:
    """`train/patient00001/study1/view1_frontal.jpg`."""
    side = "lateral" if film.view == "lateral" else "frontal"
    return f"{film.split}/patient{film.patient.number:05d}/study{film.study}/view{film.number}_{side}.jpg"


def chestxray8_name(film: Film) -> str:
    """`00000001_000.png`."""
    return f"{film.patient.number:08d}_{film.study - 1:03d}.png"


def padchest_folder(film: Film) -> int:
    """`ImageDir`."""
    return film.patient.number % 3


def padchest_name(film: Film) -> str:
    """A long number and three shorter ones, as in the release."""
    digits = str(int(identifier("padchest", film.patient.number, film.study, film.number), 16))
    return f"{digits[:30]}_00-{digits[30:33].zfill(3)}-{film.number:03d}.png"


def padchest_monochrome1(film: Film) -> bool:
    """Whether the column says MONOCHROME1, as of one study in six."""
    return int(identifier("photometric", film.patient.number, film.study), 16) % 6 == 0


def padchest_inverted(film: Film) -> bool:
    """Whether the picture is stored as a negative: in one of eight studies of MONOCHROME1 the column is wrong."""
    wrong = int(identifier("photometric", film.patient.number, film.study), 16) % 48 == 24
    return padchest_monochrome1(film) and not wrong


def mimic_ids(film: Film) -> tuple[int, int, str]:
    """subject_id, study_id, dicom_id."""
    subject = 10_000_000 + film.patient.number * 37
    study = 50_000_000 + film.patient.number * 100 + film.study
    raw = identifier("mimic", subject, study, film.number) + identifier("tail", subject, study, film.number, length=8)
    return subject, study, "-".join(raw[start : start + 8] for start in range(0, 40, 8))


def vindr_id(film: Film) -> str:
    """`image_id`."""
    return identifier("vindr", film.patient.number, film.study, film.number)


def _make_mimic_path(film: Film) -> str:
    """`files/p10/p10000037/s50000101/....jpg`."""
    subject, study, dicom = mimic_ids(film)
    return f"files/p{str(subject)[:2]}/p{subject}/s{study}/{dicom}.jpg"


#: Where a film goes, such as `images_001/images/00000002_000.png`, `0/...png`, `train/....dicom`.
PATHS: Final[dict[str, Callable[[Film], str]]] = {
    "chexpert": chexpert_path,
    # the patients are spread over several folders, as in the release
    "chestxray8": lambda film: f"images_{1 + film.patient.number % 2:03d}/images/{chestxray8_name(film)}",
    "padchest": lambda film: f"{padchest_folder(film)}/{padchest_name(film)}",
    "mimic-cxr": _make_mimic_path,
    "vindr": lambda film: f"{film.split}/{vindr_id(film)}.dicom",
}


def write_picture(hospital: str, path: Path, gray: np.ndarray, film: Film, seed: int) -> None:
    """Encode gray values 0..1 as the hospital does."""
    rng = numpy_stream(seed, "samples", hospital, "file", film.patient.number, film.study, film.number)
    if hospital in ("chexpert", "mimic-cxr"):
        picture = Image.fromarray(stored_levels(gray, 255).astype(np.uint8))
        picture.save(path, "JPEG", quality=90, comment=COMMENT.encode())
    elif hospital == "chestxray8":
        picture = Image.fromarray(stored_levels(gray, 255).astype(np.uint8))
        if rng.random() < 0.02:  # as some hundred files of the release
            picture = picture.convert("RGBA")
        save_png(picture, path)
    elif hospital == "padchest":
        low, high = np.percentile(gray[::4, ::4], (1, 99))  # windowed, and then the whole range of 16 bits
        stored = stored_levels(np.clip((gray - low) / (high - low), 0, 1), MAX_16_BIT)
        save_png(Image.fromarray(MAX_16_BIT - stored if padchest_inverted(film) else stored), path)
    else:
        write_dicom(path, gray, film, rng)


def stored_levels(gray: np.ndarray, largest: int) -> np.ndarray:
    """Stored values uint16 of gray values 0..1."""
    return np.rint(gray * largest).astype(np.uint16)


def save_png(picture: Image.Image, path: Path) -> None:
    """A PNG of gray or RGBA that says what it is, not compressed: noise compresses little, and costs most of the time.

    Pillow tries five filters for each row whatever the compression.
    """
    rows = np.asarray(picture)
    bits, height, width = 8 * rows.itemsize, rows.shape[0], rows.shape[1]
    values = rows.astype(rows.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    filtered = np.pad(values, ((0, 0), (1, 0)))  # each row begins with the number of its filter: none
    header = struct.pack(">IIBBBBB", width, height, bits, _COLOR_TYPES[picture.mode], 0, 0, 0)
    parts = (
        (b"IHDR", header),
        (b"tEXt", b"Comment\0" + COMMENT.encode()),
        (b"IDAT", zlib.compress(filtered.tobytes(), 0)),
    )
    path.write_bytes(_PNG + b"".join(_pack_png_part(*part) for part in (*parts, (b"IEND", b""))))


def _pack_png_part(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def write_dicom(
    path: Path,
    gray: np.ndarray,
    film: Film,
    rng: np.random.Generator,
    elements: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """12 of 16 bits; MONOCHROME1 or 2, rescaled or not, with a window, a VOI LUT or neither; plain, RLE, JPEG 2000.

    `elements` go into the header besides, by their keywords.
    """
    from pydicom.uid import JPEG2000Lossless, RLELossless

    inverted, rescaled, voi, syntax = rng.random(4)
    stored = stored_levels(gray, MAX_12_BIT)
    if inverted < 0.4:
        stored = MAX_12_BIT - stored
    dataset = make_dicom(stored, uid=f"2.25.{int(vindr_id(film), 16)}")
    dataset.Modality = "DX"
    dataset.ImageComments = COMMENT
    dataset.PatientSex = "F" if film.patient.female else "M"
    dataset.PatientAge = f"{film.patient.age:03d}Y"
    dataset.PhotometricInterpretation = "MONOCHROME1" if inverted < 0.4 else "MONOCHROME2"
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    intercept = -1024 if rescaled < 0.3 else 0
    if intercept:
        dataset.RescaleSlope, dataset.RescaleIntercept = "1", str(intercept)
    if voi < 0.55:
        low, high = (round(float(level)) for level in np.percentile(stored[::4, ::4], (1, 99)))
        dataset.WindowCenter = str((low + high) // 2 + intercept)
        dataset.WindowWidth = str(max(high - low, 256))
    elif voi < 0.7:
        dataset.VOILUTSequence = [_make_lookup_table(intercept)]
    # Named encoders and no new UIDs: otherwise the bytes would depend on what else is installed, and on chance.
    if syntax < 0.2:
        dataset.compress(RLELossless, encoding_plugin="pylibjpeg", generate_instance_uid=False)
    elif syntax < 0.35:
        dataset.compress(JPEG2000Lossless, encoding_plugin="pylibjpeg", generate_instance_uid=False)
    dataset.save_as(path, enforce_file_format=True)


def make_dicom(stored: np.ndarray, bits: int = 12, uid: str = "2.25.1") -> Dataset:
    """A digital radiograph of values uint16 `[h, w]`, with the elements that such a file needs and no others."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import UID, DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = DigitalXRayImageStorageForPresentation
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = UID(uid)
    dataset.file_meta.ImplementationClassUID = UID("2.25.1")  # else it would tell the version of the library
    dataset.Rows, dataset.Columns = stored.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, bits, bits - 1, 0
    dataset.PixelData = stored.astype(np.uint16).tobytes()
    return dataset


@cache  # pydicom checks each of its 4,096 values
def _make_lookup_table(intercept: int) -> Dataset:
    """A VOI LUT: a soft S, from 12 bits to 12 bits."""
    from pydicom.dataset import Dataset

    x = np.linspace(-1, 1, MAX_12_BIT + 1)
    curve = 0.5 + 0.5 * np.tanh(1.4 * x) / np.tanh(1.4)
    item = Dataset()
    # An unsigned first value goes as US, a negative one as SS.
    item.add_new((0x0028, 0x3002), "SS" if intercept < 0 else "US", [MAX_12_BIT + 1, intercept, 12])
    item.add_new((0x0028, 0x3006), "US", stored_levels(curve, MAX_12_BIT).tolist())
    return item
