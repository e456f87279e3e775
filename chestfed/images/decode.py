"""Read one image file as 8-bit gray.

What a file is, is read from its first bytes, not from its name. Gray levels:

* 8-bit files keep their values (color is converted to gray, transparency is ignored);
* 16-bit PNG has no window: its 0.5 and 99.5 percentiles become 0 and 255;
* DICOM goes through the modality LUT (rescale), then the VOI LUT or the first window, then 0..255, and MONOCHROME1 is
  inverted last. Without a window, or with an implausible one (width below 1, or none of the image's values in
  it), the 0.5 to 99.5 percentile range is used. Padding counts for no range and becomes black.

Messages give the reason and never the content of a header, which may name a patient.
"""

from __future__ import annotations

import hashlib
import stat
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.errors import ImageError
from chestfed.dicom import tags as dicom_tags
from chestfed.dicom.files import refuse_bomb
from chestfed.images.compressed import size_of

#: Larger images are refused without decoding: the largest digital radiographs have some 20 million pixels.
MAX_PIXELS = 60_000_000
#: So are larger files.
MAX_BYTES = 8 * MAX_PIXELS

_PERCENTILES = (0.5, 99.5)
_JPEG, _PNG, _DICOM = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"DICM"


def decode(path: Path, inverted: bool = False) -> np.ndarray:
    """Gray levels uint8 `[height, width]`, air dark and bone bright.

    Parameters
    ----------
    inverted
        The stored values are MONOCHROME1 though the format can't say so (the site table knows it).

    Raises
    ------
    ImageError
        If the file is not a whole, single, gray image of a known format; the reason is in the message.
    FileNotFoundError
        If the file does not exist.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        raise ImageError("not a file but a folder, a pipe or a device")
    if status.st_size > MAX_BYTES:
        raise ImageError(f"{status.st_size:,} bytes: more than {MAX_BYTES:,}, refused without reading")
    with path.open("rb") as file:
        head = file.read(132)
    if not head:
        raise ImageError("the file is empty (0 bytes)")
    if head.startswith((_JPEG, _PNG)):
        gray = _decode_picture(path)
    elif head[128:132] == _DICOM:
        gray = _decode_dicom(path)
    else:
        raise ImageError("not a JPEG, PNG or DICOM file")
    return 255 - gray if inverted else gray


def picture_digest(gray: np.ndarray) -> bytes:
    """16 bytes of gray levels uint8 `[height, width]` and their shape.

    A picture that was saved anew without loss has the same.
    """
    shape = f"{gray.shape[0]}x{gray.shape[1]}\0".encode()
    return hashlib.blake2b(np.ascontiguousarray(gray).data, digest_size=16, salt=shape.ljust(16, b"\0")[:16]).digest()


def _decode_picture(path: Path) -> np.ndarray:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                _check_size(image.width, image.height)
                image.load()
                if image.mode.startswith("I"):
                    return _stretch(np.asarray(image).astype(np.float32))
                return np.asarray(image.convert("L"))
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError(f"more than {MAX_PIXELS:,} pixels, refused without decoding") from None
    except Exception as error:  # Pillow raises many kinds on damaged files
        raise ImageError(f"damaged or truncated image ({_pillow_reason(error)})") from None


def _decode_dicom(path: Path) -> np.ndarray:
    from pydicom.pixels import apply_modality_lut, apply_voi_lut

    try:
        with dicom_tags.quiet():
            refuse_bomb(path, MAX_BYTES)
            dataset = dicom_tags.read(path, (), pixels=True)
            _check_dicom(dataset, path)
            _check_compressed(dataset)
            stored = dataset.pixel_array
            if stored.ndim != 2:
                raise ImageError(f"the pixels have {stored.ndim} dimensions, expected height and width")
            padding = _padding(stored, dataset)
            values = apply_modality_lut(stored, dataset).astype(np.float32)
            gray = None
            if "VOILUTSequence" in dataset or _has_window(dataset):
                windowed = apply_voi_lut(apply_modality_lut(stored, dataset), dataset, index=0).astype(np.float32)
                low, high = _extremes(windowed[~padding])
                gray = _scale(windowed, low, high) if high > low else None
            if gray is None:
                gray = _scale(values, *_percentile_range(values[~padding]))
    except ImageError:
        raise
    except BaseException as error:  # pydicom and its plugins raise many kinds on damaged files
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # a plugin written in Rust panics past Exception; an interrupt must pass
        raise ImageError(f"damaged or unsupported DICOM file: {dicom_tags.reason(error)}") from None
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        gray = 255 - gray
    gray[padding] = 0
    return gray


def _padding(stored: np.ndarray, dataset: Any) -> np.ndarray:
    """Where the stored values are padding: one value, or a range of them (PS3.3, C.7.5.1.1.2)."""
    first, last = dataset.get("PixelPaddingValue"), dataset.get("PixelPaddingRangeLimit")
    if not isinstance(first, int):
        return np.zeros(stored.shape, bool)
    bounds = sorted((first, last if isinstance(last, int) else first))
    found = (stored >= bounds[0]) & (stored <= bounds[1])
    return np.zeros(stored.shape, bool) if found.all() else found


def _has_window(dataset: Any) -> bool:
    """Whether the first window is plausible: a width of at least 1, or above 0 where the function allows it."""
    width, center = (_first(dataset.get(name)) for name in ("WindowWidth", "WindowCenter"))
    if width is None or center is None or not np.isfinite([width, center]).all():
        return False
    return width >= 1 or (width > 0 and dataset.get("VOILUTFunction", "LINEAR") != "LINEAR")


def _first(value: Any) -> float | None:
    """The first of one or several numbers; None if there is none."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = value[0] if len(value) else None
    return None if value is None or value == "" else float(value)


