"""What a made hospital consists of: films whose truth is planted, folders, tables, and what a user does with them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

DISEASES = ("cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion")
WORDS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
Row = dict[str, Any]
#: What a table says of a film, unless the shape says otherwise.
TOLD = ("view", "split", "sex", "age")


@dataclass
class Film:
    """One film; `said` maps each disease to 1, 0, -1 (in doubt) or None (nothing is said)."""

    name: str
    patient: str
    study: str
    view: str
    split: str
    sex: str
    age: int
    said: dict[str, int | None]

    @property
    def file(self) -> str:
        return f"{self.name}.png"


def films(
    number: int = 36, *, seed: int = 0, blank: bool = False, doubt: bool = True, lateral: bool = True
) -> list[Film]:
    """Two films of each patient in one study; a sixth of them laterals."""
    draw = random.Random(0)
    states = [1, 1, 0, 0, 0, *([-1] if doubt else []), *([None] if blank else [])]
    made = []
    for n in range(number):
        patient = n // 2
        if n % 2 == 0:
            sex, age, split = draw.choice("FM"), draw.randint(20, 89), "test" if patient % 4 == 3 else "train"
        view = "lateral" if lateral and n % 6 == 5 else draw.choice(["pa", "ap"])
        said = {disease: draw.choice(states) for disease in DISEASES}
        name = f"f{draw.randrange(10**6):06d}{n:03d}"
        made.append(Film(name, f"P{1000 + patient}", f"S{5000 + patient}", view, split, sex, age, said))
    return made


@dataclass
class Case:
    """A hospital that was written to a folder, and what its user does to describe it.

    Attributes
    ----------
    flags
        Given from the second call on, where the first one stops.
    meanings
        What a radiologist writes into the mapping table for terms.
    words
        The same for label values and words of views, splits, sexes and ages, for which the first call stops.
    repair
        What is done to the files where the documentation says that they have to be fixed.
    edit
        What is changed in the YAML, by documented keys.
    truth
        Image, relative to the root -> column of the site's table -> value.
    """

    labels: str | None = "labels.csv"
    images: str = "images"
    flags: Sequence[str] = ()
    meanings: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    beforehand: bool = False
    repair: Callable[[], None] | None = None
    edit: Callable[[dict[str, Any]], None] | None = None
    truth: dict[str, dict[str, Any]] = field(default_factory=dict)


def truth(
    made: Iterable[Film],
    place: Callable[[Film], str] = lambda film: f"images/{film.file}",
    told: Sequence[str] = TOLD,
    diseases: Sequence[str] = DISEASES,
    labels: Callable[[Film, str], int | None] = lambda film, disease: film.said[disease],
) -> dict[str, dict[str, Any]]:
    """What the table must say: uncertain and blank labels are missing; laterals are left out if views are told."""
    expected = {}
    for film in made:
        if "view" in told and film.view == "lateral":
            continue
        known = {what: getattr(film, what) if what in told else None for what in ("view", "sex", "age")}
        known["view"] = known["view"] or "unknown"
        known["split"] = film.split if "split" in told else "train"
        said = {disease: labels(film, disease) if disease in diseases else None for disease in DISEASES}
        of = {disease: value if value in (0, 1) else None for disease, value in said.items()}
        expected[place(film)] = {"patient": film.patient, **known, **of}
    return expected


def row(film: Film, words: Mapping[str, str], told: Sequence[str] = TOLD, file: str | None = None) -> Row:
    """The cells of a film that are not labels."""
    cells: Row = {words["image"]: file or film.file, words["patient"]: film.patient}
    for what in told:
        value = getattr(film, what)
        cells[words[what]] = value if what == "age" else words[value]
    return cells


def wide(
    made: Iterable[Film],
    words: Mapping[str, str] = WORDS["en"],
    codes: Mapping[int | None, Any] | None = None,
    told: Sequence[str] = TOLD,
    file: Callable[[Film], str] = lambda film: film.file,
) -> list[Row]:
    """A column for each disease; `codes` are the cells for 1, 0, -1 and None."""
    codes = codes or {1: words["yes"], 0: words["no"], -1: words["maybe"], None: None}
    return [
        {**row(film, words, told, file(film)), **{words[disease]: codes[film.said[disease]] for disease in DISEASES}}
        for film in made
    ]


def terms_of(film: Film, words: Mapping[str, str]) -> list[str]:
    """The findings in words; nothing present, denied or in doubt is a normal film, if all five are absent."""
    forms = {1: "{}", 0: words["deny"], -1: words["doubt"]}
    if set(film.said.values()) == {0}:
        return [words["normal"]]
    return [forms[said].format(words[disease].lower()) for disease, said in film.said.items() if said is not None]


def meanings_of(words: Mapping[str, str]) -> dict[str, str]:
    """What a radiologist writes behind the terms of `terms_of`."""
    states = {"{}": "{}", words["deny"]: "{} absent", words["doubt"]: "{} uncertain"}
    told = {
        form.format(words[disease].lower()).lower(): meaning.format(disease)
        for disease in DISEASES
        for form, meaning in states.items()
    }
    return {**told, words["normal"].lower(): "normal"}


def flags_for(words: Mapping[str, str], told: Sequence[str] = TOLD, *, values: bool = True) -> list[str]:
    """The flags for a table in a language that the lexicon does not know."""
    flags = [f"--{what}-column={words[what]}" for what in ("image", "patient", *told)]
    if values:
        flags += [f"--label={disease}={words[disease]}" for disease in DISEASES]
        flags += [f"--value={words[said]}={what}" for said, what in (("yes", "positive"), ("no", "negative"))]
        flags.append(f"--value={words['maybe']}=uncertain")
    of = {"view": ("pa", "ap", "lateral"), "split": ("train", "test"), "sex": ("F", "M")}
    return flags + [f"--word={what}:{words[mean]}={mean}" for what in told if what in of for mean in of[what]]


def text_of(rows: Sequence[Row], delimiter: str = ",", newline: str = "\n") -> str:
    """The rows as csv."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter, lineterminator=newline)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


