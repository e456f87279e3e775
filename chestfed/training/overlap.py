"""Pictures and patients that two sites of a study share: found before training, refused or left out.

Pictures are alike if their preprocessed pixels are equal; those of one gray level are not compared. Whoever has such a
picture at two sites is one patient, with all images. Names of patients are compared only where sites are declared to
use the same ones: short numbers agree by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import SiteKey
from chestfed.experiment.pipeline import Overlap
from chestfed.images.database import digest_pixels, pack_keys, unpack_keys
from chestfed.sites.table import SiteTable

if TYPE_CHECKING:
    from chestfed.training.clients import SiteImages

_SHOWN: Final = 5  # pictures of a pair of sites
_NOTHING: Final = np.zeros(0, np.int64)
_COLUMNS: Final = ["site", "place", "line", "test", "patient", "digest", "name"]


@dataclass(frozen=True)
class Shared:
    """What two sites of a study have in common, and the rows of the study that were left out for it."""

    sites: tuple[str, str]
    pictures: int
    patients: int
    rows_left_out: int = 0


def apart(
    parts: Sequence[tuple[SiteTable, bool]], sites: Mapping[str, SiteImages], wanted: Overlap, key: SiteKey
) -> tuple[dict[SiteTable, SiteTable], tuple[Shared, ...]]:
    """Each part of a study without rows of patients who are at another site too, and what is shared.

    `parts` are tables, each with whether it is scored; the order of `sites` is that of the study.

    Raises
    ------
    ConfigError
        If two sites share something and it is to be refused, or nothing would be left of a part.
    """
    unknown = {name for names in wanted.same_patient_ids for name in names} - set(sites)
    if unknown:
        raise ConfigError(f"overlap.same_patient_ids: no site '{min(unknown)}' in this study")
    unchanged = {table: table for table, _ in parts}
    rows = pd.concat([_rows(table, test, sites) for table, test in parts], ignore_index=True)
    rows["person"] = _people(rows, wanted)
    both = rows[rows.groupby("person")["site"].transform("nunique") > 1]
    if both.empty:
        return unchanged, ()
    order = {name: place for place, name in enumerate(sites)}
    rank = both["site"].map(order) + len(order) * ~both["test"]
    keeper = both["person"].map(both.loc[rank.groupby(both["person"]).idxmin()].set_index("person")["site"])
    dropped = both[both["site"] != keeper]
    shared = tuple(_counted(list(sites), both, dropped))
    if wanted.found == "refuse":
        raise ConfigError("\n".join(_told(shared, both, key)))
    gone = {name: part["place"].to_numpy() for name, part in dropped.groupby("site")}
    return {table: _without(table, sites[table.name], gone.get(table.name, _NOTHING)) for table in unchanged}, shared


def _without(table: SiteTable, site: SiteImages, gone: np.ndarray) -> SiteTable:
    lost = np.isin(site.places(table), gone)
    if lost.all():
        raise ConfigError(f"overlap: all {len(lost):,} images of {table.name} in one part are at another site too")
    return table.with_frame(table.frame[~lost].reset_index(drop=True)) if lost.any() else table


def _rows(table: SiteTable, test: bool, sites: Mapping[str, SiteImages]) -> pd.DataFrame:
    """The readable rows of a part of a site."""
    site = sites[table.name]
    places = site.places(table)
    images = site.images.take(places)
    blank = pack_keys([digest_pixels(bytes([level]) * images.size**2) for level in range(256)])
    digests = np.where(np.isin(images.digests.view("S16"), blank.view("S16")), b"", images.digests.view("S16"))
    lines, patients = table.frame["row"].to_numpy(), table.frame["patient"].to_numpy(dtype=object)
    columns = (table.name, places, lines, test, patients, digests.astype(object), unpack_keys(images.sources))
    return pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True)))[images.records >= 0]


def _people(rows: pd.DataFrame, wanted: Overlap) -> np.ndarray:
    """A number per row: the same for all rows of one person."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    people = rows.groupby(["site", "patient"], sort=False).ngroup().to_numpy()
    links = [np.where(rows["digest"] != b"", pd.factorize(rows["digest"])[0], -1)]
    for names in wanted.same_patient_ids:
        links.append(np.where(rows["site"].isin(names), pd.factorize(rows["patient"])[0], -1))
    size, edges = people.max() + 1, []
    for codes in links:
        edges.append((people[codes >= 0], size + codes[codes >= 0]))
        size += codes.max() + 1
    ends = np.concatenate([one for one, _ in edges]), np.concatenate([other for _, other in edges])
    graph = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1])[people]


def _counted(sites: Sequence[str], both: pd.DataFrame, dropped: pd.DataFrame) -> Iterator[Shared]:
    for one, other in combinations(sites, 2):
        here, there = both[both["site"] == one], both[both["site"] == other]
        patients = set(here["person"]) & set(there["person"])
        if patients:
            pictures = (set(here["digest"]) & set(there["digest"])) - {b""}
            lost = dropped[dropped["site"].isin([one, other]) & dropped["person"].isin(patients)]
            yield Shared((one, other), len(pictures), len(patients), len(lost.drop_duplicates(["site", "place"])))


def _told(shared: Sequence[Shared], both: pd.DataFrame, key: SiteKey) -> Iterator[str]:
    yield "sites of this study share images or patients: what is learned at one is scored or weighted at the other"
    for pair in shared:
        yield f"  {' and '.join(pair.sites)}: {pair.pictures:,} pictures, {pair.patients:,} patients"
        here, there = (both[both["site"] == site].drop_duplicates("digest") for site in pair.sites)
        same = here[here["digest"] != b""].merge(there, on="digest").head(_SHOWN)
        for name, one, other in zip(same["name_x"], same["line_x"], same["line_y"], strict=True):
            yield f"    picture {key.name('image', name)}: row {one} and row {other} of their label files"
    yield (
        "  -> leave a site out, or its rows; or set overlap.found: drop, which keeps the images that are scored, else "
        "those of the site that comes first"
    )
