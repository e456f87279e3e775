"""How often burned-in letters are seen, and how often in pictures without any.

    python benchmarks/burned_in.py --images data/chestxray8_sample/images --save benchmarks/results/burned_in.json

Four measurements:

* 96 of the 684 pictures of NIH's sample, drawn at random and labeled by eye: all have a marker (the L or R of lead or
  in a printed disc, some with initials), 21 have printed words besides. The thresholds were chosen while looking at
  these pictures and at these results, so they flatter the detector;
* the other 588 pictures, never used to choose a threshold: how many are flagged (docs/privacy.md says what was seen
  when these were looked at);
* words planted into the pictures without: four heights, gray levels and places, all combinations;
* phantoms of `chestfed samples --size tiny`, before and after planting. Some have a printed word by themselves.

No file name is stored.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).parents[1]))

from chestfed.core.errors import ImageError
from chestfed.images.burned_in import burned_in
from chestfed.images.decode import decode
from chestfed.samples import write_hospitals
from chestfed.training.identity import software_versions

#: w: printed words (AP, PORTABLE, UPRIGHT); m: a marker only. In the order of the drawn pictures' names.
LABELS = (
    "wwmmwm mwmwmm wmmmmm wmmwww mmwmmm mmmmmm mmmmmm mmmmmw wmwmmm mmwmmm mmwmmm wmwmmm mmwmmm mmmmmm mmwmmm mmmmwm"
).replace(" ", "")
OF = 684

#: Of the font, as a share of the picture's height: 8 to 31 pixels at 512; a capital is some 0.7 of it.
HEIGHTS = (1 / 64, 1 / 40, 1 / 25, 1 / 16)
GREYS = {"white": 255, "light gray": 190, "black": 0, "25 above what is behind": None}
PLACES = ("top left", "bottom", "middle", "upwards at the left")
KINDS = ("text", "marker", "none")
WORDS = ("DOE JANE", "4711-0815", "12.03.1961", "St. Anne", "born 1961 F")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="the folder of NIH's 684 pictures")
    parser.add_argument("--each", type=int, default=4, help="pictures per combination of height, gray and place")
    parser.add_argument("--parts", default="labeled,others,planted,phantoms", help="which measurements, with commas")
    parser.add_argument("--save", type=Path, help="parts that are not measured stay as they are in this file")
    options = parser.parse_args()

    files = sorted(options.images.glob("*.png"))
    if len(files) != OF:
        parser.error(f"{options.images} holds {len(files)} pictures: the labels are of a draw from {OF}")
    random.Random(5).shuffle(files)
    drawn = sorted(files[: len(LABELS)])
    report: dict = {"versions": software_versions(), "pictures_per_combination": options.each}
    for part in options.parts.split(","):
        if part == "labeled":
            report |= labeled([decode(file) for file in drawn])
        elif part == "others":
            started = time.process_time()
            kinds = [burned_in(decode(file)).kind for file in files[len(LABELS) :]]
            report["cpu_seconds_per_picture_512"] = round((time.process_time() - started) / len(kinds), 3)
            report["the_other_pictures_unlabeled"] = {kind: kinds.count(kind) for kind in KINDS}
        elif part == "planted":
            plain = [decode(file) for file, label in zip(drawn, LABELS, strict=True) if label == "m"]
            report["planted_in_real_pictures"] = planted(plain, options.each)
        elif part == "phantoms":
            report["phantoms"] = phantoms(max(1, options.each // 4))
        else:
            parser.error(f"--parts: '{part}' is not one of labeled, others, planted, phantoms")
    print(json.dumps(report, indent=2))
    if options.save:
        earlier = json.loads(options.save.read_text(encoding="utf-8")) if options.save.exists() else {}
        options.save.write_text(json.dumps(earlier | report, indent=2) + "\n", encoding="utf-8")


def labeled(pictures: list[np.ndarray]) -> dict:
    """What is seen in the pictures that were labeled by eye, and in their middles, which have no marker."""
    found = [burned_in(picture) for picture in pictures]
    kinds = {label: [one.kind for one, of in zip(found, LABELS, strict=True) if of == label] for label in "wm"}
    scores = {label: [one.score for one, of in zip(found, LABELS, strict=True) if of == label] for label in "wm"}
    middles = [picture[h // 4 : -h // 4, w // 4 : -w // 4] for picture in pictures for h, w in [picture.shape]]
    in_middles = [burned_in(middle).kind for middle in middles]
    return {
        "labeled_by_eye": {
            "printed words": {kind: kinds["w"].count(kind) for kind in KINDS},
            "marker only": {kind: kinds["m"].count(kind) for kind in KINDS},
            "text_seen": share(kind == "text" for kind in kinds["w"]),
            "text_seen_where_there_is_none": share(kind == "text" for kind in kinds["m"]),
            "letters_needed": {
                str(needed): {
                    "seen": sum(score >= needed for score in scores["w"]),
                    "wrong": sum(score >= needed for score in scores["m"]),
                }
                for needed in (3, 4, 5, 6)
            },
        },
        "middle_of_the_same_pictures": {kind: share(one == kind for one in in_middles) for kind in KINDS},
    }


def phantoms(each: int) -> dict:
    """Synthetic pictures as they are, and with words planted into those in which no text is seen."""
    with tempfile.TemporaryDirectory() as folder:
        write_hospitals(Path(folder), size="tiny", workers=1)
        films = [film for path in sorted(Path(folder).rglob("*")) if (film := opened(path)) is not None]
    random.Random(1).shuffle(films)
    films = films[:80]
    without = [film for film in films if burned_in(film).kind != "text"]
    return {
        "text_before_planting_some_have_a_word": {"seen": len(films) - len(without), "n": len(films)},
        "planted_in_those_without": planted(without, each)["all"],
    }


def planted(pictures: list[np.ndarray], each: int) -> dict:
    """Shares of planted words that are seen, by height, gray and place, and over all."""
    seen: list[tuple[float, str, str, bool]] = []
    for number, (height, gray, place) in enumerate(product(HEIGHTS, GREYS, PLACES)):
        for repeat in range(each):
            turn = number * each + repeat
            picture = pictures[turn % len(pictures)]
            words = WORDS[turn % len(WORDS)]
            kind = burned_in(plant(picture, words, height, GREYS[gray], place)).kind
            seen.append((height, gray, place, kind == "text"))
    result: dict = {"all": share(one[3] for one in seen)}
    for column, (name, values) in enumerate(
        (("height_of_the_font", HEIGHTS), ("gray", tuple(GREYS)), ("place", PLACES))
    ):
        result[name] = {
            (f"1/{round(1 / value)}" if isinstance(value, float) else value): share(
                one[3] for one in seen if one[column] == value
            )
            for value in values
        }
    solid = [one[3] for one in seen if one[0] >= 1 / 40 and one[1] in ("white", "black")]
    result["white or black, 1/40 or higher"] = share(solid)
    return result


def plant(picture: np.ndarray, words: str, height: float, gray: int | None, place: str) -> np.ndarray:
    """The picture with words in PIL's own font."""
    rows, columns = picture.shape
    font = ImageFont.load_default(size=max(6, round(height * rows)))
    left, top, right, bottom = font.getbbox(words)
    ink = Image.new("L", (round(right - left) + 2, round(bottom - top) + 2))
    ImageDraw.Draw(ink).text((1 - left, 1 - top), words, fill=255, font=font)
    if place.startswith("upwards"):
        ink = ink.transpose(Image.Transpose.ROTATE_90)
    mask = np.asarray(ink, np.float32) / 255
    mask = mask[: rows - 8, : columns - 8]
    h, w = mask.shape
    corner = {
        "top left": (rows // 30, columns // 30),
        "bottom": (rows - h - rows // 30, (columns - w) // 2),
        "middle": ((rows - h) // 2, (columns - w) // 2),
        "upwards at the left": ((rows - h) // 2, columns // 30),
    }[place]
    y, x = max(0, corner[0]), max(0, corner[1])
    behind = picture[y : y + h, x : x + w].astype(np.float32)
    level = min(255.0, float(behind.mean()) + 25) if gray is None else gray
    result = picture.copy()
    result[y : y + h, x : x + w] = np.rint(behind * (1 - mask) + level * mask).astype(np.uint8)
    return result


def opened(path: Path) -> np.ndarray | None:
    """A picture, or None if it is none."""
    try:
        return decode(path) if path.is_file() and path.stat().st_size else None
    except ImageError:
        return None


def share(values: Iterable[bool]) -> dict[str, float]:
    """Count, share, and Wilson's 95% interval."""
    known = list(values)
    n, hits, z = len(known), sum(known), 1.959964
    p = hits / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    return {"seen": hits, "n": n, "share": round(p, 3), "low": round(max(0, low), 3), "high": round(min(1, high), 3)}


if __name__ == "__main__":
    main()
