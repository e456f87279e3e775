"""The files of a hospital's own table in its YAML: how each is written, and how a second one is joined."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from chestfed.core.config import StrictModel
from chestfed.sites.folders import composed

Format = Literal["csv", "tsv", "csv.gz", "parquet", "xlsx", "json"]


def _text(value: object) -> object:
    """A word, number or truth value as cells have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return composed(str(value)) if isinstance(value, str | int | float) else value


def _encoding(name: str) -> str:
    try:
        b"".decode(name)
        "".encode(name)
    except (LookupError, ValueError) as error:
        raise ValueError(f"{error}; use Python's names, such as cp1250, shift_jis, gb18030, big5, euc_kr") from None
    known = codecs.lookup(name).name
    return known.removesuffix("-sig") if known in ("utf-8", "utf-8-sig", "utf-16") else name.lower()


def _delimiter(sign: str) -> str:
    if not sign.isascii() or sign in '"\r\n':
        raise ValueError("must be an ASCII character, and neither a quotation mark nor a line break")
    return sign


def _texts(value: object) -> object:
    return [_text(item) for item in value] if isinstance(value, list) else value


def text_keys(value: object) -> object:
    """A mapping whose keys are as they are written in a cell."""
    if not isinstance(value, dict):
        return value
    found = {_text(key): word for key, word in value.items()}
    if len(found) < len(value):
        raise ValueError("has a word twice: as a number and as text, or with accents of two kinds")
    return found


#: What YAML makes of a cell's text: `1` and `true` are no text there.
Cell = str | int | float | bool
Texts = Annotated[list[str], BeforeValidator(_texts, json_schema_input_type=list[Cell])]
Column = Annotated[str, Field(min_length=1), BeforeValidator(_text, json_schema_input_type=Cell)]


class FileFormat(StrictModel):
    """How a file with rows and columns is written."""

    format: Format | None = Field(None, description="format of the file; default: by its extension")
    encoding: Annotated[str, AfterValidator(_encoding)] = Field(
        "utf-8",
        description="encoding of csv and tsv: any that Python knows, such as cp1250, cp1251, shift_jis, gb18030, "
        "euc_kr; utf-8 with or without a byte order mark, utf-16 with one",
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_delimiter)] | None = Field(
        None, description="delimiter of csv and tsv; default: a comma, in tsv a tab"
    )
    sheet: str | None = Field(None, min_length=1, description="sheet of xlsx; default: the first that is not hidden")
    header_row: int = Field(
        1,
        ge=1,
        description="row of the column names in csv, tsv and xlsx; rows above it, such as a title, are not read",
    )

    def idle_keys(self, by_ending: str = "") -> list[str]:
        """Keys that have no effect with this format, which the name of the file tells if none is given."""
        kind = self.format or by_ending
        idle = sorted(self.model_fields_set & {"encoding", "delimiter"}) if kind in ("parquet", "xlsx", "json") else []
        idle += ["header_row"] if kind in ("parquet", "json") and "header_row" in self.model_fields_set else []
        idle += ["sheet"] if kind not in ("", "xlsx") and self.sheet is not None else []
        return [f"'{key}' has no effect with format '{kind}'" for key in idle]


class Join(FileFormat):
    """A second file, whose columns are joined to the rows of the table by a key."""

    file: str = Field(min_length=1, description="the file's role in label_files")
    key: Annotated[list[Column], Field(min_length=1, max_length=2)] = Field(
        description="the key's column in the table (or in an earlier joined file) and in this file; one name if "
        "it is the same in both. Cells are compared as text"
    )
    columns: Texts = Field(
        [],
        description="columns to take from this file, replacing columns of the same name in the table; none: the "
        "file only decides which rows are kept",
    )
    unmatched: Literal["report", "blank", "drop"] = Field(
        "report",
        description="rows of the table whose key is not in the file. report: an error; blank: their cells are "
        "missing; drop: they are left out",
    )

    @model_validator(mode="after")
    def _keys_fit_the_format(self) -> Join:
        mistakes = self.idle_keys()
        if len(set(self.columns)) < len(self.columns):
            mistakes.append("duplicate column in 'columns'")
        if not self.columns and self.unmatched == "blank":
            mistakes.append("'unmatched: blank' has no effect without 'columns'")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self
