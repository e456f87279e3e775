"""Open a public image collection by its name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chestfed.core.errors import ConfigError
from chestfed.public_datasets import cats_vs_dogs, cifar, digits, fashion_mnist, imagenet, isic2020, stl10
from chestfed.public_datasets.collection import Collection, Progress


@dataclass(frozen=True)
class CollectionEntry:
    """What is known of a collection before it is read.

    Attributes
    ----------
    read
        Reads it from a folder.
    description
        What it is, in one line.
    source
        Where it is published and what to unpack.
    license
        On what terms.
    needs_root
        Whether there are files to point at.
    """

    read: Callable[[Path, Progress | None], Collection]
    description: str
    source: str
    license: str
    needs_root: bool = True


#: The collections by name.
COLLECTIONS: Final[dict[str, CollectionEntry]] = {
    "cifar10": CollectionEntry(
        cifar.read_cifar10,
        "60 000 color photographs of 32 x 32 in 10 classes",
        cifar.SOURCE_10,
        "no license stated; its authors ask to be cited (Krizhevsky, 2009)",
    ),
    "cifar100": CollectionEntry(
        cifar.read_cifar100,
        "60 000 color photographs of 32 x 32 in 100 classes",
        cifar.SOURCE_100,
        "no license stated; its authors ask to be cited (Krizhevsky, 2009)",
    ),
    "stl10": CollectionEntry(
        stl10.read,
        "13 000 labeled color photographs of 96 x 96 in 10 classes",
        stl10.SOURCE,
        "no license stated; images of ImageNet, whose terms apply; its authors ask to be cited (Coates et al., 2011)",
    ),
    "fashion_mnist": CollectionEntry(
        fashion_mnist.read,
        "70 000 gray images of clothing of 28 x 28 in 10 classes",
        fashion_mnist.SOURCE,
        "MIT",
    ),
    "cats_vs_dogs": CollectionEntry(
        cats_vs_dogs.read,
        "25 000 color photographs of cats and dogs of many sizes",
        cats_vs_dogs.SOURCE,
        "the terms of the page it is downloaded from",
    ),
    "imagenet": CollectionEntry(
        imagenet.read,
        "ILSVRC2012: 1.28 million training and 50 000 validation photographs in 1 000 classes",
        imagenet.SOURCE,
        "ImageNet's terms of access: non-commercial research and education",
    ),
    "isic2020": CollectionEntry(
        isic2020.read,
        "33 126 dermoscopic images of skin lesions, benign or malignant",
        isic2020.SOURCE,
        "CC BY-NC 4.0",
    ),
    "digits": CollectionEntry(
        digits.read,
        "1 797 handwritten digits of 8 x 8 in 10 classes",
        digits.SOURCE,
        "CC BY 4.0 (UCI, optical recognition of handwritten digits)",
        needs_root=False,
    ),
}


def open_collection(name: str, root: Path | None, progress: Progress | None = None) -> Collection:
    """The collection called `name` of `COLLECTIONS`, read from the folder `root`; nothing is downloaded.

    Raises
    ------
    ConfigError
        If there is no such collection, or its files are missing or damaged; the message says where to get them.
    SiteError
        If rows of its label file cannot be used, with all of them.
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
    return entry.read(root or Path(), progress)
