"""A collection of images with one class per image: torchvision's data sets, `.npz` files, scikit-learn's digits."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from chestfed.core.diseases import nearest_hint
from chestfed.core.errors import ConfigError, first_line, is_environment_error, nearest
from chestfed.core.plugins import Catalogue
from chestfed.data.collections.declaration import Collection, CollectionSpec, Part, check_collection, label_patterns
from chestfed.data.collections.pixels import ArrayPixels, FilePixels

_ARRAYS: Final = ("x", "y", "patient", "client", "x_test", "y_test", "patient_test")
#: All collections by name, and `package.module:Name` of one's own.
COLLECTIONS: Final[Catalogue[CollectionSpec]] = Catalogue(
    "collection", "chestfed.collections", CollectionSpec, packages=("chestfed.data.collections",)
)


def open_collection(name: str, path: Path | None, *, download: bool = False) -> Collection:
    """Read a collection.

    Parameters
    ----------
    name
        That of a `CollectionSpec`, built in or `package.module:Name`, or any other name of a `.npz` file.
    path
        The collection's folder. The file `PATH.npz` is read instead if it exists.
    download
        Whether missing files may be downloaded into the folder.

    Raises
    ------
    ConfigError
        If files are missing, damaged or contradict each other, or torchvision cannot be imported.
    """
    spec = find_collection(name)
    if spec is not None and not spec.has_files:
        return check_collection(spec.read(None, download), name)
    if path is None:
        raise ConfigError(f"collection '{name}' needs the folder of its files")
    file = path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
    if file.is_file():
        return check_collection(_read_npz(name, file), file)
    if spec is None:
        known = tuple(COLLECTIONS.built_in)
        text = f"collection.name: '{name}': {file}: no such file, and no collection of this name"
        text += f"{nearest_hint([name], known)}. Without a file there are {', '.join(known)}; see docs/collections.md"
        raise ConfigError(text, kind="no such collection", name=name, known=known, suggestion=nearest(name, known))
    return check_collection(spec.read(path, download), path)


def find_collection(name: str) -> CollectionSpec | None:
    """The declaration of a collection; None for the name of a `.npz` file."""
    return COLLECTIONS.find(name) if ":" in name or name in COLLECTIONS.names else None


def _read_digits(folder: Path | None, download: bool) -> Collection:
    """1 797 gray images of 8 x 8 in ten classes; the values 0 to 16 become 0 to 255."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return Collection(DIGITS.name, 10, Part(ArrayPixels(images), digits.target.astype(np.int64)), None)


def _read_torchvision(
    name: str, kind: str, parts: Sequence[Mapping[str, Any]], root: Path | None, download: bool
) -> Collection:
    """A data set of torchvision; `parts` select its training and its test part."""
    assert root is not None
    try:
        import torchvision.datasets
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another build of torch
        raise ConfigError(
            f"collection '{name}' needs torchvision built for this torch, or the file {root}.npz: "
            f"{first_line(error)}; see docs/collections.md",
            kind="no torchvision",
            name=name,
        ) from None
    options = {"download": True} if download and name != "imagenet" else {}
    try:
        train, test = (getattr(torchvision.datasets, kind)(root, **part, **options) for part in parts)
    except Exception as error:  # torchvision's readers raise many kinds on missing and damaged files
        if isinstance(error, MemoryError):
            raise
        way = "ImageNet's archives are not downloaded" if name == "imagenet" else "collection.download=true fetches it"
        text = f"{root}: torchvision.datasets.{kind}: {first_line(error)} ({way})"
        raise ConfigError(text, kind="unreadable collection", name=name) from None
    if getattr(train, "classes", None) != getattr(test, "classes", None):
        raise ConfigError(f"{root}: training and test part have different classes")
    return _make_collection(name, _convert(train), _convert(test))


def _convert(dataset: Any) -> Part:
    """The images and classes of a data set of torchvision."""
    if hasattr(dataset, "samples"):
        files = [str(Path(file).relative_to(dataset.root)) for file, _ in dataset.samples]
        return Part(FilePixels(Path(dataset.root), files), np.array(dataset.targets, np.int64))
    images = np.asarray(dataset.data)
    if images.shape[1] == 3:  # STL10: channels first
        images = images.transpose(0, 2, 3, 1)
    classes = dataset.targets if hasattr(dataset, "targets") else dataset.labels
    return Part(ArrayPixels(images), np.asarray(classes, np.int64))


