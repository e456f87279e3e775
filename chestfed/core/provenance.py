"""Where the images behind a result come from: patients, a program, or both; and the words that say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Self


class Origin(StrEnum):
    """The origin; its value stands in the column `data` of tables and in tags.

    Synthetic hospitals among others make every number meaningless for patients; one real hospital makes every file one
    that is about patients. Where both are true, both must be stated.
    """

    description: str  #: a few words for a list of facts
    tag: str  #: a word or two to stand beside a number
    mark: str  #: begins the title of a table that stands alone
    alt: str  #: begins the text of a figure
    sentence: str  #: what a reader has to know; empty for real images

    def __new__(
        cls, value: str, description: str = "", tag: str = "", mark: str = "", alt: str = "", sentence: str = ""
    ) -> Self:
        origin = str.__new__(cls, value)
        origin._value_, origin.description, origin.tag = value, description, tag
        origin.mark, origin.alt, origin.sentence = mark, alt, sentence
        return origin

    REAL = "real", "real images"
    SYNTHETIC = (
        "synthetic",
        "SYNTHETIC hospitals: no patients, no clinical meaning",
        "SYNTHETIC",
        "SYNTHETIC hospitals (no patients, no clinical meaning): ",
        "Synthetic radiographs. ",
        "SYNTHETIC hospitals: radiographs drawn by a program. No patients, no clinical meaning.",
    )
    MIXED = (
        "mixed",
        "PARTLY SYNTHETIC: synthetic hospitals among hospitals with real patients, no clinical meaning",
        "PARTLY SYNTHETIC",
        "PARTLY SYNTHETIC (synthetic among real hospitals, no clinical meaning): ",
        "Partly synthetic. ",
        "PARTLY SYNTHETIC: some hospitals are drawn by a program, others have real patients. No clinical "
        "meaning; protect it like other patient data.",
    )

    @classmethod
    def of(cls, synthetic: Iterable[bool]) -> Origin:
        """Origin of parts, each synthetic or not; of none it is real, which is the careful answer."""
        return cls.together(cls.SYNTHETIC if part else cls.REAL for part in synthetic)

    @classmethod
    def together(cls, origins: Iterable[Origin]) -> Origin:
        """Origin of results side by side."""
        kinds = set(origins)
        return kinds.pop() if len(kinds) == 1 else cls.MIXED if kinds else cls.REAL

    @classmethod
    def read(cls, about: Mapping[Any, Any]) -> Origin | None:
        """From a file's key `data`; None if it says nothing."""
        return next((origin for origin in cls if origin == about.get("data")), None)

    def keys(self) -> dict[str, str | bool]:
        """Keys in files: `synthetic`, whether any part is, and `data`."""
        return {"synthetic": self.any_synthetic, "data": str(self)}

    def tags(self) -> dict[str, str]:
        """Tags in MLflow."""
        return {"synthetic": str(self.any_synthetic).lower(), "data": str(self)}

    @property
    def any_synthetic(self) -> bool:
        """Whether synthetic images are among them."""
        return self is not Origin.REAL

    @property
    def prefix(self) -> str:
        """Begins the names of folders and models."""
        return f"{self}-" if self.any_synthetic else ""

    @property
    def short_mark(self) -> str:
        """`mark` in short, for small tables or where another table has it in full."""
        return f"{self.tag} hospitals: " if self.any_synthetic else ""
