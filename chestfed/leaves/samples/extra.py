"""A further synthetic hospital, as somebody would bring it: a folder of pictures and a spreadsheet of its own.

Unlike the five, it follows no known distribution: names of files, columns, words and codes are those of a form in
`extra.yaml`. `docs/tutorial_sixth_hospital.md` starts from one of these.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import yaml
from filelock import FileLock
from PIL import Image
from pydantic import TypeAdapter

from chestfed.core.diseases import DISEASES, nearest_hint
from chestfed.core.disk import writing_to
from chestfed.core.errors import ChestfedError, nearest
from chestfed.core.randomness import numpy_stream
from chestfed.leaves.samples.drawing.acquisition import Look
from chestfed.leaves.samples.drawing.phantom import draw_film
from chestfed.leaves.samples.hospitals import SIZES, Hospital, draw_hospital_images
from chestfed.leaves.samples.layouts import identifier, save_png, stored_levels, write_dicom
from chestfed.leaves.samples.patients import Film
from chestfed.leaves.samples.tables import Row, write_rows
from chestfed.leaves.samples.writing import create_part_folder, finish, is_written

#: Raised when the same seed gives another hospital than before.
EXTRA_VERSION: Final = 1
#: The further hospital of size `large` has so many times the images: enough test patients for an AUC.
_LARGE: Final = 6
_READERS: Final = 5
_SEEN: Final = 0.85  # share of the findings that the second and third annotator of an image see


@dataclass(frozen=True)
class Shape:
    """One manner of spreadsheet.

    Attributes
    ----------
    layout
        wide: a column per disease. cell, list: one column of all findings. long: a row per finding. readers: a row per
        annotator, with a column per disease. header: no table.
    picture
        Path of an image below the hospital's folder.
    columns, header
        Column of the table, or DICOM element -> field of `_describe_film`, or a text with fields in braces.
    names
        What the five diseases are called.
    words
        The hospital's word for a view, sex, split or state, and the form of a doubt.
    other
        A finding that is none of the five, and the share of the images that have it.
    """

    about: str
    layout: Literal["wide", "cell", "list", "long", "readers", "header"]
    picture: str
    names: tuple[str, ...]
    table: str | None = None
    encoding: str = "utf-8"
    delimiter: str = ","
    columns: Mapping[str, str] = field(default_factory=dict)
    header: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    other: tuple[str, float] = ("", 0.0)


_EXTRA: Final = yaml.safe_load(
    resources.files("chestfed.leaves.samples").joinpath("extra.yaml").read_text(encoding="utf-8")
)
_HOSPITAL: Final = TypeAdapter(Hospital).validate_python(_EXTRA["hospital"])
SHAPES: Final = TypeAdapter(dict[str, Shape]).validate_python(_EXTRA["shapes"])


@dataclass(frozen=True)
class ExtraHospital:
    """Hospital as written: the folder, the folder of the pictures in it, the spreadsheet if there is one, the count."""

    folder: Path
    pictures: Path
    table: Path | None
    images: int


def draw_extra(name: str, shape: str, *, seed: int = 1, size: str = "default") -> dict[str, Film]:
    """The images of the further hospital `name`: path below its folder -> what is in it, and what its table says."""
    times = _LARGE if size == "large" else 1
    hospital = replace(_HOSPITAL, name=name, train=times * _HOSPITAL.train, test=times * _HOSPITAL.test)
    films = draw_hospital_images(hospital, seed, SIZES.get(size, sys.maxsize))
    return {str(_fill(SHAPES[shape].picture, _describe_film(SHAPES[shape], film))): film for film in films}


def write_extra(
    folder: Path,
    name: str,
    shape: str,
    *,
    seed: int = 1,
    size: str = "default",
    progress: Callable[[int, int], None] | None = None,
) -> ExtraHospital:
    """Write the hospital to `folder/synthetic-NAME`; if it is there already, leave it alone.

    Raises `ChestfedError` if shape, size or name are invalid, or the folder holds something else.
    """
    if shape not in SHAPES:
        known = "; ".join(f"{key}: {known.about}" for key, known in SHAPES.items())
        text = f"--extra: unknown shape '{shape}'{nearest_hint([shape], SHAPES)}; choose one of {known}"
        raise ChestfedError(text, kind="unknown shape", suggestion=nearest(shape, SHAPES))
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ChestfedError(
            f"--extra: '{name}' is not a short name such as st-anne (small letters, digits, - and _)",
            kind="not a short name",
        )
    if size not in (sizes := ("default", "tiny", "large")):
        raise ChestfedError(f"unknown size '{size}'; choose one of {', '.join(sizes)}", kind="unknown size")
    root = folder / f"synthetic-{name}"
    stamp = {"synthetic": True, "extra": shape, "version": EXTRA_VERSION, "seed": seed, "size": size}
    films = draw_extra(name, shape, seed=seed, size=size)
    what = f"the extra hospital of shape {shape}, seed {seed}, size {size}"
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".samples.lock"):
            if not is_written(root, stamp, what):
                with create_part_folder(root) as part:
                    _write_files(part, name, SHAPES[shape], films, _HOSPITAL.look, seed, progress)
                    finish(part, root, stamp)
    tops = {path.partition("/")[0] for path in films}
    table = SHAPES[shape].table
    return ExtraHospital(
        root, root / tops.pop() if len(tops) == 1 else root, None if table is None else root / table, len(films)
    )


def _write_files(
    part: Path,
    name: str,
    shape: Shape,
    films: Mapping[str, Film],
    look: Look,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    rows: list[Row] = []
    for done, (place, film) in enumerate(films.items(), start=1):
        rng = numpy_stream(seed, "samples", name, "extra", film.patient.number, film.study, film.number)
        path, gray = part / place, draw_film(film, look, seed, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".png":
            save_png(Image.fromarray(stored_levels(gray, 255).astype(np.uint8)), path)
        else:
            fields = _describe_film(shape, film) | {"findings": "\\".join(_list_terms(shape, film))}
            fields["findings"] = fields["findings"] or shape.words.get("normal")
            write_dicom(path, gray, film, rng, {key: str(_fill(cell, fields)) for key, cell in shape.header.items()})
        rows += _make_rows(shape, film, rng)
        if progress is not None:
            progress(done, len(films))
    if shape.table is not None:
        write_rows(part / shape.table, rows, delimiter=shape.delimiter, encoding=shape.encoding)


def _describe_film(shape: Shape, film: Film) -> dict[str, Any]:
    """The fields of a film, in the hospital's words."""
    person = film.patient
    study = str(int(identifier("extra", person.number, film.study, length=10), 16) % 10**8).zfill(8)
    words = {"view": film.view, "sex": "F" if person.female else "M", "split": film.split}
    return {key: shape.words.get(word, word) for key, word in words.items()} | {
        "patient": f"P{person.number:04d}",
        "person": person.number,
        "age": person.age,
        "study": study,
        "uid": f"2.25.{int(study) + 1}",
        "image": f"{study}-{film.number}",
        "number": film.number,
        "half": 1 + person.number % 2,
        "third": person.number % 3,
    }