def _read_npz(name: str, file: Path) -> Collection:
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, AttributeError, TypeError) as error:
        if is_environment_error(error):
            raise
        text = f"{file}: damaged, or not arrays of numbers and strings ({first_line(error)})"
        raise ConfigError(text, kind="damaged file", file=file) from None
    unknown = sorted(set(arrays) - set(_ARRAYS))
    absent = [key for key in ("x", "y") if key not in arrays]
    if unknown or absent or ("x_test" in arrays) != ("y_test" in arrays):
        text = f"{file}: has the arrays {', '.join(arrays)}; needs x and y, and may have {_ARRAYS[2:]}"
        raise ConfigError(text, kind="other arrays", file=file)
    if ("patient_test" in arrays) != ("patient" in arrays and "x_test" in arrays):
        text = f"{file}: with a test part, needs both patient and patient_test, or neither"
        raise ConfigError(text, kind="other arrays", file=file)
    train = _make_part(file, arrays, "")
    test = _make_part(file, arrays, "_test") if "x_test" in arrays else None
    if "patient_test" in arrays and np.isin(arrays["patient_test"], arrays["patient"]).any():
        raise ConfigError(f"{file}: patients of patient_test are also in patient", kind="common patients", file=file)
    return _make_collection(name, train, test)


def _make_collection(name: str, train: Part, test: Part | None) -> Collection:
    return Collection(name, int(train.classes.max(initial=-1)) + 1, train, test)


def _make_part(file: Path, arrays: Mapping[str, np.ndarray], suffix: str) -> Part:
    """The part of the arrays `x`, `y`, `patient`, `client`, with or without `_test`."""
    images, classes = arrays[f"x{suffix}"], arrays[f"y{suffix}"]
    labels = None
    if classes.ndim == 2 and classes.dtype.kind in "iubf":
        labels = classes.astype(np.float32)
        classes = label_patterns(labels)
    if classes.dtype.kind not in "iub" or classes.ndim != 1:
        text = f"{file}: y{suffix} is {classes.dtype} {list(classes.shape)}; expected integers [n]"
        raise ConfigError(text, kind="invalid array", key=f"y{suffix}")
    patients, clients = (arrays.get(f"{key}{suffix}") for key in ("patient", "client"))
    for key, values in {"patient": patients, "client": clients}.items():
        if values is not None and (values.dtype.kind not in "iuU" or values.shape != classes.shape):
            text = f"is {values.dtype} {list(values.shape)}; expected strings or integers {list(classes.shape)}"
            raise ConfigError(f"{file}: {key}{suffix} {text}", kind="invalid array", key=f"{key}{suffix}")
        if values is not None and values.dtype.kind == "U" and (np.char.strip(values) == "").any():
            text = f"{file}: {key}{suffix} has {int((np.char.strip(values) == '').sum())} empty strings"
            raise ConfigError(text, kind="invalid array", key=f"{key}{suffix}")
    try:
        return Part(ArrayPixels(images), classes.astype(np.int64), patients, clients, labels)
    except ValueError as error:
        raise ConfigError(f"{file}: x{suffix}: {error}", kind="invalid array", key=f"x{suffix}") from None


def _declare_torchvision(kind: str, name: str, train: Mapping[str, Any], test: Mapping[str, Any]) -> CollectionSpec:
    return CollectionSpec(name, kind, partial(_read_torchvision, name, kind, (train, test)))


DIGITS = CollectionSpec("digits", "Handwritten digits of scikit-learn", _read_digits, has_files=False)
CIFAR10 = _declare_torchvision("CIFAR10", "cifar10", {"train": True}, {"train": False})
CIFAR100 = _declare_torchvision("CIFAR100", "cifar100", {"train": True}, {"train": False})
MNIST = _declare_torchvision("MNIST", "mnist", {"train": True}, {"train": False})
FASHION_MNIST = _declare_torchvision("FashionMNIST", "fashion_mnist", {"train": True}, {"train": False})
STL10 = _declare_torchvision("STL10", "stl10", {"split": "train"}, {"split": "test"})
IMAGENET = _declare_torchvision("ImageNet", "imagenet", {"split": "train"}, {"split": "val"})
