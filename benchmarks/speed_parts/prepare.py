"""From a file to the square in the cache."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from io import BytesIO
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import imagecodecs
import numpy as np
import pandas as pd
import pydicom
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate, get_frame
from pydicom.pixels import apply_windowing
from pydicom.uid import ExplicitVRLittleEndian, JPEG2000Lossless, JPEGLosslessSV1, JPEGLSLossless, RLELossless

from benchmarks.speed_parts.pairs import paired
from chestfed.data.images.cache import fill_cache, pixels
from chestfed.data.images.levels import Stored
from chestfed.data.images.preprocess import Preprocess

COPIES, FEW = 512, 64  # of a film, prepared by one and by two processes
#: Of pictures that pydicom does not compress.
ENCODERS: dict[str, Callable[[np.ndarray], bytes]] = {
    JPEGLSLossless: imagecodecs.jpegls_encode,
    JPEGLosslessSV1: partial(imagecodecs.ljpeg_encode, bitspersample=12),
}


def film(height: int, width: int, bits: int) -> np.ndarray:
    """A picture as smooth and as noisy as a film, uint8 or uint16."""
    rng = np.random.default_rng(0)
    smooth = cv2.resize(rng.random((12, 10), np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    values = (smooth + rng.normal(0, 0.012, (height, width))).clip(0, 1) * ((1 << bits) - 1)
    return values.astype(np.uint8 if bits == 8 else np.uint16)


def measure() -> dict[str, Any]:
    """A JPEG of CheXpert's size, NIH's 8-bit PNG and PadChest's 16-bit PNG, beside other ways."""
    cv2.setNumThreads(1)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = (("a.jpg", 2828, 2320, 8), ("a.png", 1024, 1024, 8), ("b.png", 3000, 2500, 16))
        for name, height, width, bits in cases:
            path = Path(folder) / name
            Image.fromarray(film(height, width, bits)).save(path, quality=90)
            found[f"{width}x{height}, {bits} bits, {path.suffix[1:]}"] = paired(_ways(path), unit="image")
    return found


def measure_site() -> dict[str, Any]:
    """A site of JPEGs of that size."""
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jpg"
        Image.fromarray(film(2828, 2320, 8)).save(path, quality=90)
        return measure_processes(path)


def measure_dicom() -> dict[str, Any]:
    """VinDr's DICOM in five transfer syntaxes, beside decoders with nothing but area interpolation behind them."""
    cv2.setNumThreads(1)
    figures, values = {}, film(3000, 2500, 12)
    with tempfile.TemporaryDirectory() as folder:
        for name, (syntax, others) in SYNTAXES.items():
            path = Path(folder) / f"{name}.dcm"
            write_dicom(path, values, syntax)
            ways = {f"{other}, area": partial(_decoded, decode, path) for other, decode in others.items()}
            cases = {"chestfed: decode, window, digest, area": _chestfed(path), **ways}
            figures[f"2500x3000, 12 bits, DICOM, {name}"] = paired(cases, unit="image")
    return figures


def _decoded(decode: Callable[[Path], np.ndarray], path: Path) -> np.ndarray:
    return cv2.resize(decode(path), (320, 320), interpolation=cv2.INTER_AREA)


def _by_pydicom(path: Path) -> np.ndarray:
    return pydicom.dcmread(path).pixel_array


def _by_pydicom_windowed(path: Path) -> np.ndarray:
    dataset = pydicom.dcmread(path)
    return np.asarray(apply_windowing(dataset.pixel_array, dataset))


def _by_imagecodecs(decode: Callable[[bytes], np.ndarray], path: Path) -> np.ndarray:
    return np.asarray(decode(get_frame(pydicom.dcmread(path).PixelData, 0, number_of_frames=1)))


def _by_pillow(path: Path) -> np.ndarray:
    """A quarter of the size, as chestfed reads it."""
    with Image.open(BytesIO(get_frame(pydicom.dcmread(path).PixelData, 0, number_of_frames=1))) as image:
        setattr(image, "reduce", 2)  # noqa: B010 a property, which its type hides
        return np.asarray(image)


def _chestfed(path: Path) -> Callable[[], object]:
    return partial(pixels(Preprocess()).work, path, Stored(bits=16))


