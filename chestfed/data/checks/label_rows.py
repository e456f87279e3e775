"""Single rows to read against the pictures: the cells of the label file, what was found in them, and the label.

Everything here names images and quotes cells of the hospital, so it stays where the labels are.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.diseases import format_title
from chestfed.core.errors import ChestfedError, SiteError
from chestfed.core.pseudonyms import key_for
from chestfed.core.randomness import numpy_stream
from chestfed.data.images.decode import decode
from chestfed.data.images.preprocess import Preprocess
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import FILE, ROW
from chestfed.data.sites.opening import Survey, survey_site
from chestfed.data.sites.reader import BLANK, NEGATIVE, POSITIVE, UNCERTAIN, UNLABELLED
from chestfed.data.sites.tables.image_paths import template_columns
from chestfed.data.sites.tables.reader import find_files
from chestfed.data.sites.tables.rows import match_reader, read_rows

_FINDINGS: Final = {
    int(POSITIVE): "present",
    int(NEGATIVE): "absent",
    int(UNCERTAIN): "uncertain",
    int(BLANK): "not mentioned",
    int(UNLABELLED): "not labeled",
}
#: Columns of published data sets with findings in words, and with who found them.
_RELEASE_CELLS: Final = ("Finding Labels", "Labels", "LabelsLocalizationsBySentence", "class_name", "rad_id")
_SIDE, _COLUMNS, _TEXT = 220, 5, 84


def label_rows(
    config: SiteConfig, data_root: Path, sample: int, seed: int = 1
) -> tuple[Survey, np.ndarray, pd.DataFrame]:
    """The site, the places of some of its rows, drawn at random, and one row for each: file, row, image, view, split,
    sex, the patient's keyed name as in predictions, the label cells of the file (of all rows of the image), and per
    disease `finding -> label`.

    Raises `SiteError` if the label files have problems, `ChestfedError` if the key of the names can't be used.
    """
    survey = survey_site(config, data_root, keep_going=False)
    if survey.problems:
        raise SiteError(config.site, list(survey.problems))
    frame, raw = survey.table.frame, survey.raw.drop_duplicates("image").set_index("image")
    drawn = numpy_stream(seed, "rows to look at", config.site).permutation(len(frame))[:sample]
    places = np.sort(drawn)
    shown = frame.iloc[places]
    rows = pd.DataFrame({"file": [survey.files[place] for place in places], "row": shown["row"].to_numpy()})
    for name in ("image", "view", "split", "sex"):
        rows[name] = shown[name].astype(object).where(shown[name].notna(), "").to_numpy()
    key = key_for(public=survey.table.phantoms)
    rows["patient"] = key.name_patients(survey.table.name, shown["patient"])
    rows = rows.join(_read_cells(config, data_root, rows))
    for disease in config.diseases:
        findings = [_FINDINGS[int(code)] for code in raw.loc[rows["image"], disease]]
        labels = ["missing" if np.isnan(label) else f"{label:.0f}" for label in shown[disease]]
        rows[format_title(disease)] = [f"{finding} -> {label}" for finding, label in zip(findings, labels, strict=True)]
    return survey, places, rows


def _read_cells(config: SiteConfig, data_root: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """The cells that labels are read from, columns named as in the files; none for labels in DICOM headers."""
    source = Source(config, config.folder(data_root))
    if config.table is not None:
        tables = (
            []
            if "images" in config.label_files
            else [_read_table_cells(source, path) for _, path in find_files(source)]
        )
        cells = pd.concat([table for table in tables if table is not None]) if tables else None
    else:
        cells = pd.concat([_read_release_cells(source, file) for file in dict.fromkeys(rows["file"])])
    if cells is None or cells.empty:
        return pd.DataFrame(index=rows.index)
    keys = pd.MultiIndex.from_frame(rows[["file", "row"]])
    cells = cells[~cells.index.duplicated()].reindex(keys).set_index(rows.index)
    return cells.dropna(axis=1, how="all").fillna("").add_prefix("cell: ")


def _read_release_cells(source: Source, file: str) -> pd.DataFrame:
    """The cells of a published data set's file, by file and row."""
    path = source.root / file
    names = source.header(path) if path.is_file() else []
    shown = [name for names in source.config.labels.values() for name in names]
    shown = [name for name in dict.fromkeys([*shown, *_RELEASE_CELLS]) if name in names]
    images = [name for name in ("image_id",) if name in names]
    cells = source.read(path, [*shown, *images]) if shown else None
    if cells is None:
        return pd.DataFrame()
    return _join_images(cells.assign(file=file), shown, images, ["file", "row"])