def _check_dicom(dataset: Any, path: Path) -> None:
    if "TransferSyntaxUID" not in dataset.file_meta:
        raise ImageError("DICOM file without a transfer syntax: its pixels cannot be read reliably")
    if not any(name in dataset for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        described = "Rows" in dicom_tags.read(path, ("Rows",))  # of a file cut in its pixels nothing was kept above
        lost = ": its header describes a picture, which is cut short or missing" if described else ""
        raise ImageError(f"DICOM file without pixels{lost}")
    if int(dataset.get("NumberOfFrames") or 1) != 1:
        raise ImageError("multi-frame DICOM file: one radiograph expected")
    if int(dataset.get("SamplesPerPixel") or 1) != 1:
        raise ImageError("color DICOM file: a gray radiograph expected")
    if dataset.get("PhotometricInterpretation") not in ("MONOCHROME1", "MONOCHROME2"):
        raise ImageError("DICOM file that is neither MONOCHROME1 nor MONOCHROME2")
    _check_size(int(dataset.Columns), int(dataset.Rows))


def _check_compressed(dataset: Any) -> None:
    """A compressed picture is as large as the header says: decoders do not look there."""
    from pydicom.encaps import get_frame

    if not dataset.file_meta.TransferSyntaxUID.is_encapsulated:
        return
    stated = size_of(get_frame(dataset.PixelData, 0, number_of_frames=1))
    if stated not in (None, (int(dataset.Columns), int(dataset.Rows), 1)):
        raise ImageError(
            "DICOM file whose compressed picture does not have the size in its header, refused without decoding"
        )


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ImageError(f"{width}x{height} pixels: more than {MAX_PIXELS:,}, refused without decoding")
    if min(width, height) < 16:
        raise ImageError(f"{width}x{height} pixels: too small for a radiograph")


def _stretch(values: np.ndarray) -> np.ndarray:
    """The percentile range to 0..255."""
    return _scale(values, *_percentile_range(values))


def _percentile_range(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, _PERCENTILES)
    return (float(low), float(high)) if high > low else _extremes(values)


def _extremes(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _scale(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """`low`..`high` to 0..255, clipped; a constant image becomes black."""
    if not np.isfinite([low, high]).all():
        raise ImageError("pixel values that are not finite")
    if high <= low:
        return np.zeros(values.shape, np.uint8)
    return np.clip((values - low) * (255 / (high - low)) + 0.5, 0, 255).astype(np.uint8)


def _pillow_reason(error: Exception) -> str:
    """Kind of Pillow's error and its first words, without what may be quoted from the file.

    `dicom_tags.reason` passes on none of an error's words. Of a PNG or JPEG the words help ("image file is truncated")
    and name no patient; of a DICOM file they may.
    """
    text = str(error).strip().splitlines()
    safe = text[0][:80] if text and isinstance(error, OSError | SyntaxError) and "'" not in text[0] else ""
    return f"{type(error).__name__}: {safe}" if safe else type(error).__name__
