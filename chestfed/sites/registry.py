"""The readers of site formats: what declares one, and the catalogue of all of them.

A reader is built in, offered by an installed package in the entry point group `chestfed.readers`, or named as
`package.module:NAME`. A package is imported only when a site's YAML names its reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chestfed.core.plugins import Catalogue, Options

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SiteReader:
    """Declares a reader: one object at the top level of its module.

    Attributes
    ----------
    name
        As in `reader: NAME` of a site's YAML.
    read
        `read(source, options) -> rows`, see `docs/own_reader.md`. `source` is a `Source`.
    options
        The model of the keys beside `name` in `reader: {name: NAME, ...}`; no other key is accepted.
    roles
        The keys that `label_files` may have; None accepts any.
    """

    name: str
    read: Callable[[Any, Any], pd.DataFrame]
    options: type[Options] = Options
    roles: tuple[str, ...] | None = None


#: The modules of these packages declare the built-in readers.
READERS: Final = Catalogue(
    "reader",
    "chestfed.readers",
    SiteReader,
    packages=("chestfed.sites.releases", "chestfed.sites.spreadsheet"),
)
