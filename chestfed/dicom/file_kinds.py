"""What a file beside the images is: told by its first bytes, and by its name where these do not tell.

Exports of picture archives hold more than films: an index of the medium, structured reports, a viewer with its texts
and libraries, and what systems leave behind (Thumbs.db, .DS_Store). Such a file is set aside, counted and said. A file
that is of no known kind may be a damaged film, and is not set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from chestfed.dicom.files import sop_class

#: Kinds of images; every other kind but `UNKNOWN` is none.
DICOM: Final = "DICOM image"
PICTURE: Final = "PNG or JPEG picture"
#: Perhaps a damaged image: empty, cut short, or of an unknown format.
UNKNOWN: Final = "file of unknown kind"

_PICTURES: Final = (".png", ".jpg", ".jpeg")
_DICOMS: Final = (".dcm", ".dicom", ".dic", ".ima")
_HEAD: Final = 512
_HIDDEN: Final = "hidden file"
_TEXT: Final = "text"
_ARCHIVE: Final = "archive or Office file"
_PROGRAM: Final = "program or part of one"
_OTHER_PICTURE: Final = "picture of another format"
_SYSTEM: Final = "file of the operating system"

#: First bytes -> kind.
_MAGIC: Final[Mapping[bytes, str]] = {
    b"%PDF": "PDF",
    b"PK\x03\x04": _ARCHIVE,
    b"PK\x05\x06": _ARCHIVE,
    b"\x1f\x8b\x08": _ARCHIVE,
    b"Rar!": _ARCHIVE,
    b"7z\xbc\xaf\x27\x1c": _ARCHIVE,
    b"\xd0\xcf\x11\xe0": "old Office file or Thumbs.db",
    b"\x7fELF": _PROGRAM,
    b"\xca\xfe\xba\xbe": _PROGRAM,
    b"GIF8": _OTHER_PICTURE,
    b"II*\0": _OTHER_PICTURE,
    b"MM\0*": _OTHER_PICTURE,
    b"\0\0\0\1Bud1": _SYSTEM,
    b"\0\x05\x16\x07": _SYSTEM,
    b"SQLite format 3\0": "database",
}
#: Kind -> the endings of its files.
_CALLED: Final[Mapping[str, str]] = {
    "PDF": "pdf",
    _TEXT: "csv tsv txt json xml md html htm css js log cfg conf ini inf yaml yml toml rtf",
    _ARCHIVE: "gz zip 7z rar tar bz2 xz iso xlsx xls ods docx doc odt pptx ppt parquet",
    _PROGRAM: "exe dll so dylib jar class msi bat cmd sh py chm hlp ocx sys ttf otf woff woff2",
    _OTHER_PICTURE: "gif bmp tif tiff svg ico webp",
    _SYSTEM: "db lnk url",
    "film or sound": "avi mp4 mov wmv mpg mpeg mp3 wav",
}
_ENDINGS: Final = {f".{ending}": kind for kind, endings in _CALLED.items() for ending in endings.split()}
_TEXTS: Final = ("readme", "license", "licence", "version", "copying", "changelog", "manifest", "lockfile")

_STORAGE: Final = "1.2.840.10008.5.1.4.1.1."
#: How the UID of a SOP class begins -> kind, the longest first; all other classes are images (PS3.4, Annex B).
_NO_IMAGES: Final[Mapping[str, str]] = {
    "1.2.840.10008.1.3.10": "DICOMDIR",
    "1.2.840.10008.5.1.4.38.": "hanging protocol",
    f"{_STORAGE}88.59": "key object selection",
    f"{_STORAGE}88.67": "dose report",
    f"{_STORAGE}88.68": "dose report",
    f"{_STORAGE}88.76": "dose report",
    f"{_STORAGE}88.": "structured report",
    f"{_STORAGE}11.": "presentation state",
    f"{_STORAGE}104.": "document in DICOM",
    f"{_STORAGE}9.": "waveform",
    f"{_STORAGE}66": "raw data, registration or segmentation",
    f"{_STORAGE}67": "raw data, registration or segmentation",
    **{f"{_STORAGE}481.{number}": "radiotherapy object" for number in range(2, 10)},
}


def image_ending(name: str) -> str:
    """The ending of an image file as it is written; empty if it has none, and for the last number of a UID."""
    dot = name.rfind(".")
    return name[dot:] if dot > 0 and name[dot:].lower() in (*_PICTURES, *_DICOMS) else ""


def kind_of(root: Path | str, name: str) -> str:
    """What the file `name`, a path below `root`, is: `DICOM`, `PICTURE`, `UNKNOWN`, or a kind that is not an image.

    Of a PNG or JPEG by its ending nothing is read, of others the first bytes. A damaged file that is called like an
    image stays one.
    """
    if any(part.startswith(".") for part in PurePosixPath(name).parts):
        return _HIDDEN
    path, ending = Path(root, name), image_ending(PurePosixPath(name).name).lower()
    if ending in _PICTURES:
        return PICTURE
    try:
        if not path.is_file():  # a pipe would be waited for
            return "broken link, pipe or device"
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head[128:132] == b"DICM":
            uid = sop_class(path) or ""
            return next((kind for begin, kind in _NO_IMAGES.items() if uid.startswith(begin)), DICOM)
    except OSError:
        return UNKNOWN
    if ending in _DICOMS:
        return UNKNOWN
    if head.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")):
        return PICTURE
    return _told(path.name.lower(), head)


def without_strangers(names: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """The kinds, where a file of unknown kind with an ending such as .xyz is not an image unless images end so too."""
    known = {_letters(name) for name, kind in zip(names, kinds, strict=True) if kind in (DICOM, PICTURE)}
    return [
        "file of an unusual ending" if kind == UNKNOWN and _letters(name) not in {"", *known, *_DICOMS} else kind
        for name, kind in zip(names, kinds, strict=True)
    ]


def counted(kinds: Iterable[str]) -> str:
    """`text 2, DICOMDIR 1`, the most frequent first."""
    ordered = sorted(Counter(kinds).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind} {number:,}" for kind, number in ordered)


def _told(name: str, head: bytes) -> str:
    """The kind of a file that is not an image by its first bytes."""
    for begin, kind in _MAGIC.items():
        if head.startswith(begin):
            return kind
    by_name = _ENDINGS.get(PurePosixPath(name).suffix)
    if by_name is not None:
        return by_name
    return _TEXT if name in _TEXTS or _is_text(head) else UNKNOWN


def _is_text(head: bytes) -> bool:
    """Whether bytes are letters and line ends: those of a film hold zeros."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        head = head[: len(head) // 2 * 2].decode("utf-16", errors="replace").encode()
    return bool(head) and not any(byte < 32 and byte not in b"\t\n\r\f\x1a\x1b" for byte in head)


def _letters(name: str) -> str:
    """The ending in small letters, if it holds a letter."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if any(letter.isalpha() for letter in suffix) else ""