def _read_table_cells(source: Source, path: Path) -> pd.DataFrame | None:
    """The cells of a hospital's own table, by file and row."""
    table, labels = source.config.table, source.config.labels
    assert table is not None
    columns = table.columns
    further = (columns.findings, columns.finding, columns.value, columns.reader)
    names = [*(name for columns in labels.values() for name in columns), *filter(None, further)]
    roles = {"image": columns.image, "patient": columns.patient, "study": columns.study}
    images = template_columns(table.images, roles)
    rows = read_rows(source, path, table, [*names, *images])
    if rows is None:
        return None
    read = {*names, *(header for name in names for header in match_reader(name, [*rows.frame.columns]))}
    shown = [name for name in rows.frame.columns if name in read and name not in images]
    return _join_images(rows.frame, shown, images, [FILE, ROW])


def _join_images(cells: pd.DataFrame, shown: list[str], images: list[str], key: list[str]) -> pd.DataFrame:
    """The shown cells by file and row, those of all rows of an image together."""
    if images:
        texts = cells[shown].fillna("").groupby([cells[name] for name in images], dropna=False)
        cells = cells.assign(**{name: texts[name].transform(" / ".join) for name in shown})
    return cells.set_index(key)[shown].rename_axis(["file", "row"])


def contact_sheet(survey: Survey, places: np.ndarray, out: Path) -> int:
    """Write a PNG of these rows' pictures, each above its row and labels; returns how many could not be read.

    Raises `ChestfedError` if the file cannot be written.
    """
    from PIL import Image, ImageDraw

    table = survey.table
    stored, lines = table.stored(), -(-len(places) // _COLUMNS)
    sheet = Image.new("L", (_COLUMNS * _SIDE, max(lines, 1) * (_SIDE + _TEXT)), 255)
    draw, unread = ImageDraw.Draw(sheet), 0
    for number, place in enumerate(places.tolist()):
        left, top = number % _COLUMNS * _SIDE, number // _COLUMNS * (_SIDE + _TEXT)
        row = table.frame.iloc[place]
        try:
            gray = Preprocess().apply(decode(table.root / row["image"], stored[place]))
            sheet.paste(Image.fromarray(gray).resize((_SIDE - 4, _SIDE - 4)), (left, top))
        except (ChestfedError, OSError):
            unread += 1
            draw.text((left + 4, top + 4), "cannot be read", fill=0)
        present = [format_title(disease) for disease in table.diseases if row[disease] == 1]
        absent = [format_title(disease) for disease in table.diseases if row[disease] == 0]
        texts = [f"row {row['row']}, {row['view']}"]
        texts += [f"present: {', '.join(present)}"] if present else []
        texts += [f"absent: {'all' if len(absent) == len(table.diseases) else ', '.join(absent)}"] if absent else []
        texts += [] if present or absent else ["no label"]
        wrapped = "\n".join(line for text in texts for line in textwrap.wrap(text, 34))
        draw.multiline_text((left + 4, top + _SIDE - 2), wrapped, fill=0)
    try:
        sheet.save(out, "PNG")
    except OSError as error:
        raise ChestfedError(f"{out}: cannot be written: {error.strerror}") from None
    return unread
