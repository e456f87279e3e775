"""Text files as UTF-8: which encoding a file is in, and which lines of it are in another.

charset-normalizer rates how plausible a text is in each encoding. A label file has few letters beside its numbers, so
several encodings are often as plausible as each other: then nobody guesses, and the YAML has to say which it is.
"""

from __future__ import annotations

import re
import unicodedata
from io import BytesIO
from itertools import islice
from typing import Final

from charset_normalizer import from_bytes
from charset_normalizer.utils import is_multi_byte_encoding

_BOM: Final = b"\xef\xbb\xbf"
_BOMS_16: Final = (b"\xff\xfe", b"\xfe\xff")
#: What hospitals' systems write beside Unicode; of those that read alike, the first is named.
_KNOWN: Final = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2", "koi8_r", "cp874"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
    *("mac_roman", "mac_latin2", "mac_cyrillic", "cp850", "cp852", "cp866"),
)
_TIE: Final = 0.05  # charset-normalizer's "mess", a share of odd letters, differs by more between likely and unlikely
_CELLS: Final = 2000  # so many different ones are rated
_ALPHABETS: Final = {"LATIN", "CYRILLIC", "GREEK", "HEBREW", "ARABIC", "THAI"}
#: What stands beside no letter, and what stands between no two.
_NOT_BESIDE: Final = (
    "\u00a2-\u00a9\u00ac-\u00af\u00b4\u00b6\u00b8\u00b9\u00bc-\u00be\u02c6-\u02dd\u2020-\u2022\u2030-\u203a\u20ac"
    "\u2100-\u214f"
)
_NOT_BETWEEN: Final = "\u00a1\u00b0-\u00b3\u00ab\u00bb\u00bf\u2018\u201a-\u201e\u2026"
_ADVICE: Final = "save the file as UTF-8, or set table.encoding in the site's YAML to its encoding (reader: table)"
_SAVE: Final = "save it as UTF-8"


class WrongEncoding(Exception):
    """A file that is not in one encoding, or not in the one that it should be in, or in one of several.

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
    several_bytes = encoding is not None and encoding != "utf-8" and is_multi_byte_encoding(encoding)
    in_utf8, others = ([], []) if several_bytes else _lines_in(bare)
    if encoding in (None, "utf-8") and not others:
        return bare, "utf-8"
    if in_utf8:  # in an encoding with a byte per letter, UTF-8 is readable nonsense
        if not others:
            raise WrongEncoding(f"is UTF-8, not {encoding}", _ADVICE, (), bare)
        lines = others if encoding in (None, "utf-8") else in_utf8
        text = f"mixes UTF-8 and another encoding (line {lines[0]})"
        raise WrongEncoding(text, _SAVE, tuple(lines), _each_line(bare))
    name = encoding
    if name in (None, "utf-8"):
        found = likely(bare)
        if encoding == "utf-8" or len(found) != 1:
            hint = f": {' or '.join(found)}?" if found else ", nor in any other encoding that can be recognized"
            reading = bare.decode(found[0] if found else "cp1252", errors="replace").encode()
            raise WrongEncoding(f"is not UTF-8 (line {others[0]}){hint}", _ADVICE, (others[0],), reading)
        name = found[0]
    try:
        text = bare.decode(name)
        place = re.search(r"[\x80-\x9f]", text)  # control characters: nobody writes them
    except UnicodeDecodeError as error:
        line = bare[: error.start].count(b"\n") + 1
    else:
        if place is None:
            return text.encode(), name
        line = text.count("\n", 0, place.start()) + 1
    reading = bare.decode(name, errors="replace").encode()
    raise WrongEncoding(f"is not {name} (line {line})", _ADVICE, (line,), reading)


def likely(data: bytes) -> tuple[str, ...]:
    """The encodings that a text which is not Unicode may be in, the likeliest first; one if it is certain.

    Of several in which its letters are the same only one is named.
    """
    cells = dict.fromkeys(cell for cell in re.split(rb'[,;\t\r\n"]', data) if not cell.isascii())
    rated = b"\n".join(islice(cells, _CELLS))
    # Each by itself: given several, the library leaves out those that it takes for similar.
    matches = [one for name in _KNOWN for one in from_bytes(rated, cp_isolation=[name], enable_fallback=False)]
    matches = [one for one in matches if _decodes(data, one.encoding) and not _is_odd(str(one))]
    best = min((one.chaos for one in matches), default=0.0)
    alike: dict[str, list[str]] = {}
    for one in matches:
        if one.chaos <= best + _TIE:
            alike.setdefault(str(one), []).append(one.encoding)
    return tuple(min(names, key=_KNOWN.index) for names in alike.values())


def is_text(value: str) -> bool:
    """Whether it can be written to a file: JSON, and names of files, can hold halves of characters."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def is_utf16(data: bytes) -> bool:
    """Whether it begins with a byte order mark of UTF-16, as Excel's "Unicode text" does; UTF-8 never does."""
    return data.startswith(_BOMS_16)


def _decodes(data: bytes, encoding: str) -> bool:
    try:  # in Microsoft's extension of EUC-KR nearly every Japanese text is some Korean one
        data.decode("euc_kr" if encoding == "cp949" else encoding)
    except UnicodeDecodeError:
        return False
    return True


def _is_odd(text: str) -> bool:
    """Whether a word mixes alphabets, has a sign of another kind amid small Latin letters, or a foreign digit."""
    if re.search(r"[\x80-\x9f]|[^\W\d_][^\D0-9]|[^\D0-9][^\W\d_]|[a-z][^\x00-\u218f]+[a-z]|[\u2500-\u259f]", text):
        return True
    letter = r"[^\W\d_]"
    if re.search(
        rf"{letter}[{_NOT_BESIDE}]|[{_NOT_BESIDE}]{letter}|{letter}[{_NOT_BETWEEN}]{letter}|\u2026{letter}", text
    ):
        return True
    if any(unicodedata.category(word[0]).startswith("M") for word in text.split()):
        return True
    words = re.findall(r"[^\W\d_]+", text)
    return any(len({unicodedata.name(sign, "?").split()[0] for sign in word} & _ALPHABETS) > 1 for word in words)


def _from_utf16(data: bytes, encoding: str | None) -> bytes:
    if not is_utf16(data):
        raise WrongEncoding("is not UTF-16 with a byte order mark", _ADVICE, (), _each_line(data))
    reading = data.decode("utf-16", errors="replace").encode("utf-8")
    if encoding not in (None, "utf-16"):
        raise WrongEncoding(f"is UTF-16, not {encoding}", _ADVICE, (), reading)
    try:
        return data.decode("utf-16").encode("utf-8")
    except UnicodeDecodeError:
        raise WrongEncoding("is UTF-16, but damaged or truncated", _SAVE, (), reading) from None


def _lines_in(data: bytes) -> tuple[list[int], list[int]]:
    """Numbers of the lines that are UTF-8 and more than ASCII, and of those that are not UTF-8."""
    in_utf8: list[int] = []
    others: list[int] = []
    for number, line in enumerate(BytesIO(data), start=1):  # one line at a time
        if not line.isascii():
            (in_utf8 if _decodes(line, "utf-8") else others).append(number)
    return in_utf8, others


def _each_line(data: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(
        line if _decodes(line, "utf-8") else line.decode("cp1252", errors="replace").encode("utf-8") for line in lines
    )
