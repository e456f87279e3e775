"""Pictures that are whole, cut, altered, or made to take long: each is read or refused, soon and in little memory.

What is read of a damaged picture is compared with what is read of the whole one. PNG has checksums: another picture is
a failure there. The other formats have none: there the pictures that changed unnoticed are counted.

What a picture costs is what its decoding needs beside the process: CPU time, and the growth of resident memory.
"""

from __future__ import annotations

import io
import random
import re
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cv2  # noqa: F401 (imported once, for all forks)
import numpy as np
import pydicom.pixels
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

from benchmarks.faults.cases import Campaign, Case, Result
from benchmarks.faults.children import start, wait
from chestfed.core.errors import ImageError
from chestfed.images.compressed import MAX_PIXELS, MAX_SCANNED_PIXELS, PNG
from chestfed.images.decode import decode, picture_digest
from tests.inspection.planted import FILES, dicom, film

#: What one picture may take.
SECONDS, MEBIBYTES = 2.0, 300.0
_SIDE = 96
#: Of a picture as large as is decoded at all.
_LARGE = int(MAX_PIXELS**0.5)


def cases(campaign: Campaign) -> Iterator[Case]:
    """Small pictures of every kind with many damages each, what else is no radiograph, and very large ones."""
    whole = {**_pictures(), **_dicoms(), **{f"pydicom's {path.name}": path.read_bytes for path in _of_pydicom()}}
    each = -(-(campaign.pictures - len(FILES) - len(_large())) // len(whole))
    for name, content in whole.items():
        yield Case(f"{name}, {each} times", partial(_damaged, campaign, name, content, each))
    for name, content in _large().items():
        yield Case(f"{name}, {_LARGE}x{_LARGE}", partial(compare, campaign, [content]))
    for name, (spoil, *_) in FILES.items():
        yield Case(f"in place of a picture: {name}", partial(_spoiled, campaign, spoil))


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
    found = {f"PNG {mode}": partial(saved, image, "PNG") for mode, image in modes.items() if mode != "CMYK"}
    found |= {
        "PNG of 16 bits": partial(saved, wide, "PNG"),
        "PNG with EXIF": partial(saved, gray, "PNG", exif=turned),
    }
    found |= {f"JPEG {mode}": partial(saved, modes[mode], "JPEG") for mode in ("L", "RGB", "CMYK")}
    found["JPEG, progressive"] = partial(saved, gray, "JPEG", progressive=True)
    found["JPEG with EXIF"] = partial(saved, gray, "JPEG", exif=turned)
    found["JPEG with restarts"] = partial(saved, gray, "JPEG", restart_marker_rows=1)
    return found


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
    return {**_pictures(_LARGE), **_dicoms(_LARGE), "JPEG of the most scans": _scans}


def _scans() -> bytes:
    """A progressive JPEG, as large as may be, whose last scan is there as often as may be."""
    content = _pictures(_LARGE)["JPEG, progressive"]()
    last, count = content.rindex(b"\xff\xda"), content.count(b"\xff\xda")
    return content[:-2] + content[last:-2] * (MAX_SCANNED_PIXELS // _LARGE**2 - count) + content[-2:]


def _of_pydicom() -> list[Path]:
    """The files that pydicom brings with it."""
    return sorted((Path(pydicom.__file__).parent / "data" / "test_files").glob("*.dcm"))


# ---- what is done with it --------------------------------------------------------------------------------------------


def _damaged(campaign: Campaign, name: str, content: Callable[[], bytes], count: int) -> Result:
    """The picture itself, and others with one damage each."""
    whole, chance = content(), random.Random(name)
    damaged = [partial(_altered, whole, chance, number) for number in range(1, count)]
    return compare(campaign, [lambda: whole, *damaged], checksums=whole.startswith(PNG))


def _altered(content: bytes, chance: random.Random, number: int) -> bytes:
    """Cut, one bit altered, or four bytes overwritten; every second time near the beginning, where the header is."""
    end = min(len(content), 2000) if number % 2 else len(content)
    place = chance.randrange(end)
    if number % 3 == 0:
        return content[:place]
    if number % 3 == 1:
        return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
    word = chance.choice((b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", struct.pack("<I", chance.randrange(2**32))))
    return content[:place] + word + content[place + 4 :]


def _spoiled(campaign: Campaign, spoil: Callable[[Path], None]) -> Result:
    file = campaign.home / "picture.png"
    file.write_bytes(_pictures()["PNG L"]())
    spoil(file)
    result, _ = _decoded(campaign, file)
    file.rmdir() if file.is_dir() else file.unlink(missing_ok=True)
    return result


def compare(campaign: Campaign, contents: list[Callable[[], bytes]], *, checksums: bool = False) -> Result:
    """Give each to the decoder; the first is whole, and with `checksums` the others are refused or read as it is."""
    file, whys, original = campaign.home / "picture", list[str](), ""
    counts, most = {"pictures": 0, "read": 0, "refused": 0, "changed unnoticed": 0}, {"s": 0.0, "MiB": 0.0}
    for number, content in enumerate(contents):
        file.write_bytes(content())
        one, digest = _decoded(campaign, file)
        original = digest if number == 0 else original
        changed = bool(original and digest) and digest != original
        counts["changed unnoticed"] += changed
        whys += [f"number {number}: {one.why}"] if one.why else []
        whys += [f"number {number}: read as another picture"] if changed and checksums else []
        counts = {key: value + one.counts.get(key, 0) for key, value in counts.items()}
        most = {key: max(value, one.most.get(key, 0.0)) for key, value in most.items()}
    file.unlink()
    return Result("; ".join(whys)[:2000], counts, most)


def _decoded(campaign: Campaign, file: Path) -> tuple[Result, str]:
    """What came of it, and the digest of its pixels if it was read."""
    ended = wait(start((), campaign.home, partial(_decode, file)), limit=60)
    found = re.search(r"^(read|refused) ([\d.]+) ([\d.]+) (\w*)$", ended.text, re.MULTILINE)
    if found is None:
        return Result(f"exit {ended.code}: {ended.text[-300:]}", {"pictures": 1}), ""
    seconds, mebibytes = float(found[2]), float(found[3])
    why = "" if seconds <= SECONDS and mebibytes <= MEBIBYTES else f"took {seconds:.1f} s, {mebibytes:.0f} MiB"
    return Result(why, {"pictures": 1, found[1]: 1}, {"s": round(seconds, 1), "MiB": round(mebibytes)}), found[4]


def _decode(file: Path) -> None:
    """In a child: decode the picture, and print what it took."""

    def memory(which: str) -> float:
        (found,) = re.findall(rf"{which}:\s+(\d+)", Path("/proc/self/status").read_text())
        return int(found) / 1024

    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew
    before, began, result, gray = memory("VmRSS"), time.process_time(), "read", None
    try:
        gray = decode(file)
    except (ImageError, FileNotFoundError):
        result = "refused"
    spent = f"{time.process_time() - began:.3f} {memory('VmHWM') - before:.1f}"
    print(result, spent, "" if gray is None else picture_digest(gray).hex(), flush=True)
    raise SystemExit(0)
