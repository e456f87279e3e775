"""From a site's configuration to its table: reading, checks, label policy; all problems in one report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from chestfed.core.config import expand_path
from chestfed.core.console import plural
from chestfed.core.errors import ChestfedError, ConfigError, Problem, SiteError
from chestfed.data.sites.config import SiteConfig, load_site_config
from chestfed.data.sites.folders import Folders
from chestfed.data.sites.groups import add_groups
from chestfed.data.sites.label_files.source import FORMULA, Source
from chestfed.data.sites.left_out import (
    DESCRIBING,
    Rows,
    choose_left_out,
    describe_left_out,
    find_agreeing,
    offer_dropping,
)
from chestfed.data.sites.partition import assign_splits, join_splits
from chestfed.data.sites.phantoms import MARKER, find_marker, is_phantoms
from chestfed.data.sites.reader import (
    BLANK,
    NEGATIVE,
    POSITIVE,
    RAW_COLUMNS,
    READERS,
    SPLITS,
    UNCERTAIN,
    UNLABELLED,
    VIEWS,
    drop_invisible,
    join_rows,
    leaves_root,
    similar_ids,
)
from chestfed.data.sites.table import SiteTable, count_labels
from chestfed.data.sites.tables.dicom_headers import SET_ASIDE
from chestfed.data.sites.tables.rows import name_columns

#: The kind of problem of an image that is not below the site's root.
_OUTSIDE: Final = "path outside the root"
#: Words that stand for no patient: taken for a name, all their images would be one person's.
_NOBODY: Final = ("na", "n/a", "#n/a", "null", "none", "unknown", "-", "?")
#: A number that a program has shortened, such as 1.23457E+11: several patients become one.
_ROUNDED: Final = r"\d(?:[.,]\d+)?[eE]\+\d+"


def open_site(config: SiteConfig, data_root: Path, labels_file: Path | None = None) -> SiteTable:
    """Read and check a site's label files. No image is decoded; missing ones are found when the cache is filled.

    With `labels_file`, that file is read instead of those below the root, which then need not exist.

    Raises `SiteError` with all problems of the site in one report. Raises `ChestfedError` if the reader returned
    invalid rows.
    """
    survey = survey_site(config, data_root, labels_file, keep_going=False)
    if survey.problems:
        raise SiteError(config.site, survey.problems)
    return survey.table


def find_sites(files: Iterable[Path], data_root: Path) -> set[Path]:
    """The folders in which the label files of one of these YAMLs of sites are; those with mistakes are passed over."""
    folders = set()
    for file in files:
        with suppress(ConfigError):
            config = load_site_config(file)
            source = Source(config, config.folder(data_root))
            if source.root.is_dir() and any(source.find_all(role) for role in config.label_files):
                folders.add(source.root)
    return folders


@dataclass(frozen=True, eq=False)
class Survey:
    """A site as far as it can be read, with all problems of its label files."""

    raw: pd.DataFrame  #: every row that the reader returned, whatever its view; see `reader.RAW_COLUMNS`
    table: SiteTable  #: the rows that are valid by themselves, of the views that are kept
    files: tuple[str, ...]  #: the label file of each row of the table
    has_images: bool  #: whether the site's root exists, to look for images in
    problems: tuple[Problem, ...]


def open_all_views(survey: Survey, config: SiteConfig) -> SiteTable | None:
    """The table of a survey without problems, with the views too that the configuration leaves out; None if none is."""
    if len(survey.raw) == len(survey.table.frame):
        return None
    return survey.table.with_frame(_apply_policy(survey.raw, config))


def survey_site(
    config: SiteConfig,
    data_root: Path,
    labels_file: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    keep_going: bool = True,
) -> Survey:
    """Read a site's label files as far as they can be read; problems are returned, never raised.

    With `keep_going` the rows without problems are kept, and links out of the site's root are looked for. Where the
    labels are in the images' headers, `progress(done, total)` counts them.
    """
    as_read = config
    if config.splits.file is not None:  # then the distribution's own splits are not read
        as_read = config.model_copy(update={"splits": config.splits.model_copy(update={"official": False})})
    source = Source(as_read, config.folder(data_root), labels_file, progress=progress, keep_going=keep_going)
    if labels_file is None and not source.root.is_dir():
        advice = (
            f"set 'root' in the YAML of '{config.site}', or give the folder that contains it with --data or "
            f"$CHESTFED_DATA"
        )
        source.problem("missing root", str(source.root), "no such folder", advice=advice)
        raw = join_rows([], source)
    else:
        raw = _read_rows(source, config)
        pa.default_memory_pool().release_unused()  # which it would keep, for more than the rows take
        _check_form(raw, config, cells=not source.problems)
    raw, changed = drop_invisible(raw)
    if changed:
        source.remarks.append(f"invisible characters are left out of {plural(changed, 'name')} of patients")
    raw = raw if config.splits.file is None else join_splits(raw, expand_path(config.splits.file, source.root), source)
    raw, dropped = _without_dirty(raw, config, source)
    row_problems, sound = _check(raw, config, source)
    formulas = {(problem.file, problem.row) for problem in source.problems if problem.kind == FORMULA}
    problems = [*source.problems, *row_problems]  # a formula cell is reported once, not as a blank name too
    problems = [entry for entry in problems if entry.kind != "blank name" or (entry.file, entry.row) not in formulas]
    shown = np.ones(len(raw), dtype=bool) if config.views == "all" else raw["view"].isin(config.views).to_numpy(bool)
    if len(raw) and not shown.any() and all(problem.kind == SET_ASIDE for problem in problems):
        views = ", ".join(f"{view} ({count})" for view, count in raw["view"].value_counts().items())
        text = f"no image has one of the views {', '.join(config.views)}; found: {views}"
        problems.append(
            Problem("nothing left", str(raw["file"].iat[0]), text, None, "change 'views' in the site's YAML")
        )
    usable = sound & shown & (keep_going or not problems)
    rows = raw if usable.all() else raw[usable].reset_index(drop=True)
    table = replace(
        _make_table(rows, source, config),
        left_out=dropped,
        other_views=int((~shown).sum()),
        not_understood=source.not_understood,
        columns=name_columns(config, config.table, source.columns) if config.table else {},
    )
    table, of_groups = add_groups(table, source, rows["file"]) if config.groups else (table, [])
    problems += [*of_groups, *_check_table(table, rows, config, labels=not problems)]
    if problems and not keep_going:
        rows, table = rows.iloc[:0], table.with_frame(table.frame.iloc[:0])
    of_row, names = pd.factorize(rows["file"])
    files = tuple(np.asarray(names, dtype=object)[of_row])  # each name once in memory
    return Survey(raw, table, files, source.has_images, tuple(problems))


def _without_dirty(raw: pd.DataFrame, config: SiteConfig, source: Source) -> tuple[pd.DataFrame, dict[str, int]]:
    """The rows without those that the configuration leaves out, and how many of the files' rows these are, by key."""
    if config.rows == Rows() and not source.left_out:
        return raw, {}
    absent = np.zeros(len(raw), dtype=bool)
    if config.rows.missing_image == "drop" and source.has_images:
        folders = Folders(source.root)
        absent = np.array(
            [isinstance(name, str) and not folders.holds(name) for name in raw["image"].tolist()], dtype=bool
        )
    row_problems, _ = _check(raw, config, source)
    later = set(map(id, row_problems))
    out, remaining, counts = choose_left_out(
        config.rows, raw, [*source.problems, *row_problems], config.diseases, absent
    )
    source.problems[:] = [problem for problem in remaining if id(problem) not in later]
    counts = dict(source.left_out) | counts
    total = len(raw.loc[~out, ["file", "row"]].drop_duplicates()) + sum(counts.values())
    source.remarks += describe_left_out(counts, total)
    if len(raw) and out.all():
        advice = "check the site's root and table.images: 'rows' in its YAML should leave out only some of the rows"
        source.problem("nothing left", str(raw["file"].iat[0]), "'rows' leaves out every row", advice=advice)
    return raw[~out].reset_index(drop=True), counts


