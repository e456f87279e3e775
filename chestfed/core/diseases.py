"""The binary tasks, their order, their names and their titles.

The vocabulary is open: any short name is a disease. The order is that of the label vector everywhere: tables, tensors,
checkpoints and messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from chestfed.core.errors import UnknownNameError, nearest

#: The known names and how they are written in tables and plots: the five, the other nine of ChestX-ray14, and what
#: CheXpert, VinDr-CXR, CXR-LT and the sets about tuberculosis and COVID-19 label besides.
TITLES: Final[dict[str, str]] = {
    re.sub(r"[ -]", "_", name).lower(): name
    for name in (
        "Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion", "Infiltration", "Mass", "Nodule",
        "Pneumonia", "Pneumothorax", "Emphysema", "Fibrosis", "Pleural Thickening", "Hernia",
        "No Finding", "Enlarged Cardiomediastinum", "Lung Opacity", "Lung Lesion", "Pleural Other", "Fracture",
        "Support Devices", "Tuberculosis", "COVID-19", "COPD", "ILD",
    )
}  # fmt: skip

#: The five tasks C0..C4 of the source paper's Tables 2 to 5, in its order: what a site or a study is about by default.
DISEASES: Final[tuple[str, ...]] = tuple(TITLES)[:5]

#: Words beside diseases in tables, terms and policies.
_RESERVED: Final = frozenset((
    "image", "patient", "study", "view", "split", "sex", "age", "row", "file", "inverted", "repeats", "mean", "average",
    "others", "normal", "ignore", "missing", "absent", "uncertain", "k", "added", "data", "run", "seed", "site",
    "title", "error", "synthetic", "part", "images", "patients", "rows", "views", "client", "role", "reason",
))  # fmt: skip
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
#: Titles of other names, as the YAML files that were read in this process give them.
_given_titles: dict[str, str] = {}


def check_name(name: str) -> str:
    """Check that a name is one of a disease, known or not.

    Raises `ValueError` if it is not; the message has the nearest name that is.
    """
    if not _NAME.fullmatch(name):
        plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:40]
        plain = plain if _NAME.fullmatch(plain) else ""
        hint = f"; did you mean '{plain}'?" if plain else ""
        text = "is not the name of a disease: 1 to 40 small letters, digits and underscores, the first a letter"
        raise UnknownNameError(f"'{name[:60]}' {text}{hint}", plain)
    return check_column(name)


def check_column(name: str) -> str:
    """Check that tables have no column or row of this name; raises `ValueError` if they have."""
    if name in _RESERVED or name.endswith("_missing"):
        raise ValueError(
            f"'{name}' cannot be the name of a disease or task, because tables use it: take another, as in my_{name}"
        )
    return name


DiseaseName = Annotated[str, Field(json_schema_extra={"pattern": f"^{_NAME.pattern}$"}), AfterValidator(check_name)]


def check_spelling(name: str, declared: Collection[str] = ()) -> str:
    """Check a name where it may be misspelled: typed into a command or a cell, and nowhere `declared` as a disease.

    Raises `ValueError` if it is none of a disease, or nearly a known one.
    """
    check_name(name)
    if name not in TITLES and name not in declared and (hint := nearest_hint([name], [*TITLES, *declared], 0.8)):
        raise ValueError(f"'{name}' is nearly a known name{hint}")
    return name


def nearest_hint(names: Iterable[str], known: Collection[str], cutoff: float = 0.0) -> str:
    """` (did you mean 'edema'?)` for the first of the names that is nearly one of the known; else nothing."""
    near = nearest(names, known, cutoff)
    return f" (did you mean '{near}'?)" if near else ""


def format_title(disease: str) -> str:
    """A disease as tables write it: its known title, else that of the YAML, else its name in words."""
    if disease in _RESERVED:
        return disease  # the mean, beside the diseases
    return TITLES.get(disease) or _given_titles.get(disease) or disease.replace("_", " ").capitalize()


#: Names of these diseases in other data sets and models.
_ALIASES: Final[dict[str, str]] = {
    "effusion": "pleural_effusion",
    "oedema": "edema",
    "pulmonary_edema": "edema",
    "pulmonary_oedema": "edema",
    "pulmonary_fibrosis": "fibrosis",
}


def recognize_name(text: str) -> str:
    """The name that a text stands for, whatever its case and signs: of `Edema` and `oedema` it is edema."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return _ALIASES.get(plain, plain)


def sort_names(names: Iterable[str]) -> list[str]:
    """The different names, the known ones first and in their order."""
    places = {name: place for place, name in enumerate(TITLES)}
    return sorted(dict.fromkeys(names), key=lambda name: places.get(name, len(places)))


def give_titles(titles: Mapping[str, str]) -> None:
    """Set the titles of names that are not known, for this process. They are shown and never part of a result.

    Raises `ValueError` for a known name, and for a title that another name has.
    """
    for name, title in titles.items():
        if name in TITLES:
            raise ValueError(f"'{name}' is a known name, whose title is {TITLES[name]}: remove it")
        others = TITLES | {other: given for other, given in titles.items() if other != name}
        if title.casefold() in map(str.casefold, others.values()):
            raise ValueError(f"'{title}' is the title of two diseases")
    _given_titles.update(titles)
