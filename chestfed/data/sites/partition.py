"""Splits by patient: no patient is on both sides, and rare positives are spread over the parts.

A split depends on the seed, the names given, all patients and their labels: one image more or less may deal most
patients anew. It does not depend on the order of rows. It may also be given, in a CSV with columns `patient` and
`split`, one row per patient: it names patients, so it stays where the site's labels are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.reader import SPLITS, drop_invisible, group_spellings
from chestfed.data.sites.table import SiteTable

#: A share of patients below this is rounding.
_NO_SHARE: Final = 1e-9
#: Draws of a partition until every client has patients.
_DRAWS: Final = 1000
_ADVICE: Final = "correct the file, one row per patient"


def split_patients(
    frame: pd.DataFrame, diseases: Sequence[str], fraction: float, seed: int, *name: str | int
) -> np.ndarray:
    """Which rows go to the smaller side, bool `[n]`: those of about `fraction` of the patients."""
    return _deal(frame, diseases, np.array([1 - fraction, fraction]), seed, *name) == 1


def assign_splits(
    frame: pd.DataFrame, diseases: Sequence[str], shares: Mapping[str, float], seed: int, name: str
) -> np.ndarray:
    """The split of each row, object `[n]`, with those shares of the training patients moved: split -> share."""
    split, left = np.array(frame["split"], dtype=object), 1.0
    for part, share in shares.items():
        if share > 0:
            train = np.flatnonzero(split == "train")
            split[train[split_patients(frame.iloc[train], diseases, share / left, seed, name, part)]] = part
            left -= share
    return split


def cut_into_clients(table: SiteTable, clients: int, seed: int, cut: str = "alike") -> list[SiteTable]:
    """The table's patients distributed to `clients` parts of about equal size; rows keep their order.

    With `cut` "unlike", patients with a disease are sorted by their rarest one and cut into even runs, so that a part
    has those of some diseases and few of the others; patients without any even out.

    Raises `ConfigError` if there are fewer patients than clients.
    """
    patients = table.frame["patient"].nunique()
    if patients < clients:
        text = f"site '{table.name}' has {patients} patients here: not enough for {clients} clients"
        raise ConfigError(text, kind="too few patients", site=table.name, patients=patients)
    if cut == "unlike":
        parts = _deal_unlike(table.frame, table.diseases, clients, seed, table.name)
    else:
        parts = _deal(table.frame, table.diseases, np.ones(clients), seed, table.name, "clients")
    return [table.with_frame(table.frame[parts == part].reset_index(drop=True)) for part in range(clients)]


def deal_patients(
    table: SiteTable,
    clients: int,
    seed: int,
    dirichlet: float | None,
    shards: int | None,
    quantity: float | None,
    *,
    least: int = 1,
) -> tuple[np.ndarray, int]:
    """The client of each row, int `[n]`, whole patients, and how many draws were discarded.

    Exactly one of the three says how clients differ.

    A patient's class is the rarest of its diseases, or none of them. dirichlet: the patients of each class are divided
    in the shares of a draw from Dirichlet(alpha); shards: patients sorted by class are cut into `clients * shards` even
    runs, which are dealt at random; quantity: sizes are a draw from Dirichlet(alpha), classes are spread evenly.
    A draw that leaves a client with fewer than `least` patients is repeated, up to `_DRAWS` times: the clients of small
    alphas differ less than those of all draws.

    Raises `ConfigError` if no draw serves.
    """
    of_row, _, turn = _rank_by_rarest(table.frame, table.diseases)
    sizes = np.zeros(clients, np.int64)
    for attempt in range(_DRAWS):
        draw = numpy_stream(seed, table.name, "partition", attempt)
        shares = draw.dirichlet(np.full(clients, quantity or 1.0))
        part = np.zeros(len(turn), np.int64)
        if shards is not None:
            order = np.lexsort((draw.permutation(len(turn)), turn))
            owners = draw.permutation(np.repeat(np.arange(clients), shards))
            for owner, run in zip(owners, np.array_split(order, clients * shards), strict=True):
                part[run] = owner
        else:
            for number in np.unique(turn):
                patients = draw.permutation(np.flatnonzero(turn == number))
                of_class = shares if dirichlet is None else draw.dirichlet(np.full(clients, dirichlet))
                # Of equal shares in all classes a fixed rounding would give the same client every class of one patient.
                rounding = draw.uniform() if dirichlet is None else 0.5
                places = (np.arange(len(patients)) + rounding) / len(patients)
                part[patients] = np.searchsorted(np.cumsum(of_class)[:-1], places, side="right")
        sizes = np.bincount(part, minlength=clients)
        if sizes.min() >= least:
            return part[of_row], attempt
    text = (
        f"site '{table.name}', partition: a client of {clients} gets fewer than {least} of {len(turn)} patients in "
        f"each of {_DRAWS} draws; raise alpha, or take fewer clients"
    )
    raise ConfigError(text, kind="too few patients", site=table.name, patients=int(sizes.min()))


def deal_by_age(table: SiteTable, ages: Sequence[int], least: int) -> np.ndarray:
    """The part of each row, int `[n]`, whole patients by their age in years at the youngest image, cut at `ages`.

    Raises `ConfigError` if a patient has no age, or a part has fewer than `least` patients.
    """
    of_row, _, _ = _rank_by_rarest(table.frame, table.diseases)
    youngest = pd.Series(table.frame["age"].to_numpy(dtype=float)).groupby(of_row).min().to_numpy()
    unknown = int(np.isnan(youngest).sum())
    if unknown:
        text = (
            f"site '{table.name}', partition: {unknown:,} of {len(youngest):,} patients have no age: divide otherwise"
        )
        raise ConfigError(text, kind="no age", site=table.name, patients=unknown)
    part = np.digitize(youngest, ages)
    sizes = np.bincount(part, minlength=len(ages) + 1)
    if sizes.min() < least:
        counts = ", ".join(f"{size:,}" for size in sizes)
        text = f"site '{table.name}', partition: ages make parts of {counts} patients; each needs {least} and more"
        raise ConfigError(text, kind="too few patients", site=table.name, patients=int(sizes.min()))
    return part[of_row]


def deal_evenly(table: SiteTable, clients: int, seed: int) -> np.ndarray:
    """The client of each row, int `[n]`, whole patients; every client has an equal share of those of each disease."""
    return _deal(table.frame, table.diseases, np.ones(clients), seed, table.name, "even parts")


def permute_table_labels(table: SiteTable, seed: int) -> SiteTable:
    """The table with its label rows, and how often they repeat, dealt to its images at random."""
    columns = [*table.diseases, "repeats"]
    order = numpy_stream(seed, "permuted labels", table.name).permutation(len(table.frame))
    return table.with_frame(table.frame.assign(**{name: table.frame[name].to_numpy()[order] for name in columns}))


def hold_out(
    table: SiteTable, fraction: float, seed: int, purpose: str = "hold out", split: int = 0
) -> tuple[SiteTable, SiteTable]:
    """Training rows, and a test split of about `fraction` of the patients, whose rows are not repeated.

    `purpose` names the random stream, so that two splits of a table differ. `split` is its number, from 0: the first
    floor(1 / fraction) splits hold out no patient twice, the next as many are of a new draw, and so on.

    Raises `ConfigError` if a side would be empty.
    """
    held = _find_fold(table, fraction, seed, purpose, split)
    if held.all() or not held.any():
        patients = table.frame["patient"].nunique()
        text = f"site '{table.name}' has {patients} patients here: too few to hold out {fraction:g} of them"
        raise ConfigError(text, kind="too few patients", site=table.name, patients=patients)
    test = table.frame[held].reset_index(drop=True)
    test["split"] = pd.Categorical(["test"] * len(test), categories=table.frame["split"].cat.categories)
    test["repeats"] = np.ones(len(test), dtype=np.int64)
    return table.with_frame(table.frame[~held].reset_index(drop=True)), table.with_frame(test)


def _find_fold(table: SiteTable, fraction: float, seed: int, purpose: str, split: int) -> np.ndarray:
    """Which rows a split holds out, bool `[n]`: one fold of a draw, whose first is dealt before all others."""
    draw, fold = divmod(split, count_folds(fraction))
    name: tuple[str | int, ...] = (table.name, purpose, "draw", draw) if draw else (table.name, purpose)
    held = split_patients(table.frame, table.diseases, fraction, seed, *name)
    if fold == 0:
        return held
    rest = np.flatnonzero(~held)
    folds = count_folds(fraction) - 1
    shares = np.array([fraction] * folds + [max(0.0, 1 - (folds + 1) * fraction)])
    parts = _deal(table.frame.iloc[rest], table.diseases, shares[shares > _NO_SHARE], seed, *name, "folds")
    return np.isin(np.arange(len(held)), rest[parts == fold - 1])


def count_folds(fraction: float) -> int:
    """Parts of this share that have no patient in common."""
    return int(1 / fraction + _NO_SHARE)


def _deal(frame: pd.DataFrame, diseases: Sequence[str], shares: np.ndarray, seed: int, *name: str | int) -> np.ndarray:
    """The part of each row, int `[n]`. Patients are dealt one by one, those with the rarest disease first.

    `shares` are relative: their sum does not matter.

    A patient goes to a part that has no carrier yet of the patient's rarest disease, then to the one that has the
    fewest of them for its share, then of all patients; patients without any of the diseases even out the sizes.
    """
    of_row, has, turn = _rank_by_rarest(frame, diseases)
    carriers = has.sum(axis=0)
    rarest = np.append(np.argsort(carriers, kind="stable"), -1)[turn]
    generator = numpy_stream(seed, *name, "patients")
    order = np.lexsort((generator.permutation(len(has)), turn))
    tie = generator.permutation(len(shares))
    dealt, total = np.zeros((len(diseases), len(shares))), np.zeros(len(shares))
    part = np.zeros(len(has), dtype=np.int64)
    for patient in order:
        disease = rarest[patient]
        keys = [tie, (total + 1) / shares]  # the last key counts first
        if disease >= 0:
            keys.append((dealt[disease] + 1) / shares)
            if carriers[disease] >= len(shares):
                keys.append(dealt[disease] > 0)
        chosen = np.lexsort(keys)[0]
        part[patient] = chosen
        dealt[has[patient], chosen] += 1
        total[chosen] += 1
    return part[of_row]


def _rank_by_rarest(frame: pd.DataFrame, diseases: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each row's patient, the patients' diseases bool `[n, J]`, and the rank of each one's rarest; J without any.

    Ids that differ only in spelling are one patient.
    """
    alike = {name: min(names) for names in group_spellings(frame["patient"].unique()) for name in names}
    of_row, patients = pd.factorize(frame["patient"].replace(alike) if alike else frame["patient"], sort=True)
    has = np.zeros((len(patients), len(diseases)), dtype=bool)
    for place, disease in enumerate(diseases):
        has[of_row[(frame[disease] == 1).to_numpy()], place] = True
    ranked = has[:, np.argsort(has.sum(axis=0), kind="stable")]
    return of_row, has, np.where(has.any(axis=1), ranked.argmax(axis=1), len(diseases))


