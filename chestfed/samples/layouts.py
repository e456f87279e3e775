"""Where a film goes in each hospital's layout, and how its file is encoded."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from chestfed.randomness import numpy_stream
from chestfed.samples.patients import Film

#: The largest stored value of 12-bit content.
MAX_12_BIT = 4095

#: PNG by Huffman coding only: noise has no repetitions to look for.
_FAST: Final = {"compress_level": 1, "compress_type": zlib.Z_HUFFMAN_ONLY}


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


def chestxray8_path(film: Film) -> str:
    """The first patients are in the first folder, as in the release."""
    return f"images_{1 + film.patient.number % 2:03d}/images/{chestxray8_name(film)}"


def padchest_folder(film: Film) -> int:
    """`ImageDir`."""
    return film.patient.number % 3


def padchest_name(film: Film) -> str:
    """A long number and three shorter ones, as in the release."""
    digits = str(int(identifier("padchest", film.patient.number, film.study, film.number), 16))
    return f"{digits[:30]}_00-{digits[30:33].zfill(3)}-{film.number:03d}.png"


def padchest_path(film: Film) -> str:
    """`0/...png`."""
    return f"{padchest_folder(film)}/{padchest_name(film)}"


def padchest_inverted(film: Film) -> bool:
    """One study in six is stored as MONOCHROME1."""
    return int(identifier("photometric", film.patient.number, film.study), 16) % 6 == 0


def mimic_ids(film: Film) -> tuple[int, int, str]:
    """subject_id, study_id, dicom_id."""
    subject = 10_000_000 + film.patient.number * 37
    study = 50_000_000 + film.patient.number * 100 + film.study
    raw = identifier("mimic", subject, study, film.number, length=32) + identifier(
        "tail", subject, study, film.number, length=8
    )
    return subject, study, "-".join(raw[start : start + 8] for start in range(0, 40, 8))


def mimic_path(film: Film) -> str:
    """`files/p10/p10000037/s50000101/....jpg`."""
    subject, study, dicom = mimic_ids(film)
    return f"files/p{str(subject)[:2]}/p{subject}/s{study}/{dicom}.jpg"


def vindr_id(film: Film) -> str:
    """`image_id`."""
    return identifier("vindr", film.patient.number, film.study, film.number)


def vindr_path(film: Film) -> str:
    """`train/....dicom`."""
    return f"{film.split}/{vindr_id(film)}.dicom"


PATHS: Final[dict[str, Callable[[Film], str]]] = {
    "chexpert": chexpert_path,
    "chestxray8": chestxray8_path,
    "padchest": padchest_path,
    "mimic-cxr": mimic_path,
    "vindr": vindr_path,
}


def write_picture(hospital: str, path: Path, grey: np.ndarray, film: Film, seed: int) -> None:
    """Encode grey values 0..1 as the hospital does."""
    rng = numpy_stream(seed, "samples", hospital, "file", film.patient.number, film.study, film.number)
    if hospital in ("chexpert", "mimic-cxr"):
        from PIL import Image

        Image.fromarray(_bits(grey, 255).astype(np.uint8)).save(path, "JPEG", quality=90)
    elif hospital == "chestxray8":
        from PIL import Image

        picture = Image.fromarray(_bits(grey, 255).astype(np.uint8))
        if rng.random() < 0.02:  # as some hundred files of the release
            picture = picture.convert("RGBA")
        picture.save(path, "PNG", **_FAST)
    elif hospital == "padchest":
        from PIL import Image

        stored = _bits(grey, MAX_12_BIT)
        if padchest_inverted(film):
            stored = MAX_12_BIT - stored
        Image.fromarray(stored.astype(np.uint16)).save(path, "PNG", **_FAST)
    else:
        _write_dicom(path, grey, film, rng)


def _bits(grey: np.ndarray, largest: int) -> np.ndarray:
    return np.rint(grey * largest)


def _write_dicom(path: Path, grey: np.ndarray, film: Film, rng: np.random.Generator) -> None:
    """12 of 16 bits; MONOCHROME1 or 2, with or without a window, rescaled or not, plain, RLE or JPEG 2000."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, JPEG2000Lossless, RLELossless

    stored = _bits(grey, MAX_12_BIT).astype(np.uint16)
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"  # digital X-ray
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = f"2.25.{int(vindr_id(film), 16)}"
    dataset.Modality = "DX"
    dataset.ImageComments = "synthetic phantom, no patient"
    dataset.Rows, dataset.Columns = stored.shape
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    intercept = 0
    if rng.random() < 0.3:
        intercept = -1024
        dataset.RescaleSlope, dataset.RescaleIntercept = "1", str(intercept)
    if rng.random() < 0.4:
        dataset.PhotometricInterpretation = "MONOCHROME1"
        stored = (MAX_12_BIT - stored).astype(np.uint16)
    if rng.random() < 0.6:
        dataset.WindowCenter, dataset.WindowWidth = str(2047 + intercept), str(4096)
    dataset.PixelData = stored.tobytes()
    kind = rng.random()
    if kind < 0.2:
        dataset.compress(RLELossless, encoding_plugin="pylibjpeg", generate_instance_uid=False)
    elif kind < 0.3:
        dataset.compress(JPEG2000Lossless, encoding_plugin="pylibjpeg", generate_instance_uid=False)
    dataset.save_as(path, enforce_file_format=True)
