"""From a folder and a table to the text of a site's YAML, its code book, and what is open."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from pydantic import ValidationError

from chestfed.core.diseases import sort_names
from chestfed.core.errors import ConfigError, SiteError
from chestfed.data.dicom.file_kinds import image_ending
from chestfed.data.dicom.tags import IMAGE_KEYS, KEYS, ROLES
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.label_files.encodings import as_utf8
from chestfed.data.sites.label_files.open import OpenedTable, open_table
from chestfed.data.sites.label_files.options import FileFormat
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import FILE, ROW, empty_nan, unpacked
from chestfed.data.sites.lexicon import VALUES, list_names, name_disease, suggest
from chestfed.data.sites.tables.codebook import FINDING, LABEL, Code, normalize_value
from chestfed.data.sites.tables.dicom_headers import read_elements
from chestfed.data.sites.tables.rows import find_sums, read_rows
from chestfed.data.sites.tables.schema import TableFormat
from chestfed.leaves.drafts.codes import ask_policies, count_findings, propose_findings, propose_words
from chestfed.leaves.drafts.columns import (
    find_prefix,
    propose_others,
    propose_path_words,
    propose_patient,
    propose_share,
)
from chestfed.leaves.drafts.images import propose_images
from chestfed.leaves.drafts.labels import note_constants, propose_label_columns, use_findings
from chestfed.leaves.drafts.matching import Pictures, list_pictures
from chestfed.leaves.drafts.proposal import (
    ALL,
    LISTED,
    NONE,
    OPTION,
    PREFIX,
    Answers,
    Proposal,
    find_called,
    is_called,
    option,
)
from chestfed.leaves.drafts.unread import account_for_rest, leave_out_rows
from chestfed.leaves.drafts.writing import write_draft

#: Role -> the DICOM element that holds it.
_HEADERS: Final = {
    "patient": "PatientID",
    "study": "StudyInstanceUID",
    "view": "ViewPosition",
    "sex": "PatientSex",
    "age": "PatientAge",
}
#: The header is looked for down to this row, and has so many known names.
_LAST_HEADER: Final = 10
_HEADERS_KNOWN: Final = 3


def draft_site(
    name: str,
    images: Path,
    labels: Path | None,
    answers: Answers,
    *,
    data: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Proposal:
    """Look at the images and the table (None: the labels are in the images' headers or folders), and describe them.

    The site's root is written as it is, or relative to `data` if it is below that.

    Raises `ConfigError` if an answer does not fit, `SiteError` if the table, or headers, cannot be read.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        fitting = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_0123456789") or "my-hospital"
        raise ConfigError(f"'{name}' is not a short name: lower case letters, digits, - and _, such as {fitting}")
    if not images.is_dir():
        raise ConfigError(f"--images {images}: no such folder")
    folder = root = images.resolve()
    if labels is not None:
        if not labels.exists():
            raise ConfigError(f"--labels {labels}: no such file")
        labels = labels.resolve()
        root = Path(os.path.commonpath([folder, labels if labels.is_dir() else labels.parent]))
    proposal = Proposal(name, list_pictures(folder, root), answers, data)
    proposal.table |= {key: value for key, value in answers.keys.items() if key in TableFormat.model_fields}
    if proposal.pictures.aside:
        proposal.notes.append(f"files that are not images are skipped: {proposal.pictures.aside}")
    read = partial(_read_headers, proposal.name, proposal.pictures, progress)
    if labels is not None:
        line, files = _propose_table(proposal, labels, read)
    else:
        line, files = _propose_headers(proposal, read) if proposal.pictures.dicoms else _propose_folders(proposal)
    write_draft(proposal, line, files)
    _refuse_idle(proposal)
    return proposal


#: Description of the source in a line, and the site's `label_files`.
_Sources = tuple[str, dict[str, list[str]]]


def _refuse_idle(proposal: Proposal) -> None:
    """Refuse options without an effect: a mistyped value would leave a label as it was."""
    values = {(head, code.value) for code in proposal.codes for head in (code.kind, code.column)}
    unused = [
        f"--code {code.column or code.kind}:{code.value}"
        for code in proposal.answers.codes
        if code.evidence == OPTION
        and (code.column or code.kind, code.value) not in values
        and not _is_left_out(proposal, code)
    ]
    if proposal.labels:
        unused += [
            f"--label {disease}=..."
            for disease, names in proposal.answers.labels.items()
            if names and disease not in (*proposal.labels, *proposal.constant)
        ]
    if unused:
        kinds = {code.kind for code in proposal.answers.codes if code.evidence == OPTION and not code.column}
        lacking = sorted(kinds & {"view", "split", "sex", "age"} - proposal.columns.keys())
        hint = "".join(f"; no column is called like the {kind}: name it with --column {kind}=NAME" for kind in lacking)
        text = "the table has no such value or column, so this would have no effect"
        raise ConfigError(f"{', '.join(unused)}: {text}{hint}")


def _is_left_out(proposal: Proposal, code: Code) -> bool:
    """Whether rows that the filter columns drop have a code's value, in a column that the code is about."""
    roles = ("findings", "finding") if code.kind == FINDING else (code.kind,)
    names = {code.column} if code.column else {proposal.columns[role] for role in roles if role in proposal.columns}
    names |= {*proposal.label_columns} if code.kind == LABEL and not code.column else set()
    cells = (rows[name].dropna().unique() for rows in proposal.left_out for name in names.intersection(rows))
    return any(normalize_value(code.kind, str(cell)) == code.value for part in cells for cell in part)


def _propose_table(proposal: Proposal, labels: Path, read: Callable[[], pd.DataFrame]) -> _Sources:
    pictures, answers = proposal.pictures, proposal.answers
    files = [glob.escape(labels.relative_to(pictures.root).as_posix())]
    frame = _read_table(proposal, labels, files)
    if not frame.index.is_unique:  # several sheets or files
        frame = frame.reset_index(drop=True)
        proposal.notes.append("rows are numbered through all sheets or files, from 0")
    proposal.frame = frame = _drop_nameless(proposal, frame)
    roles, rows = {"table": files}, len(frame)
    if proposal.table.get("join"):
        proposal.frame = frame = _join_files(proposal, labels, roles)
    for key in LISTED:
        if key in proposal.table:
            names = [proposal.check_column(f"--column {key}={name}", str(name)) for name in proposal.table[key]]
            proposal.table[key] = list(dict.fromkeys(names))
    named = {*answers.columns.values(), *(name for names in answers.labels.values() for name in names)}
    for name in named.intersection(proposal.table.get("ignore", [])):
        proposal.table["ignore"].remove(name)
        proposal.first.append(f"'{name}' is ignored by one option and has a role by another: it has the role")
    proposal.evidence["ignore"] = "not read, by your word"
    _drop_totals(proposal)
    leave_out_rows(proposal)
    elements = propose_images(proposal, read, _HEADERS)
    if answers.keys.get("rows", {}).get("unnamed") == "drop":
        _drop_unnamed(proposal)
    propose_patient(proposal)
    propose_others(proposal)
    unused = [tag for tag in elements if tag not in proposal.columns.values()]
    proposal.frame = proposal.frame.drop(columns=unused)
    if used := [tag for tag in elements if tag not in unused]:
        proposal.rule["elements"] = used
    propose_label_columns(proposal)
    account_for_rest(proposal)
    line = f"{len(pictures.files):,} images in {pictures.folder or 'the root'} ({pictures.listed_endings}), "
    return f"{line}{rows:,} rows in {labels.name}", roles


def _read_table(proposal: Proposal, labels: Path, files: list[str]) -> pd.DataFrame:
    """All cells as text, by the number of the row; how the file was read is noted. Raises `SiteError`."""
    options = {key: value for key, value in proposal.table.items() if key in FileFormat.model_fields}

    def open_at(row: int | None) -> tuple[Source, OpenedTable | None]:
        keys = options if row is None else {**options, "header_row": row}
        config = _make_site(proposal.name, str(proposal.pictures.root), {"table": files}, keys)
        source = Source(config, proposal.pictures.root, labels)
        assert config.table is not None
        return source, open_table(source, [labels], config.table)

    source, opened = open_at(None)
    if "header_row" not in options and labels.is_file() and _count_known(opened) <= 1:
        rows = [row for row in range(2, _LAST_HEADER + 1) if _count_known(open_at(row)[1]) >= _HEADERS_KNOWN]
        if len(rows) == 1:
            source, opened = open_at(rows[0])
            proposal.table["header_row"] = rows[0]
            proposal.evidence["header_row"] = "the only one of the first rows with names of columns"
    if opened is None:
        list_options = partial(re.sub, r"set table\.(\w+)( in the site's YAML)?", r"add --set \1=...")
        raise SiteError(
            proposal.name, [replace(problem, advice=list_options(problem.advice)) for problem in source.problems]
        )
    notes = dict.fromkeys([*opened.notes, *source.remarks])
    if "encoding" not in options and any("which was detected" in note for note in notes):
        proposal.table["encoding"] = as_utf8(unpacked(labels), None)[1]
        proposal.evidence["encoding"] = "detected: look whether accented letters are right"
        notes = {note: None for note in notes if "which was detected" not in note}
    for note in notes:
        (proposal.first if ": not read: " in note else proposal.notes).append(note)
    frame = empty_nan(opened.frame, [name for name in map(str, opened.frame) if list_names(name)])
    return frame.drop(columns=FILE, errors="ignore").set_index(ROW)


def _join_files(proposal: Proposal, labels: Path, roles: dict[str, list[str]]) -> pd.DataFrame:
    """The table with the columns of the files of `--set join=[...]`, which get a role each in `roles`.

    Raises `ConfigError` or `SiteError` if a file cannot be joined.
    """
    root, joins = proposal.pictures.root, [dict(join) for join in proposal.table["join"]]
    for number, join in enumerate(joins, start=1):
        file = labels.parent / str(join.get("file"))
        if not file.exists() or not file.resolve().is_relative_to(root):
            raise ConfigError(f"--set join: no file {file} below {root}; 'file' is its path beside the table")
        join["file"] = f"joined_{number}"
        roles[join["file"]] = [glob.escape(file.resolve().relative_to(root).as_posix())]
    proposal.table["join"] = joins
    options = {key: proposal.table[key] for key in (*FileFormat.model_fields, "join") if key in proposal.table}
    config = _make_site(proposal.name, str(root), roles, options)
    assert config.table is not None
    source, taken = Source(config, root), [name for join in config.table.join for name in join.columns]
    rows = read_rows(source, labels, config.table, [*(n for n in proposal.headers if n not in taken), *taken])
    if rows is None or source.problems:
        raise SiteError(proposal.name, source.problems)
    return rows.frame.drop(columns=FILE, errors="ignore").set_index(ROW)


def _count_known(opened: OpenedTable | None) -> int:
    """Count columns that are called like a disease, or like what a table may tell of an image."""
    names = [] if opened is None else [str(name) for name in opened.frame]
    called = sum(
        bool(find_called(role, names)) for role in ("image", "patient", "study", "view", "split", "sex", "age")
    )
    return called + len({name_disease(name) for name in names} - {None})


def _drop_totals(proposal: Proposal) -> None:
    """Leave out rows of totals: if the user says so, or those below the table that name no image or patient."""
    totals = proposal.frame.apply(find_sums)
    policy = proposal.answers.keys.get("rows", {}).get("total")
    names = [name for name in proposal.headers if is_called("image", name) or is_called("patient", name)]
    named = totals[names].any(axis=1).astype(bool)
    if policy is None and named.any() and named.tail(int(named.sum())).all():
        policy = proposal.rows["total"] = "drop"
        proposal.first.append(f"{int(named.sum()):,} rows of totals below the table: left out")
    if policy == "drop":
        proposal.frame = proposal.frame[~totals.any(axis=1).astype(bool)]


def _drop_unnamed(proposal: Proposal) -> None:
    """Leave out the rows without an image, and say what only they tell, as the base rows of a REDCap export do."""
    column = proposal.columns.get("image")
    if column not in proposal.headers:
        return
    named = proposal.frame[column].notna()
    frame, proposal.frame, proposal.image = proposal.frame, proposal.frame[named], proposal.image[named]
    if lost := [str(name) for name in frame if frame[name].notna().any() and proposal.frame[name].isna().all()]:
        proposal.first.append(
            f"only rows without an image have {', '.join(lost)}: not used (copy the cells to the rows of the images)"
        )


def _drop_nameless(proposal: Proposal, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that can be named: a column of labels without a name of its own must not be overlooked."""
    names = pd.Series([str(name) for name in frame.columns])
    idle = (names.eq("") | names.duplicated(keep=False)).to_numpy()
    for place in np.flatnonzero(idle).tolist():
        cells, name = frame.iloc[:, place], names[place]
        values = {normalize_value("label", str(cell)) for cell in cells.dropna().unique()}
        if values and (name_disease(name) or values <= {"0", "1", "x", "+", "-", *VALUES}):
            what = f"is one of several called '{name}'" if name else "has no name"
            proposal.ask(f"column {place + 1} {what}, and may hold labels: give it a name in the table, or empty it")
    if idle.any():
        proposal.notes.append(
            f"{int(idle.sum())} of {len(names)} columns have no name, or one that others have: not used"
        )
    return frame.loc[:, ~idle]


def _propose_headers(proposal: Proposal, read: Callable[[], pd.DataFrame]) -> _Sources:
    pictures = proposal.pictures
    if pictures.without_header:
        proposal.notes.append(f"{len(pictures.without_header):,} PNG or JPEG files have no header, and are left out")
    only_images = [tag for tag in IMAGE_KEYS if tag not in KEYS]
    proposal.frame = frame = read().drop(columns=["image", *only_images], errors="ignore")
    if "PatientID" not in frame:
        raise ConfigError("no header has a PatientID, so patients are unknown: give a table with --labels")
    proposal.image = pd.Series(range(len(frame)), index=frame.index).astype(str)
    for role, tag in _HEADERS.items():
        if tag in frame and role not in proposal.answers.columns:
            if role in ("view", "sex"):
                propose_words(proposal, role, tag, "the element for it")
            else:
                proposal.take(role, tag, f"the element for it; {frame[tag].nunique():,} different")
    propose_others(proposal)
    sign = proposal.table.get("separator") or "|"
    proposal.frame = frame.apply(lambda cells: cells.str.replace("\\", sign, regex=False))
    propose_label_columns(proposal)
    endings = sorted({image_ending(file.rpartition("/")[2]) for file in pictures.dicoms})
    line = f"{len(pictures.dicoms):,} DICOM files; the labels are in their headers"
    return line, {"images": [f"**/*{ending}" for ending in endings]}


def _propose_folders(proposal: Proposal) -> _Sources:
    """Images whose folders are the findings, at the level where most names are known."""
    pictures, table = proposal.pictures, proposal.table
    folders = [file.split("/")[:-1] for file in pictures.files]
    depth = min(map(len, folders))
    shares = {}
    for level in range(depth):
        names = Counter(parts[level] for parts in folders)
        if 2 <= len(names) <= 50:
            known = sum(
                n for name, n in names.items() if suggest(normalize_value("finding", name.replace("_", " "))).meaning
            )
            shares[level] = known / len(folders)
    pattern = table.get("from_path")
    note_constants(proposal)
    if pattern is None and max(shares.values(), default=0) < 0.5:
        if not proposal.constant:
            raise ConfigError(
                f"the images are not DICOM files ({pictures.listed_endings}), and no level of folders is called like "
                "findings: name the table with --labels FILE, or use --set 'from_path=(?P<finding>PATTERN)', or, if "
                f"every image has a disease, --label DISEASE={ALL}"
            )
        pattern = "^(?:.*/)?"
    elif pattern is None:
        best = max(shares, key=lambda level: shares[level])
        table["from_path"] = pattern = f"^{'[^/]+/' * best}(?P<finding>[^/]+)/(?:.*/)?"
        proposal.evidence["from_path"] = f"folders at level {best + 1} are called like findings"
    paths = pd.Series(pictures.files, dtype=object)
    if "<patient>" not in pattern:
        pattern = _propose_path_patient(proposal, pattern, paths)
    if "(?P<finding>" not in pattern and not proposal.constant:
        raise ConfigError(f"--set from_path={pattern}: a group (?P<finding>PATTERN) says where the findings are")
    groups = paths.str.extract(pattern)
    if lost := int(groups.isna().any(axis=1).sum()):
        proposal.ask(f"from_path does not fit {lost:,} of {len(paths):,} paths: change it, or move these images away")
    proposal.image = paths
    proposal.frame = pd.DataFrame({"path": paths})
    propose_path_words(proposal)
    total: dict[str, Counter[str]] = {}
    if "finding" in groups:
        counts = Counter(normalize_value("finding", str(term)) for term in groups["finding"].dropna())
        codes = propose_findings(proposal, counts, "the folders")
        use_findings(proposal, codes)
        total = count_findings(proposal, codes, groups["finding"], None, lists=False)
    else:
        proposal.diseases = sort_names(proposal.constant)
    ask_policies(proposal, total, "a disease that is not mentioned")
    if not proposal.is_in_path("view") and "default_view" not in table:
        proposal.first.append(
            "views are unknown: lateral images, if any, are used for training (--set default_view=frontal)"
        )
    propose_share(proposal)
    endings = sorted({image_ending(file.rpartition("/")[2]) for file in pictures.files})
    line = f"{len(pictures.files):,} images ({pictures.listed_endings}); the labels are in their folders"
    return line, {"images": [f"**/*{ending}" for ending in endings]}


def _propose_path_patient(proposal: Proposal, pattern: str, paths: pd.Series) -> str:
    """The pattern with a group for the patient, as the user says; else a question."""
    answer, prefix = proposal.answers.columns.get("patient"), find_prefix(paths, pattern)
    if answer == PREFIX and prefix is None:
        raise ConfigError(f"--column patient={PREFIX}: it does not tell the images apart")
    if answer == PREFIX and prefix is not None:
        proposal.table["from_path"], proposal.evidence["from_path"] = prefix
    else:
        proposal.table["from_path"] = f"{pattern}(?P<patient>[^/]+)$"
    if answer not in (NONE, PREFIX):
        proposal.ask(
            "patient: no table says whose the images are. Without patients, images of one person may be in both "
            "training and test",
            *([f"{option('--column', f'patient={PREFIX}')} ({prefix[1]})"] if prefix else []),
            f"{option('--column', f'patient={NONE}')} (every image counts as a patient)",
            f"--set 'from_path={pattern}(?P<patient>PATTERN)'",
        )
    return str(proposal.table["from_path"])


def _read_headers(name: str, pictures: Pictures, progress: Callable[[int, int], None] | None) -> pd.DataFrame:
    """`image`, and the elements that may be read and that some file has, of all files.

    Raises `SiteError` if no header can be read.
    """
    source = Source(_make_site(name, str(pictures.root), {"images": ["**/*"]}, {}), pictures.root, progress=progress)
    tags = sorted({*IMAGE_KEYS, *(tag for role in ROLES.values() for tag in role)})
    frame, _ = read_elements(source, pictures.dicoms, tags)
    if frame.empty:
        raise SiteError(name, source.problems)
    return frame.set_index(ROW)[["image", *(tag for tag in tags if frame[tag].notna().any())]]


def _make_site(name: str, root: str, files: dict[str, list[str]], table: dict[str, Any]) -> SiteConfig:
    """A site for reading files only."""
    columns = {"image": "image", "patient": "image", "findings": "image"}
    if "images" in files:
        columns = {"patient": "PatientID", "findings": "ImageComments"}
    keys: dict[str, Any] = {"site": name, "title": name, "reader": "table", "root": root, "label_files": files}
    keys |= {"views": "all", "labels": {}, "uncertain": "missing", "blank": "missing"}
    try:
        return SiteConfig.model_validate({**keys, "table": {"columns": columns, **table}})
    except ValidationError as error:
        raise ConfigError("; ".join(f"--set {each['loc'][-1]}: {each['msg']}" for each in error.errors())) from None
