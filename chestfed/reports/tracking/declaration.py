"""Records of studies, such as MLflow's, and the catalogue in which they are found: group `chestfed.records`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chestfed.core.plugins import Catalogue, Options
from chestfed.studies.training.reporting import Reporter


@dataclass(frozen=True)
class RecordSpec:
    """Declaration of a record. `make(out, uri)` gives the reporter that records into the output folder, or at `uri`.

    What it sends is `list_parameters` and `list_round` of `chestfed.reports.tracking.content`: nothing that names a
    patient or an image, nor where a site's files are. It raises `ConfigError` if its package is not installed.
    """

    name: str
    make: Callable[[Path, str | None], Reporter]
    options: type[Options] = Options


RECORDS: Final[Catalogue[RecordSpec]] = Catalogue(
    "record", "chestfed.records", RecordSpec, packages=("chestfed.reports.tracking",)
)
