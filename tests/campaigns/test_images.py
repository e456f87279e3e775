"""Images that are whole, cut, altered, or made to take long: each is read or refused, soon and in little memory.

What an image costs is what its decoding needs beside the process: CPU time, and the growth of resident memory.
"""

from __future__ import annotations

import io
import random
import re
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2  # noqa: F401 (imported once, for all forks)
import numpy as np
import pydicom.pixels
import pytest
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    JPEG2000,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    RLELossless,
)

from chestfed.core.errors import ImageError
from chestfed.data.images.decode import decode, picture_digest
from chestfed.data.images.decoding.compressed import MAX_PIXELS, MAX_SCANNED_PIXELS, PNG
from tests.campaigns.children import sample_cases, start, wait
from tests.data.checks.planted import FILES, dicom, film
from tests.studies.training.test_damage import flip_bit

#: What one image may take.
SECONDS, MEBIBYTES = 2.0, 300.0
_SIDE = 96
#: Of an image as large as is decoded at all.
_LARGE = int(MAX_PIXELS**0.5)
MOST_SCANS = "JPEG of the most scans"
#: Damages of an image of each kind.
DAMAGES = 60


# ---- what is given ---------------------------------------------------------------------------------------------------


def saved(image: Image.Image, kind: str, **more: object) -> bytes:
    memory = io.BytesIO()
    image.save(memory, kind, **more)
    return memory.getvalue()


def _pictures(side: int = _SIDE) -> dict[str, Callable[[], bytes]]:
    gray = Image.fromarray(film(1)).resize((side, side))
    turned = Image.Exif()
    turned[0x0112] = 6
    wide = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    modes = {mode: gray.convert(mode) for mode in ("1", "L", "P", "RGB", "RGBA", "LA", "CMYK")}
    writers = {f"PNG {mode}": partial(saved, image, "PNG") for mode, image in modes.items() if mode != "CMYK"}
    writers |= {
        "PNG of 16 bits": partial(saved, wide, "PNG"),
        "PNG with EXIF": partial(saved, gray, "PNG", exif=turned),
    }
    writers |= {f"JPEG {mode}": partial(saved, modes[mode], "JPEG") for mode in ("L", "RGB", "CMYK")}
    writers["JPEG, progressive"] = partial(saved, gray, "JPEG", progressive=True)
    writers["JPEG with EXIF"] = partial(saved, gray, "JPEG", exif=turned)
    writers["JPEG with restarts"] = partial(saved, gray, "JPEG", restart_marker_rows=1)
    return writers


def _dicoms(side: int = _SIDE) -> dict[str, Callable[[], bytes]]:
    pixels = np.asarray(Image.fromarray(film(2)).resize((side, side)))

    def written(change: Callable[[Dataset], object], **elements: object) -> bytes:
        dataset, memory = dicom(pixels, **elements), io.BytesIO()
        change(dataset)
        dataset.save_as(memory, enforce_file_format=True)
        return memory.getvalue()

    def under(syntax: str) -> Callable[[Dataset], object]:
        return lambda dataset: setattr(dataset.file_meta, "TransferSyntaxUID", syntax)

    def big_endian(dataset: Dataset) -> None:
        dataset.PixelData = (pixels.astype(">u2") * 16).tobytes()
        dataset.file_meta.TransferSyntaxUID = ExplicitVRBigEndian

    def lossy(dataset: Dataset) -> None:
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8, 8, 7
        dataset.PixelData = encapsulate([saved(Image.fromarray(pixels), "JPEG")])
        dataset.file_meta.TransferSyntaxUID = JPEGBaseline8Bit

    def jpeg_2000(dataset: Dataset) -> None:
        dataset.compress(JPEG2000, encoding_plugin="pylibjpeg", j2k_cr=[10])

    return {
        "DICOM": partial(written, lambda dataset: None),
        "DICOM, MONOCHROME1": partial(written, lambda dataset: None, PhotometricInterpretation="MONOCHROME1"),
        "DICOM without a window": partial(written, lambda dataset: dataset.pop("WindowCenter")),
        "DICOM, implicit": partial(written, under(ImplicitVRLittleEndian)),
        "DICOM, big endian": partial(written, big_endian),
        "DICOM, deflated": partial(written, under(DeflatedExplicitVRLittleEndian)),
        "DICOM, RLE": partial(written, lambda dataset: dataset.compress(RLELossless)),
        "DICOM, JPEG": partial(written, lossy),
        "DICOM, JPEG 2000": partial(written, jpeg_2000),
        "DICOM, JPEG 2000 without loss": partial(
            written, lambda dataset: dataset.compress(JPEG2000Lossless, encoding_plugin="pylibjpeg")
        ),
    }


