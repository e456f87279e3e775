"""A site whose training images have another share of positives: whole patients are dropped, nobody else changes.

Patients are visited in an order drawn by the seed. One is dropped if that brings the shares of positives nearer to the
wanted ones, in the sum over the diseases of the distance of their log odds. Nobody with a positive image of a disease
that is, or was, too rare is dropped, and nobody without any unless a disease was too rare. With one disease these are
patients with a positive image if positives are too many, else patients without, and no more than needed. With several
the patients are visited again until nobody is dropped. Where that ends far from the wanted shares, because the last
patients have many positive images, patients are exchanged for dropped ones while that brings the shares nearer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from chestfed.core.console import plural
from chestfed.core.diseases import format_title
from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream
from chestfed.studies.training.data.sites import TRAIN, StudySite

#: Largest difference of log odds from what is wanted: whole patients seldom come to it exactly.
_TOLERANCE: Final = 0.2


def thin_positives(site: StudySite, seed: int) -> StudySite:
    """The site with the share of positives that its entry's `positives` wants among its training labels, with repeats.

    Each client of patients cut alike comes as near to that share as whole patients allow; with another cut the site as
    a whole does.

    Raises `ConfigError` if a disease is not labeled there, or whole patients do not come near the share at the site.
    """
    wanted = site.entry.positives
    if wanted is None:
        return site
    labeled = [disease for disease in site.table.diseases if disease in site.labeled]
    if not isinstance(wanted, Mapping):
        wanted = dict.fromkeys(labeled, wanted)
    if unknown := [disease for disease in wanted if disease not in labeled]:
        text = (
            f"positives: {site.name} has no labels of {', '.join(unknown)} in this study, but of {', '.join(labeled)}"
        )
        raise ConfigError(text, kind="disease without labels", site=site.name, diseases=unknown)
    parts = site.clients if site.entry.cut == "alike" else ("",)
    dropped, left = zip(*(_choose(site, part, wanted, seed) for part in parts), strict=True)
    _check_shares(site, wanted, np.sum(left, axis=0))
    return site.leave_out(np.concatenate(dropped), _name_reason(site))


def describe_thinning(site: StudySite) -> str:
    """The patients that were dropped at a site, and the shares of positives that are left, as a sentence."""
    frame, training = site.table.frame, site.select(TRAIN)
    dropped = frame["patient"][(frame["reason"] == _name_reason(site)).to_numpy(dtype=bool)]
    ratios = zip(site.table.diseases, training.positive_ratios().tolist(), strict=True)
    left = ", ".join(f"{format_title(disease)} {ratio:.3g}" for disease, ratio in ratios if not math.isnan(ratio))
    return (
        f"{site.name}: {len(dropped):,} training images of {plural(dropped.nunique(), 'patient')} are "
        f"{_name_reason(site)}. Shares of positives of its training labels: {left}"
    )


def _name_reason(site: StudySite) -> str:
    wanted = site.entry.positives
    shares = wanted.items() if isinstance(wanted, Mapping) else [("", wanted)]
    return "dropped for positives: " + ", ".join(f"{disease} {share:g}".strip() for disease, share in shares)


def _choose(site: StudySite, client: str, wanted: Mapping[str, float], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training rows of a client that are dropped, int `[m]`, and the labels that are left, as in `drop_patients`.

    Of all clients if `client` is empty.
    """
    rows = site.find(TRAIN, client)
    frame = site.table.frame.iloc[rows]
    labels = frame[list(wanted)].to_numpy(dtype=np.float32)
    repeats = frame["repeats"].to_numpy()
    _, patients = np.unique(frame["patient"].to_numpy(dtype=str), return_inverse=True)
    counts = np.zeros((2, patients.max() + 1, len(wanted)), np.int64)
    for value in (0, 1):
        np.add.at(counts[value], patients, repeats[:, None] * (labels == value))
    order = numpy_stream(seed, "positives", client or site.name).permutation(counts.shape[1])
    goal = [math.log(share / (1 - share)) for share in wanted.values()]
    dropped = drop_patients(counts, goal, order.tolist())
    return rows[np.isin(patients, dropped)], counts.sum(axis=1) - counts[:, dropped].sum(axis=1)


