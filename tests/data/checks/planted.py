"""A corpus of planted defects: a clean hospital, and everything that can be wrong with one file or one row of it."""

from __future__ import annotations

import functools
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, JPEG2000Lossless, RLELossless

from chestfed.core.diseases import DISEASES
from chestfed.data.images.decoding.polarity import MEAN_FILM
from tests.data.sites.own_tables import NAMES, save_rows, wide

SIDE = 96
IMAGES = 24


def picture(number: int) -> np.ndarray:
    """Gray levels uint8 `[96, 96]` that no other number has, smooth as a film is."""
    coarse = np.random.default_rng(number).integers(0, 256, (12, 12)).astype(np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def dicom(pixels: np.ndarray, **elements: object) -> Dataset:
    """A 12-bit DICOM image of the gray levels."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    dataset.PatientName, dataset.PatientID = "Doe^Jane", "4711"
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    dataset.WindowCenter, dataset.WindowWidth = "2048", "4096"
    dataset.PixelData = (pixels.astype(np.uint16) * 16).tobytes()
    for name, value in elements.items():
        setattr(dataset, name, value)
    return dataset


def save(dataset: Dataset, path: Path) -> None:
    dataset.save_as(path, enforce_file_format=True)


def write_image(path: Path, pixels: np.ndarray) -> None:
    """As the ending says: .png, .jpg or .dcm."""
    if path.suffix in (".dcm", ".dicom"):
        save(dicom(pixels), path)
    else:
        Image.fromarray(pixels).save(path, quality=95)


# ---- one bad file ------------------------------------------------------------------------------------------------


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _text(path: Path) -> None:
    path.write_text("no picture at all\n" * 40)


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 400)


def _truncated(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def png_bomb(path: Path, side: int = 50_000) -> None:
    """A PNG whose head promises 50,000 x 50,000 pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(side + 1)) for _ in range(200)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def _huge_rows(path: Path) -> None:
    save(dicom(picture(0), Rows=60_000, Columns=60_000), path)


def deflated_bomb(path: Path) -> None:
    dataset = dicom(picture(0))
    dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    save(dataset, path)
    data = path.read_bytes()
    (length,) = struct.unpack_from("<I", data, 140)  # of the meta information
    path.write_bytes(data[: 144 + length] + _half_a_gigabyte_deflated())


@functools.cache
def _half_a_gigabyte_deflated() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(struct.pack("<HH2sHI", 0x7FE0, 0x0010, b"OW", 0, 0xFFFFFFF0))
    return body + b"".join(packer.compress(bytes(1 << 20)) for _ in range(500)) + packer.flush()


def _larger_than_it_says(path: Path) -> None:
    dataset = dicom(picture(0))
    dataset.compress(JPEG2000Lossless, encoding_plugin="pylibjpeg")
    dataset.Rows = dataset.Columns = SIDE // 2
    save(dataset, path)


def _without_pixels(path: Path) -> None:
    dataset = dicom(picture(0))
    del dataset.PixelData
    save(dataset, path)


def _without_syntax(path: Path) -> None:
    save(dicom(picture(0)), path)
    data = path.read_bytes()
    place = data.index(b"\x02\x00\x10\x00UI")
    (length,) = struct.unpack_from("<H", data, place + 6)
    path.write_bytes(data[:place] + data[place + 8 + length :])


def _multi_frame(path: Path) -> None:
    frames = np.stack([picture(0), picture(1)])
    save(dicom(picture(0), NumberOfFrames="2", PixelData=(frames.astype(np.uint16) * 16).tobytes()), path)


def _color_dicom(path: Path) -> None:
    colors = np.stack([picture(0), picture(1), picture(2)], axis=2)
    dataset = dicom(picture(0), SamplesPerPixel=3, PhotometricInterpretation="RGB", PixelData=colors.tobytes())
    dataset.PlanarConfiguration, dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 0, 8, 8, 7
    save(dataset, path)


def jpeg_of_scans(path: Path, scans: int = 2000) -> None:
    """A progressive JPEG whose last scan comes again and again."""
    Image.fromarray(np.tile(picture(0), (4, 4))).save(path, "JPEG", progressive=True)
    data = path.read_bytes()
    last, count = data.rindex(b"\xff\xda"), data.count(b"\xff\xda")
    path.write_bytes(data[:-2] + data[last:-2] * (scans - count) + data[-2:])


