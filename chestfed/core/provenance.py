"""Where the images behind a result come from: patients, a program, or both; and the words that say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Origin(StrEnum):
    """Its value is what tables and tags say in their column `data`.

    Phantoms among the hospitals make every number meaningless for patients; one real hospital makes every file one
    that is about patients. Where both are true, both must be said.
    """

    REAL = "real"
    SYNTHETIC = "synthetic"
    MIXED = "mixed"

    @classmethod
    def of(cls, synthetic: Iterable[bool]) -> Origin:
        """Of several parts, each synthetic or not; of none it is real, which is the careful answer."""
        kinds = set(synthetic)
        if len(kinds) == 2:
            return cls.MIXED
        return cls.SYNTHETIC if kinds == {True} else cls.REAL

    @classmethod
    def together(cls, origins: Iterable[Origin]) -> Origin:
        """Of results that are put side by side."""
        kinds = set(origins)
        return kinds.pop() if len(kinds) == 1 else cls.MIXED if kinds else cls.REAL

    @classmethod
    def read(cls, about: Mapping[Any, Any]) -> Origin | None:
        """From a file's key `data`; None if it says nothing."""
        return cls(about["data"]) if about.get("data") in list(cls) else None

    def keys(self) -> dict[str, Any]:
        """What files say of it: `synthetic`, whether any part is, and `data`."""
        return {"synthetic": self.any_synthetic, "data": str(self)}

    def tags(self) -> dict[str, str]:
        """The same for MLflow."""
        return {"synthetic": str(self.any_synthetic).lower(), "data": str(self)}

    @property
    def any_synthetic(self) -> bool:
        """Whether phantoms are among the images."""
        return self is not Origin.REAL

    @property
    def prefix(self) -> str:
        """Begins the names of folders and models."""
        return f"{self}-" if self.any_synthetic else ""

    @property
    def tag(self) -> str:
        """A word or two to stand beside a number."""
        return _WORDS[self].tag

    @property
    def mark(self) -> str:
        """Begins the title of a table that stands alone."""
        return _WORDS[self].mark

    @property
    def short_mark(self) -> str:
        """The same where there is little room, or another table has said it."""
        return f"{self.tag} hospitals: " if self.any_synthetic else ""

    @property
    def alt(self) -> str:
        """Begins the text of a figure."""
        return _WORDS[self].alt

    @property
    def sentence(self) -> str:
        """What a reader has to know; empty for real images."""
        return _WORDS[self].sentence

    @property
    def description(self) -> str:
        """A few words for a list of facts."""
        return _WORDS[self].description


class _Words(NamedTuple):
    description: str
    tag: str = ""
    mark: str = ""
    alt: str = ""
    sentence: str = ""


_WORDS = {
    Origin.REAL: _Words("real images"),
    Origin.SYNTHETIC: _Words(
        "SYNTHETIC hospitals: phantoms, no patients, no clinical meaning",
        "SYNTHETIC",
        "SYNTHETIC hospitals (phantoms, no patients, no clinical meaning): ",
        "Synthetic phantoms. ",
        "SYNTHETIC hospitals: phantoms drawn by a program. No patients, no clinical meaning.",
    ),
    Origin.MIXED: _Words(
        "PARTLY SYNTHETIC: phantoms among hospitals with real patients, no clinical meaning",
        "PARTLY SYNTHETIC",
        "PARTLY SYNTHETIC (phantoms among real hospitals, no clinical meaning): ",
        "Partly synthetic. ",
        "PARTLY SYNTHETIC: some hospitals are phantoms drawn by a program, others have real patients. No clinical "
        "meaning; protect it like other patient data.",
    ),
}
