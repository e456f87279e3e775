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
GOAL = "0.98"
TITLES = {"codasca": "CODASCA", "coda_plus": "CODA+"}


def main() -> None:
    """Draw both benchmarks side by side."""
    saddle = json.loads((RESULTS / "rounds_against_clients.json").read_text())
    digits = json.loads((RESULTS / "rounds_against_clients_digits.json").read_text())
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, rounds in saddle["rounds"].items():
        label = f"{TITLES[name]}, slope {saddle['slope'][name]:+.2f}"
        left.plot([int(k) for k in rounds], list(rounds.values()), "o-", color=COLOURS[name], label=label)
    for name in COLOURS:
        cells = {int(k): value for k, value in digits["rounds"][f"{name}, AUC {GOAL}"].items()}
        ks = sorted(k for k in cells if None not in cells[k])
        right.plot(ks, [float(np.median(cells[k])) for k in ks], "o-", color=COLOURS[name], label=TITLES[name])
        for k in sorted(set(cells) - set(ks)):
            right.annotate("not reached", (k, 36), color=COLOURS[name], ha="right")
    left.set_title("heterogeneous quadratic saddle, 3% accuracy")
    right.set_title(f"handwritten digits, unlike clients, AUC {GOAL}")
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_yticks([5, 10, 20, 40], ["5", "10", "20", "40"], minor=False)
        axis.minorticks_off()
        axis.set_xticks([2, 4, 8, 16, 32], ["2", "4", "8", "16", "32"])
        axis.set_xlabel("clients K")
        axis.set_ylabel("communication rounds")
        axis.grid(alpha=0.3, which="both")
        axis.legend(frameon=False)
    figure.savefig(sys.argv[1], dpi=110)


if __name__ == "__main__":
    main()
