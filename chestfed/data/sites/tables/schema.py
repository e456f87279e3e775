"""The `table` block of a site's YAML: which columns of a hospital's own table hold what, and what their codes mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from chestfed.core.config import StrictModel
from chestfed.data.dicom.tags import refusal
from chestfed.data.sites.label_files.options import FileFormat
from chestfed.data.sites.label_files.text import composed
from chestfed.data.sites.reader import Split, View
from chestfed.data.sites.tables.codebook import AGE, FINDING, KEEP, LABEL, normalize_value, parse_code

#: Named groups that a pattern may take from the path of the image.
IN_PATH: Final = ("patient", "study", "view", "split", "finding", "site")
#: `{name}` or `{name[:2]}`, the first letters of it.
FIELD: Final = re.compile(r"\{([^{}\[\]]+)(?:\[:(\d+)\])?\}")
#: In the name of a label column, stands for the annotator.
READER: Final = "{reader}"
#: Keys of `codes` that are roles, not column headers -> the kind of their values.
ROLES: Final[Mapping[str, str]] = {"labels": LABEL, "findings": FINDING} | {
    kind: kind for kind in ("view", "split", "sex", AGE, KEEP)
}


def _convert_text(value: object) -> object:
    """A word, number or truth value as cells have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return composed(str(value)) if isinstance(value, str | int | float) else value


def _convert_texts(value: object) -> object:
    return [_convert_text(item) for item in value] if isinstance(value, list) else value


#: Cell's text as YAML reads it: `1` and `true` are no text there.
Cell = str | int | float | bool
Texts = Annotated[list[str], BeforeValidator(_convert_texts, json_schema_input_type=list[Cell])]
Column = Annotated[str, Field(min_length=1), BeforeValidator(_convert_text, json_schema_input_type=Cell)]


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
    def _columns_differ(self) -> Join:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("duplicate column in 'columns'")
        if not self.columns and self.unmatched == "blank":
            raise ValueError("'unmatched: blank' has no effect without 'columns'")
        return self


class Columns(StrictModel):
    """Which column holds what; where the table is the headers of DICOM files, which element."""

    image: Column | None = Field(None, description="file name or path of the image")
    patient: Column | None = Field(
        None, description="patient; if patients are unknown, name the column of the image again"
    )
    study: Column | None = Field(None, description="study; default: the patient")
    view: Column | None = Field(None, description="view; default: every image has the view of 'default_view'")
    split: Column | None = Field(None, description="split; default: every image is in 'default_split'")
    sex: Column | None = Field(None, description="sex; default: missing")
    age: Column | None = Field(
        None,
        description="age in years, in the unit that the column's name ends with (Age (months)), or with a unit "
        "(63 Jahre, 3 months, or DICOM's 063Y, 011M); default: missing",
    )
    date: Column | None = Field(
        None, description="date of the image; the check compares how far a patient's ages and dates are apart"
    )
    birth: Column | None = Field(
        None, description="date of birth, in place of 'age': with 'date' it gives the age in whole years"
    )
    findings: Column | None = Field(
        None, description="all findings of the image, separated, or as a Python or JSON list in brackets"
    )
    finding: Column | None = Field(None, description="one finding of the image; an image has as many rows")
    value: Column | None = Field(
        None, description="value of 'finding', such as yes or no; default: a finding that has a row is present"
    )
    reader: Column | None = Field(None, description="the annotator; an image has a row, or rows, of each")


class Images(StrictModel):
    """Where the image of a row is."""

    path: str | None = Field(
        None,
        min_length=1,
        description='path below a root, such as "{study}/{image}.dcm", with image, patient, study or any column '
        "of the file in braces; {patient[:2]} is its first two letters. Default: the column of the "
        "image, unchanged",
    )
    roots: list[str] = Field(
        ["."], min_length=1, description="folders below the site's root; the first that contains the file is used"
    )
    recursive: bool = Field(
        False,
        description="search all folders below the roots, such as one per patient; a name that several files have "
        "is an error",
    )
    folder: bool = Field(
        False, description="the path is a folder, such as one per study: every image below it belongs to the row"
    )
    header: Literal["SOPInstanceUID", "StudyInstanceUID", "AccessionNumber"] | None = Field(
        None,
        description="the column of the image contains this DICOM element instead of a file name; all images below "
        "the roots with the same value belong to the row",
    )
    elements: list[str] = Field(
        [],
        description="DICOM elements to read from the headers of the images, such as ViewPosition; name them under "
        "'columns' like columns of the file",
    )
    unmatched: Literal["report", "drop"] = Field(
        "report", description="report: a row that matches no header is an error; drop: it is left out"
    )
    suffix: str = Field(
        "",
        description="extension, such as .png, added to names without it; any: replace the cell's extension by "
        "that of the existing file",
    )
    remove_prefix: str = Field("", description="prefix to remove from the cell of the image, such as /archive/export/")
    replace: dict[Annotated[str, Field(min_length=1)], str] = Field(
        {}, description='signs of the cell of the image that file names have otherwise, such as {"/": "-"}'
    )

    @model_validator(mode="after")
    def _a_header_needs_no_path(self) -> Images:
        named = ("path", "recursive", "folder", "suffix", "remove_prefix", "replace")
        idle = [key for key in named if self.header is not None and key in self.model_fields_set]
        mistakes = [f"'{key}' has no effect together with 'header'" for key in idle]
        if self.path is not None and not any(match[1] == "image" for match in FIELD.finditer(self.path)):
            changed = [key for key in ("remove_prefix", "replace") if getattr(self, key)]
            mistakes += [f"'{key}' has no effect on a 'path' without {{image}}" for key in changed]
        if self.header is None and "unmatched" in self.model_fields_set:
            mistakes.append("'unmatched' needs 'header'")
        if self.folder and (self.recursive or self.suffix):
            mistakes.append("'folder' cannot be combined with 'recursive' or 'suffix'")
        if self.recursive and self.any_ending:
            mistakes.append("'suffix: any' and 'recursive' cannot be combined")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    @property
    def any_ending(self) -> bool:
        """Whether the ending is that of the existing file."""
        return self.suffix == "any"

    @field_validator("path")
    @classmethod
    def _fields_are_closed(cls, value: str | None) -> str | None:
        if value is not None and re.search(r"[{}]", FIELD.sub("", value)):
            raise ValueError("write fields as {name} or {name[:2]}")
        return value

    @field_validator("roots")
    @classmethod
    def _roots_stay_inside(cls, value: list[str]) -> list[str]:
        for name in value:
            if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"'{name}' leaves the site's root: folders are relative to it, without '..'")
        return value


