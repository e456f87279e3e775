"""Pictures and patients that two sites of a study share: found before training, refused or left out.

Pictures are alike if their preprocessed pixels are equal; those of one gray level are not compared. Whoever has such a
picture at two sites is one patient, with all images. Names of patients are compared only where sites are declared to
use the same ones: short numbers agree by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import SiteKey
from chestfed.data.images.cache import CachedImages
from chestfed.data.images.database import digest_pixels, pack_keys, unpack_keys
from chestfed.studies.experiment.data import Overlap
from chestfed.studies.training.data.sites import TRAIN, UNUSED, StudySite

_SHOWN: Final = 5  # pictures of a pair of sites
_COLUMNS: Final = ["site", "place", "line", "test", "patient", "digest", "name"]


@dataclass(frozen=True)
class SiteOverlap:
    """Images and patients that two sites of a study share, and the rows of the study that were left out for it."""

    sites: tuple[str, str]
    pictures: int
    patients: int
    rows_left_out: int = 0


def separate_sites(
    sites: Sequence[StudySite], take: Callable[[StudySite, np.ndarray], CachedImages], rule: Overlap, key: SiteKey
) -> tuple[tuple[StudySite, ...], tuple[SiteOverlap, ...]]:
    """The sites of a study, with rows of patients who are at another site too as unused ones; and what is shared.

    `take(site, rows)` has the images of rows of a site.

    Raises
    ------
    ConfigError
        If two sites share something and it is to be refused, or nothing would be left of a client or of scored rows.
    """
    names = [site.name for site in sites]
    unknown = {name for group in rule.same_patient_ids for name in group} - set(names)
    if unknown:
        text = f"overlap.same_patient_ids: no site '{min(unknown)}' in this study"
        raise ConfigError(text, kind="unknown site", site=min(unknown))
    rows = pd.concat([_list_rows(site, take) for site in sites], ignore_index=True)
    rows["person"] = _people(rows, rule)
    both = rows[rows.groupby("person")["site"].transform("nunique") > 1]
    if both.empty:
        return tuple(sites), ()
    rank = both["site"].map({name: place for place, name in enumerate(names)}) + len(names) * ~both["test"]
    keeper = both["person"].map(both.loc[rank.groupby(both["person"]).idxmin()].set_index("person")["site"])
    dropped = both[both["site"] != keeper]
    shared = tuple(_count_shared(names, both, dropped))
    if rule.found == "refuse":
        raise ConfigError("\n".join(_list_shared(shared, both, key)), kind="shared patients", shared=shared)
    places = {name: part["place"].to_numpy() for name, part in dropped.groupby("site")}
    return tuple(_drop_rows(site, places[site.name]) if site.name in places else site for site in sites), shared


def _drop_rows(site: StudySite, places: np.ndarray) -> StudySite:
    frame = site.table.frame
    role, client, reason = (frame[name].to_numpy(dtype=object, copy=True) for name in ("role", "client", "reason"))
    parts: dict[Any, Any] = dict(frame.groupby(["role", "client"]).indices)
    role[places], client[places], reason[places] = UNUSED, "", "a patient who is at another site too"
    for part, rows in parts.items():
        if part[0] != UNUSED and (role[rows] == UNUSED).all():
            text = f"overlap: all {len(rows):,} images of {site.name} in one part are at another site too"
            raise ConfigError(text, kind="nothing left", site=site.name, images=len(rows))
    return site.with_columns(role=role, client=client, reason=reason)


def _list_rows(site: StudySite, take: Callable[[StudySite, np.ndarray], CachedImages]) -> pd.DataFrame:
    """The readable rows of a site that the study uses."""
    places = np.flatnonzero(site.in_use)
    images, frame = take(site, places), site.table.frame.iloc[places]
    blank = pack_keys([digest_pixels(bytes([level]) * images.size**2) for level in range(256)])
    digests = np.where(np.isin(images.digests.view("S16"), blank.view("S16")), b"", images.digests.view("S16"))
    lines, patients = frame["row"].to_numpy(), frame["patient"].to_numpy(dtype=object)
    test = (frame["role"] != TRAIN).to_numpy()
    columns = (site.name, places, lines, test, patients, digests.astype(object), unpack_keys(images.sources))
    return pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True)))[images.records >= 0]


def _people(rows: pd.DataFrame, rule: Overlap) -> np.ndarray:
    """A number per row: the same for all rows of one person."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    people = rows.groupby(["site", "patient"], sort=False).ngroup().to_numpy()
    links = [np.where(rows["digest"] != b"", pd.factorize(rows["digest"])[0], -1)]
    for names in rule.same_patient_ids:
        links.append(np.where(rows["site"].isin(names), pd.factorize(rows["patient"])[0], -1))
    size, edges = people.max() + 1, []
    for codes in links:
        edges.append((people[codes >= 0], size + codes[codes >= 0]))
        size += codes.max() + 1
    ends = np.concatenate([first for first, _ in edges]), np.concatenate([other for _, other in edges])
    graph = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1])[people]


def _count_shared(sites: Sequence[str], both: pd.DataFrame, dropped: pd.DataFrame) -> Iterator[SiteOverlap]:
    for first, second in combinations(sites, 2):
        here, there = both[both["site"] == first], both[both["site"] == second]
        patients = set(here["person"]) & set(there["person"])
        if patients:
            pictures = (set(here["digest"]) & set(there["digest"])) - {b""}
            lost = dropped[dropped["site"].isin([first, second]) & dropped["person"].isin(patients)]
            yield SiteOverlap(
                (first, second), len(pictures), len(patients), len(lost.drop_duplicates(["site", "place"]))
            )


def _list_shared(shared: Sequence[SiteOverlap], both: pd.DataFrame, key: SiteKey) -> Iterator[str]:
    yield "sites of this study share images or patients: what is learned at one is scored or weighted at the other"
    for pair in shared:
        yield f"  {' and '.join(pair.sites)}: {pair.pictures:,} pictures, {pair.patients:,} patients"
        here, there = (both[both["site"] == site].drop_duplicates("digest") for site in pair.sites)
        same = here[here["digest"] != b""].merge(there, on="digest").head(_SHOWN)
        for name, first, second in zip(same["name_x"], same["line_x"], same["line_y"], strict=True):
            yield f"    picture {key.name('image', name)}: row {first} and row {second} of their label files"
    yield (
        "  -> leave a site out, or its rows; or set overlap.found: drop, which keeps the images that are scored, else "
        "those of the site that comes first"
    )
