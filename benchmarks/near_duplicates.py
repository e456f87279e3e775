"""How far apart perceptual hashes are: of two patients' films, and of a film and its altered copies.

    python benchmarks/near_duplicates.py FOLDER --save benchmarks/results/near_duplicates.json

FOLDER holds films called PATIENT_NUMBER.png, as ChestX-ray8's are, or the synthetic hospitals (a patient per file).
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from chestfed.images.decode import decode
from chestfed.images.preprocess import Preprocess
from chestfed.inspection.duplicates import NEAR
from chestfed.inspection.facts import perceptual_hash

EVERY = 6  # of so many films one is altered


def main() -> None:
    """Measure and print, and save if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    films = sorted(path for path in options.folder.rglob("*") if path.suffix in (".png", ".jpg", ".dicom"))
    hashes: list[np.ndarray] = []
    changes: dict[str, list[int]] = {}
    for place, film in enumerate(films):
        gray = decode(film)
        hashes.append(_hash(gray))
        if place % EVERY == 0:
            for name, altered in _altered(gray):
                changes.setdefault(name, []).append(int((_hash(altered) != hashes[-1]).sum()))
    numbered = all(film.stem.replace("_", "").isdigit() for film in films)
    patients = np.unique([film.name.split("_")[0] if numbered else str(film) for film in films], return_inverse=True)[1]
    codes = np.array(hashes).astype(np.float32)
    apart = (codes @ (1 - codes).T).astype(int)
    apart += apart.T
    one, other = np.triu_indices(len(codes), 1)
    strangers = np.sort(apart[one, other][patients[one] != patients[other]])
    found = {
        "limit": NEAR,
        "films": len(films),
        "patients": int(patients.max()) + 1,
        "pairs_of_two_patients": len(strangers),
        "nearest_of_two_patients": strangers[:5].tolist(),
        "median_of_two_patients": int(np.median(strangers)),
        "altered_films": len(films[::EVERY]),
        "altered": {
            name: {
                "median": int(np.median(bits)),
                "largest": max(bits),
                "share_found": round(float(np.mean(np.array(bits) <= NEAR)), 3),
            }
            for name, bits in changes.items()
        },
    }
    print(json.dumps(found, indent=1))
    if options.save is not None:
        options.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _hash(gray: np.ndarray) -> np.ndarray:
    return np.unpackbits(np.frombuffer(perceptual_hash(Preprocess().apply(np.ascontiguousarray(gray))), np.uint8))


def _altered(gray: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    height, width = gray.shape
    packed = io.BytesIO()
    Image.fromarray(gray).save(packed, "JPEG", quality=60)
    yield "JPEG, quality 60", np.asarray(Image.open(packed))
    yield "half the size", cv2.resize(gray, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    yield "twice the size", cv2.resize(gray, (width * 2, height * 2), interpolation=cv2.INTER_CUBIC)
    noise = np.random.default_rng(0).normal(0, 4, gray.shape)
    yield "noise of 4 gray levels", np.clip(gray + noise, 0, 255).astype(np.uint8)
    yield "gamma 0.8", (255 * (gray / 255) ** 0.8).astype(np.uint8)
    yield "window that clips", np.clip((gray.astype(float) - 20) * 1.2, 0, 255).astype(np.uint8)
    for percent in (1, 2):
        edge = max(1, height * percent // 100)
        yield f"cropped by {percent}% at each side", gray[edge:-edge, edge:-edge]
    written = gray.copy()
    cv2.putText(written, "PORTABLE 12:30", (10, height // 12), 0, height / 600, 255, 2)
    yield "large letters", written
    yield "mirrored", gray[:, ::-1]
    yield "inverted", 255 - gray


if __name__ == "__main__":
    main()
