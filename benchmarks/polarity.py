"""How often a mean film tells whether a film is stored as a negative.

    python benchmarks/polarity.py --images data/chestxray8_sample/images --save benchmarks/results/polarity.json

The patients are dealt into two halves. The mean of the first half's films is what chestfed ships (`--write-mean` writes
it to chestfed/images/mean_film.png); it judges the films of the second half, and a mean of those the first half's. Each
film is judged as it is and with a frame of 15% of black or white around it; a negative has the same score with the
other sign. The films of the synthetic hospitals are judged too. No file name is stored.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from chestfed.core.bundled import bundled
from chestfed.images.decode import decode_stored
from chestfed.images.polarity import MEAN_FILM, UNSURE, polarity, standardized
from chestfed.samples import write_hospitals
from chestfed.sites import load_site_config, open_site

FRAMES = {"no frame": (0.0, 0), "black frame": (0.15, 0), "white frame": (0.15, 255)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="a folder of NIH's pictures, PATIENT_NUMBER.png")
    parser.add_argument("--write-mean", action="store_true", help="write the mean film that chestfed ships")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    files = sorted(args.images.glob("*.png"))
    films = [decode_stored(file).gray for file in files]
    patients = [file.name.split("_")[0] for file in files]
    first = np.isin(patients, sorted(set(patients))[::2])
    means = [np.mean([standardized(films[row]) for row in np.flatnonzero(half)], axis=0) for half in (first, ~first)]
    if args.write_mean:
        low, high = means[0].min(), means[0].max()
        Image.fromarray(np.rint((means[0] - low) / (high - low) * 255).astype(np.uint8)).save(MEAN_FILM)
    found = {f"NIH, {name}": _told(_scores(films, first, means, *frame)) for name, frame in FRAMES.items()}
    found |= _phantoms()
    print(json.dumps(found, indent=1))
    if args.save:
        args.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _scores(films: list[np.ndarray], first: np.ndarray, means: list[np.ndarray], share: float, gray: int) -> np.ndarray:
    """Each film against the mean of the other half's."""
    scores = []
    for film, in_first in zip(films, first, strict=True):
        mean = means[1] if in_first else means[0]
        framed = np.pad(film, [(round(share * side),) * 2 for side in film.shape], constant_values=gray)
        scores.append(float((standardized(framed) * mean / np.linalg.norm(mean)).sum()))
    return np.array(scores)


def _phantoms() -> dict[str, dict[str, object]]:
    """By the shipped mean film, with MONOCHROME1 of the tables followed."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        write_hospitals(folder, size="tiny")
        for name in ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr"):
            table = open_site(load_site_config(bundled("site_configs") / "synthetic" / f"{name}.yaml"), Path(folder))
            views = table.frame["view"].astype(str).to_numpy()
            scores = [
                polarity(decode_stored(table.root / image, stored).gray) * (-1 if inverted else 1)
                for image, stored, inverted in zip(
                    table.frame["image"], table.stored(), table.frame["inverted"], strict=True
                )
            ]
            for kind in sorted({"lateral" if view == "lateral" else "frontal" for view in views}):
                chosen = (views == "lateral") == (kind == "lateral")
                found[f"synthetic {name}, {kind}, against its column"] = _told(np.array(scores)[chosen])
    return found


def _told(scores: np.ndarray) -> dict[str, object]:
    return {
        "films": len(scores),
        "right": int((scores >= UNSURE).sum()),
        "not told": int((np.abs(scores) < UNSURE).sum()),
        "wrong": int((scores <= -UNSURE).sum()),
        "lowest": round(float(scores.min()), 3),
        "median": round(float(np.median(scores)), 3),
    }


if __name__ == "__main__":
    main()
