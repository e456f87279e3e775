"""Text files as UTF-8: which encoding a file is in, and which lines of it are in another."""

from __future__ import annotations

import re
from typing import Final

_BOM: Final = b"\xef\xbb\xbf"
_BOMS_16: Final = (b"\xff\xfe", b"\xfe\xff")
_CONTROLS: Final = re.compile(rb"[\x80-\x9f]")  # control characters in Latin-1, letters in cp1252
_YAML_ADVICE: Final = "set table.encoding in the site's YAML to what the file is in, or save the file as UTF-8"
_SAVE: Final = "save it as UTF-8"


class WrongEncoding(Exception):
    """A file that is not in one encoding, or not in the one that it should be in.

    `lines` are the affected ones (1-based); `text` is the file decoded as far as possible, as UTF-8.
    """

    def __init__(self, message: str, advice: str, lines: tuple[int, ...], text: bytes) -> None:
        super().__init__(message)
        self.advice, self.lines, self.text = advice, lines, text


def as_utf8(data: bytes, encoding: str | None) -> bytes:
    """The text without BOM: of `encoding`, or else detected: UTF-8, Latin-1 or, by its BOM, UTF-16.

    Raises
    ------
    WrongEncoding
        If it is not: text in another encoding would be read as nonsense.
    """
    if is_utf16(data):
        return _from_utf16(data, encoding)
    if encoding == "utf-16":
        raise WrongEncoding("is not UTF-16 with a byte order mark", _YAML_ADVICE, (), _each_line(data))
    bare = data.removeprefix(_BOM)
    try:
        bare.decode("utf-8")
        is_utf8 = True
    except UnicodeDecodeError:
        is_utf8 = False
    if is_utf8:
        if encoding in (None, "utf-8") or bare.isascii():
            return bare
        raise WrongEncoding(f"is UTF-8, not {encoding}", _YAML_ADVICE, (), bare)
    single = encoding not in (None, "utf-8")
    in_utf8, others = _lines_in(bare)
    if in_utf8:
        lines = in_utf8 if single else others
        text = f"mixes UTF-8 and another encoding (line {lines[0]})"
        raise WrongEncoding(text, _SAVE, tuple(lines), _each_line(bare))
    reading = bare.decode("cp1252" if _CONTROLS.search(bare) else "latin-1", errors="replace").encode("utf-8")
    if encoding == "utf-8":
        text = f"is not UTF-8 (line {others[0]}): latin-1 or cp1252?"
        raise WrongEncoding(text, _YAML_ADVICE, (others[0],), reading)
    if encoding in (None, "latin-1"):
        controls = [line for line in others if _CONTROLS.search(_line(bare, line))]
        if not controls:
            return bare.decode("latin-1").encode("utf-8")
        text = f"is neither UTF-8 nor Latin-1 (line {controls[0]})" if encoding is None else "is not latin-1: cp1252?"
        raise WrongEncoding(text, _SAVE if encoding is None else _YAML_ADVICE, (controls[0],), reading)
    try:
        return bare.decode("cp1252").encode("utf-8")
    except UnicodeDecodeError as error:
        line = bare[: error.start].count(b"\n") + 1
        raise WrongEncoding(f"is not cp1252 (line {line})", _YAML_ADVICE, (line,), reading) from None


def is_utf16(data: bytes) -> bool:
    """Whether it begins with a byte order mark of UTF-16, as Excel's "Unicode text" does; UTF-8 never does."""
    return data.startswith(_BOMS_16)


def _from_utf16(data: bytes, encoding: str | None) -> bytes:
    reading = data.decode("utf-16", errors="replace").encode("utf-8")
    if encoding not in (None, "utf-16"):
        raise WrongEncoding(f"is UTF-16, not {encoding}", _YAML_ADVICE, (), reading)
    try:
        return data.decode("utf-16").encode("utf-8")
    except UnicodeDecodeError:
        raise WrongEncoding("is UTF-16, but damaged or truncated", _SAVE, (), reading) from None


def _lines_in(data: bytes) -> tuple[list[int], list[int]]:
    """Numbers of the lines that are UTF-8 and more than ASCII, and of those that are not UTF-8."""
    in_utf8: list[int] = []
    others: list[int] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.isascii():
            (in_utf8 if _is_utf8(line) else others).append(number)
    return in_utf8, others


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _line(data: bytes, number: int) -> bytes:
    return data.split(b"\n", number)[number - 1]


def _each_line(data: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(
        line if _is_utf8(line) else line.decode("cp1252", errors="replace").encode("utf-8") for line in lines
    )
