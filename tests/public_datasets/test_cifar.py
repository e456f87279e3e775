"""CIFAR-10 and CIFAR-100 from files in their published layouts."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.opening import open_collection
from tests.public_datasets.pictures import distinct, planes

NAMES_10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
NAMES_100 = [f"fine_{number:02}" for number in range(100)]
TRAIN_10 = [3, 9, 0, 7, 1, 2, 8, 4, 6, 5]  # two images in each of five files
TEST_10 = [6, 5, 9]
TRAIN_100 = [99, 0, 41, 7]
TEST_100 = [58, 99]


def python2_pickle(value: Any) -> bytes:
    """The pickle that Python 2 and NumPy 1 write with protocol 2, as the published files were written."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: Any) -> bytes:
    if isinstance(value, str):
        value = value.encode("latin1")
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_python2, value)) + b"t"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(key) + _python2(item) for key, item in value.items()) + b"u"
    assert isinstance(value, np.ndarray)
    assert value.dtype == np.uint8
    kind = b"cnumpy\ndtype\n" + _python2(("u1", 0, 1)) + b"R(" + _python2(3) + _python2("|") + b"NNN"
    kind += _python2(-1) + _python2(-1) + _python2(0) + b"tb"
    start = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _python2((0,)) + _python2("b") + b"tR"
    return start + b"(" + _python2(1) + _python2(value.shape) + kind + b"\x89" + _python2(value.tobytes()) + b"tb"


def rows(first: int, count: int) -> np.ndarray:
    """uint8 `[count, 3072]`: pictures numbered from `first`."""
    data = b"".join(planes(distinct(number, 32, 32)) for number in range(first, first + count))
    return np.frombuffer(data, np.uint8).reshape(-1, 3072)


def write_binary_10(root: Path) -> Path:
    """The folder of cifar-10-binary.tar.gz."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("\n".join(NAMES_10) + "\n\n")
    for batch in range(5):
        labels = TRAIN_10[2 * batch : 2 * batch + 2]
        records = [bytes([label]) + row.tobytes() for label, row in zip(labels, rows(2 * batch, 2), strict=True)]
        (folder / f"data_batch_{batch + 1}.bin").write_bytes(b"".join(records))
    records = [bytes([label]) + row.tobytes() for label, row in zip(TEST_10, rows(20, 3), strict=True)]
    (folder / "test_batch.bin").write_bytes(b"".join(records))
    return folder


def write_python_10(root: Path) -> Path:
    """The folder of cifar-10-python.tar.gz."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    meta = {"num_cases_per_batch": 10000, "label_names": NAMES_10, "num_vis": 3072}
    (folder / "batches.meta").write_bytes(python2_pickle(meta))
    for batch in range(5):
        content = {
            "data": rows(2 * batch, 2),
            "labels": TRAIN_10[2 * batch : 2 * batch + 2],
            "batch_label": f"training batch {batch + 1} of 5",
            "filenames": ["a.png", "caf\xe9.png"],
        }
        (folder / f"data_batch_{batch + 1}").write_bytes(python2_pickle(content))
    content = {"data": rows(20, 3), "labels": TEST_10, "batch_label": "testing batch 1 of 1", "filenames": ["a"] * 3}
    (folder / "test_batch").write_bytes(python2_pickle(content))
    return folder


