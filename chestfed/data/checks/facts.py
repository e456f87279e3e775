"""Facts about one image file: format, size, depth, a digest and a perceptual hash of the picture, its gray levels.

Nothing of a DICOM header is kept but numbers and words of the standard's own lists.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from chestfed.core.errors import ImageError, UnsuitableImage, is_environment_error
from chestfed.data.dicom import tags as dicom_tags
from chestfed.data.dicom.files import DEFLATED, meta_uids
from chestfed.data.images.decode import decode_stored, picture_digest, turn_upright
from chestfed.data.images.decoding.dicom_levels import LEAST_LEVELS, MOST_CLIPPED
from chestfed.data.images.decoding.polarity import find_turn, looks_negative, mean_film, polarity
from chestfed.data.images.levels import Stored, has_colors
from chestfed.data.images.preprocess import Preprocess

#: Raised when the same file gives other facts than before: kept results of an older version are not read.
FACTS_VERSION: Final = 11
#: Bins of the histogram, 4 gray levels each.
BINS: Final = 64
#: Bits of the perceptual hash, without the first of its 256, which is always 0.
HASH_BITS: Final = 255

#: Hashes of a picture: as it is, turned, and of its middle; bytes of each.
HASHES: Final = 3
HASH_BYTES: Final = 32

_PREPROCESS: Final = Preprocess()
_HASHED: Final = 64  # side of what is hashed
_FADING: Final = 6  # pixels of it
_TURN: Final = 3.5  # degrees
_EDGE: Final = 0.04  # share of a side
_NEARLY: Final = 2  # gray levels from black and white
_BLANK: Final = 1.0  # standard deviation of the gray levels, below which a picture shows nothing
_SUFFIXES: Final = {
    ".png": "PNG",
    **dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif"), "JPEG"),
    **dict.fromkeys((".dcm", ".dicom", ".dic"), "DICOM"),
}
_PHOTOMETRIC: Final = ("MONOCHROME1", "MONOCHROME2", "PALETTE COLOR", "RGB", "YBR_FULL", "YBR_FULL_422", "YBR_RCT")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """One image file."""

    error: str = ""  #: why the file cannot be read; empty if it can
    unsuitable: bool = False  #: undamaged, but of another kind than the site uses
    format: str = ""  #: `PNG`, `JPEG` or `DICOM`, by the content; otherwise empty
    wrong_suffix: bool = False  #: the name says that it is another of the three
    width: int = 0
    height: int = 0
    bits: int = 0  #: stored bits per channel
    mode: str = ""  #: Pillow's mode (`L`, `RGB`, `I;16`) or DICOM's photometric interpretation
    syntax: str = ""  #: name of the DICOM transfer syntax
    #: colored, blank: the picture has colors; it has a single gray level.
    colored: bool = False
    blank: bool = False
    #: `polarity` of the picture as the file has it: of a DICOM file after its header's inversion was followed, of
    #: others before anything was inverted.
    polarity: float = 0.0
    window: str = ""  #: of a DICOM file: what became of its VOI LUT or window, a value of `WindowUse`
    #: turned, misoriented: a DICOM file that was rotated or mirrored by its Patient Orientation; that was not, because
    #: the picture contradicts it.
    turned: bool = False
    misoriented: bool = False
    turn: int = 0  #: quarter turns counterclockwise after which a frontal film stands upright, as far as it is clear
    flat: bool = False  #: nearly white, black or empty: see `_is_flat`
    #: text, overlays: what a DICOM header declares: BurnedInAnnotation is YES; pictures that a viewer draws on top.
    text: bool = False
    overlays: bool = False
    #: mean, std: of the preprocessed picture's gray levels, 0 to 255.
    mean: float = 0.0
    std: float = 0.0
    digest: bytes = b""  #: `picture_digest`
    hash: bytes = b""  #: 96 bytes, `near_hashes`; empty for a blank picture
    #: Pixels of the preprocessed picture per bin, int32 `[64]`.
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int32))


def look_at(path: Path, stored: Stored) -> ImageFacts:
    """The facts of a file; never raises on its content.

    Raises `OSError` or `MemoryError` if it cannot be read, which says nothing about its content.
    """
    import cv2

    try:
        decoded = decode_stored(path, stored)
    except ImageError as error:
        unsuitable = isinstance(error, UnsuitableImage)
        return ImageFacts(error=str(error), unsuitable=unsuitable, **_read_header(path, whole=False))
    gray = turn_upright(decoded, stored)
    square = _PREPROCESS.apply(gray)
    mean, std = (float(value[0, 0]) for value in cv2.meanStdDev(square))
    blank = std < _BLANK
    turn = find_turn(255 - square if looks_negative(square) else square)
    return ImageFacts(
        **{**_read_header(path, whole=True), "width": gray.shape[1], "height": gray.shape[0]},
        blank=blank,
        polarity=polarity(np.rot90(decoded.gray, turn)),
        window=decoded.window.value if decoded.dicom else "",
        turned=decoded.turned,
        misoriented=decoded.misoriented,
        turn=turn,
        flat=not blank and _is_flat(square),
        mean=mean,
        std=std,
        digest=picture_digest(gray),
        hash=b"" if blank else near_hashes(square),
        histogram=np.bincount(square.reshape(-1) // (256 // BINS), minlength=BINS).astype(np.int32),
    )


def near_hashes(square: np.ndarray) -> bytes:
    """96 bytes: the hash of a preprocessed picture uint8 `[320, 320]`, of it turned by 3.5°, and of its middle.

    A copy that is turned by about as much, either way, or cropped, is near to one of them by its own first hash, or the
    other way round.
    """
    import cv2

    height, width = square.shape
    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), _TURN, 1.0)
    turned = cv2.warpAffine(square, turn, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    rows, columns = round(_EDGE * height), round(_EDGE * width)
    middle = square[rows : height - rows, columns : width - columns]
    return b"".join(map(perceptual_hash, (square, turned, middle)))


def perceptual_hash(square: np.ndarray) -> bytes:
    """32 bytes of a preprocessed picture, square and uint8, alike for pictures that look alike.

    Which of the 255 lowest frequencies of the cosine transform (16 x 16, without the mean) lie above their median, as
    in the hash that is known as pHash, with 256 bits for its 64: chest films are too alike for 64. Each gray level is
    replaced by its rank, which brightness, contrast and another window keep; a picture that is more like a negative
    is inverted; of the picture a disk counts, whose edge fades, which a small rotation keeps.
    """
    import cv2

    small = cv2.resize(square, (_HASHED, _HASHED), interpolation=cv2.INTER_AREA)
    counts = np.bincount(small.reshape(-1), minlength=256)
    ranks = ((np.cumsum(counts) - counts / 2) / small.size - 0.5).astype(np.float32)[small]
    mean, disk = _prepare_disk()
    if float((ranks * mean).sum()) < 0:
        ranks = -ranks
    waves = cv2.dct((ranks - float((ranks * disk).sum() / disk.sum())) * disk)[:16, :16].reshape(-1)
    bits = waves > np.median(waves[1:])
    bits[0] = False
    return np.packbits(bits).tobytes()


@functools.cache
def _prepare_disk() -> tuple[np.ndarray, np.ndarray]:
    """The mean film and a disk that fades towards its edge, both float32 `[64, 64]`."""
    import cv2

    mean = cv2.resize(mean_film().astype(np.float32), (_HASHED, _HASHED), interpolation=cv2.INTER_CUBIC)
    rows, columns = np.ogrid[:_HASHED, :_HASHED]
    radius = np.hypot(rows - (_HASHED - 1) / 2, columns - (_HASHED - 1) / 2)
    return mean - mean.mean(), np.clip((_HASHED / 2 - radius) / _FADING, 0, 1).astype(np.float32)


def _is_flat(square: np.ndarray) -> bool:
    """Whether a preprocessed picture is nearly white, nearly black, or shows nearly nothing between."""
    clipped = float(((square <= _NEARLY) | (square >= 255 - _NEARLY)).mean())
    low, high = np.percentile(square, (0.5, 99.5))
    return bool(clipped > MOST_CLIPPED or high - low < LEAST_LEVELS - 1)


def _read_header(path: Path, *, whole: bool) -> dict[str, Any]:
    """Read facts in the header of a file, as far as possible; a damaged file (not `whole`) may say nothing."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return {}
        with path.open("rb") as file:
            head = file.read(132)
        begins = {"PNG": head.startswith(b"\x89PNG\r\n\x1a\n"), "JPEG": head.startswith(b"\xff\xd8\xff")}
        kind = next((name for name, fits in {**begins, "DICOM": head[128:] == b"DICM"}.items() if fits), "")
        if not kind:
            return {}
        facts = {"format": kind, "wrong_suffix": _SUFFIXES.get(path.suffix.lower(), kind) != kind}
        with warnings.catch_warnings(action="ignore"):
            more = _read_dicom_header(path, whole) if kind == "DICOM" else _read_picture_header(path, head, kind, whole)
        return facts | more
    except BaseException as error:  # damaged files raise many kinds, and a plugin in Rust panics past Exception
        if is_environment_error(error) or (
            not isinstance(error, Exception) and type(error).__name__ != "PanicException"
        ):
            raise
        return {}