def _make_table(raw: pd.DataFrame, source: Source, config: SiteConfig) -> SiteTable:
    phantoms = is_phantoms(source.folder)
    synthetic = config.synthetic or phantoms
    if not phantoms and (config.synthetic or find_marker(source.folder)):
        source.remarks.append(
            f"these are not the files of a bundled synthetic hospital ({MARKER} has no or another digest): names of "
            "patients and images are made with the secret key"
        )
    return SiteTable(
        config.site,
        config.title if not synthetic or "synthetic" in config.title.lower() else f"{config.title} (synthetic)",
        source.root,
        synthetic,
        tuple(config.diseases),
        _apply_policy(raw, config),
        tuple(source.remarks),
        config.pictures,
        phantoms=phantoms,
    )


def _check_table(table: SiteTable, raw: pd.DataFrame, config: SiteConfig, *, labels: bool) -> list[Problem]:
    """The problems of the rows that are kept, with their final splits and `labels`; `raw` are the same rows."""
    frame, problems = table.frame, []
    for place, earlier in similar_ids(frame).items():
        text = (
            f"this row's patient is in '{frame['split'].iat[place]}' here; an id that differs only in case, spaces, "
            f"leading zeros, '.0' or a sign before the number is in '{frame['split'].iat[earlier]}' at "
            f"{raw['file'].iat[earlier]}:{raw['row'].iat[earlier]}"
        )
        advice = (
            "use one spelling of the id, or let `chestfed site check YAML --fix-splits` put them into one split; of "
            "two persons, ids that differ in a letter or digit"
        )
        row = raw["row"].tolist()[place]
        problems.append(Problem("similar patients", str(raw["file"].iat[place]), text, row, advice))
    if labels and config.reader.name == "table" and config.one_class != "all" and len(frame):
        for disease, counts in zip(table.diseases, count_labels(table.labels()), strict=True):
            if disease not in (*config.one_class, *config.constant) and not (counts.positive and counts.negative):
                text = f"{disease} has {counts.positive:,} positive and {counts.negative:,} negative images"
                advice = "check what the values mean (table.codes, 'blank'); if it is so, name it in 'one_class'"
                problems.append(Problem("one class", str(raw["file"].iat[0]), text, None, advice))
    return problems


