"""The figure of docs/rare_findings.md: test AUC over the step size, for cross-entropy and the AUC loss.

python -m benchmarks.plot_step_sizes docs/images/step_sizes.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from benchmarks.plot_joining import BLUE, ORANGE
from benchmarks.step_sizes import STEPS

_FIGURES = Path(__file__).parent / "results" / "step_sizes.json"
PANELS = {
    "nih, features, 0.1": "NIH, 10%, features",
    "guangzhou, features, 0.01": "Guangzhou, 1%, features",
    "guangzhou, imagenet, 0.01": "Guangzhou, 1%, pixels",
}
CURVES = {
    "cross-entropy": (BLUE, "-", "o"),
    "balanced batches": (BLUE, "--", "s"),
    "AUC (eq. 2)": (ORANGE, "-", "^"),
    "AUC (eq. 2), balanced batches": (ORANGE, "--", "v"),
}
LABELS = {"balanced batches": "cross-entropy, balanced batches"}


def main() -> None:
    """Draw and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    picture: Path = parser.parse_args().picture
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "step sizes", "font.size": 10, "svg.fonttype": "none"})
    measured = json.loads(_FIGURES.read_text("utf-8"))
    figure = Figure(figsize=(8.2, 3.4), layout="constrained")
    panels = figure.subplots(1, len(PANELS))
    for axes, (name, title) in zip(panels, PANELS.items(), strict=True):
        losses = measured[name]["losses"]
        for loss, (color, line, mark) in CURVES.items():
            aucs = losses[loss]["auc by step"]
            axes.plot(STEPS, aucs, line, color=color, marker=mark, markersize=4, label=LABELS.get(loss, loss))
        best = max(max(losses[loss]["auc by step"]) for loss in CURVES)
        axes.set(xscale="log", title=title, xlabel="local step", ylim=(0.45, best + 0.02))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("test AUC")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
