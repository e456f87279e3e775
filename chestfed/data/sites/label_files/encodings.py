"""Text files as UTF-8: the encoding of a file, as charset-normalizer rates it, and its lines in another one.

A label file has few letters beside its numbers, so several encodings are often as plausible as each other: then none is
chosen, and the YAML has to name it.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from charset_normalizer import from_bytes
from charset_normalizer.utils import is_multi_byte_encoding

_BOM: Final = b"\xef\xbb\xbf"
#: Encodings that hospitals' systems write beside Unicode; of those that read alike, the first is named.
_WINDOWS: Final = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874")
_KNOWN: Final = (
    *(*_WINDOWS, "iso8859_2", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
    *("mac_roman", "mac_latin2", "mac_cyrillic", "cp850", "cp852", "cp866"),
)
_TIE: Final = 0.05  # charset-normalizer's "mess", a share of odd letters, differs by more between likely and unlikely
_CELLS: Final = 2000  # so many different ones are rated
#: No text of a hospital has these: control characters, boxes, a sign between small letters, a Thai mark at the start.
_ODD: Final = re.compile(
    r"[\x80-\x9f\u2500-\u259f]|[a-z][^\x00-\u218f]+[a-z]|[a-z][\xa1-\xbf\xd7\xf7\u2010-\u214f][a-z]"
    r"|(?:^|\s)[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]",
    re.MULTILINE,
)
#: A word of several letters that Windows' Western and Central European encodings read alike.
_PLAIN_WORD: Final = re.compile("[ÁÂÄÇÉËÍÎÓÔÖÚÜŠŽ]?(?:[A-Za-z]|[áâäçéëíîóôöúüßšž](?![áâäçéëíîóôöúüšž]))+")
_ADVICE: Final = (
    "save the file as UTF-8, or name its encoding: table.encoding in the site's YAML (reader: table), or "
    "--set encoding=NAME of `chestfed site new`"
)
_SAVE: Final = "save it as UTF-8"


class WrongEncoding(Exception):
    """A file that is not in one encoding, or not in the required one, or in one of several.

    `lines` are the affected ones (1-based); `text` is the file decoded as far as possible, as UTF-8.
    """

    def __init__(self, message: str, advice: str, lines: tuple[int, ...], text: bytes) -> None:
        super().__init__(message)
        self.advice, self.lines, self.text = advice, lines, text


def as_utf8(data: bytes, encoding: str | None) -> tuple[bytes, str]:
    """The text without byte order mark, and its encoding: the given one (a name that Python knows), or the detected.

    Raises `WrongEncoding` if it is in another, or the encoding is not certain: text in another encoding would be read
    as nonsense.
    """
    if is_utf16(data) or encoding == "utf-16":
        return _from_utf16(data, encoding), "utf-16"
    bare = data.removeprefix(_BOM)
    name = "utf-8" if encoding is None else encoding
    try:
        text = bare.decode(name)
        if name == "utf-8":
            return bare, name
        place = re.search(r"[\x80-\x9f]", text)  # control characters, which no hospital writes
        line = 0 if place is None else text.count("\n", 0, place.start()) + 1
    except UnicodeDecodeError as error:
        text, line = bare.decode(name, errors="replace"), bare.count(b"\n", 0, error.start) + 1
    others, in_utf8 = ([], []) if name != "utf-8" and is_multi_byte_encoding(name) else _number_lines(bare)
    if in_utf8 and others:  # a line of UTF-8 has a reading in every encoding of one byte per letter
        lines = others if name == "utf-8" else in_utf8
        text_of_lines = b"\n".join(_as_far_as_possible(row) for row in bare.split(b"\n"))
        message = f"mixes UTF-8 and another encoding (line {lines[0]})"
        raise WrongEncoding(message, _SAVE, tuple(lines), text_of_lines)
    if in_utf8:
        raise WrongEncoding(f"is UTF-8, not {name}", _ADVICE, (), bare)
    if not line:
        return text.encode(), name
    if name != "utf-8":
        raise WrongEncoding(f"is not {name} (line {line})", _ADVICE, (line,), text.encode())
    names = likely(bare)
    if encoding is None and len(names) == 1:
        return bare.decode(names[0]).encode(), names[0]
    hint = f": {' or '.join(names)}?" if names else ", nor in any other encoding that can be recognized"
    reading = bare.decode(names[0] if names else "cp1252", errors="replace").encode()
    raise WrongEncoding(f"is not UTF-8 (line {line}){hint}", _ADVICE, (line,), reading)


def likely(data: bytes) -> tuple[str, ...]:
    """The encodings that a text which is not Unicode may be in, the likeliest first; one if it is certain.

    Of several that read it alike only one is named.
    """
    cells = dict.fromkeys(cell for cell in re.split(rb'[,;\t\r\n"]', data) if not cell.isascii())
    rated = b"\n".join(islice(cells, _CELLS))
    words = re.findall(r"[^\W\d_]+", rated.decode("cp1252", errors="replace"))
    letters = sum(not sign.isascii() for word in words for sign in word)
    if letters == sum(byte > 127 for byte in rated) and all(
        word.isascii() or (len(word) > 3 and _PLAIN_WORD.fullmatch(word)) for word in words
    ):
        return ("cp1252",)
    # Each by itself: given several, the library leaves out those that it takes for similar.
    matches = [match for name in _KNOWN for match in from_bytes(rated, cp_isolation=[name], enable_fallback=False)]
    matches = [match for match in matches if _can_decode(data, match.encoding) and not _ODD.search(str(match))]
    best = min((match.chaos for match in matches), default=0.0)
    alike: dict[str, list[str]] = {}
    for match in matches:
        if match.chaos <= best + _TIE:
            alike.setdefault(str(match), []).append(match.encoding)
    return tuple(min(names, key=_KNOWN.index) for names in alike.values())


def is_text(value: str) -> bool:
    """Whether it can be written to a file: JSON, and names of files, can hold halves of characters."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def is_utf16(data: bytes) -> bool:
    """Whether it begins with a byte order mark of UTF-16, as Excel's "Unicode text" does; UTF-8 never does."""
    return data.startswith((b"\xff\xfe", b"\xfe\xff"))


def _can_decode(data: bytes, encoding: str) -> bool:
    try:  # in Microsoft's extension of EUC-KR nearly every Japanese text is some Korean one
        data.decode("euc_kr" if encoding == "cp949" else encoding)
    except UnicodeDecodeError:
        return False
    return True


def _from_utf16(data: bytes, encoding: str | None) -> bytes:
    if not is_utf16(data):
        raise WrongEncoding("is not UTF-16 with a byte order mark", _ADVICE, (), data)
    reading = data.decode("utf-16", errors="replace").encode("utf-8")
    if encoding not in (None, "utf-8", "utf-16"):
        raise WrongEncoding(f"is UTF-16, not {encoding}", _ADVICE, (), reading)
    if "\ufffd" in reading.decode():
        raise WrongEncoding("is UTF-16, but damaged or truncated", _SAVE, (), reading)
    return reading


def _number_lines(data: bytes) -> tuple[list[int], list[int]]:
    """Numbers of the lines that are not UTF-8, and of those that are and hold more than ASCII."""
    rows = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if not line.isascii()]
    others = [number for number, line in rows if not _can_decode(line, "utf-8")]
    return others, sorted({number for number, _ in rows} - set(others))


def _as_far_as_possible(line: bytes) -> bytes:
    return line if _can_decode(line, "utf-8") else line.decode("cp1252", errors="replace").encode("utf-8")
