"""What a made hospital consists of: films whose truth is planted, folders, tables, and what a user does with them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

from chestfed.leaves.samples.tables import WORDS, write_rows

DISEASES = ("cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion")
EN = WORDS["en"]
NAMES = [EN[disease] for disease in DISEASES]
Row = dict[str, Any]
#: What a table says of a film, unless the shape says otherwise.
ROLES = ("view", "split", "sex", "age")


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
    findings: dict[str, int | None]

    @property
    def file(self) -> str:
        return f"{self.name}.png"


def make_films(number: int = 36, *, blank: bool = False, doubt: bool = True, lateral: bool = True) -> list[Film]:
    """Two films of each patient in one study; a sixth of them laterals."""
    draw = random.Random(0)
    states = [1, 1, 0, 0, 0, *([-1] if doubt else []), *([None] if blank else [])]
    made = []
    for n in range(number):
        patient = n // 2
        if n % 2 == 0:
            sex, age, split = draw.choice("FM"), draw.randint(20, 89), "test" if patient % 4 == 3 else "train"
        view = "lateral" if lateral and n % 6 == 5 else draw.choice(["pa", "ap"])
        findings = {disease: draw.choice(states) for disease in DISEASES}
        name = f"f{draw.randrange(10**6):06d}{n:03d}"
        made.append(Film(name, f"P{1000 + patient}", f"S{5000 + patient}", view, split, sex, age, findings))
    return made


@dataclass
class Case:
    """A hospital that was written to a folder, and what its user does to describe it.

    Attributes
    ----------
    first
        Options of the first call, besides the policies (`--uncertain missing --blank missing`, `--no-split`).
    then
        Options that answer what the first call lists.
    book
        What a person enters in the code book: value -> meaning.
    repair
        What is done to the files where the command says that they have to be fixed.
    edit
        What is changed in the YAML, by documented keys.
    truth
        Image, relative to the root -> column of the site's table -> value.
    """

    truth: dict[str, dict[str, Any]]
    labels: str | None = "labels.csv"
    images: str = "images"
    first: Sequence[str] = ()
    then: Sequence[str] = ()
    book: Mapping[str, str] = field(default_factory=dict)
    repair: Callable[[], object] | None = None
    edit: Callable[[dict[str, Any]], None] | None = None


Where = Callable[[Film], str]


def locate(film: Film) -> str:
    return f"images/{film.file}"


def tell_truth(
    made: Iterable[Film],
    where: Where = locate,
    roles: Sequence[str] = ROLES,
    diseases: Sequence[str] = DISEASES,
    **fixed: Callable[[Film], Any],
) -> dict[str, dict[str, Any]]:
    """What the table must say: uncertain and blank labels are missing; laterals are left out if views are told."""
    expected = {}
    for film in made:
        if "view" in roles and film.view == "lateral":
            continue
        known = {what: getattr(film, what) if what in roles else None for what in ("view", "sex", "age")}
        known["view"] = known["view"] or "unknown"
        known["split"] = film.split if "split" in roles else "train"
        findings = {disease: film.findings[disease] if disease in diseases else None for disease in DISEASES}
        findings = {disease: value if value in (0, 1) else None for disease, value in findings.items()}
        expected[where(film)] = {"patient": film.patient, **known, **findings, **{k: f(film) for k, f in fixed.items()}}
    return expected


def row(film: Film, words: Mapping[str, str] = EN, roles: Sequence[str] = ROLES, file: str | None = None) -> Row:
    """The cells of a film that are not labels."""
    cells: Row = {words["image"]: file or film.file, words["patient"]: film.patient}
    return cells | {words[what]: film.age if what == "age" else words[getattr(film, what)] for what in roles}


def wide(
    made: Iterable[Film],
    words: Mapping[str, str] = EN,
    codes: Mapping[int | None, Any] | None = None,
    roles: Sequence[str] = ROLES,
    file: Where = lambda film: film.file,
) -> list[Row]:
    """A column for each disease; `codes` are the cells for 1, 0, -1 and None."""
    codes = codes or {1: words["yes"], 0: words["no"], -1: words["maybe"], None: None}
    return [
        {
            **row(film, words, roles, file(film)),
            **{words[d]: codes[film.findings[d]] for d in DISEASES},
        }
        for film in made
    ]


def list_terms(film: Film, words: Mapping[str, str]) -> list[str]:
    """The findings in words; a normal film, if all five are absent."""
    forms = {1: "{}", 0: words["deny"], -1: words["doubt"]}
    if set(film.findings.values()) == {0}:
        return [words["normal"]]
    return [
        forms[findings].format(words[disease].lower())
        for disease, findings in film.findings.items()
        if findings is not None
    ]


def list_meanings(words: Mapping[str, str]) -> dict[str, str]:
    """What a radiologist enters for the terms of `terms_of`."""
    states = {"{}": "{}", words["deny"]: "{} absent", words["doubt"]: "{} uncertain"}
    meanings = {
        form.format(words[disease].lower()).lower(): meaning.format(disease)
        for disease in DISEASES
        for form, meaning in states.items()
    }
    return {**meanings, words["normal"].lower(): "normal", "(empty)": "missing"}


def list_options(words: Mapping[str, str], roles: Sequence[str] = ROLES, *, labels: bool = True) -> list[str]:
    """The options for a table in a language that the lexicon does not know."""
    options = [f"--column={what}={words[what]}" for what in ("image", "patient", *roles)]
    return options + [f"--label={disease}={words[disease]}" for disease in DISEASES if labels]


def list_words(words: Mapping[str, str]) -> dict[str, str]:
    """What a person enters for the words of a language."""
    same = {words[word].lower(): word for word in ("pa", "ap", "lateral", "train", "test", "F", "M")}
    labels = {"yes": "positive", "no": "negative", "maybe": "uncertain"}
    return same | {words[word].lower(): meaning for word, meaning in labels.items()}


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

    def pictures(self, made: Iterable[Film], where: Where = locate) -> None:
        self.png(*map(where, made))

    def save(self, rows: Sequence[Row], file: str = "labels.csv", **how: str) -> None:
        write_rows(self.folder / file, rows, **how)

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

    def dicoms(self, made: Sequence[Film], **more: Callable[[int, Film], str]) -> None:
        """The films as DICOM files, with what their headers say."""
        for n, film in enumerate(made):
            about = {"PatientID": film.patient, "PatientSex": film.sex, "PatientAge": f"{film.age:03d}Y"}
            about["ViewPosition"] = {"pa": "PA", "ap": "AP", "lateral": "LL"}[film.view]
            about["StudyInstanceUID"] = f"1.2.3.{film.study[1:]}"
            self.dicom(f"images/{film.name}.dcm", n, **about, **{name: value(n, film) for name, value in more.items()})


Shape = Callable[[Place], Case]
#: Name -> (what is odd about it, how it is made).
SHAPES: dict[str, tuple[str, Shape]] = {}
#: The same for shapes that were written apart, without regard to how the code treats them.
FURTHER: dict[str, tuple[str, Shape]] = {}


def shape(about: str, name: str = "", into: dict[str, tuple[str, Shape]] = SHAPES) -> Callable[[Shape], Shape]:
    """Registers a hospital under the name of its function."""

    def keep(make: Shape) -> Shape:
        assert (name or make.__name__) not in {**SHAPES, **FURTHER}
        into[name or make.__name__] = about, make
        return make

    return keep


def register(
    about: str,
    name: str,
    change: Callable[[Row, Film, int], Row | None] = lambda cells, film, n: None,
    *,
    films_with: Mapping[str, bool] | None = None,
    codes: Mapping[int | None, Any] | None = None,
    roles: Sequence[str] = ROLES,
    file: str = "labels.csv",
    where: Where = locate,
    cell: Where = lambda film: film.file,
    truth: Mapping[str, Any] | None = None,
    how: Mapping[str, str] | None = None,
    repaired: Mapping[str, Any] | None = None,
    into: dict[str, tuple[str, Shape]] = SHAPES,
    **case: Any,
) -> None:
    """Registers a wide table whose rows are changed: `change` alters the cells, or returns other ones.

    `repaired` are arguments of a second call, that writes what the user has fixed.
    """

    def write(place: Place, change: Any = change, codes: Any = codes, file: str = file, cell: Any = cell) -> list[Film]:
        made = make_films(**({"doubt": False} if films_with is None else films_with))
        rows = []
        for n, (cells, film) in enumerate(zip(wide(made, codes=codes, roles=roles, file=cell), made, strict=True)):
            other = change(cells, film, n)
            rows.append(cells if other is None else other)
        place.save(rows, file, **(how or {}))
        return made

    def make(place: Place) -> Case:
        made = write(place)
        place.pictures(made, where)
        after = None if repaired is None else lambda: write(place, **repaired)
        return Case(tell_truth(made, where, roles, **(truth or {})), file, repair=after, **case)

    shape(about, name, into)(make)


def rename_labels(rename: Callable[[str], str], drop: Sequence[str] = ()) -> Callable[[Row, Film, int], Row]:
    """A change of the names of the label columns."""
    return lambda cells, film, n: {rename(k) if k in NAMES else k: v for k, v in cells.items() if k not in drop}


def add_cells(**cells: Any) -> Any:
    """A change that adds columns: values, or functions of the film and its number."""
    return lambda old, film, n: {**old, **{k: v(film, n) if callable(v) else v for k, v in cells.items()}}
