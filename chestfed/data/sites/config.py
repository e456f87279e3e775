"""The schema of a site's YAML: where its files are, which names mean which disease, and which images are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator

from chestfed.core.config import Document, StrictModel, check_document, expand_path
from chestfed.core.diseases import DISEASES, TITLES, DiseaseName, check_name, give_titles, nearest_hint
from chestfed.core.errors import ConfigError, UnknownNameError, nearest
from chestfed.core.plugins import Choice, Options
from chestfed.core.randomness import MOST_SEED
from chestfed.data.images.levels import CHEST, InvertedBy
from chestfed.data.sites.label_files.options import FileFormat
from chestfed.data.sites.left_out import Rows
from chestfed.data.sites.reader import READERS, SPLITS, VIEWS, View, suggestion
from chestfed.data.sites.tables.codebook import FINDING
from chestfed.data.sites.tables.schema import READER, ROLES, TableFormat
from chestfed.data.sites.terms import parse_meaning

__all__ = ["SPLITS", "VIEWS", "SiteConfig", "Splits", "load_site_config"]

#: The diseases of a site that are not named.
OTHERS: Final = "others"

Uncertain = Literal["positive", "negative", "missing"]
Blank = Literal["negative", "missing"]


def _spread_over_diseases(value: object, info: ValidationInfo) -> object:
    """A single word applies to all diseases of the site, that of `others` to those that are not named."""
    given = {OTHERS: value} if isinstance(value, str) else value
    if not isinstance(given, dict) or OTHERS not in given:
        return given
    diseases = info.data.get("diseases", DISEASES)
    if len(given) > 1 and given.keys() >= set(diseases):
        raise ValueError("'others' has no effect, because every disease is named: remove it, or write one word for all")
    return dict.fromkeys(diseases, given[OTHERS]) | {name: word for name, word in given.items() if name != OTHERS}


def _check_titles(value: dict[str, str]) -> dict[str, str]:
    """Check the titles, and let this process use them."""
    for name in value:
        check_name(name)
    give_titles(value)
    return value


#: Titles of diseases whose names are not known to chestfed.
Titles = Annotated[dict[str, Annotated[str, Field(min_length=1, max_length=60)]], AfterValidator(_check_titles)]


#: A name of a group in tables; and its column of the site's table, or value -> the file that lists its images.
GroupName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
GroupSource = str | Annotated[dict[Annotated[str, Field(min_length=1, max_length=40)], str], Field(min_length=1)]


class Splits(StrictModel):
    """Which images train, validate and test."""

    official: bool = Field(True, description="use the official splits of the data set; false: every image is in train")
    valid_fraction: float = Field(0.0, ge=0, lt=1, description="share of the training patients moved to valid")
    test_fraction: float = Field(0.0, ge=0, lt=1, description="share of the training patients moved to test")
    seed: int = Field(
        1,
        ge=0,
        le=MOST_SEED,
        description="seed of these random splits by patient, which depend on `site`, all patients and labels too",
    )
    file: str | None = Field(
        None,
        min_length=1,
        description="CSV with columns patient and split, beside the YAML or in the site's root; replaces the "
        "official splits (`chestfed site check --fix-splits` writes one)",
    )

    @field_validator("test_fraction")
    @classmethod
    def _something_trains(cls, value: float, info: ValidationInfo) -> float:
        if value + info.data.get("valid_fraction", 0.0) >= 1:
            raise ValueError("valid_fraction and test_fraction leave nothing to train on: their sum must be below 1")
        return value

    @field_validator("file")
    @classmethod
    def _the_file_decides_alone(cls, value: str | None, info: ValidationInfo) -> str | None:
        others = [name for name in ("valid_fraction", "test_fraction") if info.data.get(name)]
        others += [] if info.data.get("official", True) else ["official: false"]
        if value is not None and others:
            raise ValueError(f"cannot be combined with {', '.join(others)}: the file gives the split of each patient")
        return value


#: Errors of a check that a site may allow by name.
Allowed = Literal[
    "nearly the same picture in two splits", "opposite labels of one picture", "no finding beside a finding"
]


class Pictures(StrictModel):
    """How the gray levels of PNG and JPEG files are read, and which DICOM files are accepted."""

    inverted: InvertedBy = Field(
        "column",
        description="what decides that an image is stored as a negative. picture: its pixels, compared with a "
        "mean chest radiograph (the column if they are undecided, and for views that are not frontal); "
        "column: the column of the label file (PadChest's PhotometricInterpretation_DICOM; other "
        "formats have none); never: nothing is inverted",
    )
    bits: int | None = Field(
        None,
        ge=9,
        le=16,
        description="bits that the 16-bit PNG files use, such as 12; without this key, a file whose values do not "
        "need 16 bits is refused",
    )
    body_parts: list[Annotated[str, Field(min_length=1, max_length=16)]] | Literal["all"] = Field(
        list(CHEST),
        description="accepted values of Body Part Examined in DICOM headers, besides an empty one; files of other body "
        "parts are refused",
    )
    for_processing: bool = Field(
        False, description="accept DICOM files whose Presentation Intent Type is FOR PROCESSING, not FOR PRESENTATION"
    )


class SiteConfig(StrictModel):
    """One hospital. Policy (labels, uncertainty, views, up-sampling) is here and not in the readers."""

    short_forms: ClassVar[Mapping[str, str]] = {"reader": "name", "uncertain": OTHERS, "blank": OTHERS}

    site: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", description="short name in tables and paths")
    title: str = Field(min_length=1, description="name in tables and plots")
    reader: Annotated[Options, Choice(READERS)] = Field(
        description="the format of the files: a built-in reader, an installed one, or package.module:NAME; with "
        "options as {name: NAME, ...}"
    )
    root: str = Field(min_length=1, description="the site's folder, relative to the data root; $VARIABLES and ~ work")
    other_roots: list[Annotated[str, Field(min_length=1)]] = Field(
        [], description="where else the site's folder may be, in this order, if there is none at `root`"
    )
    synthetic: bool = Field(False, description="true: not from patients, and every result says so")
    label_files: dict[str, list[str]] = Field(
        description="role -> accepted file names or patterns, relative to the root, tried in order; a name also "
        "matches its .gz"
    )
    views: list[View] | Literal["all"] = Field(description="views to keep")
    diseases: list[DiseaseName] = Field(
        list(DISEASES),
        min_length=1,
        description="the diseases that the site labels, known ones or any short name; all others are missing, not "
        "negative",
    )
    titles: Titles = Field({}, description="disease -> its name in tables, for diseases without a known title")
    labels: dict[str, list[str]] = Field(
        {},
        description="disease -> its names in the site's vocabulary, of a table its columns: NAME_{reader} stands "
        "for a column per annotator. Not for findings in words, whose meanings 'table.codes' has",
    )
    constant: dict[str, Literal["positive", "negative"]] = Field(
        {}, description="disease -> the label of every image, where no column holds it (reader table)"
    )
    uncertain: Annotated[
        dict[str, Uncertain],
        BeforeValidator(_spread_over_diseases, json_schema_input_type=dict[str, Uncertain] | Uncertain),
    ] = Field(
        description="how to treat uncertain labels, for all diseases or per disease (others: the diseases not named)"
    )
    blank: Annotated[
        dict[str, Blank], BeforeValidator(_spread_over_diseases, json_schema_input_type=dict[str, Blank] | Blank)
    ] = Field(
        description="how to treat diseases that are not mentioned, for all or per disease (others: the diseases "
        "not named)"
    )
    one_class: list[DiseaseName] | Literal["all"] = Field(
        [], description="diseases that may have no positives or no negatives; any other is an error (reader table)"
    )
    pictures: Pictures = Field(Pictures(), description="how image files are read, and which are accepted")
    table: TableFormat | None = Field(
        None, validate_default=True, description="columns of the site's own table (reader table), and their codes"
    )
    groups: dict[GroupName, GroupSource] = Field(
        {},
        description="name -> column of the site's table (reader table), or value -> file that lists its images, one a "
        "line, beside the YAML or in the site's root: shown beside view, sex and age; values of fewer than ten "
        "patients are 'others'; it leaves with predictions",
    )
    upsample: dict[str, Annotated[int, Field(ge=0)]] = Field(
        {}, description="disease -> number of extra copies of its positives in the training list"
    )
    allow: list[Allowed] = Field(
        [],
        description="errors of `chestfed site check` that only warn at this site, because somebody has looked at them",
    )
    rows: Rows = Field(Rows(), description="invalid rows to leave out and count instead of refusing them")
    splits: Splits = Field(Splits(), description="which images train, validate and test")
    license: str = Field("", description="terms of use")
    source: str = Field("", description="where the files come from")
    citation: str = Field("", description="what to cite")
    reference_standard: str = Field("", description="how the labels were made, and by whom; said in reports")

    _file: str = PrivateAttr("")

    @property
    def file(self) -> str:
        """Name of the YAML that it was read from; empty if of none."""
        return self._file

    def find_keys(self, value: str) -> list[str]:
        """The keys whose value is this text, or has it in a list or as a key, such as `labels.edema`."""
        pairs: list[tuple[str, object]] = [("", self.model_dump(exclude_unset=True))]
        for key, held in pairs:
            parts = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
            pairs += [(f"{key}.{name}", part) for name, part in parts]
        keys = [key if held == value else f"{key}." for key, held in pairs if held == value or _has_key(held, value)]
        return [re.sub(r"\.\d*$", "", key).removeprefix(".") for key in keys]

    def folder(self, data_root: Path) -> Path:
        """The site's folder: the first of its roots that exists, else the first."""
        places = [expand_path(root, data_root) for root in (self.root, *self.other_roots)]
        return next((place for place in places if place.is_dir()), places[0])

    @property
    def has_place(self) -> bool:
        """Whether the root says where the site is, without a data root."""
        return expand_path(self.root, Path()).is_absolute()

    @field_validator("diseases", "labels", "constant", "uncertain", "blank", "one_class", "upsample")
    @classmethod
    def _diseases_are_listed(cls, value: Any, info: ValidationInfo) -> Any:
        if value == "all":
            return value
        if len(set(value)) < len(value):
            raise ValueError("duplicate disease")
        diseases = info.data.get("diseases", value)
        if strange := [name for name in value if name not in diseases]:
            hint = nearest_hint(strange, diseases)
            text = f"{', '.join(strange)}: not among the site's 'diseases'{hint}"
            raise UnknownNameError(text, nearest(strange, diseases))
        lacking = [disease for disease in diseases if disease not in value]
        if lacking and info.field_name in ("uncertain", "blank"):
            raise ValueError(f"says nothing about {', '.join(lacking)}")
        return value

    @field_validator("table")
    @classmethod
    def _table_goes_with_its_reader(cls, value: TableFormat | None, info: ValidationInfo) -> TableFormat | None:
        reader = info.data["reader"].name if "reader" in info.data else None
        if value is not None and reader not in (None, "table"):
            raise ValueError(f"only with reader: table; reader '{reader}' knows its format")
        if value is None and reader == "table":
            raise ValueError("reader 'table' needs it: the columns of the site's table")
        labels, diseases = info.data.get("labels"), info.data.get("diseases")
        constant = info.data.get("constant")
        if value is None and constant:
            raise ValueError(f"'constant' has no effect with reader '{reader}'")
        if value is None or labels is None or diseases is None or constant is None:
            return value  # none, or wrong by itself
        mistakes = [f"{name}: both in 'labels' and in 'constant'" for name in constant if name in labels]
        mistakes += _check_roles(value, info.data.get("label_files", {}))
        mistakes += _check_labels(value, labels, [name for name in diseases if name not in constant])
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return value

    @field_validator("groups")
    @classmethod
    def _columns_need_a_table(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if known := value.keys() & {"view", "sex", "age"}:
            raise ValueError(f"{', '.join(sorted(known))}: is a group already; choose another name")
        columns = [name for name, given in value.items() if isinstance(given, str)]
        if columns and (info.data.get("table", True) is None or "images" in info.data.get("label_files", {})):
            text = f"{', '.join(columns)}: a column needs reader: table, with a table; give files: {{VALUE: FILE}}"
            raise ValueError(text)
        return value

    @field_validator("views")
    @classmethod
    def _some_view_is_kept(cls, value: list[str] | str) -> list[str] | str:
        if not value:
            raise ValueError(f"keeps no view; list some of {', '.join(VIEWS)}, or write all")
        return value

    @field_validator("label_files")
    @classmethod
    def _files_are_inside(cls, value: dict[str, list[str]], info: ValidationInfo) -> dict[str, list[str]]:
        reader = info.data["reader"].name if "reader" in info.data else None
        roles = (READERS.find(reader).roles if reader is not None else None) or tuple(value)
        if unknown := [role for role in value if role not in roles]:
            raise ValueError(f"reader '{reader}' reads no file '{unknown[0]}'; {suggestion(unknown[0], roles)}")
        for name in (name for names in value.values() for name in names):
            parts = PurePosixPath(name).parts
            if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
                raise ValueError(f"'{name}' leaves the site's root: names are relative to it, without '..'")
            if any(len(part.encode(errors="replace")) > 255 or "\0" in part for part in parts):
                raise ValueError(f"'{name[:40]}...' is not the name of a file: it is too long, or has a NUL character")
            if any("**" in part and part != "**" for part in parts):
                raise ValueError(f"'{name}': ** stands for all folders and has slashes beside it, as in **/*.csv")
        return value


def _check_labels(table: TableFormat, labels: Mapping[str, list[str]], diseases: Sequence[str]) -> list[str]:
    """Find misfits between the columns of labels, the diseases and the keys of the table."""
    names = [name for columns in labels.values() for name in columns]
    readers = any(READER in name for name in names)
    mistakes = []
    if table.has_terms():
        mistakes += ["findings are words, whose meanings table.codes has: remove 'labels'"] if labels else []
    elif lacking := [disease for disease in diseases if not labels.get(disease)]:
        hint = " (or name columns.findings, columns.finding or a group finding in from_path)" if not labels else ""
        mistakes.append(f"'labels' says nothing about {', '.join(lacking)}{hint}")
    if readers and table.columns.reader is not None:
        mistakes.append("columns.reader and {reader} in 'labels' exclude each other")
    if "raters" in table.model_fields_set and not readers and table.columns.reader is None:
        mistakes.append("'raters' has no effect without annotators: columns.reader, or {reader} in 'labels'")
    if table.threshold is not None and table.has_terms() and table.columns.value is None:
        mistakes.append("'threshold' has no effect without label columns or columns.value")
    if isinstance(table.threshold, dict) and table.columns.value is not None:
        mistakes.append("'threshold' of columns.value is one number")
    per_disease = {"any_column": table.any_column, "threshold": table.threshold}
    for key, value in per_disease.items():
        strange = [name for name in value if name not in diseases] if isinstance(value, list | dict) else []
        mistakes += [f"{key}: {name}: not among the site's 'diseases'" for name in strange]
    mistakes += [f"any_column: {name} has one column" for name in table.any_column if len(labels.get(name, ())) == 1]
    return [*mistakes, *_check_codes(table, names, diseases)]


def _check_codes(table: TableFormat, labels: Sequence[str], diseases: Sequence[str]) -> list[str]:
    """Codes of the YAML for columns that are not read, and meanings that are diseases of another site."""
    if isinstance(table.codes, str):
        return []
    columns, mistakes = [*table.used_columns(), *labels], []
    for column, meanings in table.codes.items():
        if column not in ROLES and column not in columns and not any(READER in name for name in labels):
            hint = nearest_hint([column], columns)
            mistakes.append(f"codes: '{column}' is neither a column that is read{hint} nor a role")
        if (ROLES.get(column) or table.column_kind(column)) == FINDING:
            named = dict.fromkeys(name for text in meanings.values() for name in parse_meaning(text).findings)
            strange = [name for name in named if name not in TITLES and name not in diseases]
            hint = nearest_hint(strange, [*diseases, *TITLES])
            mistakes += [f"codes: {', '.join(strange)}: not among the site's 'diseases'{hint}"] if strange else []
    return mistakes


def _check_roles(table: TableFormat, label_files: Mapping[str, object]) -> list[str]:
    """Which files there may be: images, or one table, or one for each split; and those that are joined."""
    if "images" in label_files:
        idle = sorted(table.model_fields_set & {*FileFormat.model_fields, "images", "join"})
        idle += ["columns.image"] if table.columns.image is not None else []
        mistakes = [f"'{key}' has no effect where label_files has images" for key in idle]
        others = ["label_files has images and no other file beside them"] if len(label_files) > 1 else []
        return [*mistakes, *others, *table.refuse_elements()]
    joined = {join.file for join in table.join}
    roles = set(label_files) - joined
    mistakes = [
        f"join: '{role}' is not a role in label_files; add it there" for role in sorted(joined - set(label_files))
    ]
    mistakes += [f"join: '{role}' is the table itself" for role in sorted(joined & {"table", *SPLITS})]
    if roles != {"table"} and not ("train" in roles and roles <= set(SPLITS)):
        text = "label_files takes 'table', or 'train' and, if they exist, 'valid' and 'test'"
        return [*mistakes, f"{text}, and the joined files; or 'images' alone"]
    if table.columns.image is None and table.images.path is None:
        mistakes.append("columns.image is needed, or images.path")
    if "table" not in roles and table.has_split():
        column = "columns.split" if table.columns.split is not None else "the group 'split' of from_path"
        mistakes.append(f"files for each split and {column} exclude each other")
    if "default_split" in table.model_fields_set and ("table" not in roles or table.has_split()):
        mistakes.append("'default_split' has no effect where files, a column or from_path give the split")
    return mistakes


#: Top-level keys by which a file of another kind is recognized.
_TELLTALE: Final = {
    "site": {"site", "reader", "root"},
    "pipeline": {"sites", "collection", "methods", "federated", "pretrain", "k"},
}


#: A command that writes a file of the kind.
_WRITTEN_BY: Final = {
    "site": "chestfed site new NAME --images DIR --labels TABLE.csv",
    "pipeline": "chestfed new pipeline NAME --from source_addition_samples",
}


def refuse_other_kind(document: Document, kind: str) -> None:
    """Refuse an empty file, and a pipeline that was given for a site, or the other way round, in one line."""
    if not document.data:
        text = f"{document.place(())}: no keys, where a {kind} is expected; `{_WRITTEN_BY[kind]}` writes one"
        raise ConfigError(text, kind="empty file", suggestion=_WRITTEN_BY[kind])
    telltales = {name: sorted(keys & document.data.keys()) for name, keys in _TELLTALE.items()}
    for other, keys in telltales.items():
        if keys and not telltales[kind]:
            raise ConfigError(f"{document.path}: this YAML describes a {other}, not a {kind}: it has {', '.join(keys)}")


def load_site_config(path: str | Path, overrides: Sequence[str] = ()) -> SiteConfig:
    """Read a site's YAML. Files beside it are those beside the YAML that names them, which it may extend.

    Raises `ConfigError` with all mistakes in one message, each with file, line and key.
    """
    document = Document(Path(path), SiteConfig)
    refuse_other_kind(document, "site")
    document.override_all(overrides)
    config = check_document(document, SiteConfig)
    update: dict[str, object] = {}
    if config.splits.file is not None:
        # Absolute, because a relative name would be looked for in the site's root.
        beside = expand_path(config.splits.file, document.folder(("splits", "file")).absolute())
        update["splits"] = config.splits.model_copy(update={"file": str(beside)}) if beside.exists() else config.splits
    if config.table is not None and isinstance(config.table.codes, str):
        codes = expand_path(config.table.codes, document.folder(("table", "codes")).absolute())
        update["table"] = config.table.model_copy(update={"codes": str(codes)})
    update["groups"] = {
        name: given if isinstance(given, str) else _find_beside(given, document.folder(("groups", name)).absolute())
        for name, given in config.groups.items()
    }
    config = config.model_copy(update=update)
    config._file = document.path.name
    return config


def _has_key(held: object, key: str) -> bool:
    return isinstance(held, dict) and key in held


def _find_beside(files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Files with their whole paths where they are beside the YAML."""
    places = {value: expand_path(file, folder) for value, file in files.items()}
    return {value: str(places[value]) if places[value].exists() else file for value, file in files.items()}
