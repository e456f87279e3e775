"""Collections in `.npz` files, in torchvision's layouts, and the digits."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from chestfed.core.errors import ConfigError, ImageError
from chestfed.data.collections.collection import open_collection
from chestfed.data.collections.pixels import FilePixels
from tests.cases import assert_refused

try:
    import torchvision
except (ImportError, RuntimeError):  # RuntimeError: built for another build of torch
    torchvision = None
needs_torchvision = pytest.mark.skipif(torchvision is None, reason="needs torchvision built for this torch")

RNG = np.random.default_rng(0)
COLOR = RNG.integers(0, 256, (4, 6, 5, 3), np.uint8)
VALID: dict[str, Any] = {
    "x": COLOR,
    "y": np.array([0, 1, 2, 1]),
    "patient": np.array(["p", "q", "p", "r"]),
    "client": np.array([7, 7, 8, 8]),
    "x_test": COLOR[:2, :3],
    "y_test": np.array([2, 0], np.uint8),
    "patient_test": np.array(["s", "t"]),
}


def write(folder: Path, **changes: Any) -> Path:
    """`own.npz` of the valid arrays with changes; None removes an array. Returns the path without ending."""
    arrays = {key: value for key, value in (VALID | changes).items() if value is not None}
    np.savez_compressed(folder / "own.npz", **arrays)
    return folder / "own"


def test_npz_is_read_exactly(tmp_path: Path) -> None:
    collection = open_collection("own", write(tmp_path))
    train, test = collection.train, collection.test
    assert test is not None
    assert (collection.classes, train.classes.tolist(), test.classes.tolist()) == (3, [0, 1, 2, 1], [2, 0])
    assert train.classes.dtype == test.classes.dtype == np.int64
    np.testing.assert_array_equal([train.pixels.read(row) for row in range(4)], COLOR)
    np.testing.assert_array_equal(test.pixels.read(1), COLOR[1, :3])
    assert test.pixels.read(1).flags.c_contiguous
    assert test.patients is not None
    assert test.patients.tolist() == ["s", "t"]
    assert train.clients is not None
    assert train.clients.tolist() == [7, 7, 8, 8]
    shaped = f"{COLOR[0].shape}".encode() + COLOR[0].tobytes()
    assert train.pixels.digest(0) == hashlib.blake2b(shaped, digest_size=16).digest()
    gray = open_collection("own", write(tmp_path, x=COLOR[..., 0], x_test=None, y_test=None, patient_test=None))
    assert gray.test is None
    gray.train.pixels.read(1)[:] = 0  # a copy
    np.testing.assert_array_equal(gray.train.pixels.read(1), COLOR[1, :, :, 0])


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"patients": np.array([1, 2, 1, 3]), "patient": None}, "other arrays"),
        ({"y": None}, "other arrays"),
        ({"y_test": None}, "other arrays"),
        ({"patient_test": None}, "other arrays"),
        ({"patient": None}, "other arrays"),
        ({"x_test": None, "y_test": None, "patient": None}, "other arrays"),
        ({"patient_test": np.array(["p", "t"])}, "common patients"),
        ({"patient": np.array(["p", " ", "q", "r"])}, "invalid array"),
        ({"patient": np.array([1.0, np.nan, 2.0, 3.0])}, "invalid array"),
        ({"patient": np.array(["p", "q"])}, "invalid array"),
        ({"patient": np.array(["p", None, "q", "r"], object)}, "damaged file"),
        ({"x": COLOR.astype(np.float32)}, "invalid array"),
        ({"x": COLOR.transpose(0, 3, 1, 2)}, "invalid array"),
        ({"y": np.array([0.0, 1.0, 2.0, 1.0])}, "invalid array"),
        ({"y": np.array([0, 1, 2]), "patient": None, "client": None, "patient_test": None}, "counts differ"),
        ({"y": np.array([1, 2, 3, 1])}, "class without images"),
        ({"y": np.array([0, 1, -1, 2])}, "impossible class"),
        ({"y": np.array([0, 0, 0, 0]), "y_test": np.array([0, 0])}, "class without images"),
        ({"y_test": np.array([0, 3])}, "impossible class"),
    ],
)
def test_invalid_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], kind: str) -> None:
    with assert_refused(ConfigError, kind):
        open_collection("own", write(tmp_path, **changes))


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "empty"])
def test_damaged_npz_is_refused(tmp_path: Path, damage: str) -> None:
    path = write(tmp_path)
    file = path.with_suffix(".npz")
    content = bytearray(file.read_bytes())
    content[60] ^= 255
    bad = {"cut": file.read_bytes()[:200], "flipped": bytes(content), "text": b"no archive", "empty": b""}
    file.write_bytes(bad[damage])
    with assert_refused(ConfigError, "damaged file", file=file):
        open_collection("own", path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with assert_refused(ConfigError, "no such collection", name="cifar"):
        open_collection("cifar", tmp_path / "cifar")
    kind = "no torchvision" if torchvision is None else "unreadable collection"
    for name in ("cifar10", "stl10", "imagenet"):
        with assert_refused(ConfigError, kind, name=name):
            open_collection(name, tmp_path / name)


def write_mnist(folder: Path, pictures: np.ndarray, labels: dict[str, list[int]]) -> None:
    """The four uncompressed IDX files."""
    folder.mkdir(parents=True)
    for part, classes in labels.items():
        head = struct.pack(">4I", 2051, *pictures[: len(classes)].shape)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + pictures[: len(classes)].tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, len(classes)) + bytes(classes))


@needs_torchvision
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_torchvisions_idx_files_are_read(tmp_path: Path, name: str, folder: str) -> None:
    pictures = RNG.integers(0, 256, (12, 28, 28), np.uint8)
    write_mnist(tmp_path / folder / "raw", pictures, {"train": [*range(10), 1, 0], "t10k": [3, 9]})
    collection = open_collection(name, tmp_path)
    assert collection.train.classes.tolist() == [*range(10), 1, 0]
    assert collection.test is not None
    assert collection.test.classes.tolist() == [3, 9]
    np.testing.assert_array_equal([collection.train.pixels.read(row) for row in range(12)], pictures)
    (tmp_path / folder / "raw" / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 1) + b"\x03")
    with assert_refused(ConfigError, "counts differ"):
        open_collection(name, tmp_path)


@needs_torchvision
def test_torchvisions_stl10_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchvision.datasets.STL10._check_integrity", lambda self: True)  # MD5 of the real files
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    pictures = RNG.integers(0, 256, (10, 96, 96, 3), np.uint8)
    for part in ("train", "test"):
        (folder / f"{part}_X.bin").write_bytes(pictures.transpose(0, 3, 2, 1).tobytes())
        (folder / f"{part}_y.bin").write_bytes(bytes(range(1, 11)))
    train = open_collection("stl10", tmp_path).train
    assert train.classes.tolist() == list(range(10))
    np.testing.assert_array_equal([train.pixels.read(row) for row in range(10)], pictures)


@needs_torchvision
def test_torchvisions_imagenet_is_read(tmp_path: Path) -> None:
    names = ("n01440764", "n01443537")
    torch.save(({name: (name,) for name in names}, []), tmp_path / "meta.bin")
    for number, file in enumerate(f"{part}/{name}/a.JPEG" for part in ("train", "val") for name in names):
        (tmp_path / file).parent.mkdir(parents=True)
        Image.fromarray(np.full((8, 9, 3), 40 * number, np.uint8)).save(tmp_path / file, "JPEG")
    collection = open_collection("imagenet", tmp_path)
    assert collection.test is not None
    assert collection.test.classes.tolist() == [0, 1]
    assert [int(collection.test.pixels.read(row).max()) for row in (0, 1)] == [80, 120]
    (tmp_path / "val" / names[0]).rename(tmp_path / "val" / "n09999999")
    with pytest.raises(ConfigError):
        open_collection("imagenet", tmp_path)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\xff\xd8\xff\xe0", None])
def test_a_damaged_photograph_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a.jpg").write_bytes(content)
    with assert_refused(ImageError, "unreadable image", file="a.jpg"):
        FilePixels(tmp_path, ["a.jpg"]).read(0)


def test_photographs_become_rgb(tmp_path: Path) -> None:
    red = Image.new("RGB", (9, 5), (255, 0, 0))
    for mode in ("RGB", "CMYK", "L"):
        red.convert(mode).save(tmp_path / f"{mode}.jpg", quality=100)
    for mode, expected in (("RGB", [255, 0, 0]), ("CMYK", [255, 0, 0]), ("L", [76, 76, 76])):
        image = FilePixels(tmp_path, [f"{mode}.jpg"]).read(0)
        assert (image.shape, str(image.dtype)) == ((5, 9, 3), "uint8")
        assert np.abs(image[2, 2].astype(int) - expected).max() <= 3


def test_a_failing_disk_is_no_image_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    (tmp_path / "a.jpg").write_bytes(b"")
    monkeypatch.setattr("PIL.Image.open", fail)
    with pytest.raises(MemoryError):
        FilePixels(tmp_path, ["a.jpg"]).read(0)


def test_the_digits_need_no_folder() -> None:
    collection = open_collection("digits", None)
    image = collection.train.pixels.read(5)
    assert (collection.classes, len(collection.train.pixels), collection.test) == (10, 1797, None)
    assert (image.shape, str(image.dtype), int(image.max())) == ((8, 8), "uint8", 255)
