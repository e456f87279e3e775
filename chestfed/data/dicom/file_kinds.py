"""The kind of a file beside the images: by its first bytes, or by its name where these are not enough.

Exports of picture archives hold more than images: an index of the medium, structured reports, a viewer with its texts
and libraries, and what systems leave behind (Thumbs.db, .DS_Store). Such a file is set aside, counted and reported.
A file of no known kind may be a damaged image, and is not set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import yaml

from chestfed.data.dicom.files import meta_uids

#: Kinds of images; every other kind but `UNKNOWN` is none.
DICOM: Final = "DICOM image"
PICTURE: Final = "PNG or JPEG picture"
#: Perhaps a damaged image: empty, cut short, or of an unknown format.
UNKNOWN: Final = "file of unknown kind"

_PICTURES: Final = (".png", ".jpg", ".jpeg")
_DICOMS: Final = (".dcm", ".dicom", ".dic", ".ima")
_HEAD: Final = 512

_TABLES: Final = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_MAGIC: Final = {bytes.fromhex(begin): kind for begin, kind in _TABLES["magic"].items()}
_ENDINGS: Final = {f".{ending}": kind for kind, endings in _TABLES["endings"].items() for ending in endings.split()}


def image_ending(name: str) -> str:
    """The ending of an image file as it is written; empty if it has none, and for the last number of a UID."""
    dot = name.rfind(".")
    return name[dot:] if dot > 0 and name[dot:].lower() in (*_PICTURES, *_DICOMS) else ""


def detect_kind(root: Path | str, name: str) -> str:
    """Detect the kind of `name`, a path below `root`: `DICOM`, `PICTURE`, `UNKNOWN`, or a kind that is not an image.

    Of a PNG or JPEG by its ending nothing is read, of others the first bytes. A damaged file that is called like an
    image stays one.
    """
    if _is_hidden(name):
        return "hidden file"
    path, ending = Path(root, name), image_ending(PurePosixPath(name).name).lower()
    if ending in _PICTURES:
        return PICTURE
    try:
        if not path.is_file():  # a pipe would be waited for
            return "broken link, pipe or device"
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head[128:132] == b"DICM":
            _, uid = meta_uids(path)
            return next((kind for begin, kind in _TABLES["no_images"].items() if (uid or "").startswith(begin)), DICOM)
    except OSError:
        return UNKNOWN
    if ending in _DICOMS:
        return UNKNOWN
    if head.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")):
        return PICTURE
    return _detect_other(path.name.lower(), head)


def images_among(root: Path | str, names: Sequence[str]) -> list[str]:
    """Those of some files below `root` that are images.

    What is called like one is one. The others are opened; one of unknown kind counts beside an image without an ending.
    """
    kinds = [DICOM if image_ending(name) and not _is_hidden(name) else detect_kind(root, name) for name in names]
    known = {_find_ending(name) for name, kind in zip(names, kinds, strict=True) if kind in (DICOM, PICTURE)}
    accepted = (DICOM, PICTURE, UNKNOWN) if "" in known else (DICOM, PICTURE)
    return [name for name, kind in zip(names, mark_strangers(names, kinds), strict=True) if kind in accepted]


def mark_strangers(names: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """The kinds, where a file of unknown kind with an ending such as .xyz is not an image unless images end so too."""
    known = {_find_ending(name) for name, kind in zip(names, kinds, strict=True) if kind in (DICOM, PICTURE)}
    return [
        "file of an unusual ending" if kind == UNKNOWN and _find_ending(name) not in {"", *known, *_DICOMS} else kind
        for name, kind in zip(names, kinds, strict=True)
    ]


def format_kinds(kinds: Iterable[str]) -> str:
    """`text 2, DICOMDIR 1`, the most frequent first."""
    ordered = sorted(Counter(kinds).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind} {number:,}" for kind, number in ordered)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _detect_other(name: str, head: bytes) -> str:
    """The kind of a file that is not an image."""
    for begin, kind in _MAGIC.items():
        if head.startswith(begin):
            return kind
    by_name = _ENDINGS.get(PurePosixPath(name).suffix)
    if by_name is not None:
        return by_name
    return "text" if name in _TABLES["texts"].split() or _is_text(head) else UNKNOWN


def _is_text(head: bytes) -> bool:
    """Whether bytes are letters and line ends: those of a film hold zeros."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        head = head[: len(head) // 2 * 2].decode("utf-16", errors="replace").encode()
    return bool(head) and not any(byte < 32 and byte not in b"\t\n\r\f\x1a\x1b" for byte in head)


def _find_ending(name: str) -> str:
    """The ending in small letters, if it holds a letter."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if any(letter.isalpha() for letter in suffix) else ""
