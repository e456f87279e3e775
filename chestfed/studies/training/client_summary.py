"""The sites as a report shows them: counts per disease, gray levels, and a few small pictures.

Written once per run folder, before training, because nothing of it is in the results:

    sites.json        counts, prevalences and gray-level histograms per client and of the test images; per hospital its
                      participants, label policy and license
    thumbnails.npz    a few images of each, 96 x 96; no patient or file names, but pictures all the same
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.checkpoint import write_atomically, write_json
from chestfed.core.randomness import numpy_stream
from chestfed.data.images.batches import Images, PooledImages
from chestfed.data.images.features import FeatureImages
from chestfed.data.sites.table import count_labels
from chestfed.learning.engines.weights import client_weights
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.data.clients import ClientData, TestSet
from chestfed.studies.training.data.experiment import Experiment

#: Images per client for the histogram of gray levels and the thumbnails.
SAMPLED, SHOWN = 200, 4
#: Bins of the gray levels 0 to 255, and pixels of a thumbnail's side.
BINS, SIDE = 64, 96
#: Images that are read at once.
_BATCH_IMAGES = 50


def write_site_cards(folder: Path, experiment: Experiment) -> None:
    """Write `thumbnails.npz` and then `sites.json`, unless they are there."""
    if (folder / "sites.json").exists():
        return
    cards: list[dict[str, Any]] = []
    thumbnails = {}
    parts: list[ClientData | TestSet] = [*experiment.clients, experiment.test]
    for number, part in enumerate(parts):
        card, pictures = make_site_card(part, experiment.diseases, experiment.pipeline.seed)
        cards.append(card)
        thumbnails[str(number)] = pictures
    for card, client in zip(cards, experiment.clients, strict=False):
        if client.classes:
            card["classes"] = list(client.classes)
    add_weights(cards, experiment.pipeline)
    save_arrays(folder / "thumbnails.npz", thumbnails)
    facts = [site.facts for site in experiment.sites]
    write_json(folder / "sites.json", {**experiment.origin.keys(), "bins": BINS, "sites": cards, "hospitals": facts})


def weights_of_largest_k(pipeline: Pipeline, rows: Sequence[int]) -> list[float]:
    """Weights in every mean of the largest K, from the training rows of all clients; none without such a mean."""
    settings = pipeline.federated
    if settings.spec.pooled or not settings.spec.has_server:
        return []
    return client_weights(rows[: max(pipeline.k)], settings.weights)


def add_weights(cards: Sequence[dict[str, Any]], pipeline: Pipeline) -> None:
    """Put the `weight` of each client that takes part in the largest K into its card."""
    clients = [card for card in cards if card["role"] == "client"]
    weights = weights_of_largest_k(pipeline, [card["rows"] for card in clients])
    for card, weight in zip(clients, weights, strict=False):  # clients beyond the largest K have none
        card["weight"] = weight


def make_site_card(part: ClientData | TestSet, diseases: Sequence[str], seed: int) -> tuple[dict[str, Any], np.ndarray]:
    """Entry of a client or test set in `sites.json`, and the pictures that are shown, uint8 `[m, SIDE, SIDE]`."""
    readable = np.flatnonzero(part.images.records >= 0)
    labels = part.labels[readable]
    if isinstance(part, ClientData):
        name, role, rows = part.name, "client", part.training_rows
    else:
        name, role, rows = "test images", "test", len(readable)
    sampled = numpy_stream(seed, "site card", name).permutation(readable)[:SAMPLED]
    histogram, pictures = _look_at(part.images, sampled)
    card = {
        "name": name,
        "role": role,
        "data": str(part.origin),
        "images": len(readable),
        "unreadable": len(part.labels) - len(readable),
        "rows": rows,
        "diseases": {
            disease: {
                "positives": counts.positive,
                "negatives": counts.negative,
                "missing": counts.missing,
                "prevalence": counts.prevalence,
            }
            for disease, counts in zip(diseases, count_labels(labels), strict=True)
        },
        "gray_levels": histogram.tolist(),
        "gray_level_images": len(sampled),
        "shown": [
            [disease for disease, label in zip(diseases, part.labels[row], strict=True) if label == 1]
            for row in sampled[:SHOWN]
        ],
    }
    return card, pictures


def _look_at(images: Images, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the gray levels int64 `[BINS]` over these rows, and thumbnails of the first uint8 `[m, SIDE, SIDE]`."""
    images = unwrap_features(images)
    histogram, pictures = np.zeros(BINS, np.int64), list[np.ndarray]()
    for start in range(0, len(rows), _BATCH_IMAGES):
        for pixels in images.read(rows[start : start + _BATCH_IMAGES]):
            histogram += np.bincount(pixels.ravel() // (256 // BINS), minlength=BINS)
            if len(pictures) < SHOWN:
                pictures.append(shrink(pixels))
    return histogram, np.stack(pictures) if pictures else np.zeros((0, SIDE, SIDE), np.uint8)


def unwrap_features(images: Images) -> Images:
    """The pictures themselves, where a network's features of them are trained on; also of pooled hospitals."""
    if isinstance(images, PooledImages):
        return PooledImages([unwrap_features(part) for part in images.parts])
    return images.images if isinstance(images, FeatureImages) else images


def shrink(pixels: np.ndarray) -> np.ndarray:
    """A thumbnail uint8 `[SIDE, SIDE]` of pixels `[s, s]`, or `[SIDE, SIDE, 3]` of `[s, s, 3]`."""
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BOX))


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a compressed `.npz`, atomically."""

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:  # given a name, NumPy would append a suffix to it
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    write_atomically(path, save)