def _ways(path: Path) -> dict[str, Callable[[], object]]:
    return {
        "chestfed: decode, digest, area": _chestfed(path),
        "Pillow's decoding alone": lambda: np.asarray(Image.open(path)),
        f"OpenCV{', at a quarter' * (path.suffix == '.jpg')}, area": partial(_by_opencv, path),
        "LibAUC's steps, not augmented": partial(_as_libauc, path),
    }


def _as_libauc(path: Path) -> np.ndarray:
    """What LibAUC 2.0 does to a film of CheXpert at every read, without its augmentation."""
    color = cv2.cvtColor(np.array(Image.fromarray(cv2.imread(str(path), 0))), cv2.COLOR_GRAY2RGB)
    values = cv2.resize(color, (320, 320), interpolation=cv2.INTER_LINEAR) / 255.0
    values = (values - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    return values.transpose(2, 0, 1).astype(np.float32)


def _by_opencv(path: Path) -> np.ndarray:
    flags = cv2.IMREAD_REDUCED_GRAYSCALE_4 if path.suffix == ".jpg" else cv2.IMREAD_UNCHANGED
    return cv2.resize(cv2.imread(str(path), flags), (320, 320), interpolation=cv2.INTER_AREA)


def write_dicom(path: Path, stored: np.ndarray, syntax: str) -> None:
    """A gray film of 12 bits, compressed without loss, or not at all."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    dataset.Rows, dataset.Columns = stored.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    dataset.WindowCenter, dataset.WindowWidth = "2048", "4096"
    dataset.PixelData = stored.tobytes()
    if syntax in ENCODERS:
        dataset.PixelData = encapsulate([ENCODERS[syntax](stored)])
        dataset.file_meta.TransferSyntaxUID = syntax
    elif syntax != ExplicitVRLittleEndian:
        dataset.compress(syntax, encoding_plugin="pylibjpeg")
    dataset.save_as(path, enforce_file_format=True)


#: Transfer syntax, and what else reads it.
SYNTAXES: dict[str, tuple[str, dict[str, Callable[[Path], np.ndarray]]]] = {
    "uncompressed": (ExplicitVRLittleEndian, {"pydicom": _by_pydicom, "pydicom, window": _by_pydicom_windowed}),
    "RLE": (RLELossless, {"pydicom": _by_pydicom}),
    "JPEG-LS": (JPEGLSLossless, {"CharLS of imagecodecs": partial(_by_imagecodecs, imagecodecs.jpegls_decode)}),
    "JPEG Lossless": (
        JPEGLosslessSV1,
        {
            "libjpeg-turbo of imagecodecs": partial(_by_imagecodecs, imagecodecs.jpeg8_decode),
            "liblj92 of imagecodecs": partial(_by_imagecodecs, imagecodecs.ljpeg_decode),
        },
    ),
    "JPEG 2000": (JPEG2000Lossless, {"Pillow at a quarter": _by_pillow}),
}


def measure_processes(film_: Path) -> dict[str, Any]:
    """Clock time per image of a site's preparation with one and with two processes.

    It is that of many images less that of few, so that the start of processes is in neither; the least of two turns.
    """
    data, root, seconds = film_.read_bytes(), film_.parent / "site", dict[tuple[int, int], float]()
    root.mkdir()
    for number in range(COPIES):  # which a comment tells apart
        comment = b"\xff\xfe\x00\x04" + number.to_bytes(2, "big")
        (root / f"{number}.jpg").write_bytes(data[:2] + comment + data[2:])
    for turn, workers, count in product(range(2), (1, 2), (FEW, COPIES)):
        frame = pd.DataFrame({"image": [f"{number}.jpg" for number in range(count)], "row": range(2, count + 2)})
        stored = [Stored()] * count
        table = SimpleNamespace(name="s", root=root, synthetic=True, frame=frame, stored=lambda stored=stored: stored)
        begin = time.perf_counter()
        fill_cache(table, root / f"cache-{turn}-{workers}-{count}", Preprocess(), workers=workers)
        taken = time.perf_counter() - begin
        seconds[workers, count] = min(taken, seconds.get((workers, count), taken))
    each = {workers: 1000 * (seconds[workers, COPIES] - seconds[workers, FEW]) / (COPIES - FEW) for workers in (1, 2)}
    return {
        "images": COPIES,
        "ms per image by processes": {str(workers): round(taken, 2) for workers, taken in each.items()},
        "one process / two": round(each[1] / each[2], 2),
        "time": "clock",
    }
