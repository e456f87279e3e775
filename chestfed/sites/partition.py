"""Cuts by patient: no patient is on both sides, and rare positives are spread over the parts.

A cut depends on the seed, the names given and the patients; the order of rows does not matter.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from chestfed.diseases import DISEASES
from chestfed.errors import ConfigError
from chestfed.randomness import numpy_stream
from chestfed.sites.table import SiteTable


def split_patients(frame: pd.DataFrame, fraction: float, seed: int, *name: str | int) -> np.ndarray:
    """Which rows go to the smaller side, bool `[n]`: those of about `fraction` of the patients."""
    return _deal(frame, np.array([1 - fraction, fraction]), seed, *name) == 1


def cut_into_clients(table: SiteTable, clients: int, seed: int) -> list[SiteTable]:
    """The table's patients dealt into `clients` parts of about equal size; rows keep their order.

    Raises
    ------
    ConfigError
        If there are fewer patients than clients.
    """
    patients = table.frame["patient"].nunique()
    if patients < clients:
        raise ConfigError(f"site '{table.name}' has {patients} patients here: not enough for {clients} clients")
    parts = _deal(table.frame, np.full(clients, 1 / clients), seed, table.name, "clients")
    return [table.with_frame(table.frame[parts == part].reset_index(drop=True)) for part in range(clients)]


def hold_out(table: SiteTable, fraction: float, seed: int) -> tuple[SiteTable, SiteTable]:
    """Training rows, and a test split of about `fraction` of the patients, whose rows are not repeated.

    Raises
    ------
    ConfigError
        If a side would be empty.
    """
    held = split_patients(table.frame, fraction, seed, table.name, "hold out")
    if held.all() or not held.any():
        patients = table.frame["patient"].nunique()
        raise ConfigError(
            f"site '{table.name}' has {patients} patients here: too few to hold out {fraction:g} of them"
        )
    test = table.frame[held].reset_index(drop=True)
    test["split"] = pd.Categorical(["test"] * len(test), categories=table.frame["split"].cat.categories)
    test["repeats"] = np.ones(len(test), dtype=np.int64)
    return table.with_frame(table.frame[~held].reset_index(drop=True)), table.with_frame(test)


def _deal(frame: pd.DataFrame, shares: np.ndarray, seed: int, *name: str | int) -> np.ndarray:
    """The part of each row, int `[n]`. Patients are dealt greedily, those with the rarest positive first.

    Within the group of patients whose rarest disease is the same, the next one goes to the part that has the
    least of that group for its share (ties: the least of all patients, then a drawn order).
    """
    patients, of_row = np.unique(frame["patient"].to_numpy(dtype=str), return_inverse=True)
    positives = np.zeros((len(patients), len(DISEASES)), dtype=np.int64)
    for place, disease in enumerate(DISEASES):
        np.add.at(positives[:, place], of_row[(frame[disease] == 1).to_numpy()], 1)
    carriers = (positives > 0).sum(axis=0)
    rarity = np.argsort(carriers, kind="stable")
    has = positives[:, rarity] > 0
    group = np.where(has.any(axis=1), has.argmax(axis=1), len(DISEASES))
    generator = numpy_stream(seed, *name, "patients")
    order = np.lexsort((generator.permutation(len(patients)), group))
    tie = generator.permutation(len(shares))
    part = np.zeros(len(patients), dtype=np.int64)
    dealt = np.zeros((len(DISEASES) + 1, len(shares)))
    for patient in order:
        counts, total = dealt[group[patient]], dealt.sum(axis=0)
        chosen = np.lexsort((tie, (total + 1) / shares, (counts + 1) / shares))[0]
        part[patient] = chosen
        counts[chosen] += 1
    return part[of_row]