def _apply_policy(raw: pd.DataFrame, config: SiteConfig) -> pd.DataFrame:
    """The frame of a site table: findings made 0, 1 or missing, splits cut, positives repeated."""
    value = {"positive": 1.0, "negative": 0.0, "missing": np.nan}
    frame = pd.DataFrame(
        {
            **{name: raw[name].astype("str") for name in ("image", "patient", "study")},
            "view": pd.Categorical(raw["view"], categories=VIEWS),
            "split": pd.Categorical(raw["split"] if config.splits.official else ["train"] * len(raw), SPLITS),
            "sex": pd.Categorical(raw["sex"], categories=["F", "M"]),
            "age": raw["age"].to_numpy(dtype=np.float32),
            "row": raw["row"].to_numpy(dtype=np.int64),
            "inverted": raw["inverted"].to_numpy(dtype=bool),
        }
    )
    for disease in config.diseases:
        policy = {UNCERTAIN: value[config.uncertain[disease]], BLANK: value[config.blank[disease]]}
        labels = raw[disease].map({POSITIVE: 1.0, NEGATIVE: 0.0, UNLABELLED: np.nan, **policy})
        frame[disease] = labels.to_numpy(dtype=np.float32)
    shares = {"valid": config.splits.valid_fraction, "test": config.splits.test_fraction}
    if any(shares.values()):
        split = assign_splits(frame, config.diseases, shares, config.splits.seed, config.site)
        frame["split"] = pd.Categorical(split, categories=SPLITS)
    repeats = np.ones(len(frame), dtype=np.int64)
    for disease, copies in config.upsample.items():
        repeats += copies * ((frame["split"] == "train") & (frame[disease] == 1)).to_numpy(dtype=bool)
    return frame.assign(repeats=repeats)


def _read_rows(source: Source, config: SiteConfig) -> pd.DataFrame:
    """Read rows with the site's reader; an error in its code gets a note that names the file it was at."""
    try:
        return READERS.find(config.reader.name).read(source, config.reader)
    except ChestfedError:
        raise
    except Exception as error:
        if source.last_opened:
            error.add_note(f"The label file that reader '{config.reader.name}' opened last: {source.last_opened}")
        raise