def _animated(path: Path) -> None:
    Image.fromarray(picture(0)).save(path, "PNG", save_all=True, append_images=[Image.fromarray(picture(1))])


def _two_pictures(path: Path) -> None:
    Image.fromarray(picture(0)).save(path, "MPO", save_all=True, append_images=[Image.fromarray(picture(1))])


def _twelve_of_sixteen_bits(path: Path) -> None:
    Image.fromarray(picture(0).astype(np.uint16) * 16).save(path, "PNG")


def film(number: int) -> np.ndarray:
    """Gray levels uint8 `[96, 96]` like a frontal film's."""
    with Image.open(MEAN_FILM) as mean:
        smooth = np.asarray(mean.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(float)
    return (0.8 * smooth + 0.2 * picture(number)).astype(np.uint8)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _removed(path: Path) -> None:
    path.unlink()


def _link_out(path: Path) -> None:
    path.unlink()
    path.symlink_to(Path(__file__).resolve())


def _wrong_suffix(path: Path) -> None:
    other = path.with_suffix(".jpg" if path.suffix != ".jpg" else ".png")
    write_image(other, picture(700 + len(path.name)))
    other.rename(path)


def _colored(path: Path) -> None:
    colors = np.stack([picture(801), picture(802), picture(803)], axis=2)
    Image.fromarray(colors).save(path, "JPEG" if path.suffix == ".jpg" else "PNG", quality=95)


def _blank(path: Path) -> None:
    write_image(path, np.full((SIDE, SIDE), 7, np.uint8))


#: Name -> how to spoil a file, the kind of problem, whether it fails the check, words of the message.
FILES: dict[str, tuple[Callable[[Path], None], str, bool, str]] = {
    "0 bytes": (_empty, "unreadable image", True, "0 bytes"),
    "text": (_text, "unreadable image", True, "not a JPEG, PNG or DICOM file"),
    "garbage": (_garbage, "unreadable image", True, "damaged"),
    "truncated": (_truncated, "unreadable image", True, ""),
    "PNG bomb": (png_bomb, "unreadable image", True, "refused without"),
    "huge rows": (_huge_rows, "unreadable image", True, "refused without"),
    "deflated bomb": (deflated_bomb, "unreadable image", True, "refused without"),
    "larger than it says": (_larger_than_it_says, "unreadable image", True, "refused without"),
    "without pixels": (_without_pixels, "unreadable image", True, "without pixels"),
    "without transfer syntax": (_without_syntax, "unreadable image", True, "without a transfer syntax"),
    "multi-frame": (_multi_frame, "unreadable image", True, "multi-frame"),
    "color DICOM": (_color_dicom, "unreadable image", True, "color"),
    "scan bomb": (jpeg_of_scans, "unreadable image", True, "scans, refused without"),
    "animated PNG": (_animated, "unreadable image", True, "2 images"),
    "two pictures": (_two_pictures, "unreadable image", True, "2 images"),
    "12 of 16 bits": (_twelve_of_sixteen_bits, "unreadable image", True, "pictures.bits"),
    "pipe": (_pipe, "unreadable image", True, "a pipe"),
    "folder": (_folder, "unreadable image", True, "a folder"),
    "removed": (_removed, "missing image", True, "no such file"),
    "link out": (_link_out, "path outside the root", True, "link out of"),
    "wrong extension": (_wrong_suffix, "wrong extension", False, "file"),
    "colors": (_colored, "picture with colors", False, "colors"),
    "blank": (_blank, "blank picture", False, "single gray level"),
}
DICOM_FILES = (
    "huge rows", "deflated bomb", "larger than it says", "without pixels", "without transfer syntax", "multi-frame",
    "color DICOM",
)  # fmt: skip
#: Told only of a file whose ending is right: place of such an image in the hospital.
PICTURE_FILES = {"scan bomb": 10, "two pictures": 10, "animated PNG": 9, "12 of 16 bits": 9}


# ---- one bad row of a hospital's own table -----------------------------------------------------------------------


@dataclass
class Hospital:
    """A clean hospital with a one-hot table in `folder/site`: 24 images of 12 patients, in PNG, JPEG and DICOM."""

    folder: Path
    rows: list[dict[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "site").mkdir(parents=True)
        for number in range(IMAGES):
            suffix = (".png", ".jpg", ".dcm")[number % 3]
            split = "train" if number < 16 else "test"
            values = ["1" if (number + place) % 4 == 0 else "0" for place in range(len(DISEASES))]
            self.rows.append(wide(number, *values, File=f"{number}{suffix}", MRN=f"p{number // 2}", Set=split))
            write_image(self.image(number), picture(number))

    def image(self, number: int) -> Path:
        return self.folder / "site" / str(self.rows[number]["File"])

    def save(self, encoding: str = "utf-8") -> Path:
        path = self.folder / "site" / "labels.csv"
        save_rows(path, self.rows, encoding=encoding)
        return path


def get_row(number: int) -> int:
    """The row of an image in the table; the header is row 1."""
    return number + 2


def _copy(hospital: Hospital, number: int, source: int) -> None:
    """The image becomes a copy of another, under its own name (and format, which for these two is the same).

    Its labels become those of the other too.
    """
    for name in (name for names in NAMES.values() for name in names):
        hospital.rows[number][name] = hospital.rows[source][name]
    shutil.copy(hospital.image(source), hospital.image(number))


def _copy_same_patient(hospital: Hospital) -> int:
    hospital.rows[3]["MRN"] = hospital.rows[0]["MRN"]
    hospital.rows[2]["MRN"] = hospital.rows[3]["MRN"]
    _copy(hospital, 3, 0)
    return 3


def _copy_other_patient(hospital: Hospital) -> int:
    _copy(hospital, 6, 0)
    return 6


def _copy_other_split(hospital: Hospital) -> int:
    _copy(hospital, 18, 0)
    return 18


def _near_copy(hospital: Hospital) -> int:
    pixels = Image.fromarray(picture(0)).resize((80, 80), Image.Resampling.LANCZOS)
    pixels.save(hospital.image(1), quality=80)
    return 1


def _crossing(hospital: Hospital) -> int:
    hospital.rows[20]["MRN"] = hospital.rows[0]["MRN"]
    return 20


def _cell(column: str, cell: str, number: int = 5) -> Callable[[Hospital], int]:
    def plant(hospital: Hospital) -> int:
        hospital.rows[number][column] = cell
        return number

    return plant


def _row_twice(hospital: Hospital) -> int:
    hospital.rows.append(dict(hospital.rows[4]))
    return len(hospital.rows) - 1


#: Name -> how to plant it (returns the place of the row), kind of problem, whether it fails, words of the message.
ROWS: dict[str, tuple[Callable[[Hospital], int], str, bool, str]] = {
    "copy, same patient": (_copy_same_patient, "same picture twice", False, "labels.csv:2"),
    "copy, other patient": (_copy_other_patient, "same picture of two patients", False, "labels.csv:2"),
    "copy, other split": (_copy_other_split, "same picture in two splits", True, "'train', of labels.csv:2"),
    "near copy": (_near_copy, "nearly the same picture", False, "labels.csv:2"),
    "patient crosses": (_crossing, "patient in two splits", True, "labels.csv:2"),
    "image twice": (_row_twice, "duplicate image", True, "labels.csv:6"),
    "unknown value": (_cell(NAMES["edema"][0], "perhaps"), "unknown label", True, "'Edema'"),
    "unknown view": (_cell("Projection", "upside down"), "unknown view", True, "Projection"),
    "unknown split": (_cell("Set", "later"), "unknown split", True, "Set"),
    "unknown age": (_cell("Age", "630"), "unknown age", True, "Age"),
    "no patient": (_cell("MRN", ""), "blank name", True, "no patient"),
    "formula": (_cell("Sex", '=HYPERLINK("http://x.example";"F")'), "formula cell", True, "Sex"),
    "parent folder": (_cell("File", "../secret.png"), "path outside the root", True, "leaves the site's root"),
    "absolute path": (_cell("File", "/etc/passwd"), "path outside the root", True, "leaves the site's root"),
    "drive": (_cell("File", "C:\\secret.png"), "path outside the root", True, "leaves the site's root"),
}


def compressed(syntax: str, pixels: np.ndarray) -> Dataset:
    """A compressed DICOM image."""
    dataset = dicom(pixels)
    dataset.compress(syntax, encoding_plugin="pylibjpeg")
    return dataset


SYNTAXES = {"RLE": RLELossless, "JPEG 2000": JPEG2000Lossless}