def _deal_unlike(frame: pd.DataFrame, diseases: Sequence[str], clients: int, seed: int, *name: str) -> np.ndarray:
    """The part of each row, int `[n]`: runs of patients sorted by their rarest disease; the others fill up."""
    of_row, has, turn = _rank_by_rarest(frame, diseases)
    order = np.lexsort((numpy_stream(seed, *name, "unlike clients").permutation(len(has)), turn))
    sick = has.any(axis=1).sum()
    part = np.zeros(len(has), dtype=np.int64)
    for group, numbers in ((order[:sick], range(clients)), (order[sick:], range(clients - 1, -1, -1))):
        for number, run in zip(numbers, np.array_split(group, clients), strict=True):
            part[run] = number
    return part[of_row]


def join_splits(raw: pd.DataFrame, path: Path, source: Source) -> pd.DataFrame:
    """Raw rows with the splits of the file; a patient that it lacks, or names twice, is a problem."""
    of_patient = read_splits(path, source)
    if of_patient is None:
        return raw
    places = pd.Index([*of_patient], dtype=object).get_indexer(pd.Index(raw["patient"].astype(object)))
    lacking = (places < 0) & raw["patient"].notna().to_numpy(dtype=bool)
    advice = "add such patients with `chestfed site check --fix-splits`, which moves no other"
    for file, row in zip(raw["file"][lacking], raw["row"][lacking], strict=True):
        text = f"this row's patient is not in {source.name(path)}"
        source.problem("patient without a split", str(file), text, int(row), advice)
    splits = np.array([*of_patient.values(), None], dtype=object)
    return raw.assign(split=splits[places])


def read_splits(path: Path, source: Source) -> dict[str, str] | None:
    """Patient -> split of such a file, in its order; an unknown split, or a patient named twice, is a problem.

    None, with a problem, if the file cannot be read.
    """
    frame = source.read(path, ["patient", "split"])
    if frame is None:
        return None
    frame, _ = drop_invisible(frame)
    rows = frame["row"].to_numpy()
    unknown = ~frame["split"].isin(SPLITS).to_numpy(dtype=bool)
    source.bad_rows(path, "unknown split", unknown, rows, f"the split is not one of {', '.join(SPLITS)}", _ADVICE)
    twice = frame["patient"].duplicated().to_numpy(dtype=bool)
    source.bad_rows(path, "duplicate patient", twice, rows, "an earlier row has the same patient", _ADVICE)
    sound = frame[~unknown & ~twice & frame["patient"].notna()]
    return dict(zip(sound["patient"].tolist(), sound["split"].tolist(), strict=True))


def splits_text(splits: Mapping[str, str]) -> str:
    """The text of such a file, from patient -> split, in their order."""
    return pd.DataFrame([*splits.items()], columns=["patient", "split"]).to_csv(index=False, lineterminator="\n")