def _check_form(raw: Any, config: SiteConfig, *, cells: bool) -> None:
    """Check the form of what a reader returned: a mistake there is the reader's, not one in the site's files.

    Without `cells` only the columns: rows in which the reader found problems may hold anything.
    """
    mistakes = [f"read() returned {type(raw).__name__}, not a pandas frame"]
    if isinstance(raw, pd.DataFrame):
        needed = [*RAW_COLUMNS, *config.diseases]
        mistakes = [f"no column '{column}'" for column in needed if column not in raw.columns]
        mistakes += [f"duplicate column '{column}'" for column in needed if list(raw.columns).count(column) > 1]
        mistakes = mistakes or (_find_wrong_cells(raw, config.diseases) if cells and len(raw) else [])
    if mistakes:
        raise ChestfedError(
            f"reader '{config.reader.name}' returned invalid rows: {'; '.join(mistakes)}. This is a bug in the "
            f"reader; see docs/own_reader.md for what it must return"
        )


def _find_wrong_cells(raw: pd.DataFrame, diseases: Sequence[str]) -> list[str]:
    mistakes = []
    for column, words in (("view", VIEWS), ("split", SPLITS), ("sex", ("F", "M"))):
        wrong = ~raw[column].isin(words) & (raw[column].notna() | (column != "sex"))
        if wrong.any():
            mistakes.append(f"{column}: {int(wrong.sum())} cells are not one of {', '.join(words)}")
    kinds = pd.api.types
    form = {
        "row: not integers from 1 up": kinds.is_integer_dtype(raw["row"]) and (raw["row"] >= 1).all(),
        "inverted: not bool": kinds.is_bool_dtype(raw["inverted"]),
        "age: not numbers": kinds.is_numeric_dtype(raw["age"]) or raw["age"].isna().all(),
    }
    for column in ("image", "patient", "study", "file"):
        form[f"{column}: not text"] = isinstance(raw[column].dtype, pd.StringDtype) or all(
            isinstance(cell, str) or pd.isna(cell) for cell in raw[column]
        )
    codes = [int(code) for code in (POSITIVE, NEGATIVE, UNCERTAIN, BLANK, UNLABELLED)]
    for disease in diseases:
        form[f"{disease}: not findings, which are {', '.join(map(str, codes))}"] = raw[disease].isin(codes).all()
    return mistakes + [mistake for mistake, right in form.items() if not right]


def _check(raw: pd.DataFrame, config: SiteConfig, source: Source) -> tuple[list[Problem], np.ndarray]:
    """The problems that any format can have or that concern several rows, and which rows are sound, bool `[n]`.

    A row is sound if it is valid by itself: named, inside the root, in a split, not a duplicate.
    """
    image, patient, places = raw["image"], raw["patient"], np.arange(len(raw))
    named = image.notna().to_numpy(dtype=bool)
    known, rounded = _check_names(patient)
    outside, first = leaves_root(image).to_numpy(dtype=bool), _find_first(image)
    sound = named & known & ~rounded & ~outside & raw["split"].notna().to_numpy(dtype=bool) & (first == places)
    fill, inside = (
        "fill the cell or remove the row",
        "image paths must be relative to the site's root and stay inside it; fix the row",
    )

    def where(place: int) -> str:
        return f"{raw['file'].iat[place]}:{raw['row'].iat[place]}"

    def note(bad: np.ndarray, kind: str, tell: str | Callable[[int], str], advice: str) -> list[Problem]:
        if not bad.any():
            return []
        cells = raw.loc[bad, ["file", "row"]]
        texts = [tell if isinstance(tell, str) else tell(place) for place in np.flatnonzero(bad).tolist()]
        places = zip(cells["file"].tolist(), cells["row"].tolist(), texts, strict=True)
        return [Problem(kind, file, text, row, advice) for file, row, text in places]

    problems = note(~named, "blank name", "no image name", fill) + note(~known, "blank name", "no patient", fill)
    text, advice = "the patient is a number that a program has rounded", "export the column as text from the original"
    problems += note(rounded, "rounded number", text, advice)
    problems += note(outside, _OUTSIDE, "the image's path leaves the site's root", inside)
    again = (first != places) & named
    if again.any():
        problems += _check_repeats(raw, config, first, again, note)
    if config.splits.official:
        split, earlier = raw["split"].to_numpy(dtype=object), _find_first(patient)
        strayed = (split != split[earlier]) & known & raw["split"].notna().to_numpy(dtype=bool)
        strayed &= ~patient.where(strayed).duplicated().to_numpy(dtype=bool)  # one problem per patient

        def elsewhere(place: int) -> str:
            there = earlier[place]
            return f"this row's patient is in '{split[place]}' here and in '{split[there]}' at {where(there)}"

        advice = (
            "all images of a patient belong to one split: `chestfed site check YAML --fix-splits` writes splits where "
        )
        advice += "they do, or set splits.official: false"
        problems += note(strayed, "patient in two splits", elsewhere, advice)
    if source.keep_going and source.has_images:
        reported = {(problem.file, problem.row) for problem in source.problems if problem.kind == _OUTSIDE}
        links = _find_links(raw, config, source, sound, reported)
        text = "the image's path leads through a link out of the site's root"
        strays = note(links, _OUTSIDE, text, "put the images below the root")
        problems += [problem for problem in strays if (problem.file, problem.row) not in reported]
        sound &= ~links
    return problems, sound