def _read_picture_header(path: Path, head: bytes, kind: str, whole: bool) -> dict[str, Any]:
    from PIL import Image

    with Image.open(path, formats=("JPEG", "PNG")) as image:
        facts = {
            "width": image.width,
            "height": image.height,
            "bits": head[24] if kind == "PNG" else 8,
            "mode": image.mode,
        }
        if not whole or image.mode in ("1", "L", "LA") or image.mode.startswith("I"):
            return facts
        image.thumbnail((256, 256))
        return {**facts, "colored": has_colors(np.asarray(image.convert("RGB")))}


def _read_dicom_header(path: Path, whole: bool) -> dict[str, Any]:
    from pydicom.uid import UID

    syntax, _ = meta_uids(path)
    if syntax is None:
        return {"syntax": "none"}
    uid = UID(syntax)
    known = {"syntax": uid.name if uid.is_transfer_syntax else "unknown"}
    if syntax == DEFLATED and not whole:  # to read its header is to inflate it; a decoded one is known not to be a bomb
        return known
    with dicom_tags.quiet():
        header = dicom_tags.read(
            path, ("Rows", "Columns", "BitsStored", "PhotometricInterpretation", *dicom_tags.BURNED_IN)
        )
    mode = str(header.get("PhotometricInterpretation", ""))
    return {
        **known,
        "width": int(header.get("Columns") or 0),
        "height": int(header.get("Rows") or 0),
        "bits": int(header.get("BitsStored") or 0),
        "mode": mode if mode in _PHOTOMETRIC else "other",
        "text": str(header.get("BurnedInAnnotation", "")).strip().upper() == "YES",
        "overlays": any(element.tag.group >= 0x6000 for element in header),
    }