def _convert_keys(value: object) -> object:
    """Codes whose values are as cells have them: YAML reads `1` as a number."""
    if not isinstance(value, dict):
        return value
    codes: dict[object, object] = {}
    for column, meanings in value.items():
        if not isinstance(meanings, dict):
            raise ValueError(f"'{column}' needs a mapping of values to meanings")
        codes[_convert_text(column)] = {
            _convert_text(cell): _convert_text(meaning) for cell, meaning in meanings.items()
        }
    return codes


#: Column header or role -> value -> meaning.
Codes = dict[str, dict[str, str]]


class TableFormat(FileFormat):
    """A hospital's own table. What its labels mean for training (`uncertain`, `blank`) is outside."""

    join: list[Join] = Field([], description="files whose columns are joined to the rows, in this order")
    columns: Columns = Field(Columns(), description="the columns to read")
    images: Images = Field(Images(), description="how to find the image of a row")
    from_path: str | None = Field(
        None,
        min_length=1,
        description="regular expression that is searched for in the image's path below a root; its groups "
        "(?P<patient>...), study, view, split, finding and site (as patient_prefix) replace columns, as in "
        "(?P<patient>patient\\d+)/",
    )
    patient_prefix: Column | None = Field(
        None, description="column of the site or centre, which qualifies patients: 17 of A and 17 of B are two"
    )
    keep: Texts = Field([], description="filter columns, such as BodyPart; 'codes' say which values keep or drop a row")
    ignore: Texts = Field(
        [], description="columns that nothing reads, by your decision; the check names every other one that is not read"
    )
    codes: Annotated[
        str | Codes, BeforeValidator(_convert_keys, json_schema_input_type=str | dict[str, dict[str, Cell]])
    ] = Field(
        {},
        description="what values mean: the label map (code book) that `chestfed site new` writes, beside the YAML; or "
        "{COLUMN or role: {value: meaning}}. Roles are labels, findings, view, split, sex, age and keep; a column "
        "goes before its role",
    )
    other_terms: Literal["report", "ignore", "missing"] = Field(
        "report", description="findings that 'codes' does not have. report: an error"
    )
    separator: str = Field("|", min_length=1, description="separator between the findings of a cell")
    threshold: float | dict[str, float] | None = Field(
        None,
        description="the cells of label columns are numbers, positive from this one on; for all or per disease",
    )
    any_column: list[str] = Field(
        [], description="diseases whose several columns are sides or kinds: one positive column is enough"
    )
    raters: Column = Field("any", description="how to combine annotators: any, majority, all, or the name of one")
    default_view: View = Field("unknown", description="the view if there is no column for it or its cell is empty")
    default_split: Split = Field("train", description="the split if no column or file gives it")
    missing: Texts = Field(
        [], description="cells of patient, study, view, split, sex and age that count as empty, such as N/A"
    )

    @field_validator("from_path")
    @classmethod
    def _pattern_has_groups(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            groups = re.compile(value).groupindex
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        strange = [name for name in groups if name not in IN_PATH]
        if strange or not groups:
            others = f", not {', '.join(strange)}" if strange else ""
            raise ValueError(f"needs named groups among {', '.join(IN_PATH)}{others}: (?P<patient>...)")
        return value

    @model_validator(mode="after")
    def _keys_fit(self) -> TableFormat:
        mistakes = [
            *self._list_idle_keys(),
            *self._list_exclusive_keys(),
            *self._check_joins(),
            *self._check_elements(),
            *self._check_codes(),
        ]
        if self.columns.patient is None and "patient" not in self.path_groups():
            mistakes.append("columns.patient is needed, or from_path with a group (?P<patient>...)")
        if mistakes:
            raise ValueError("; ".join(dict.fromkeys(mistakes)))
        return self

    def _list_idle_keys(self) -> list[str]:
        columns, written = self.columns, self.model_fields_set
        idle = ["columns.value needs columns.finding"] if columns.value and not columns.finding else []
        if self.columns.birth and not self.columns.date:
            idle.append("columns.birth needs columns.date, the date of the image")
        if "separator" in written and not columns.findings:
            idle.append("'separator' has no effect without columns.findings")
        if "other_terms" in written and not self.has_terms():
            idle.append("'other_terms' has no effect without columns.findings or columns.finding")
        return idle

    def _list_exclusive_keys(self) -> list[str]:
        mistakes = []
        forms = [name for name in ("findings", "finding") if getattr(self.columns, name)]
        forms += ["finding of from_path"] if "finding" in self.path_groups() else []
        if len(forms) > 1:
            mistakes.append(f"{' and '.join(forms)} exclude each other")
        mistakes += ["columns.age and columns.birth exclude each other"] * bool(self.columns.age and self.columns.birth)
        mistakes += [f"ignore: '{name}' is read" for name in self.ignore if name in self.used_columns()]
        if self.patient_prefix is not None and "site" in self.path_groups():
            mistakes.append("patient_prefix and the group 'site' of from_path exclude each other")
        for name in self.path_groups():
            if getattr(self.columns, name, None) is not None:
                mistakes.append(f"columns.{name} and the group '{name}' of from_path exclude each other")
            if self.images.path is not None and name in [match[1] for match in FIELD.finditer(self.images.path)]:
                mistakes.append(f"images.path needs {{{name}}}, which from_path takes from that path")
        return mistakes

    def _check_joins(self) -> list[str]:
        taken = [column for join in self.join for column in join.columns]
        mistakes = [f"'{name}' is taken from two joined files" for name in taken if taken.count(name) > 1]
        mistakes += [f"join: columns: name each of the columns '{name}'" for name in taken if READER in name]
        for place, join in enumerate(self.join):
            if join.key[0] in [column for other in self.join[place:] for column in other.columns]:
                text = f"join: the key '{join.key[0]}' of the file '{join.file}' is not known before it is taken"
                mistakes.append(text)
        return mistakes

    def _check_elements(self) -> list[str]:
        """DICOM elements that may not be read, or that nothing reads."""
        elements = self.images.elements
        idle = [tag for tag in elements if tag not in self.used_columns()]
        return [*self.refuse_elements(elements), *(f"images.elements: no column is '{tag}'" for tag in idle)]

    def refuse_elements(self, elements: Collection[str] | None = None) -> list[str]:
        """Why columns may not be these DICOM elements; without them, any columns."""
        columns = [*self.columns.model_dump(exclude_none=True).items(), *(("keep", name) for name in self.keep)]
        columns += [("patient", self.patient_prefix)] if self.patient_prefix else []
        tags = [(role, tag) for role, tag in columns if elements is None or tag in elements]
        return [why for role, tag in tags if (why := refusal(role, tag)) is not None]

    def _check_codes(self) -> list[str]:
        """Codes of the YAML that nothing can mean."""
        mistakes = []
        for column, meanings in self.codes.items() if isinstance(self.codes, dict) else ():
            kind = ROLES.get(column) or self.column_kind(column)
            if len({normalize_value(kind, value) for value in meanings}) < len(meanings):
                mistakes.append(f"codes: '{column}' has a value twice (case and spaces do not matter)")
            for value, meaning in meanings.items():
                try:
                    parse_code(kind, meaning)
                except ValueError as error:
                    mistakes.append(f"codes: '{column}', '{value}': {error}")
        return mistakes

    def column_kind(self, column: str) -> str:
        """The kind of the values of a column, by the key that names it."""
        columns = self.columns
        kinds: dict[str | None, str] = {columns.findings: FINDING, columns.finding: FINDING}
        kinds |= {columns.view: "view", columns.split: "split", columns.sex: "sex", columns.age: AGE}
        kinds |= dict.fromkeys(self.keep, KEEP)
        return kinds.get(column, LABEL)

    def path_groups(self) -> tuple[str, ...]:
        """The groups of `from_path`."""
        return () if self.from_path is None else tuple(re.compile(self.from_path).groupindex)

    def used_columns(self) -> list[str]:
        """The columns that are read besides those of labels and of paths."""
        names = [name for name in self.columns.model_dump().values() if name is not None]
        return [*names, *self.keep, *([self.patient_prefix] if self.patient_prefix else [])]

    def has_terms(self) -> bool:
        """Whether findings are words in cells or paths, not columns of their own."""
        return bool(self.columns.findings or self.columns.finding or "finding" in self.path_groups())

    def has_split(self) -> bool:
        """Whether each row names its split."""
        return self.columns.split is not None or "split" in self.path_groups()