class Place:
    """The folder of one hospital."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        picture = io.BytesIO()
        Image.new("L", (4, 4), 90).save(picture, "PNG")
        self._png = picture.getvalue()

    def png(self, *names: str) -> None:
        """Pictures of few pixels, whatever their ending."""
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._png)

    def pictures(self, made: Iterable[Film], place: Callable[[Film], str] = lambda film: f"images/{film.file}") -> None:
        self.png(*map(place, made))

    def text(self, file: str, text: str, encoding: str = "utf-8") -> None:
        data = text.encode(encoding)
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if file.endswith(".gz") else data)

    def save(
        self, rows: Sequence[Row], file: str = "labels.csv", delimiter: str = ",", encoding: str = "utf-8"
    ) -> None:
        """The rows as the ending says."""
        if file.endswith(".xlsx"):
            self.sheets(file, {"Sheet1": [list(rows[0]), *(list(cells.values()) for cells in rows)]})
        elif file.endswith(".parquet"):
            names = list(rows[0])
            pq.write_table(pa.table({name: [cells[name] for cells in rows] for name in names}), self.folder / file)
        elif file.endswith(".json"):
            self.text(file, json.dumps(rows, ensure_ascii=False))
        else:
            self.text(file, text_of(rows, "\t" if ".tsv" in file else delimiter), encoding)

    def sheets(self, file: str, sheets: Mapping[str, Sequence[Sequence[Any]]], merged: Sequence[str] = ()) -> None:
        book = openpyxl.Workbook()
        book.remove(book.worksheets[0])
        for name, cells in sheets.items():
            sheet = book.create_sheet(name)
            for line in cells:
                sheet.append(list(line))
            for area in merged:
                sheet.merge_cells(area)
        book.save(self.folder / file)

    def dicom(self, file: str, number: int, **elements: Any) -> None:
        """A DICOM image of two by two pixels."""
        dataset = Dataset()
        dataset.file_meta = FileMetaDataset()
        dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        dataset.SOPClassUID = DigitalXRayImageStorageForPresentation
        dataset.SOPInstanceUID = f"1.2.826.0.1.3680043.10.{number + 1}"
        dataset.Rows = dataset.Columns = 2
        dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
        dataset.PixelData = bytes(8)
        for name, value in elements.items():
            setattr(dataset, name, value)
        dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
        dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        dataset.save_as(path, enforce_file_format=True)


Shape = Callable[[Place], Case]
#: Name -> (what is odd about it, whether the first review of this command had one like it, how it is made).
SHAPES: dict[str, tuple[str, bool, Shape]] = {}


def shape(about: str, *, known: bool = False) -> Callable[[Shape], Shape]:
    """Registers a hospital under the name of its function."""

    def keep(make: Shape) -> Shape:
        SHAPES[make.__name__] = (about, known, make)
        return make

    return keep
