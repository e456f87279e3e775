"""The gray levels of one DICOM file, as a viewer shows them.

In this order: gray levels (`dicom_levels.py`), Display Shutter, square pixels, orientation. Sections are those of DICOM
PS3.3. Messages give the reason and never the content of a header, which may name a patient.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import cv2
import numpy as np
import xxhash

from chestfed.core.console import capture_stderr
from chestfed.core.errors import ImageError
from chestfed.data.dicom import tags as dicom_tags
from chestfed.data.dicom.display import find_shutter, is_lateral, read_pixel_aspect, refuse_unsuitable, turn_upright
from chestfed.data.dicom.files import refuse_bomb
from chestfed.data.images.decoding.compressed import (
    MAX_INFLATED,
    bare_jpeg_2000,
    check_size,
    decode_deep_jpeg,
    decode_jpeg,
    read_precision,
    read_size,
    reduction,
    refuse_missing_end,
    refuse_scan_bomb,
)
from chestfed.data.images.decoding.dicom_levels import WindowUse, make_gray
from chestfed.data.images.decoding.polarity import find_turn
from chestfed.data.images.levels import Levels, Stored, has_colors, picture_levels

if TYPE_CHECKING:
    from pydicom.dataset import Dataset
    from pydicom.uid import UID

#: JPEG of more than 8 bits, or lossless, and JPEG-LS: decoded without pydicom, of whose plugins one is under the GPL,
#: and one makes up what damage has taken.
_DEEP_JPEG: Final = tuple(f"1.2.840.10008.1.2.4.{number}" for number in (51, 57, 70, 80, 81))
_GRAY: Final = ("MONOCHROME1", "MONOCHROME2")
#: Color spaces that pydicom returns as RGB.
_COLOR: Final = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")


class Film(NamedTuple):
    """A decoded DICOM file."""

    gray: np.ndarray  #: gray levels uint8 `[h, w]`, air dark, padding black, head up
    window: WindowUse  #: whether its window was used, is absent, or is unusable
    turned: bool  #: rotated or mirrored
    misoriented: bool  #: not rotated, because the picture contradicts its Patient Orientation
    extent: tuple[float, float]  #: height and width of the image in pixels of `gray`, see `Decoded`
    digest: bytes  #: 16 bytes of the JPEG 2000 stream; empty for other transfer syntaxes


def decode_dicom(path: Path, stored: Stored, levels: Levels, least: int | None = None) -> Film:
    """Decode an image; `stored` says which kinds the site accepts.

    With `least`, JPEG 2000 may come at a half, a quarter or an eighth of its size, both sides of at least so many
    pixels: its wavelets hold these, and decoding them takes a fraction of the time.

    Raises `UnsuitableImage` if it is of another kind, `ImageError` if it is not a whole, single, gray picture.
    """
    with dicom_tags.raise_image_error():
        refuse_bomb(path, MAX_INFLATED)
        dataset = dicom_tags.read(path, (), pixels=True)
        _check(dataset, path)
        refuse_unsuitable(dataset, stored.body_parts, stored.for_processing)
        digest, scale, reduced = _digest_stream(dataset), 1, None
        if digest and least is not None and _may_reduce(dataset, levels):
            scale = reduction(_read_integer(dataset, "Columns"), _read_integer(dataset, "Rows"), least)
            reduced = _decode_reduced(dataset, scale) if scale > 1 else None
        extent = _read_integer(dataset, "Rows") / scale, _read_integer(dataset, "Columns") / scale
        pixels = _read_pixels(dataset) if reduced is None else reduced
        if pixels.ndim == 3:
            gray, window = picture_levels(_remove_color(pixels), levels, None), WindowUse.USED
        else:
            gray, window = make_gray(pixels, dataset, levels, find_shutter(dataset, pixels.shape))
        gray = _make_pixels_square(gray, read_pixel_aspect(dataset))
        upright = turn_upright(gray, dataset)
        misoriented = upright is not gray and not is_lateral(dataset) and find_turn(upright) != 0
        upright = gray if misoriented else upright
        shape = upright.shape if reduced is None else extent
        return Film(upright, window, upright is not gray, misoriented, shape, digest)


def _digest_stream(dataset: Dataset) -> bytes:
    """16 bytes of a JPEG 2000 stream, which name the image whatever part of it is decoded; empty for others."""
    from pydicom.uid import JPEG2000TransferSyntaxes

    if _read_syntax(dataset) not in JPEG2000TransferSyntaxes:
        return b""
    return xxhash.xxh3_128(_read_frame(dataset)).digest()


def _read_frame(dataset: Dataset) -> bytes:
    """The compressed stream of the one image."""
    from pydicom.encaps import get_frame

    stream: bytes = get_frame(dataset.PixelData, 0, number_of_frames=1)
    return stream


def _may_reduce(dataset: Dataset, levels: Levels) -> bool:
    """Whether the square of the reduced image is that of the whole.

    Percentiles, padding and a shutter belong to the whole. An image that is turned or stretched may begin with a row or
    column that lies partly outside.
    """
    probe = np.zeros((1, 1), np.uint8)
    lies_upright = turn_upright(probe, dataset) is probe and read_pixel_aspect(dataset) == 1
    covered = any(name in dataset for name in ("PixelPaddingValue", "ShutterShape"))
    return levels != "percentiles" and not covered and lies_upright


def _decode_reduced(dataset: Dataset, scale: int) -> np.ndarray | None:
    """Stored values `[h / scale, w / scale]`; None if the stream has to be decoded, or refused, as a whole."""
    from PIL import Image

    stream, bits = _read_frame(dataset), _read_integer(dataset, "BitsStored")
    if _read_integer(dataset, "PixelRepresentation") or read_precision(stream) != (bits, False):
        return None
    try:
        with Image.open(BytesIO(stream), formats=("JPEG2000",)) as image:
            setattr(image, "reduce", scale.bit_length() - 1)  # noqa: B010 a property, which its type hides
            image.load()
            values = np.asarray(image)
    except (OSError, SyntaxError, ValueError):  # damaged, or of fewer resolutions
        return None
    if values.dtype == np.uint16 and bits > 8:
        return _center(values >> (16 - bits), scale)  # which Pillow shifts up
    return _center(values, scale) if values.dtype == np.uint8 and bits == 8 else None


def _center(values: np.ndarray, scale: int) -> np.ndarray:
    """Values `[h, w]` at the centers of their squares: those of a wavelet are at the first of `scale` pixels."""
    shift = (scale - 1) / (2 * scale)
    move = np.array([[1, 0, -shift], [0, 1, -shift]])
    return cv2.warpAffine(values, move, values.shape[::-1], flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def _read_pixels(dataset: Dataset) -> np.ndarray:
    """Stored values `[h, w]`, or uint8 `[h, w, 3]` of a color file."""
    from pydicom.pixels import pixel_array
    from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian, RLELossless

    gray, whole_bytes = str(dataset.PhotometricInterpretation) in _GRAY, dataset.BitsAllocated in (8, 16)
    plain = RLELossless, ExplicitVRLittleEndian, ImplicitVRLittleEndian, DeflatedExplicitVRLittleEndian
    pixels: np.ndarray
    if _read_syntax(dataset) in _DEEP_JPEG:
        pixels = _read_deep_jpeg(dataset)
    elif gray and whole_bytes and _read_syntax(dataset) in plain:
        pixels = _read_buffer(dataset)
    else:
        pixels = pixel_array(dataset)
    del dataset.PixelData  # as large as the pixels
    if pixels.ndim != (2 if gray else 3):
        raise ImageError(f"the pixels have {pixels.ndim} dimensions, expected height and width", kind="several images")
    return pixels if pixels.dtype.isnative else pixels.byteswap(inplace=True).view(pixels.dtype.newbyteorder("="))


def _remove_color(channels: np.ndarray) -> np.ndarray:
    """The luminance uint8 `[h, w]` of a secondary capture whose channels are alike."""
    if has_colors(channels):
        raise ImageError("color DICOM file: a gray radiograph expected", kind="color")
    return cv2.cvtColor(np.ascontiguousarray(channels), cv2.COLOR_RGB2GRAY)


def _make_pixels_square(gray: np.ndarray, aspect: float) -> np.ndarray:
    """Enlarge the longer side of the pixels (bilinear); `aspect` is height by width of a pixel."""
    if aspect == 1:
        return gray
    size = round(gray.shape[1] * max(1.0, 1 / aspect)), round(gray.shape[0] * max(1.0, aspect))
    check_size(*size)
    return cv2.resize(gray, size, interpolation=cv2.INTER_LINEAR)


def _read_deep_jpeg(dataset: Dataset) -> np.ndarray:
    """Stored values of a JPEG of 12 bits or a lossless one, with libjpeg-turbo, or of JPEG-LS, with CharLS."""
    values = decode_deep_jpeg(_read_frame(dataset))
    if values.ndim == 3:
        if dataset.PhotometricInterpretation != "RGB":  # pydicom has no decoder for these either
            raise ImageError("color DICOM file: a gray radiograph expected", kind="color")
        return values
    kind = f"u{_read_integer(dataset, 'BitsAllocated') // 8}"
    return _clear_unused_bits(values.astype(kind, copy=False), dataset)


def _clear_unused_bits(stored: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Values `[h, w]` with their sign, without the upper bits that are not stored, which may hold anything."""
    kind, unused = (
        "i" if dataset.PixelRepresentation else "u",
        8 * stored.itemsize - _read_integer(dataset, "BitsStored"),
    )
    if kind == "u" and not int(stored.max()) >> 8 * stored.itemsize - unused:
        return stored.view(f"u{stored.itemsize}")
    stored = stored.view(f"{kind}{stored.itemsize}")
    return (stored << unused) >> unused if unused else stored


