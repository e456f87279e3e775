"""Images and bytes of releases that cannot be looked at before access to them is granted: `published.csv`."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chestfed.data.sites.config import SiteConfig


class Published(NamedTuple):
    """A release as its owner states it: all its images, bytes to download, where, and another form of it."""

    images: int
    size: int
    page: str
    note: str


def find_published(config: SiteConfig) -> Published | None:
    """The release that a site's YAML reads, by the site's name; None if it is not in the table."""
    return None if config.synthetic else load_published().get(config.site)


@cache
def load_published() -> dict[str, Published]:
    """Name of the site -> its release."""
    import pandas as pd

    with resources.files(__package__).joinpath("published.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file, comment="#", index_col="site", keep_default_na=False)
    return {
        str(site): Published(int(row["images"]), int(row["gigabytes"]) * 10**9, row["page"], row["note"])
        for site, row in frame.iterrows()
    }
