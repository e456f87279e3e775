"""The `table` block of a site's YAML: how a hospital's own spreadsheet, or its DICOM headers, are laid out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from chestfed.core.config import StrictModel
from chestfed.dicom.tags import refusal
from chestfed.sites.reader import BLANK, NEGATIVE, POSITIVE, UNCERTAIN, UNLABELLED, Split, View, canonical
from chestfed.sites.spreadsheet.files import Column, FileFormat, Join, Texts, text_keys
from chestfed.sites.terms import normal, parse_meaning

#: What a word means that counts as an empty cell.
Empty = Literal["missing"]
Layout = Literal["onehot", "delimited", "list", "long", "readers", "dicom"]

#: What a pattern may find in the path of the image, as named groups.
IN_PATH: Final = ("patient", "study", "view", "split")
#: `{name}` or `{name[:2]}`, the first letters of it.
FIELD: Final = re.compile(r"\{([^{}\[\]]+)(?:\[:(\d+)\])?\}")

#: Which layouts read terms, and which read values.
TERM_LAYOUTS: Final = ("delimited", "list", "long", "dicom")
_VALUES: Final = ("onehot", "readers")
#: Which may have several annotators.
_SEVERAL: Final = ("readers", "long")
#: Key -> the layouts that it applies to.
_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "values": _VALUES,
    "raters": _SEVERAL,
    "separator": ("delimited", "dicom"),
    "other_terms": TERM_LAYOUTS,
}
_COLUMNS_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "findings": ("delimited", "list", "dicom"),
    "finding": ("long",),
    "value": ("long",),
    "reader": _SEVERAL,
}


class Columns(StrictModel):
    """Which column holds what; with layout `dicom`, which DICOM element."""

    image: Column | None = Field(None, description="file name or path of the image; not with layout dicom")
    patient: Column | None = Field(
        None,
        description="patient; if patients are unknown, name the column of the image again. Required unless "
        "'from_path' has it",
    )
    study: Column | None = Field(None, description="study; default: the patient")
    view: Column | None = Field(None, description="view; default: every image has the view of 'default_view'")
    split: Column | None = Field(None, description="split; default: every image is in train")
    sex: Column | None = Field(None, description="sex; default: missing")
    age: Column | None = Field(
        None,
        description="age in years or with a unit (63 Jahre, 3 months, or DICOM's 063Y, 011M); default: missing",
    )
    findings: Column | None = Field(None, description="all findings of the image (delimited, list, dicom)")
    finding: Column | None = Field(None, description="one finding of the image (long)")
    value: Column | None = Field(
        None, description="value of the finding, such as yes or no (long); default: a finding that has a row is present"
    )
    reader: Column | None = Field(None, description="the annotator (readers, long)")


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
        [], description="further DICOM elements to read; name them under 'columns' like columns of the file"
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

    @model_validator(mode="after")
    def _a_header_needs_no_path(self) -> Images:
        named = ("path", "recursive", "folder", "suffix", "remove_prefix")
        idle = [key for key in named if self.header is not None and key in self.model_fields_set]
        mistakes = [f"'{key}' has no effect together with 'header'" for key in idle]
        alone = [key for key in ("elements", "unmatched") if self.header is None and key in self.model_fields_set]
        mistakes += [f"'{key}' needs 'header'" for key in alone]
        if self.folder and (self.recursive or self.suffix):
            mistakes.append("'folder' cannot be combined with 'recursive' or 'suffix'")
        if self.recursive and self.any_ending:
            mistakes.append("'suffix: any' and 'recursive' cannot be combined")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    @property
    def any_ending(self) -> bool:
        """Whether the ending is that of the file which is there."""
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


class Words(StrictModel):
    """The file's words for views, splits, sexes and ages, beside those that are known; capitals do not matter.

    A word that means `missing` counts as an empty cell.
    """

    view: Annotated[dict[str, View | Empty], BeforeValidator(text_keys)] = Field(
        {}, description="word -> view, or missing"
    )
    split: Annotated[dict[str, Split | Empty], BeforeValidator(text_keys)] = Field(
        {}, description="word -> split, or missing"
    )
    sex: Annotated[dict[str, Literal["F", "M", "unknown"] | Empty], BeforeValidator(text_keys)] = Field(
        {}, description="word -> F, M, unknown or missing"
    )
    age: Annotated[dict[str, Annotated[float, Field(ge=0, le=120)] | Empty], BeforeValidator(text_keys)] = Field(
        {}, description="word -> years, such as 85 or more: 85, or missing"
    )


class Values(StrictModel):
    """What a cell may say of a finding; capitals do not matter, 1.0 and 1,0 are 1. An empty cell is blank by itself."""

    positive: Texts = Field(["1", "true", "yes"], description="cells that mean present")
    negative: Texts = Field(["0", "false", "no"], description="cells that mean absent")
    uncertain: Texts = Field(["-1", "uncertain"], description="cells that mean uncertain")
    blank: Texts = Field([], description="cells that mean not mentioned, besides empty ones")
    missing: Texts = Field([], description="cells that mean no label, whatever the site's 'blank' says")

    @model_validator(mode="after")
    def _a_word_means_one_thing(self) -> Values:
        seen: dict[str, str] = {}
        for meaning in type(self).model_fields:
            for word in getattr(self, meaning):
                if seen.setdefault(canonical(word), meaning) != meaning:
                    raise ValueError(f"'{word}' is both {seen[canonical(word)]} and {meaning}")
        return self


class TableFormat(FileFormat):
    """A hospital's own table. What its labels mean (`labels`, `uncertain`, `blank`) is outside."""

    layout: Layout = Field(
        description="onehot: one column per finding; delimited: one cell with all findings, separated; list: one "
        "cell such as ['edema', 'mass']; long: one row per image and finding, possibly also per "
        "annotator; readers: one row per image and annotator, one column per finding; dicom: no "
        "table, labels are in the images' headers"
    )
    join: list[Join] = Field([], description="files whose columns are joined to the rows, in this order")
    columns: Columns = Field(description="the columns to read")
    images: Images = Field(Images(), description="how to find the image of a row")
    from_path: str | None = Field(
        None,
        min_length=1,
        description="regular expression that is searched for in the image's path below a root; its groups "
        "(?P<patient>...), (?P<study>...), (?P<view>...), (?P<split>...) replace columns, as in "
        "(?P<patient>patient\\d+)/",
    )
    words: Words = Field(Words(), description="the file's words for views, splits, sexes and ages")
    default_view: View = Field("unknown", description="the view if there is no column for it or its cell is empty")
    default_split: Split = Field(
        "train", description="the split if no column or file gives it; test: a data set for evaluation only"
    )
    missing: Texts = Field(
        [], description="cells of patient, study, view, split, sex and age that count as empty, such as N/A"
    )
    values: Values = Field(Values(), description="what the cells of label columns mean (onehot, readers)")
    raters: Column = Field(
        "any", description="how to combine annotators: any, majority, all, or the name of one (readers, long)"
    )
    separator: str = Field("|", min_length=1, description="separator between findings (delimited, dicom)")
    terms: Annotated[str | dict[str, str] | None, BeforeValidator(text_keys)] = Field(
        None,
        description="the file of the mapping table that `chestfed site new` writes, relative to the YAML: what each "
        "term of the findings, label value and word means. Its label values replace 'values', its words go before "
        "'words'. Or, for findings in words (delimited, list, long, dicom), term -> meaning. A meaning "
        'is DISEASE, DISEASE absent, DISEASE uncertain, several of these joined by ";", normal (every '
        'other disease is negative), ignore, or missing (every other disease is missing). The term "" '
        'is the empty cell; with columns.value a term is "finding = value"',
    )
    other_terms: Literal["report", "ignore", "missing"] = Field(
        "report",
        description="meaning of a term that 'terms' does not have. report: it is an error",
    )

    @field_validator("terms")
    @classmethod
    def _meanings_are_known(cls, value: str | dict[str, str] | None) -> str | dict[str, str] | None:
        if not isinstance(value, dict):
            return value
        wrong = []
        for term, meaning in value.items():
            try:
                parse_meaning(meaning)
            except ValueError as error:
                wrong.append(f"'{term}': {error}")
        if wrong:
            raise ValueError("; ".join(wrong))
        if len({normal(term) for term in value}) < len(value):
            raise ValueError("has duplicate terms (case and spaces do not matter)")
        return value

    @field_validator("from_path")
    @classmethod
    def _pattern_tells_something(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            groups = re.compile(value).groupindex
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        strange = [name for name in groups if name not in IN_PATH]
        if strange or not groups:
            found = f", not {', '.join(strange)}" if strange else ""
            raise ValueError(f"needs named groups among {', '.join(IN_PATH)}{found}: (?P<patient>...)")
        return value

    @model_validator(mode="after")
    def _keys_fit_the_layout(self) -> TableFormat:
        mistakes = [*self._lacking(), *self._idle(), *self._strange_tags()]
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def _lacking(self) -> list[str]:
        needed = {"delimited": "findings", "list": "findings", "dicom": "findings", "long": "finding"}
        names = [needed.get(self.layout, ""), "reader" if self.layout == "readers" else ""]
        names.append("" if self.layout == "dicom" or self.images.path is not None else "image")
        mistakes = [
            f"layout '{self.layout}' needs columns.{name}"
            for name in names
            if name and getattr(self.columns, name) is None
        ]
        if self.layout in TERM_LAYOUTS and self.terms is None:
            mistakes.append(f"layout '{self.layout}' needs 'terms'")
        if self.columns.patient is None and "patient" not in self.path_groups():
            mistakes.append("columns.patient is needed, or from_path with a group (?P<patient>...)")
        return mistakes

    def _idle(self) -> list[str]:
        """Keys that would have no effect."""
        idle = [key for key, layouts in _ONLY.items() if key in self.model_fields_set and self.layout not in layouts]
        for name, layouts in _COLUMNS_ONLY.items():
            if getattr(self.columns, name) is not None and self.layout not in layouts:
                idle.append(f"columns.{name}")
        if self.layout == "long" and self.columns.reader is None and "raters" in self.model_fields_set:
            idle.append("raters")
        idle += ["terms"] if isinstance(self.terms, dict) and self.layout not in TERM_LAYOUTS else []
        mistakes = [f"'{key}' has no effect with layout '{self.layout}'" for key in idle]
        mistakes += self._told_twice()
        if self.layout == "dicom":
            keys = sorted(self.model_fields_set & {*FileFormat.model_fields, "images", "join"})
            keys += ["columns.image"] if self.columns.image is not None else []
            return [*mistakes, *(f"'{key}' has no effect with layout 'dicom'" for key in keys)]
        return [*mistakes, *self.idle_keys()]

    def _told_twice(self) -> list[str]:
        """What two keys both give."""
        mistakes = []
        for name in self.path_groups():
            if getattr(self.columns, name) is not None:
                mistakes.append(f"columns.{name} and the group '{name}' of from_path exclude each other")
            if self.images.path is not None and name in [match[1] for match in FIELD.finditer(self.images.path)]:
                mistakes.append(f"images.path needs {{{name}}}, which from_path takes from that path")
        taken = [column for join in self.join for column in join.columns]
        mistakes += [f"'{name}' is taken from two joined files" for name in taken if taken.count(name) > 1]
        for place, join in enumerate(self.join):
            later = [column for other in self.join[place:] for column in other.columns]
            if join.key[0] in later:
                mistakes.append(
                    f"join: the key '{join.key[0]}' of the file '{join.file}' is not known before it is taken"
                )
        return list(dict.fromkeys(mistakes))

    def _strange_tags(self) -> list[str]:
        """DICOM elements that may not be read, or that nothing reads."""
        columns, elements = self.columns.model_dump(exclude_none=True), self.images.elements
        tags = {name: tag for name, tag in columns.items() if self.layout == "dicom" or tag in elements}
        idle = [f"images.elements: no key of 'columns' names '{tag}'" for tag in elements if tag not in tags.values()]
        return [*(why for name, tag in tags.items() if (why := refusal(name, tag)) is not None), *idle]

    def path_groups(self) -> tuple[str, ...]:
        """What `from_path` finds."""
        return () if self.from_path is None else tuple(re.compile(self.from_path).groupindex)

    def tells_split(self) -> bool:
        """Whether each row says which split it belongs to."""
        return self.columns.split is not None or "split" in self.path_groups()

    def label_words(self) -> dict[str, np.int8]:
        """Canonical cell -> raw finding."""
        codes = {"positive": POSITIVE, "negative": NEGATIVE, "uncertain": UNCERTAIN, "blank": BLANK}
        codes["missing"] = UNLABELLED
        words = {canonical(word): code for meaning, code in codes.items() for word in getattr(self.values, meaning)}
        return {"": BLANK, **words}
