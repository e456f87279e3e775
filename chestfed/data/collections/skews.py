"""Heterogeneous clients out of one collection, in the ways of the federated literature.

- label skew: each class is divided by a draw from Dirichlet(alpha). T.-M. H. Hsu, H. Qi, M. Brown: Measuring the
  effects of non-identical data distribution for federated visual classification. arXiv:1909.06335 (2019);
- shards: rows sorted by class are cut into shards, of which each client has the same number. B. McMahan et al.:
  Communication-efficient learning of deep networks from decentralized data. AISTATS 2017, section 3;
- quantity skew: the clients' sizes are a draw from Dirichlet(alpha), the labels of each as of all. Q. Li, Y. Diao, Q.
  Chen, B. He: Federated learning on non-IID data silos. ICDE 2022, section IV;
- label noise: a share of the labels of a client is flipped;
- feature noise: client i of K has Gaussian noise of variance sigma i / K on its images (Li et al., section IV).

Every function is deterministic in its seed. Rows are returned in order.
"""

from __future__ import annotations

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream

#: Draws until every client has what it needs.
_ATTEMPTS = 1000


def deal_dirichlet(classes: np.ndarray, labels: np.ndarray, clients: int, alpha: float, seed: int) -> list[np.ndarray]:
    """Rows of each client: the rows of every class are divided in the shares of a draw from Dirichlet(alpha).

    Small alphas give clients of few classes, large ones alike clients. It is drawn anew until every client has a row of
    each label in {0, 1}, which an AUC objective needs.

    Raises `ConfigError` if alpha is not above 0, or no draw serves.
    """
    _check_alpha(alpha)
    for attempt in range(_ATTEMPTS):
        draw = numpy_stream(seed, "dirichlet", attempt)
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for number in np.unique(classes):
            rows = draw.permutation(np.flatnonzero(classes == number))
            ends = np.rint(np.cumsum(draw.dirichlet(np.full(clients, alpha))) * len(rows)).astype(int)
            for part, piece in zip(parts, np.split(rows, ends[:-1]), strict=True):
                part.append(piece)
        dealt = [np.sort(np.concatenate(part)) for part in parts]
        if all(len(np.unique(labels[rows])) == 2 for rows in dealt):
            return dealt
    raise ConfigError(
        f"partition: dirichlet with alpha {alpha:g} leaves a client of {clients} without one label in {_ATTEMPTS} "
        "draws; raise alpha or take fewer clients"
    )


def deal_shards(classes: np.ndarray, labels: np.ndarray, clients: int, shards: int, seed: int) -> list[np.ndarray]:
    """Rows of each client: those of either label, sorted by class, cut into `clients * shards` even shards, dealt.

    So every client has `shards` shards of each label, each of one class or of few.

    Raises `ConfigError` if a label has fewer rows than shards are needed.
    """
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for value in (0, 1):
        rows = np.flatnonzero(labels == value)
        if len(rows) < clients * shards or shards < 1:
            raise ConfigError(f"partition: {shards} shards for {clients} clients need more than {len(rows)} rows")
        pieces = np.array_split(rows[np.argsort(classes[rows], kind="stable")], clients * shards)
        order = numpy_stream(seed, "shards", value).permutation(len(pieces))
        for place, number in enumerate(order):
            parts[place % clients].append(pieces[number])
    return [np.sort(np.concatenate(part)) for part in parts]


def deal_quantities(labels: np.ndarray, clients: int, alpha: float, seed: int) -> list[np.ndarray]:
    """Rows of each client: sizes are a draw from Dirichlet(alpha), every client has the same share of positives.

    Every client has at least one row of each label.

    Raises `ConfigError` if alpha is not above 0, or a label has fewer rows than there are clients.
    """
    _check_alpha(alpha)
    draw = numpy_stream(seed, "quantities")
    shares = draw.dirichlet(np.full(clients, alpha))
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for value in (0, 1):
        rows = draw.permutation(np.flatnonzero(labels == value))
        if len(rows) < clients:
            raise ConfigError(f"partition: {len(rows)} rows with label {value} do not reach {clients} clients")
        sizes = 1 + _divide(shares, len(rows) - clients)
        for part, piece in zip(parts, np.split(rows, np.cumsum(sizes)[:-1]), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def flip_labels(labels: np.ndarray, share: float, seed: int, client: str) -> np.ndarray:
    """Labels in {0, 1} of one client with a `share` of them flipped, rounded, drawn by `seed` and the client's name.

    Raises `ConfigError` if the share is not in [0, 1].
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"label_noise must lie in [0, 1], not {share}")
    flipped = numpy_stream(seed, "label noise", client).permutation(len(labels))[: round(share * len(labels))]
    noisy = labels.copy()
    noisy[flipped] = 1 - noisy[flipped]
    return noisy


def add_noise(pixels: np.ndarray, sigma: float, client: int, clients: int, seed: int, digest: bytes) -> np.ndarray:
    """One image uint8 of client `client` (from 1) with Gaussian noise of variance `sigma * client / clients`.

    `sigma` is in the unit of gray values over 255. The noise is a function of the image's digest, so that an image is
    the same at every reading. Values are rounded and cut at 0 and 255.
    """
    deviation = 255 * np.sqrt(sigma * client / clients)
    noise = numpy_stream(seed, "feature noise", client, digest.hex()).standard_normal(pixels.shape)
    return np.clip(np.rint(pixels + deviation * noise), 0, 255).astype(np.uint8)


def _divide(shares: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers that sum to `total`, as near the shares as they can be (largest remainders)."""
    exact = shares * total
    sizes = np.floor(exact).astype(int)
    sizes[np.argsort(sizes - exact, kind="stable")[: total - sizes.sum()]] += 1
    return sizes


def _check_alpha(alpha: float) -> None:
    if not alpha > 0:
        raise ConfigError(f"partition: alpha must be above 0, not {alpha:g}")
