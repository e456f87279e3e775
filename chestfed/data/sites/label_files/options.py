"""Form of a file with rows and columns, as far as a site's YAML says it."""

from __future__ import annotations

import codecs
from typing import Annotated

from pydantic import AfterValidator, Field

from chestfed.core.config import StrictModel


def _check_encoding(name: str) -> str:
    try:
        b"".decode(name)
        "".encode(name)
    except (LookupError, ValueError) as error:
        raise ValueError(f"{error}; use Python's names, such as cp1250, shift_jis, gb18030, big5, euc_kr") from None
    known = codecs.lookup(name).name
    return known.removesuffix("-sig") if known in ("utf-8", "utf-8-sig", "utf-16") else name.lower()


def _check_delimiter(sign: str) -> str:
    if not sign.isascii() or sign in '"\r\n':
        raise ValueError("must be an ASCII character, and neither a quotation mark nor a line break")
    return sign


class FileFormat(StrictModel):
    """Form of a file with rows and columns, where the file itself leaves it open."""

    prepare: str | None = Field(
        None,
        pattern=r"^[\w.]+:\w+$",
        description="package.module:function, which is given the paths and returns a frame",
    )
    encoding: Annotated[str, AfterValidator(_check_encoding)] | None = Field(
        None, description="encoding of a text file, by Python's name; default: detected, and refused if ambiguous"
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_check_delimiter)] | None = Field(
        None, description="delimiter of a text file; default: detected"
    )
    sheet: str | None = Field(
        None, min_length=1, description="sheet of a workbook; default: all visible sheets with the same header"
    )
    header_row: int = Field(1, ge=1, description="row of the column names; rows above it are not read")
