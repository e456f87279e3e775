"""Influence of each client on the mean of all: images, labels and weight; unusual clients, and a target that lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chestfed.core.diseases import format_title
from chestfed.results.evaluation.estimates import Estimate
from chestfed.results.tables.files import SiteCard
from chestfed.results.tables.grid import Grid, Rows, make_grid, number
from chestfed.results.tables.run_folder import RunFolder

#: A client is named if each of its training rows weighs more than this many times a row of the other clients.
UNUSUAL_WEIGHT: Final = 5.0


@dataclass(frozen=True)
class ClientCounts:
    """A client: training rows (repeats counted), and rows with and without each disease."""

    name: str
    rows: int
    positives: tuple[int, ...]
    negatives: tuple[int, ...]


@dataclass(frozen=True)
class Influence:
    """The weight of a client in every mean, and that of one of its rows relative to a row of all clients together."""

    client: ClientCounts
    weight: float
    per_row: float


def compute_influence(clients: Sequence[ClientCounts], weights: Sequence[float]) -> tuple[Influence, ...]:
    """The influence of clients with these weights, which sum to 1; `per_row` is 1 for all if the rows are weights."""
    total = sum(client.rows for client in clients)
    return tuple(
        Influence(client, weight, weight * total / client.rows) for client, weight in zip(clients, weights, strict=True)
    )


def unusual_clients(shares: Sequence[Influence], diseases: Sequence[str], *, adds_hospitals: bool) -> list[str]:
    """Sentences on clients whose labels are of one class, and on added ones whose rows weigh far more than others'.

    With `adds_hospitals` the first client is the target, whose weight per row is the question of the study.
    """
    sentences = [sentence for share in shares for sentence in _one_class(share.client, diseases)]
    for place, share in enumerate(shares):
        rest = [other for other in shares if other is not share]
        if not rest or (place == 0 and adds_hospitals):
            continue
        others = sum(other.weight for other in rest) / sum(other.client.rows for other in rest)
        ratio = share.weight / share.client.rows / others
        if ratio > UNUSUAL_WEIGHT:
            sentences.append(
                f"{share.client.name} has {share.client.rows:,} training rows and the weight {share.weight:.2f}: one "
                f"of its rows weighs {ratio:.0f} times as much as one of the other clients'. Compare "
                "a K without it, and other federated.weights; by images a large client may outweigh the target"
            )
    return sentences


def _one_class(client: ClientCounts, diseases: Sequence[str]) -> list[str]:
    """List what a client cannot teach, because all its labels of a disease are alike."""
    sentences = []
    for disease, positives, negatives in zip(diseases, client.positives, client.negatives, strict=True):
        if bool(positives) != bool(negatives):
            count, kind = (positives, "positive") if positives else (negatives, "negative")
            sentences.append(
                f"{client.name}: all {count:,} labels of {format_title(disease)} are {kind}: the client shows no "
                "difference between ill and healthy, and only that its own images differ from others'. Recommended: "
                "objective {name: auc, pairs: within_site}, which compares images of one hospital "
                "(docs/measurements.md has its measured effect)"
            )
    return sentences


def read_influence(run: RunFolder) -> tuple[Influence, ...]:
    """The influence of the clients of the largest K (`sites.json`); none where nothing is averaged with weights."""
    cards = [card for card in run.sites["sites"] if card.get("weight") is not None]
    return compute_influence([_read_client(card) for card in cards], [card["weight"] for card in cards])


def _read_client(card: SiteCard) -> ClientCounts:
    counts = card["diseases"].values()
    positives, negatives = (count["positives"] for count in counts), (count["negatives"] for count in counts)
    return ClientCounts(card["name"], card["rows"], tuple(positives), tuple(negatives))


def influence_grid(run: RunFolder) -> Grid | None:
    """Training rows, labels and weight of each client; None where nothing is averaged with weights."""
    shares = read_influence(run)
    if not shares:
        return None
    rows: Rows = []
    for share in shares:
        client = share.client
        labels = [f"{p:,} / {n:,}" for p, n in zip(client.positives, client.negatives, strict=True)]
        rows.append((client.name, (f"{client.rows:,}", *labels, number(share.weight), number(share.per_row))))
    mode = run.configuration["federated"]["weights"]
    caption = (
        f"Training rows, positive / negative images, and weight in every mean of K={len(shares)} "
        f"(federated.weights: {mode}); per row: relative to a mean over all rows"
    )
    heads = ("client", "rows", *map(format_title, run.diseases), "weight", "per row")
    return make_grid("influence", caption, heads, rows)


def describe_loss(rounds: Sequence[Mapping[str, Any]], mean: Estimate) -> str:
    """A sentence if the mean AUC fell since the first scored round by more than its noise; otherwise empty.

    `rounds` are the entries of `rounds.jsonl`; the noise is half the 95% interval of the final `mean`, over patients.
    """
    scored = [(entry["round"], auc) for entry in rounds if (auc := entry.get("mean_auc")) is not None]
    if len(scored) < 2 or mean.value is None or mean.interval is None:
        return ""
    (number_of_first, first), noise = scored[0], (mean.interval.high - mean.interval.low) / 2
    if first - mean.value <= noise:
        return ""
    return (
        f"the mean AUC fell from {first:.3f} after round {number_of_first} to {mean.value:.3f} at the end: "
        f"by more than its noise over test patients (±{noise:.3f}). The added clients may pull the model away: compare "
        "fewer clients, other federated.weights, or pairs within hospitals"
    )
