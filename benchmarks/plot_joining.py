"""The figure of docs/joining.md: what joining changes at one hospital, for three kinds of partners and two losses.

python -m benchmarks.plot_joining docs/images/joining.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

_FIGURES = Path(__file__).parent / "results" / "radiographs.json"

#: Heading -> rows: label, name of the study, hospital (empty: the target against its K=1), the model that is compared.
GROUPS: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "Partners of the same kind (five diseases, NIH)": (
        ("20 own images", "parts, by images", "", "K=4 with 20 target images"),
        ("80 own images", "parts, by images", "", "K=4 with 80 target images"),
        ("270 own images", "parts", "", "K=4"),
        ("270 own images, cross-entropy", "parts, cross-entropy", "", "K=4"),
        ("control: partners' labels permuted", "parts, labels of the added ones permuted", "", "K=4"),
    ),
    "Ward and clinic of one hospital (five diseases, NIH)": (
        ("at the ward, 20 own images", "ward, by images", "", "K=2 with 20 target images"),
        ("at the ward, 80 own images", "ward, by images", "", "K=2 with 80 target images"),
        ("at the ward, all", "wards", "nih_ward", "K=2"),
        ("at the clinic, all", "wards", "nih_clinic", "K=2"),
    ),
    "Another meaning of the label (pneumonia, cross-entropy)": (
        ("NIH, with Guangzhou and Hannover", "three hospitals, cross-entropy", "nih", "K=3"),
        ("NIH, with Guangzhou", "three hospitals, cross-entropy", "", "K=2"),
        (
            "control: Guangzhou's labels permuted",
            "three hospitals, cross-entropy, labels of Guangzhou permuted",
            "",
            "K=2",
        ),
        ("NIH, with Hannover", "cross-entropy, Hannover alone", "", "K=2"),
        ("Guangzhou, with NIH and Hannover", "three hospitals, cross-entropy", "guangzhou", "K=3"),
    ),
}
BLUE, ORANGE, GRAY = "#0b5fa5", "#b5480d", "#5b6470"


def find_difference(studies: dict[str, Any], study: str, hospital: str, model: str) -> dict[str, Any]:
    """The difference of mean AUC from the model that the hospital has alone."""
    references = ("own data alone",) if hospital else ("K=1",)
    (row,) = (
        gain
        for gain in studies[study]["gains"]
        if (gain["hospital"], gain["model"], gain["disease"]) == (hospital, model, "mean")
        and gain["reference"] in references
    )
    return row


def main() -> None:
    """Draw and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    picture: Path = parser.parse_args().picture
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "joining", "font.size": 10, "svg.fonttype": "none"})
    studies = json.loads(_FIGURES.read_text("utf-8"))
    figure = Figure(figsize=(8.2, 5.2), layout="constrained")
    axes = figure.subplots()
    place, places, labels = 0.0, [], []
    for heading, rows in GROUPS.items():
        axes.text(
            0.0,
            place,
            heading,
            transform=axes.get_yaxis_transform(),
            fontweight="bold",
            va="center",
            backgroundcolor="white",
        )
        place += 1
        for label, *where in rows:
            row = find_difference(studies, *where)
            unsure = row["low"] <= 0 <= row["high"]
            color = GRAY if unsure else BLUE if row["difference"] > 0 else ORANGE
            axes.plot([row["low"], row["high"]], [place, place], color=color, linewidth=2)
            axes.plot(
                row["difference"], place, "o", color=color, markersize=6, markerfacecolor="white" if unsure else color
            )
            axes.text(
                max(row["high"], 0) + 0.004,
                place,
                f"{row['difference']:+.3f}".replace("-", "−"),
                va="center",
                color=color,
            )
            places.append(place)
            labels.append(label)
            place += 1
        place += 0.3
    axes.axvline(0, color="black", linewidth=0.8, zorder=0)
    axes.set_yticks(places, labels)
    axes.set(ylim=(place - 0.6, -0.7), xlim=(-0.125, 0.21))
    axes.set_xlabel("change of mean AUC; 95% interval over patients and ten splits of them")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None, dpi=110)


if __name__ == "__main__":
    main()
