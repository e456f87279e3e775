"""Read one image file as 8-bit gray.

What a file is, is read from its first bytes, not from its name. How stored values become gray levels is one policy for
all files (`Levels`):

* `window`: what a viewer shows. The range of DICOM's VOI LUT or first window becomes 0..255, or the picture's 0.5 to
  99.5 percentiles where none shows the film. PNG and JPEG are kept: 8 bits, or the range of 16-bit files' bits;
* `stored`: the same without the window: the whole range of the bits that the file states;
* `percentiles`: the 0.5 and 99.5 percentiles of each picture become 0 and 255, whatever the file.

Color is converted to gray, transparency is ignored, and the orientation of EXIF or DICOM is applied. DICOM's color is
refused, its padding counts for no range and becomes black.
"""

from __future__ import annotations

import stat
import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import xxhash

from chestfed.core.errors import ImageError, is_environment_error
from chestfed.core.processes.workers import limit_time
from chestfed.data.images.decoding.compressed import (
    MAX_BYTES,
    MAX_PIXELS,
    PLAIN_CHUNKS,
    PNG,
    check_png,
    check_size,
    decode_jpeg,
    decode_plain_png,
    jpeg_digest,
    read_size,
    refuse_scan_bomb,
)
from chestfed.data.images.decoding.dicom_levels import WindowUse
from chestfed.data.images.decoding.dicom_pixels import decode_dicom
from chestfed.data.images.decoding.polarity import UNSURE, polarity
from chestfed.data.images.levels import Levels, Stored, picture_levels
from chestfed.data.images.preprocess import Preprocess

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile
    from PIL.JpegImagePlugin import JpegImageFile

_JPEG, _DICOM = b"\xff\xd8\xff", b"DICM"
_OTHERS: Final = {b"GIF8": "GIF", b"II*\0": "TIFF", b"MM\0*": "TIFF", b"BM": "BMP", b"RIFF": "WebP"} | {
    b"\0\0\0\x0cjP": "JPEG 2000"
}
#: Beginnings of elements of group 2 or 8, in little endian.
_NO_PREAMBLE: Final = (
    b"\2\0\0\0UL",
    b"\2\0\1\0OB",
    b"\2\0\2\0UI",
    b"\x08\0\5\0",
    b"\x08\0\x08\0",
    b"\x08\0\x16\0",
    b"\x08\0\0\0",
)
_ORIENTATION: Final = 0x0112  # in EXIF
_ROWS: Final = 256  # converted at once
#: A picture takes a second or two; whatever takes so long is damaged, or made to take long.
_SECONDS: Final = 120


class Decoded(NamedTuple):
    """A picture as its file has it."""

    gray: np.ndarray  #: gray levels uint8 `[h, w]`, of the whole picture or reduced
    #: Height and width of the picture in pixels of `gray`: of a reduced one, the last may lie partly outside.
    extent: tuple[float, float]
    #: dicom, window: whether it is DICOM, and what became of its VOI LUT or window.
    dicom: bool = False
    window: WindowUse = WindowUse.USED
    #: turned, misoriented: rotated or mirrored by DICOM's Patient Orientation; not, because the picture contradicts it.
    turned: bool = False
    misoriented: bool = False
    compressed: bytes = b""  #: digest of the compressed data of a JPEG or JPEG 2000; empty for others


def decode(path: Path, stored: Stored = Stored(), levels: Levels = "window") -> np.ndarray:
    """Gray levels uint8 `[height, width]`, air dark and bone bright.

    Raises `ImageError` if the file is not a whole, single, gray image of a known format; the reason is in the message.
    Raises `OSError` or `MemoryError` if the file cannot be read, which says nothing about its content;
    FileNotFoundError if it does not exist.

    A worker process ends if a picture takes longer than two minutes.
    """
    return turn_upright(decode_stored(path, stored, levels), stored)


def decode_stored(
    path: Path, stored: Stored = Stored(), levels: Levels = "window", least: int | None = None
) -> Decoded:
    """Decode without deciding on a PNG's or JPEG's polarity; raises what `decode` does.

    With `least`, a JPEG or JPEG 2000 may come at a half, a quarter or an eighth of its size, both sides of at least so
    many pixels: its blocks or wavelets are transformed to smaller ones, which nearly does what averaging would.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        raise ImageError("not a file but a folder, a pipe or a device", kind="not a file")
    if status.st_size > MAX_BYTES:
        raise ImageError(
            f"{status.st_size:,} bytes: more than {MAX_BYTES:,}, refused without reading", kind="too large"
        )
    with path.open("rb") as file:
        head = file.read(132)
    if not head:
        raise ImageError("the file is empty (0 bytes)", kind="empty")
    with limit_time(_SECONDS):
        if head.startswith((_JPEG, PNG)):
            decoded = _read_picture(path, None if levels == "percentiles" else least)
            return decoded._replace(gray=picture_levels(decoded.gray, levels, stored.bits))
        if head[128:132] == _DICOM:
            film = decode_dicom(path, stored, levels, least)
            return Decoded(film.gray, film.extent, True, film.window, film.turned, film.misoriented, film.digest)
    if head.startswith(_NO_PREAMBLE):
        raise ImageError(
            "DICOM file without its preamble: write it anew, in Python by pydicom.dcmread(FILE, force=True)"
            ".save_as(FILE, enforce_file_format=True)",
            kind="unsupported",
        )
    other = next((f" but {name}: save it as PNG" for begin, name in _OTHERS.items() if head.startswith(begin)), "")
    raise ImageError(f"not a JPEG, PNG or DICOM file{other}", kind="not an image")


def prepare_image(path: Path, stored: Stored, preprocess: Preprocess) -> tuple[np.ndarray, bytes]:
    """The square uint8 `[size, size]` that the network sees, and 16 bytes that tell the picture; raises as `decode`."""
    decoded = decode_stored(path, stored, preprocess.levels, preprocess.least)
    gray = turn_upright(decoded, stored)
    return preprocess.apply(gray, decoded.extent), decoded.compressed or picture_digest(gray)


def turn_upright(decoded: Decoded, stored: Stored) -> np.ndarray:
    """The gray levels with air dark; a DICOM file's own header has decided already."""
    if decoded.dicom:
        return decoded.gray
    inverted = stored.inverted
    if stored.by_picture and abs(sign := polarity(decoded.gray)) >= UNSURE:
        inverted = sign < 0
    return 255 - decoded.gray if inverted else decoded.gray