def _check_shares(site: StudySite, wanted: Mapping[str, float], left: np.ndarray) -> None:
    """Refuse shares that were not reached with these negative and positive labels, int `[2, J]`."""
    for (disease, share), negative, positive in zip(wanted.items(), *left.tolist(), strict=True):
        goal = math.log(share / (1 - share))
        if not negative or not positive or abs(_log_odds(positive, negative) - goal) > _TOLERANCE:
            found = "no label" if not negative + positive else f"{positive} of {negative + positive}"
            raise ConfigError(
                f"positives: {site.name} cannot have a share of {share:g} of {disease}: dropping whole "
                f"patients comes to {found} at the nearest. Set another share, or name fewer diseases "
                "(`positives: {edema: 0.05}`)",
                kind="share of positives not reached",
                site=site.name,
                disease=disease,
                found=positive / max(1, positive + negative),
            )


def drop_patients(counts: np.ndarray, goal: Sequence[float], order: Sequence[int]) -> list[int]:
    """The numbers of the patients that are dropped.

    Parameters
    ----------
    counts
        Negative and positive labels of each patient and disease: int `[2, patients, J]`.
    goal
        The log odds wanted, `[J]`.
    order
        In which patients are visited.
    """
    of_patient = counts.transpose(1, 0, 2)
    left = counts.sum(axis=1)
    distance = _distance(left, goal)
    rare_at_first = _find_rare(left, goal)
    dropped, present = list[int](), [patient for patient in order if of_patient[patient].any()]
    while True:
        before = len(dropped)
        for patient in present:
            positives = of_patient[patient, 1] > 0
            if not positives.any() and not rare_at_first.any():
                continue
            if (positives & (rare_at_first | _find_rare(left, goal))).any():
                continue
            after = left - of_patient[patient]
            nearer = _distance(after, goal)
            if nearer < distance:
                dropped.append(patient)
                left, distance = after, nearer
        if len(dropped) == before:
            break
        gone = set(dropped)
        present = [patient for patient in present if patient not in gone]
    return _exchange(of_patient, goal, dropped, present) if distance > _TOLERANCE * len(goal) else dropped


def _exchange(of_patient: np.ndarray, goal: Sequence[float], dropped: list[int], present: list[int]) -> list[int]:
    """The patients dropped after exchanging one of them for one present or for nobody, while that comes nearer."""
    left = of_patient[present].sum(axis=0)
    distance = _distance(left, goal)
    kinds = [tuple(labels.ravel().tolist()) for labels in of_patient]  # who has equal labels serves equally
    while True:
        outs = [[patient] for patient in {kinds[patient]: patient for patient in reversed(present)}.values()]
        backs = {kinds[patient]: patient for patient in reversed(dropped)}.values()
        for out, back in itertools.product([[], *outs], backs):
            after = left - of_patient[out].sum(axis=0) + of_patient[back]
            if (nearer := _distance(after, goal)) < distance:
                present = [patient for patient in [*present, back] if patient not in out]
                dropped = [patient for patient in [*dropped, *out] if patient != back]
                left, distance = after, nearer
                break
        else:
            return dropped


def _find_rare(left: np.ndarray, goal: Sequence[float]) -> np.ndarray:
    """Which diseases are rarer than wanted with these negative and positive labels, bool `[J]` from int `[2, J]`."""
    negatives, positives = left.tolist()
    return np.array([_log_odds(p, n) < target for n, p, target in zip(negatives, positives, goal, strict=True)])


def _distance(left: np.ndarray, goal: Sequence[float]) -> float:
    """The sum over the diseases of the distance of the log odds from what is wanted, of labels int `[2, J]`."""
    negatives, positives = left.tolist()
    return sum(abs(_log_odds(p, n) - target) for n, p, target in zip(negatives, positives, goal, strict=True))


def _log_odds(positives: int, negatives: int) -> float:
    if not positives or not negatives:
        return math.inf if positives else -math.inf
    return math.log(positives / negatives)
