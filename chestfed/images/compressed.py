"""The size that a compressed picture inside a DICOM file has of its own, which the header may contradict.

A decoder believes the picture and not the header: a file that says 64 x 64 may hold 50,000 x 50,000 pixels.
"""

from __future__ import annotations

import struct
from typing import Final

_SOI: Final = b"\xff\xd8"
_J2K: Final = b"\xff\x4f\xff\x51"
#: How a JP2 file begins, which wraps such a stream in boxes.
_JP2: Final = b"\0\0\0\x0cjP  "
#: Start of frame: JPEG's without DHT, JPG and DAC, and that of JPEG-LS.
_FRAMES: Final = (*(code for code in range(0xC0, 0xD0) if code not in (0xC4, 0xC8, 0xCC)), 0xF7)
#: Markers without a length.
_BARE: Final = (0x01, 0xFF, *range(0xD0, 0xD9))


def size_of(stream: bytes) -> tuple[int, int, int] | None:
    """Width, height and components that a JPEG, JPEG-LS or JPEG 2000 stream states; None if none is found."""
    try:
        if stream.startswith(_SOI):
            return _size_of_jpeg(stream)
        place = stream.find(_J2K, 0, 1 << 16) if stream.startswith(_JP2) else 0
        if not stream.startswith(_J2K, max(place, 0)):  # anywhere else these four bytes may stand by chance
            return None
        width, height, left, top = struct.unpack_from(">4I", stream, place + 8)
        (components,) = struct.unpack_from(">H", stream, place + 40)
        return width - left, height - top, components
    except (struct.error, IndexError):
        return None


def _size_of_jpeg(stream: bytes) -> tuple[int, int, int] | None:
    place = 2
    while stream[place] == 0xFF:
        code = stream[place + 1]
        if code in _FRAMES:
            height, width, components = struct.unpack_from(">HHB", stream, place + 5)
            return width, height, components
        place += 1 if code == 0xFF else 2
        if code not in _BARE:
            place += struct.unpack_from(">H", stream, place)[0]
    return None