def write_binary_100(root: Path) -> Path:
    """The folder of cifar-100-binary.tar.gz."""
    folder = root / "cifar-100-binary"
    folder.mkdir()
    (folder / "fine_label_names.txt").write_text("\n".join(NAMES_100) + "\n")
    (folder / "coarse_label_names.txt").write_text("\n".join(f"coarse_{number}" for number in range(20)) + "\n")
    for file, labels, first in (("train.bin", TRAIN_100, 0), ("test.bin", TEST_100, 20)):
        pairs = zip(labels, rows(first, len(labels)), strict=True)
        records = [bytes([label // 5, label]) + row.tobytes() for label, row in pairs]
        (folder / file).write_bytes(b"".join(records))
    return folder


def write_python_100(root: Path) -> Path:
    """The folder of cifar-100-python.tar.gz."""
    folder = root / "cifar-100-python"
    folder.mkdir()
    meta = {"fine_label_names": NAMES_100, "coarse_label_names": [f"coarse_{number}" for number in range(20)]}
    (folder / "meta").write_bytes(python2_pickle(meta))
    for file, labels, first in (("train", TRAIN_100, 0), ("test", TEST_100, 20)):
        content = {
            "filenames": ["a.png"] * len(labels),
            "batch_label": "a batch",
            "fine_labels": labels,
            "coarse_labels": [label // 5 for label in labels],
            "data": rows(first, len(labels)),
        }
        (folder / file).write_bytes(python2_pickle(content))
    return folder


@pytest.mark.parametrize("write", [write_binary_10, write_python_10])
def test_cifar10_is_read_the_same_from_both_versions(tmp_path: Path, write: Any) -> None:
    write(tmp_path)
    collection = open_collection("cifar10", tmp_path)
    assert collection.name == "cifar10"
    assert collection.class_names == tuple(NAMES_10)
    assert collection.train.classes.tolist() == TRAIN_10
    assert collection.train.classes.dtype == np.int64
    assert len(collection.train.pixels) == 10
    for row in range(10):
        np.testing.assert_array_equal(collection.train.pixels.read(row), distinct(row, 32, 32))
    assert collection.test is not None
    assert collection.test.classes.tolist() == TEST_10
    np.testing.assert_array_equal(collection.test.pixels.read(2), distinct(22, 32, 32))
    assert collection.unreadable == ()


@pytest.mark.parametrize("write", [write_binary_100, write_python_100])
def test_cifar100_has_the_fine_labels_in_both_versions(tmp_path: Path, write: Any) -> None:
    write(tmp_path)
    collection = open_collection("cifar100", tmp_path)
    assert collection.class_names == tuple(NAMES_100)
    assert collection.train.classes.tolist() == TRAIN_100
    np.testing.assert_array_equal(collection.train.pixels.read(3), distinct(3, 32, 32))
    assert collection.test is not None
    assert collection.test.classes.tolist() == TEST_100
    np.testing.assert_array_equal(collection.test.pixels.read(0), distinct(20, 32, 32))


@pytest.mark.parametrize("write", [write_binary_10, write_python_10])
def test_the_root_may_be_the_unpacked_folder_itself(tmp_path: Path, write: Any) -> None:
    assert open_collection("cifar10", write(tmp_path)).train.classes.tolist() == TRAIN_10


def test_progress_tells_each_file(tmp_path: Path) -> None:
    write_binary_10(tmp_path)
    told: list[tuple[int, int]] = []
    open_collection("cifar10", tmp_path, lambda done, total: told.append((done, total)))
    assert told == [(done, 6) for done in range(1, 7)]


def test_pickles_written_again_by_python_3_and_numpy_2_are_read(tmp_path: Path) -> None:
    folder = write_python_10(tmp_path)
    for protocol in (2, 3, 4):
        content = {"data": np.asfortranarray(rows(0, 2)), "labels": [3, 9]}
        (folder / "data_batch_1").write_bytes(pickle.dumps(content, protocol))
        pixels = open_collection("cifar10", tmp_path).train.pixels
        np.testing.assert_array_equal(pixels.read(1), distinct(1, 32, 32))


def test_nothing_there_names_the_expected_file_and_the_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data_batch_1\.bin: no such file.*cifar-10-binary\.tar\.gz.*unpack"):
        open_collection("cifar10", tmp_path)
    with pytest.raises(ConfigError, match=r"train\.bin: no such file.*cifar-100-python\.tar\.gz"):
        open_collection("cifar100", tmp_path)


@pytest.mark.parametrize("file", ["data_batch_1.bin", "data_batch_4.bin", "test_batch.bin", "batches.meta.txt"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    (write_binary_10(tmp_path) / file).unlink()
    with pytest.raises(ConfigError, match=rf"{file}: no such file"):
        open_collection("cifar10", tmp_path)


@pytest.mark.parametrize("file", ["data_batch_4", "batches.meta"])
def test_a_missing_pickle_is_named(tmp_path: Path, file: str) -> None:
    (write_python_10(tmp_path) / file).unlink()
    with pytest.raises(ConfigError, match=rf"{file}: no such file"):
        open_collection("cifar10", tmp_path)


@pytest.mark.parametrize("size", [0, 3072, 2 * 3073 - 1])
def test_a_file_that_is_no_whole_number_of_records_is_refused(tmp_path: Path, size: int) -> None:
    file = write_binary_10(tmp_path) / "data_batch_2.bin"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ConfigError, match=rf"data_batch_2\.bin: {size} bytes is not a whole number of records of 3073"):
        open_collection("cifar10", tmp_path)


def test_a_label_out_of_range_is_refused_with_its_place(tmp_path: Path) -> None:
    file = write_binary_10(tmp_path) / "data_batch_3.bin"
    data = bytearray(file.read_bytes())
    data[3073] = 10
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"data_batch_3\.bin: label 10 of image 2 is outside of 0\.\.9"):
        open_collection("cifar10", tmp_path)


def test_too_few_class_names_are_refused(tmp_path: Path) -> None:
    (write_binary_100(tmp_path) / "fine_label_names.txt").write_text("apple\nbear\n")
    with pytest.raises(ConfigError, match=r"fine_label_names\.txt: expected the names of 100 classes"):
        open_collection("cifar100", tmp_path)


class Hostile:
    """Runs a program when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    folder, marker = write_python_10(tmp_path), tmp_path / "was run"
    hostile = {"data": rows(0, 2), "labels": [3, 9], "extra": Hostile(marker)}
    (folder / "data_batch_1").write_bytes(pickle.dumps(hostile))
    pickle.loads(pickle.dumps(hostile))
    assert marker.exists(), "the pickle is hostile indeed"
    marker.unlink()
    with pytest.raises(ConfigError, match=r"data_batch_1: refused: this pickle asks for '.*download the archive again"):
        open_collection("cifar10", tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("__builtin__", "getattr"),
        ("numpy", "load"),
        ("numpy", "ndarray.tofile"),
        ("numpy.core.multiarray", "fromfile"),
        ("_codecs", "lookup"),
        ("chestfed.public_datasets.plain_pickle", "Path"),
    ],
)
@pytest.mark.parametrize("opcode", ["global", "stack global", "instance"])
def test_any_other_name_in_a_pickle_is_refused(tmp_path: Path, module: str, name: str, opcode: str) -> None:
    call = {
        "global": f"c{module}\n{name}\n)R.".encode(),
        "stack global": b"\x80\x04" + pickle.dumps(module, 0)[:-1] + pickle.dumps(name, 0)[:-1] + b"\x93)R.",
        "instance": f"(i{module}\n{name}\n.".encode(),
    }
    (write_python_100(tmp_path) / "meta").write_bytes(call[opcode])
    with pytest.raises(ConfigError, match=r"meta: refused: this pickle asks for"):
        open_collection("cifar100", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        python2_pickle({"data": rows(0, 2), "labels": [3, 9]})[:-100],
        pickle.dumps([1, 2]),
        pickle.dumps({1: 2}),
        pickle.dumps({"labels": [3, 9]}),
        pickle.dumps({"data": rows(0, 2)[:, :100], "labels": [3, 9]}, 2),
        pickle.dumps({"data": rows(0, 2).astype(np.float32), "labels": [3, 9]}, 2),
        pickle.dumps({"data": rows(0, 2).astype(object), "labels": [3, 9]}, 2),
        pickle.dumps({"data": rows(0, 2), "labels": [3]}, 2),
        pickle.dumps({"data": rows(0, 2), "labels": [3, "9"]}, 2),
        pickle.dumps({"data": rows(0, 2), "labels": [3, 10**30]}, 2),
        pickle.dumps({"data": rows(0, 2), "labels": [3, -1]}, 2),
        python2_pickle({"data": rows(0, 2), "labels": [3, 9]}).replace(b"J\0\x0c\0\0", b"J\0\x0d\0\0"),
    ],
)
def test_a_damaged_pickle_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    (write_python_10(tmp_path) / "data_batch_1").write_bytes(content)
    with pytest.raises(ConfigError, match=r"data_batch_1: "):
        open_collection("cifar10", tmp_path)
