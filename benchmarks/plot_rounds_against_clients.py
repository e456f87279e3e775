"""The plot of the docs: rounds to a fixed accuracy against the number of clients, on the saddle and on the digits.

.venv/bin/python benchmarks/plot_rounds_against_clients.py docs/images/rounds_against_clients.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
COLOURS = {"codasca": "#0072B2", "coda_plus": "#D55E00"}
#: What is drawn of the windows and step sizes that were run.
STEP, LINES = "step 0.5", {"window 16": "o--", "window 32": "o-"}
TITLES = {"codasca": "CODASCA", "coda_plus": "CODA+"}


def main() -> None:
    """Draw both benchmarks side by side."""
    saddle = json.loads((RESULTS / "rounds_against_clients.json").read_text())
    images = json.loads((RESULTS / "rounds_against_clients_images.json").read_text())
    figure = Figure(figsize=(9.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, rounds in saddle["rounds"].items():
        label = f"{TITLES[name]}, slope {saddle['slope'][name]:+.2f}"
        left.plot([int(k) for k in rounds], list(rounds.values()), "o-", color=COLOURS[name], label=label)
    for case, cells in images["rounds"].items():
        name, window, step = case.split(", ")
        if step != STEP or window not in LINES:
            continue
        label = f"{TITLES[name]}, {window}: {images['slope'][case]:+.2f}"
        medians = [float(np.median(rounds)) for rounds in cells.values()]
        right.plot([int(k) for k in cells], medians, LINES[window], color=COLOURS[name], label=label)
    left.set_title("heterogeneous quadratic saddle, 3% accuracy")
    right.set_title("handwritten digits, AUC 0.98")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_yticks([5, 10, 20, 40], ["5", "10", "20", "40"], minor=False)
        axis.minorticks_off()
        axis.set_xticks([2, 4, 8, 16, 32], ["2", "4", "8", "16", "32"])
        axis.set_xlabel("clients K")
        axis.set_ylabel("communication rounds")
        axis.grid(alpha=0.3, which="both")
    left.legend(frameon=False)
    right.legend(frameon=False, fontsize="small", loc="lower left")
    right.set_ylim(bottom=3)
    figure.savefig(sys.argv[1], dpi=110)


if __name__ == "__main__":
    main()
