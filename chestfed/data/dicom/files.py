"""Facts of a DICOM file before its data set is read: transfer syntax, SOP class, how large it gets inflated."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import IO, Final

from chestfed.core.errors import ImageError

#: Implicit length, explicit VR, packed as a whole (PS3.5, A.5): the only syntax whose header can be a bomb.
DEFLATED: Final = "1.2.840.10008.1.2.1.99"
_LONG_LENGTHS: Final = (b"OB", b"OW", b"OF", b"SQ", b"UT", b"UN")
_CHUNK: Final = 1 << 20
#: Elements of group 2.
_SOP_CLASS: Final = 0x0002
_SYNTAX: Final = 0x0010


def meta_uids(path: Path) -> tuple[str | None, str | None]:
    """Transfer syntax and SOP class in the file's meta information; None for what it does not say.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    with path.open("rb") as file:
        elements = _read_meta(file)
    return elements.get(_SYNTAX), elements.get(_SOP_CLASS)


def refuse_bomb(path: Path, limit: int) -> None:
    """Refuse a deflated file that inflates to more than `limit` bytes; no more than a piece of it is held in memory.

    Raises
    ------
    ImageError
        If it does, or cannot be inflated.
    """
    with path.open("rb") as file:
        if _read_meta(file).get(_SYNTAX) != DEFLATED:
            return
        inflater, total = zlib.decompressobj(-zlib.MAX_WBITS), 0
        data = file.read(_CHUNK)
        while data and not inflater.eof:
            try:
                total += len(inflater.decompress(data, _CHUNK))
            except zlib.error:
                raise ImageError("damaged DICOM file (it cannot be decompressed)", kind="damaged") from None
            if total > limit:
                raise ImageError(
                    f"deflated DICOM file inflates to more than {limit:,} bytes: refused without reading",
                    kind="too large",
                )
            data = inflater.unconsumed_tail or file.read(_CHUNK)


def _read_meta(file: IO[bytes]) -> dict[int, str]:
    """The UIDs of `_SYNTAX` and `_SOP_CLASS`, as far as they are there.

    Walks over the elements of group 2 (explicit VR, little endian); leaves the file at the first one behind them.
    """
    elements: dict[int, str] = {}
    file.seek(132)
    while len(head := file.read(8)) == 8:
        group, element, kind, length = struct.unpack("<HH2sH", head)
        if group != 2:
            file.seek(-8, 1)
            break
        if kind in _LONG_LENGTHS:
            (length,) = struct.unpack("<I", file.read(4).ljust(4, b"\0"))
        if element in (_SYNTAX, _SOP_CLASS):
            uid = file.read(min(length, 64)).decode("ascii", errors="replace").strip("\0 ")
            elements |= {element: uid} if uid else {}
        else:
            file.seek(length, 1)
    return elements
