"""Refusals before decoding: too many pixels, compressed pictures that are not what they seem, damaged PNG.

A decoder believes the picture and not the header of the DICOM file around it: a file that says 64 x 64 may hold
50,000 x 50,000 pixels. A progressive JPEG of a few megabytes may hold thousands of scans, each as slow as a picture.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np
import xxhash

from chestfed.core.console import capture_stderr
from chestfed.core.errors import ImageError
from chestfed.data.images.decoding.lossless_jpeg import decode_once

#: Larger images are refused without decoding: the largest digital radiographs have some 20 million pixels.
MAX_PIXELS: Final = 40_000_000
#: So are larger files.
MAX_BYTES: Final = 3 * MAX_PIXELS
#: And deflated ones that inflate to more: they are held in memory as a whole, several times.
MAX_INFLATED: Final = MAX_BYTES // 2
#: JPEG scans; encoders write some ten. In a large one there may be fewer: each may take as long as a whole picture.
MAX_SCANS: Final = 64
MAX_SCANNED_PIXELS: Final = 10 * MAX_PIXELS

PNG: Final = b"\x89PNG\r\n\x1a\n"
#: Chunks that neither turn nor change the pixels of a PNG.
PLAIN_CHUNKS: Final = frozenset(
    (b"IHDR", b"IDAT", b"IEND", b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"tIME", b"bKGD")
)
_SOI: Final = b"\xff\xd8"
_EOI: Final = b"\xff\xd9"
_TAIL: Final = 4096  #: bytes: padding, or what a device may have put behind
_J2K: Final = b"\xff\x4f\xff\x51"
#: Beginning of a JP2 file, which wraps such a stream in boxes.
_JP2: Final = b"\0\0\0\x0cjP  "
#: Start of frame: JPEG's without DHT, JPG and DAC, and that of JPEG-LS.
_JPEG_LS: Final = 0xF7
_FRAMES: Final = (*(code for code in range(0xC0, 0xD0) if code not in (0xC4, 0xC8, 0xCC)), _JPEG_LS)
_PROGRESSIVE: Final = (0xC2, 0xC6, 0xCA, 0xCE)
_SCAN: Final = 0xDA
_SCANS: Final = re.compile(b"\xff\xda")
_MARKERS: Final = re.compile(b"\xff[^\0\xff]")
_RESTARTS: Final = 0xDD
_RESTART_MARKERS: Final = re.compile(b"\xff+[\xd0-\xd7]")
_LOSSLESS: Final = (0xC3, 0xC7, 0xCB, 0xCF)
#: Markers of metadata, which are no part of a picture: dates, names, thumbnails.
_ABOUT: Final = (*range(0xE0, 0xF0), 0xFE)
#: Reports of damage by libjpeg, before it goes on with a guess.
_DAMAGE: Final = ("Corrupt JPEG data", "Premature end of JPEG file", "Inconsistent progression sequence")
#: Compressed data of no picture, without a marker. Its first bit is 1, because libjpeg makes up zeros.
_NO_DATA: Final = bytes(range(254, 0, -1)) * 8
#: Markers without a length.
_BARE: Final = (0x01, 0xFF, *range(0xD0, 0xD9))


def check_size(width: int, height: int) -> None:
    """Refuse what is too large, or too small for a radiograph.

    Raises `ImageError` if it is.
    """
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{width}x{height} pixels: more than {MAX_PIXELS:,}, refused without decoding", kind="too large"
        )
    if min(width, height) < 16:
        raise ImageError(f"{width}x{height} pixels: too small for a radiograph", kind="too small")


def check_png(stored: bytes) -> set[bytes]:
    """Refuse a PNG with a missing chunk or a wrong checksum: Pillow decodes it unchecked; returns the kinds of chunks.

    A flipped bit of the compressed pixels changes most of those behind it.

    Raises `ImageError` if it is damaged.
    """
    place, kind, kinds = len(PNG), b"", set[bytes]()
    with memoryview(stored) as view:
        while kind != b"IEND":
            length, kind = int.from_bytes(view[place : place + 4]), bytes(view[place + 4 : place + 8])
            end = place + 8 + length
            if end + 4 > len(view):
                raise ImageError("damaged or truncated PNG: its end is missing", kind="damaged")
            if zlib.crc32(view[place + 4 : end]) != int.from_bytes(view[end : end + 4]):
                raise ImageError("damaged PNG: a part of it does not fit its checksum", kind="damaged")
            place = end + 4
            kinds.add(kind)
    return kinds


def decode_plain_png(stored: bytes) -> np.ndarray | None:
    """The values uint8 or uint16 `[h, w]` of a gray PNG of `PLAIN_CHUNKS` alone; Pillow would copy them several times.

    None if it is damaged: Pillow may read it all the same, or say why not.
    """
    from imagecodecs import PngError, png_decode

    try:
        values, _ = capture_stderr(lambda: np.asarray(png_decode(stored)))  # of its warnings
    except PngError:
        return None
    return values


def read_size(stream: bytes) -> tuple[int, int, int] | None:
    """Width, height and components that a JPEG, JPEG-LS or JPEG 2000 stream states; None if none is found."""
    try:
        if stream.startswith(_SOI):
            frame = next((place for code, place in _list_segments(stream) if code in _FRAMES), len(stream))
            height, width, components = struct.unpack_from(">HHB", stream, frame + 5)
            return width, height, components
        if not stream.startswith(_J2K):  # elsewhere these four bytes may stand by chance
            return None
        width, height, left, top = struct.unpack_from(">4I", stream, 8)
        (components,) = struct.unpack_from(">H", stream, 40)
        return width - left, height - top, components
    except (struct.error, IndexError):
        return None


def read_precision(stream: bytes) -> tuple[int, bool] | None:
    """Bits and sign of the values of a JPEG 2000 stream; None if its image begins elsewhere than at 0."""
    if len(stream) < 43 or any(stream[16:24]):
        return None
    return (stream[42] & 0x7F) + 1, stream[42] >= 0x80


def reduction(width: int, height: int, least: int) -> int:
    """By how much a JPEG 2000 stream is reduced: 8, 4, 2 or 1, so that both sides keep `least` pixels.

    OpenJPEG rounds a reduced side up and Pillow rounds it, and refuses the image where these differ.
    """
    sides, times = (width, height), min(width, height) // least
    fits = (scale for scale in (8, 4, 2) if all(-(-side // scale) == (side + scale // 2) // scale for side in sides))
    return next((scale for scale in fits if times >= scale), 1)


def bare_jpeg_2000(stream: bytes) -> bytes:
    """A JPEG 2000 stream without the boxes of a JP2 file, which DICOM does not allow and some devices write.

    OpenJPEG up to 2.5.3 may write outside of memory while it reads boxes (CVE-2025-54874). They say nothing that a gray
    picture needs.

    Raises `ImageError` if there is no such stream in it.
    """
    begin = max(stream.find(_J2K, 0, 1 << 16), 0) if stream.startswith(_JP2) else 0
    bare = stream[begin:]
    if not bare.startswith(_J2K) or read_size(bare) is None:
        raise ImageError("its compressed image does not begin as JPEG 2000, refused without decoding", kind="damaged")
    return bare


def refuse_missing_end(stream: bytes) -> None:
    """Refuse a JPEG or JPEG-LS that is cut short: libjpeg makes up what is missing. Any other stream passes.

    Raises `ImageError` if it is cut short.
    """
    if stream.startswith(_SOI) and _EOI not in stream[-_TAIL:]:  # compressed data do not hold this marker
        raise ImageError("its compressed image is cut short", kind="damaged")


def refuse_scan_bomb(stream: bytes, pixels: int) -> None:
    """Refuse a JPEG of more than `MAX_SCANS` scans, or `MAX_SCANNED_PIXELS` in all; any other stream passes.

    Of one component that is not progressive only the first scan is decoded.

    Raises `ImageError` if it has more.
    """
    try:
        places = dict(_list_segments(stream)) if stream.startswith(_SOI) else {}
        if _has_one_scan(stream, places):
            return
    except (struct.error, IndexError):
        return  # cut short: the decoder says so
    # Compressed data have a 0 behind each 0xFF. An expression is twice as fast as `count`.
    most = min(MAX_SCANS, MAX_SCANNED_PIXELS // max(pixels, 1))
    scans = islice(_SCANS.finditer(stream, places[_SCAN]), most + 1) if _SCAN in places else ()
    if sum(1 for _ in scans) > most:
        raise ImageError(f"JPEG of more than {most} scans, refused without decoding", kind="too large")


def decode_jpeg(stored: bytes, scale: int) -> np.ndarray:
    """The luminance uint8 `[h, w]` of a JPEG, reduced by 1, 2, 4 or 8, not turned.

    Pillow has the same decoder and the same pixels, but drops its reports of damage. Here they can be read.

    Raises `ImageError` if the decoder reports damage.
    """
    import cv2

    flags = {1: cv2.IMREAD_GRAYSCALE, 2: cv2.IMREAD_REDUCED_GRAYSCALE_2, 4: cv2.IMREAD_REDUCED_GRAYSCALE_4}
    flag = flags.get(scale, cv2.IMREAD_REDUCED_GRAYSCALE_8) | cv2.IMREAD_IGNORE_ORIENTATION
    content = np.frombuffer(stored, np.uint8)
    gray, report = capture_stderr(lambda: cv2.imdecode(content, flag))
    if gray is None or any(words in report for words in _DAMAGE):
        raise ImageError("damaged or truncated JPEG", kind="damaged")
    return np.asarray(gray)


def decode_deep_jpeg(stored: bytes) -> np.ndarray:
    """The values uint8 or uint16 `[h, w]` or `[h, w, 3]` of a JPEG of up to 16 bits, also a lossless one, or a JPEG-LS.

    Raises `ImageError` if it is none, or the decoder reports damage.
    """
    from imagecodecs import Jpeg8Error, JpeglsError, jpeg8_decode, jpegls_decode

    segments = list(_list_segments(stored))
    frame = next((code for code, _ in segments if code in _FRAMES), None)
    end = stored.rfind(_EOI)
    while stored[end - 1] == 0xFF or stored[end - 2 : end] == _EOI:  # which may fill the space before a marker
        end -= 1 if stored[end - 1] == 0xFF else 2
    try:
        if frame == _JPEG_LS:
            return np.asarray(jpegls_decode(stored))
        if (decoded := decode_once(stored, end, segments, jpeg8_decode)) is not None:
            return decoded
        values = np.asarray(jpeg8_decode(stored))
        # libjpeg-turbo makes up what is missing, and imagecodecs drops its reports: if the data of the scan, or those
        # before a restart, end early, the picture depends on what follows them.
        same = np.array_equal(values, jpeg8_decode(_follow_data(stored, end, segments)))
    except (Jpeg8Error, JpeglsError):
        same = False
    if not same or _is_interrupted(stored, end, segments):
        raise ImageError("damaged or truncated JPEG", kind="damaged")
    return values


def _has_one_scan(stream: bytes, places: Mapping[int, int]) -> bool:
    """Whether a JPEG with markers at these places is of one component and not progressive."""
    frame = next((code for code in places if code in _FRAMES), None)
    return frame is not None and frame not in _PROGRESSIVE and stream[places[frame] + 9] == 1


def _is_interrupted(stream: bytes, end: int, segments: Sequence[tuple[int, int]]) -> bool:
    """Whether the markers in the only scan are others than its restarts in their order, each once.

    libjpeg makes up what should follow, whole rows of it.
    """
    places = dict(segments)
    if not _has_one_scan(stream, places):
        return False
    interval = struct.unpack_from(">H", stream, places[_RESTARTS] + 4)[0] if _RESTARTS in places else 0
    markers = [mark[0][1] for mark in _MARKERS.finditer(stream, places[_SCAN] + 2, end)]
    if not interval:
        return bool(markers)
    frame = next(code for code in places if code in _FRAMES)
    height, width = struct.unpack_from(">HH", stream, places[frame] + 5)
    side = 1 if frame in _LOSSLESS else 8  # of the units that are counted
    units = -(-height // side) * -(-width // side)
    return markers != [0xD0 + number % 8 for number in range(-(-units // interval) - 1)]


def _follow_data(stream: bytes, end: int, segments: Sequence[tuple[int, int]]) -> bytes:
    """The stream with data of no picture behind its own, and in the only scan before each restart too."""
    places = dict(segments)
    if _RESTARTS not in places or not _has_one_scan(stream, places):
        return stream[:end] + _NO_DATA + stream[end:]
    scan = _RESTART_MARKERS.sub(lambda mark: _NO_DATA + mark[0], stream[places[_SCAN] : end])
    return stream[: places[_SCAN]] + scan + _NO_DATA + stream[end:]


def jpeg_digest(stream: bytes) -> bytes:
    """16 bytes of a JPEG's tables and compressed pixels: the same whatever its metadata say."""
    digest, begin = xxhash.xxh3_128(), 0
    with memoryview(stream) as view:
        for code, place in _list_segments(stream):
            if code in _ABOUT:
                digest.update(view[begin:place])
                begin = place + 2 + struct.unpack_from(">H", stream, place + 2)[0]
        digest.update(view[begin:])
    return digest.digest()


def _list_segments(stream: bytes) -> Iterator[tuple[int, int]]:
    """Code and place of a JPEG's markers, up to the first scan."""
    place = 2
    while stream[place] == 0xFF:
        code = stream[place + 1]
        yield code, place
        if code == _SCAN:
            return
        place += 1 if code == 0xFF else 2
        if code not in _BARE:
            place += struct.unpack_from(">H", stream, place)[0]