def _read_buffer(dataset: Dataset) -> np.ndarray:
    """RLE or uncompressed values as `dataset.pixel_array` has them: pydicom would copy them twice."""
    from pydicom.pixels import get_decoder

    decoder = get_decoder(_read_syntax(dataset))
    (decoded, _), _ = capture_stderr(lambda: decoder.as_buffer(dataset))  # of its panics the plugin writes there
    shape = _read_integer(dataset, "Rows"), _read_integer(dataset, "Columns")
    return _clear_unused_bits(
        np.frombuffer(decoded, f"<u{_read_integer(dataset, 'BitsAllocated') // 8}").reshape(shape), dataset
    )


def _read_integer(dataset: Dataset, name: str) -> int:
    """A whole number of the header; raises `AttributeError` without it."""
    return int(getattr(dataset, name))


def _read_syntax(dataset: Dataset) -> UID:
    """The transfer syntax."""
    syntax: UID = dataset.file_meta.TransferSyntaxUID
    return syntax


def _check(dataset: Dataset, path: Path) -> None:
    """That it is one gray picture of a radiograph's size, and compressed, if it is, as a picture of that size."""
    if "TransferSyntaxUID" not in dataset.file_meta:
        raise ImageError("DICOM file without a transfer syntax: its pixels cannot be read reliably", kind="unsupported")
    if not any(name in dataset for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        described = "Rows" in dicom_tags.read(path, ("Rows",))  # of a file cut in its pixels nothing was kept above
        lost = ": its header describes an image, but the pixels are truncated or missing" if described else ""
        raise ImageError(f"DICOM file without pixels{lost}", kind="damaged" if described else "no pixels")
    if int(dataset.get("NumberOfFrames") or 1) != 1:
        raise ImageError("multi-frame DICOM file: one radiograph expected", kind="several images")
    samples = int(dataset.get("SamplesPerPixel") or 1)
    if dataset.get("PhotometricInterpretation") not in {1: _GRAY, 3: _COLOR}.get(samples, ()):
        raise ImageError("DICOM file that is neither MONOCHROME1 nor MONOCHROME2 nor RGB", kind="color")
    if "PixelData" not in dataset or _read_integer(dataset, "BitsAllocated") > 16:
        raise ImageError(
            "DICOM file of more than 16 bits per pixel or of floating-point pixels: a radiograph expected",
            kind="unsupported",
        )
    if samples == 3 and _read_integer(dataset, "BitsAllocated") != 8:
        raise ImageError("color DICOM file of more than 8 bits: a gray radiograph expected", kind="color")
    check_size(_read_integer(dataset, "Columns"), _read_integer(dataset, "Rows"))
    if _read_syntax(dataset).is_encapsulated:
        _check_compressed(dataset)
    elif dataset.get("HighBit") not in (None, _read_integer(dataset, "BitsStored") - 1):
        raise ImageError(
            "DICOM file whose HighBit is not BitsStored - 1: the position of its values is unknown", kind="unsupported"
        )


def _check_compressed(dataset: Dataset) -> None:
    """That the compressed picture is as large as the header says; JPEG 2000 is taken out of a JP2 file's boxes."""
    from pydicom.encaps import encapsulate
    from pydicom.uid import JPEG2000TransferSyntaxes, JPEGBaseline8Bit, RLELossless

    width, height, syntax = _read_integer(dataset, "Columns"), _read_integer(dataset, "Rows"), _read_syntax(dataset)
    if syntax == RLELossless:  # states no size of its own
        return
    stream = _read_frame(dataset)
    if syntax in JPEG2000TransferSyntaxes:
        bare = bare_jpeg_2000(stream)
        if len(bare) < len(stream):
            dataset.PixelData, stream = encapsulate([bare]), bare
            dataset.pop("ExtendedOffsetTable", None)
    samples = int(dataset.get("SamplesPerPixel") or 1)
    if read_size(stream) not in (None, (width, height, samples)):
        text = "whose compressed image does not have the size in its header"
        raise ImageError(f"DICOM file {text}, refused without decoding", kind="too large")
    refuse_missing_end(stream)
    refuse_scan_bomb(stream, width * height)
    if syntax == JPEGBaseline8Bit:
        decode_jpeg(stream, 8)  # for its reports: pydicom's decoder gives none