def _find_links(
    raw: pd.DataFrame,
    config: SiteConfig,
    source: Source,
    sound: np.ndarray,
    reported: Collection[tuple[str, int | None]],
) -> np.ndarray:
    """Which of the sound rows have an image behind a link out of the root, bool `[n]`."""
    if config.reader.name != "table":
        folders = Folders(source.root)
        images = zip(raw["image"].tolist(), sound.tolist(), strict=True)  # a list, as an array of text is slow to walk
        return np.array([fine and folders.strays(name) for name, fine in images], bool)
    if not reported:  # the reader looks for links itself
        return np.zeros(len(raw), dtype=bool)
    return np.array(
        [row in reported for row in zip(raw["file"].tolist(), raw["row"].tolist(), strict=True)], dtype=bool
    )


def _check_repeats(
    raw: pd.DataFrame, config: SiteConfig, first: np.ndarray, again: np.ndarray, note: Callable[..., list[Problem]]
) -> list[Problem]:
    """The problems of rows of an image that an earlier row has, `first`: they agree with it, or contradict it."""

    def where(place: int) -> str:
        return f"{raw['file'].iat[place]}:{raw['row'].iat[place]}"

    def duplicate(place: int) -> str:
        return f"duplicate of the image at {where(first[place])}"

    def differ(place: int) -> str:
        other = first[place] if first[place] != place else np.flatnonzero(first == place)[-1]
        pair = raw.iloc[[other, place]][[*DESCRIBING, *config.diseases]]
        names = ", ".join(str(name) for name in pair if pair[name].nunique(dropna=False) > 1)
        return f"differs from the row of this image at {where(other)} in {names}"

    differing = again & ~find_agreeing(raw, config.diseases)
    advice = f"keep one row per image{offer_dropping('duplicate')}"
    problems = note(again & ~differing, "duplicate image", duplicate, advice)
    if config.rows.contradictory == "drop":  # no row of such an image is better than another
        differing = np.isin(first, first[differing])
    advice = f"all rows of an image must agree: correct them{offer_dropping('contradictory')}"
    return problems + note(differing, "contradictory rows", differ, advice)


def _check_names(patients: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Which rows name a patient, and which by a number that was rounded, both bool `[n]`."""
    names = patients.dropna().drop_duplicates().astype("str")
    nobody, rounded = names.str.casefold().isin(_NOBODY), names.str.fullmatch(_ROUNDED)
    known = patients.notna() & ~patients.isin(names[nobody])
    return known.to_numpy(dtype=bool), patients.isin(names[rounded]).to_numpy(dtype=bool)


def _find_first(names: pd.Series) -> np.ndarray:
    """For each row the place of the first row with the same name, int `[n]`."""
    codes, _ = pd.factorize(names, use_na_sentinel=False)
    _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
    return first[of_row]
