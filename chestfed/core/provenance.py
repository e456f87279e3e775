"""Where the images behind a result come from: patients, a program, or both; and the words that say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any


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
        """From a file's keys `data`, or (of an earlier version) `synthetic` alone; None if it says nothing."""
        if about.get("data") in list(cls):
            return cls(about["data"])
        synthetic = about.get("synthetic")
        return cls.of([synthetic]) if isinstance(synthetic, bool) else None

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
        return {Origin.REAL: "", Origin.SYNTHETIC: "SYNTHETIC", Origin.MIXED: "PARTLY SYNTHETIC"}[self]

    @property
    def mark(self) -> str:
        """Begins the title of a table that stands alone."""
        return {
            Origin.REAL: "",
            Origin.SYNTHETIC: "SYNTHETIC hospitals (phantoms, no patients, no clinical meaning): ",
            Origin.MIXED: "PARTLY SYNTHETIC (phantoms among real hospitals, no clinical meaning): ",
        }[self]

    @property
    def short_mark(self) -> str:
        """The same where there is little room, or another table has said it."""
        return f"{self.tag} hospitals: " if self.any_synthetic else ""

    @property
    def alt(self) -> str:
        """Begins the text of a figure."""
        return {Origin.REAL: "", Origin.SYNTHETIC: "Synthetic phantoms. ", Origin.MIXED: "Partly synthetic. "}[self]

    @property
    def sentence(self) -> str:
        """What a reader has to know; empty for real images."""
        return {
            Origin.REAL: "",
            Origin.SYNTHETIC: "SYNTHETIC hospitals: phantoms drawn by a program. No patients, no clinical meaning.",
            Origin.MIXED: "PARTLY SYNTHETIC: some hospitals are phantoms drawn by a program, others have real "
            "patients. No clinical meaning; keep it as you keep other data of patients.",
        }[self]

    @property
    def description(self) -> str:
        """A few words for a list of facts."""
        return {
            Origin.REAL: "real images",
            Origin.SYNTHETIC: "SYNTHETIC hospitals: phantoms, no patients, no clinical meaning",
            Origin.MIXED: "PARTLY SYNTHETIC: phantoms among hospitals with real patients, no clinical meaning",
        }[self]