def _large() -> dict[str, Callable[[], bytes]]:
    """As large as is read at all; compressed as far as may be, and as slow as may be."""
    return {**_pictures(_LARGE), **_dicoms(_LARGE), MOST_SCANS: _scans}


def _scans() -> bytes:
    """A progressive JPEG, as large as may be, whose last scan is there as often as may be."""
    content = _pictures(_LARGE)["JPEG, progressive"]()
    last, count = content.rindex(b"\xff\xda"), content.count(b"\xff\xda")
    return content[:-2] + content[last:-2] * (MAX_SCANNED_PIXELS // _LARGE**2 - count) + content[-2:]


def _list_pydicom_files() -> list[Path]:
    """The files that pydicom brings with it."""
    return sorted((Path(pydicom.__file__).parent / "data" / "test_files").glob("*.dcm"))


# ---- what is done with it --------------------------------------------------------------------------------------------

SMALL_IMAGES = {
    **_pictures(),
    **_dicoms(),
    **{f"pydicom's {path.name}": path.read_bytes for path in _list_pydicom_files()},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_cases(SMALL_IMAGES, 12))
def test_damaged_images_are_read_or_refused(tmp_path: Path, name: str) -> None:
    whole, chance = SMALL_IMAGES[name](), random.Random(name)
    digest = decode_in_child(tmp_path, whole)
    for number in range(1, DAMAGES):
        changed = decode_in_child(tmp_path, damage(whole, chance, number))
        # PNG has checksums; of other formats an image may change unnoticed (docs/images.md).
        assert not whole.startswith(PNG) or changed in ("", digest), number


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_cases([*_pictures(), *_dicoms(), MOST_SCANS], 10))
def test_the_largest_images_take_little(tmp_path: Path, name: str) -> None:
    decode_in_child(tmp_path, _large()[name]())


@pytest.mark.parametrize("name", sample_cases(FILES, 10))
def test_a_spoiled_file_is_read_or_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "image").write_bytes(_pictures()["PNG L"]())
    FILES[name][0](tmp_path / "image")
    decode_in_child(tmp_path)


def damage(content: bytes, chance: random.Random, number: int) -> bytes:
    """Cut, one bit altered, or four bytes overwritten; every second time near the beginning, where the header is."""
    end = min(len(content), 2000) if number % 2 else len(content)
    place = chance.randrange(end)
    if number % 3 == 0:
        return content[:place]
    if number % 3 == 1:
        return flip_bit(content[:end], chance) + content[end:]
    word = chance.choice((b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", struct.pack("<I", chance.randrange(2**32))))
    return content[:place] + word + content[place + 4 :]


def decode_in_child(folder: Path, content: bytes | None = None) -> str:
    """Decode the file `image`, within the limits; the digest of its pixels, empty if it is refused."""
    file = folder / "image"
    if content is not None:
        file.write_bytes(content)
    result = wait(start((), folder, partial(_decode, file)), limit=60)
    line = re.search(r"^(read|refused) ([\d.]+) ([\d.]+) (\w*)$", result.text, re.MULTILINE)
    assert line is not None, result.text[-300:]
    assert float(line[2]) <= SECONDS
    assert float(line[3]) <= MEBIBYTES
    return line[4]


def _decode(file: Path) -> None:
    """In a child: decode the picture, and print what it took."""

    def memory(which: str) -> float:
        (kilobytes,) = re.findall(rf"{which}:\s+(\d+)", Path("/proc/self/status").read_text())
        return int(kilobytes) / 1024

    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew
    before, began, result, gray = memory("VmRSS"), time.process_time(), "read", None
    try:
        gray = decode(file)
    except (ImageError, FileNotFoundError):
        result = "refused"
    spent = f"{time.process_time() - began:.3f} {memory('VmHWM') - before:.1f}"
    print(result, spent, "" if gray is None else picture_digest(gray).hex(), flush=True)
    raise SystemExit(0)
