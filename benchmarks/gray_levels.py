"""One film in three kinds of files, and its gray levels under each policy and in two other libraries.

    python benchmarks/gray_levels.py --images data/chestxray8_sample/images --save benchmarks/results/gray_levels.json

Films of the NIH Clinical Center (ChestX-ray8, Wang et al., CVPR 2017) are saved as 8-bit PNG, as 16-bit PNG that spans
0..65535 (PadChest's kind), and as 12-bit DICOM of twice the film's range, with the film's range as its window and a
marker above it; half of these are MONOCHROME1. Measured is the mean |difference| of gray levels, 0 to 255, of the
320 x 320 squares, from the square of the 8-bit PNG under the policy `window`: the mean over films, and the worst film.

The other libraries' steps are redone from their sources: LibAUC resizes by OpenCV's bilinear interpolation without
antialiasing; TorchXRayVision divides by the largest value that the format can hold and resizes by an antialiased
bilinear (scikit-image) or area interpolation. `--figure` writes the picture of docs/images.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

sys.path.insert(0, str(Path(__file__).parents[1]))

from chestfed.images.decode import decode
from chestfed.images.levels import Levels, Stored
from chestfed.images.preprocess import Preprocess

POLICIES: tuple[Levels, ...] = ("window", "stored", "percentiles")
KINDS = ("8-bit PNG", "16-bit PNG", "DICOM with a window")
SIDE = 320


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="a folder of NIH's pictures")
    parser.add_argument("--films", type=int, default=120, help="how many, evenly from all")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
    parser.add_argument("--figure", type=Path, help="write three films, as DICOM, under each policy")
    args = parser.parse_args()
    files = sorted(args.images.glob("*.png"))
    chosen = [files[place] for place in np.linspace(0, len(files) - 1, args.films).astype(int)]
    apart: dict[str, list[float]] = {}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(chosen):
            film = decode(file)
            squares = _squares(film, Path(folder), inverted=number % 2 == 1)
            for name, square in {**squares, **_elsewhere(film)}.items():
                difference = np.abs(square.astype(float) - squares[KINDS[0], "window"]).mean()
                apart.setdefault(": ".join(name), []).append(float(difference))
            rows.append(np.hstack([squares[KINDS[2], policy] for policy in POLICIES]))
    found = {
        name: {"mean": round(float(np.mean(each)), 2), "worst": round(max(each), 2)} for name, each in apart.items()
    }
    print(json.dumps({"films": len(chosen), **found}, indent=1))
    if args.save:
        args.save.write_text(json.dumps({"films": len(chosen), **found}, indent=1) + "\n", encoding="utf-8")
    if args.figure:
        worst = np.argsort(apart["DICOM with a window: percentiles"])[[len(rows) // 2, -len(rows) // 8, -1]]
        figure = Image.fromarray(np.vstack([rows[place] for place in worst]))
        figure.resize((figure.width // 2, figure.height // 2), Image.Resampling.BOX).save(args.figure, optimize=True)


def _squares(film: np.ndarray, folder: Path, *, inverted: bool) -> dict[tuple[str, str], np.ndarray]:
    """The square of each kind of file under each policy."""
    paths = {kind: folder / str(place) for place, kind in enumerate(KINDS)}
    Image.fromarray(film).save(paths["8-bit PNG"], "PNG", compress_level=1)
    Image.fromarray(film.astype(np.uint16) * 257).save(paths["16-bit PNG"], "PNG", compress_level=1)
    _save_dicom(film, paths["DICOM with a window"], inverted)
    return {
        (kind, levels): Preprocess(levels=levels).apply(decode(path, Stored(bits=16), levels))
        for kind, path in paths.items()
        for levels in POLICIES
    }


def _save_dicom(film: np.ndarray, path: Path, inverted: bool) -> None:
    low, width = 1024, 2048
    stored = np.rint(low + film * (width / 255)).astype(np.uint16)
    stored[4:24, 4:12] = 4095
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = DigitalXRayImageStorageForPresentation
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = "2.25.1"
    dataset.Rows, dataset.Columns = film.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME1" if inverted else "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 12, 11, 0
    dataset.WindowCenter, dataset.WindowWidth = low + width // 2, width
    dataset.PixelData = (4095 - stored if inverted else stored).tobytes()
    dataset.save_as(path, enforce_file_format=True)


def _elsewhere(film: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    """The film of an 8-bit PNG as other libraries resize it."""
    antialiased = Image.fromarray(film).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return {
        ("LibAUC", "bilinear without antialiasing"): cv2.resize(film, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR),
        ("TorchXRayVision", "antialiased bilinear"): np.asarray(antialiased),
        ("TorchXRayVision", "area"): cv2.resize(film, (SIDE, SIDE), interpolation=cv2.INTER_AREA),
    }


if __name__ == "__main__":
    main()
