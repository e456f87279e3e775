"""The patients that a study's models are trained on: `trained_patients.parquet` of its run folder.

A drawn split is another as soon as an image, a patient or a label of the site is. The file tells then whether a model
is tested on patients that it was trained on. It names them by keyed hashes with a purpose of their own, which match the
names in no other kind of file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd

from chestfed.core.checkpoint import write_atomically
from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import PUBLISHED, SiteKey, key_for
from chestfed.data.sites.table import SiteTable
from chestfed.learning.models import FeatureOptions, ModelOptions
from chestfed.results.tables.run_folder import TRAINED, RunFolder, find_run
from chestfed.studies.training.data.sites import SCORED_ROLES, TRAIN, StudySite

#: What to do about test patients that were trained on.
ADVICE: Final = (
    "A drawn split (test_fraction, valid_fraction) changes with every image, patient and label of the site. Restore "
    "images, labels and YAML as they were at the training; or write the splits to a file, which keeps them, with "
    "`chestfed site check --fix-splits`, and train again"
)
_COLUMNS: Final = ["site", "client", "patient"]
#: Hexadecimal digits of a name.
_DIGITS: Final = 16


@dataclass(frozen=True)
class TrainedPatients:
    """Keyed names of the patients of a site that a model was trained on."""

    site: str
    key: SiteKey
    names: frozenset[str]

    def find_in(self, table: SiteTable) -> frozenset[str]:
        """Those that have rows in a table of the site."""
        return self.names & {*_name_patients(self.key, self.site, table)}


def write_trained(
    folder: Path, sites: Sequence[StudySite], clients: Sequence[str], model: ModelOptions, fingerprint: str
) -> None:
    """Write the file, unless it is there or no patients are known here.

    Columns: `site`; `client`, its number in the order of addition; `patient`, the keyed name. A network that begins
    with weights of another study has the patients of these too, as of the first client.

    `fingerprint` is that of the study's key.
    """
    key = _find_key(fingerprint)
    if (folder / TRAINED).exists() or key is None or not sites:
        return
    parts = [frame.assign(client=0) for frame in _read_earlier(model) if frame.attrs.get("key") == fingerprint]
    for site in sites:
        for client in site.clients:
            names = _name_patients(key, site.table.cache_name, site.select(TRAIN, client))
            values = {"site": site.table.cache_name, "client": clients.index(client), "patient": names}
            parts.append(pd.DataFrame(values, columns=_COLUMNS))
    frame = pd.concat(parts)[_COLUMNS].drop_duplicates().sort_values(_COLUMNS, ignore_index=True)
    frame.attrs = {"key": fingerprint}
    write_atomically(folder / TRAINED, lambda file: frame.to_parquet(file, index=False, write_page_checksum=True))


def find_trained(run: RunFolder, site: str, k: int | None = None) -> TrainedPatients | str:
    """Patients of a site that the model of K (None: of any K) of a run was trained on; why it is unknown, if it is.

    Raises `ConfigError` if the file cannot be read.
    """
    frame = _read(run)
    if frame is None:
        known = {hospital["site"] for hospital in run.sites["hospitals"]}  # empty: of a federation
        if not run.configuration.get("sites") or (known and site not in known):
            return TrainedPatients(site, PUBLISHED, frozenset())
        return (
            f"its run folder has no {TRAINED}. Releases before 0.3.0 wrote none; the same `chestfed study` command "
            "writes it if the site is unchanged"
        )
    rows = frame[frame["site"] == site]
    if k is not None:
        rows = rows[rows["client"] < k]
    key = _find_key(frame.attrs["key"]) if len(rows) else PUBLISHED
    if key is None:
        return f"its study named them with another key ({frame.attrs['key']}). Set $CHESTFED_KEY_FILE to that key file"
    return TrainedPatients(site, key, frozenset(rows["patient"]))


def refuse_trained(sites: Sequence[StudySite], model: ModelOptions) -> None:
    """Refuse a study whose network begins with weights that were trained on patients that it scores.

    Raises `ConfigError` if so.
    """
    for frame in _read_earlier(model):
        key = _find_key(frame.attrs["key"])
        for site in sites if key is not None else ():
            assert key is not None
            names = frozenset(frame["patient"][frame["site"] == site.table.cache_name])
            scored = site.table.with_frame(site.table.frame[site.table.frame["role"].isin(SCORED_ROLES)])
            trained = TrainedPatients(site.table.cache_name, key, names).find_in(scored)
            if trained:
                count = scored.frame["patient"].nunique()
                text = f"model: its weights are of a study that trained on {len(trained):,} of the {count:,} patients "
                text += f"of {site.name} that are scored here. {ADVICE}; or take other weights"
                raise ConfigError(text, kind="trained patients", site=site.name, trained=len(trained), patients=count)


def _read_earlier(model: ModelOptions) -> Iterator[pd.DataFrame]:
    """The files of the studies whose model files a network begins with."""
    files: list[object] = [model.initial_weights]
    if isinstance(model, FeatureOptions):
        network = model.network
        files.append(network if isinstance(network, str) else network.get("initial_weights"))
    for file in files:
        if isinstance(file, str) and Path(file).is_file():
            run = find_run(file)
            frame = None if run is None else _read(run)
            if frame is not None:
                yield frame


def _read(run: RunFolder) -> pd.DataFrame | None:
    file = run.path / TRAINED
    if not file.is_file():
        return None
    try:
        frame = pd.read_parquet(file, engine="pyarrow", page_checksum_verification=True)
        return frame if isinstance(frame.attrs["key"], str) and [*frame] == _COLUMNS else frame[_COLUMNS]
    except Exception as error:  # a damaged schema gives many kinds
        text = f"{file}: cannot be read: {error}. Remove it and run the same `chestfed study` again, which writes it"
        raise ConfigError(text, kind="cannot be read", file=file) from None


def _find_key(fingerprint: str) -> SiteKey | None:
    """The key with this fingerprint, if it is at hand."""
    key = key_for(public=fingerprint == PUBLISHED.fingerprint)
    return key if key.fingerprint == fingerprint else None


def _name_patients(key: SiteKey, site: str, table: SiteTable) -> list[str]:
    """One name per patient of a table."""
    patients = table.frame["patient"].unique()
    return [key.name("trained patient", site, str(patient))[:_DIGITS] for patient in patients]