def picture_digest(gray: np.ndarray) -> bytes:
    """16 bytes of gray levels uint8 `[height, width]` and their shape.

    A picture that was saved anew without loss has the same.
    """
    shape = f"{gray.shape[0]}x{gray.shape[1]}\0".encode()
    digest = xxhash.xxh3_128(shape)
    digest.update(np.ascontiguousarray(gray).data)
    return digest.digest()


def _read_picture(path: Path, least: int | None) -> Decoded:
    """Values uint8 or uint16 `[h, w]` of a PNG or JPEG."""
    from PIL import Image
    from PIL.JpegImagePlugin import JpegImageFile

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bombs, which are refused here, and of damaged EXIF data
            stored = path.read_bytes()
            chunks = check_png(stored) if stored.startswith(PNG) else None
            with Image.open(BytesIO(stored), formats=("JPEG", "PNG")) as image:
                check_size(image.width, image.height)
                if (frames := getattr(image, "n_frames", 1)) != 1:
                    raise ImageError(
                        f"animated PNG or MPO of {frames} images: one radiograph expected", kind="several images"
                    )
                if isinstance(image, JpegImageFile):
                    return _read_jpeg(stored, image, least)
                plain = chunks is not None and chunks <= PLAIN_CHUNKS and image.tile[0].args in ("L", "I;16B")
                pixels = decode_plain_png(stored) if plain else None
                return Decoded(*_read_values(image)) if pixels is None else Decoded(pixels, pixels.shape)
    except ImageError:
        raise
    except Image.UnidentifiedImageError:
        raise ImageError(
            "damaged, or of a kind that is not read, such as a JPEG of 12 bits: save it as PNG", kind="unsupported"
        ) from None
    except Image.DecompressionBombError:
        raise ImageError(f"more than {MAX_PIXELS:,} pixels, refused without decoding", kind="too large") from None
    except Exception as error:  # Pillow raises many kinds on damaged files
        if is_environment_error(error):
            raise
        raise ImageError(f"damaged or truncated image ({_describe_error(error)})", kind="damaged") from None


def _read_values(image: ImageFile) -> tuple[np.ndarray, tuple[int, int]]:
    """Values of a picture, upright by its EXIF, and their shape."""
    from PIL import ImageOps

    halved = image.mode != "I;16" and str(image.tile[0].args).endswith("16B")  # with color or transparency
    ImageOps.exif_transpose(image, in_place=True)
    wide = image.mode.startswith("I")
    pixels = np.empty((image.height, image.width), np.uint16 if wide else np.uint8)
    for top in range(0, image.height, _ROWS):  # Pillow copies twice what it converts
        rows = image.crop((0, top, image.width, min(top + _ROWS, image.height)))
        pixels[top : top + _ROWS] = np.asarray(rows if wide else rows.convert("L"))
    if halved and pixels.max() < 1 << 7:  # Pillow keeps 8 bits: too few for 12 used
        raise ImageError("dark 16-bit PNG in color or with transparency: save it as 16-bit gray", kind="color")
    return pixels, (image.height, image.width)


def _read_jpeg(stored: bytes, image: JpegImageFile, least: int | None) -> Decoded:
    """The luminance of a JPEG that Pillow has opened, upright, and reduced if it may be."""
    refuse_scan_bomb(stored, image.width * image.height)
    digest, turned = jpeg_digest(stored), image.getexif().get(_ORIENTATION, 1)
    if image.mode == "CMYK":  # which OpenCV makes gray by other weights
        image.decodermaxblock = len(stored)  # in one piece: a decoder that waits for the next starts anew
        return Decoded(*_read_values(image), compressed=digest)
    if read_size(stored) != (image.width, image.height, image.layers):
        raise ImageError("damaged JPEG: its header contradicts itself", kind="damaged")
    times = 0 if least is None or turned != 1 else min(image.width, image.height) // least
    scale = next((scale for scale in (8, 4, 2) if times >= scale), 1)
    gray = decode_jpeg(stored, scale)
    if turned != 1:
        gray = _turn(gray, turned)
        return Decoded(gray, gray.shape, compressed=digest)
    return Decoded(gray, (image.height / scale, image.width / scale), compressed=digest)


def _turn(gray: np.ndarray, orientation: int) -> np.ndarray:
    """Gray levels turned or mirrored as EXIF's orientation says."""
    from PIL import Image, ImageOps

    picture = Image.fromarray(gray)
    picture.getexif()[_ORIENTATION] = orientation
    return np.asarray(ImageOps.exif_transpose(picture))


def _describe_error(error: Exception) -> str:
    """Kind of an error and its first words, which help ("image file is truncated"), unless they quote the file."""
    text = str(error).strip().splitlines()
    safe = text[0][:80] if text and isinstance(error, OSError | SyntaxError) and "'" not in text[0] else ""
    return f"{type(error).__name__}: {safe}" if safe else type(error).__name__
