"""The picture of the sample hospitals in the docs: one film without a disease and one with each, of every hospital.

python -m benchmarks.plot_sample_hospitals docs/images/sample_hospitals.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from chestfed.core.diseases import DISEASES, TITLES
from chestfed.leaves.samples.drawing.phantom import draw_film
from chestfed.leaves.samples.hospitals import SIZES, Hospital, draw_hospital_images, list_hospitals
from chestfed.leaves.samples.patients import Film

SEED = 1


def shown(hospital: Hospital, disease: str | None) -> Film | None:
    """The plainest frontal case of this disease alone, without devices, or the first film without any."""
    drawn = draw_hospital_images(hospital, SEED, SIZES["default"])
    films = [film for film in drawn if film.view != "lateral" and not film.devices]
    alone = [film for film in films if {name for name in DISEASES if film.severity[name]} == {disease} - {None}]
    return max(alone, key=lambda film: film.severity[disease] if disease else 0.0, default=None)


def main() -> None:
    """Draw and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    matplotlib.use("agg")
    figure = Figure(figsize=(12, 10.4), facecolor="black", layout="constrained")
    columns = (None, *DISEASES)
    hospitals = list_hospitals("default")
    for hospital, axes in zip(hospitals, figure.subplots(len(hospitals), len(columns)), strict=True):
        for ax, disease in zip(axes, columns, strict=True):
            ax.set(xticks=[], yticks=[], facecolor="black")
            film = shown(hospital, disease)
            if film is not None:
                ax.imshow(draw_film(film, hospital.look, SEED, hospital.name), cmap="gray", vmin=0, vmax=1)
            if hospital is hospitals[0]:
                ax.set_title(TITLES[disease] if disease else "no disease", color="white", fontsize=11)
        axes[0].set_ylabel(hospital.name, color="white", fontsize=11)
    figure.suptitle("SYNTHETIC phantoms: no patients, no clinical meaning", color="white", fontsize=12)
    figure.savefig(parser.parse_args().picture, dpi=90, pil_kwargs={"quality": 85})


if __name__ == "__main__":
    main()