def _fill(cell: str, fields: Mapping[str, Any]) -> Any:
    return fields[cell] if cell in fields else cell.format(**fields)


def _make_rows(shape: Shape, film: Film, rng: np.random.Generator) -> Iterator[Row]:
    """The rows of the table about a film."""
    fields = _describe_film(shape, film)

    def row(**more: Any) -> dict[str, Any]:
        return {name: _fill(cell, fields | more) for name, cell in shape.columns.items()}

    states = dict(zip(shape.names, (film.labels[disease] for disease in DISEASES), strict=True))
    if shape.layout == "wide":
        words = {1: shape.words["present"], 0: shape.words["absent"], -1: shape.words["uncertain"]}
        other = {shape.other[0]: words[int(rng.random() < shape.other[1])]}
        yield {**row(), **{name: words[state] for name, state in states.items()}, **other, "Bemerkung": None}
    elif shape.layout == "readers":
        for place, reader in enumerate(sorted(rng.choice(_READERS, 3, replace=False) + 1)):
            # The first sees all labels.
            seen = {name: int(state == 1 and (place == 0 or rng.random() < _SEEN)) for name, state in states.items()}
            yield {**row(reader=f"R{reader}"), **seen}
    elif shape.layout == "long":
        terms = [name for name, state in states.items() if state == 1] + (["nodule"] if film.nodule else [])
        for term in terms or [shape.words["normal"]]:
            yield row(findings=term)
    elif shape.table is not None:
        terms = _list_terms(shape, film) + ([shape.other[0]] if rng.random() < shape.other[1] else [])
        terms = terms or [shape.words["normal"]]
        yield row(findings=repr(terms) if shape.layout == "list" else "|".join(terms))


def _list_terms(shape: Shape, film: Film) -> list[str]:
    doubt = shape.words.get("doubt", "possible {}")
    states = zip(shape.names, (film.labels[disease] for disease in DISEASES), strict=True)
    return [doubt.format(name) if state == -1 else name for name, state in states if state != 0]
