"""Open a public image collection by its name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError
from chestfed.public_datasets import arrays, cats_vs_dogs, cifar, imagenet, isic2020
from chestfed.public_datasets.collection import Collection, Progress

_READERS: Final[dict[str, Callable[[Path, Progress], Collection]]] = {
    "cifar10": cifar.read_cifar10,
    "cifar100": cifar.read_cifar100,
    "stl10": arrays.read_stl10,
    "fashion_mnist": arrays.read_fashion_mnist,
    "cats_vs_dogs": cats_vs_dogs.read,
    "imagenet": imagenet.read,
    "isic2020": isic2020.read,
    "digits": arrays.read_digits,
}


class About(StrictModel):
    """What is known of a collection before it is read, see `collections.yaml`; digits need no folder (`root`)."""

    description: str
    source: str
    license: str
    needs_root: bool = True


_TABLE: Final = yaml.safe_load((Path(__file__).parent / "collections.yaml").read_text(encoding="utf-8"))
#: The collections by name.
COLLECTIONS: Final[dict[str, About]] = {name: About(**_TABLE[name]) for name in _READERS}


def open_collection(name: str, root: Path | None, progress: Progress | None = None) -> Collection:
    """The collection called `name` of `COLLECTIONS`, read from the folder `root`; nothing is downloaded.

    Raises `ConfigError` if there is no such collection, or its files are missing or damaged; the message says where to
    get them. Raises `SiteError` if rows of its label file cannot be used, with all of them.
    """
    entry = COLLECTIONS.get(name)
    if entry is None:
        close = difflib.get_close_matches(name.lower().replace("-", "_"), COLLECTIONS, n=1, cutoff=0.5)
        hint = f"did you mean '{close[0]}'?" if close else f"known collections: {', '.join(COLLECTIONS)}"
        raise ConfigError(f"unknown collection '{name}'; {hint}")
    if entry.needs_root and root is None:
        raise ConfigError(f"collection '{name}' needs the folder of its files; {entry.source}")
    if entry.needs_root and root is not None and not root.is_dir():
        raise ConfigError(f"{root}: no such folder; {entry.source}")
    try:
        return _READERS[name](root or Path(), progress or (lambda done, total: None))
    except ConfigError as error:
        raise ConfigError(f"{error}; {entry.source}") from None
