"""LibAUC beside chestfed: where both define the same thing, the same loss, gradient and step; elsewhere what differs.

LibAUC is not a dependency of chestfed. Fetch it into a folder of its own, without what it asks for:

    python -m pip install --target runs/libauc_pkgs --no-deps libauc==2.0.1
    python -m benchmarks.libauc_side_by_side --libauc runs/libauc_pkgs --save libauc.md

`libauc.losses` and `libauc.optimizers` import tqdm, scikit-learn and scipy. The last two come with chestfed; for tqdm,
a progress bar that they never call, an empty module stands in during the import where it is not installed. torchvision,
torch-geometric, ogb and the rest serve LibAUC's data sets, models and samplers, which are not imported.

The comparisons are in libauc_parts/. Everything is written in LibAUC's variables: its alpha is chestfed's plus 1, and
its loss is chestfed's plus p(1-p). Each line states beforehand whether the two should agree; where one does not turn
out as stated, the exit status is 1.
"""

from __future__ import annotations

import argparse
import platform
import sys
from importlib import metadata
from pathlib import Path

import torch

from benchmarks.libauc_parts.compositional import compositional_facts
from benchmarks.libauc_parts.library import import_libauc
from benchmarks.libauc_parts.losses import multi_label, single_label, version_two
from benchmarks.libauc_parts.proximal import proximal_facts
from benchmarks.libauc_parts.speed import time_losses
from benchmarks.libauc_parts.state import state_facts
from benchmarks.speed_parts.machine import processor

PARTS = "Parts: 1 AUCMLoss v1, 2 AUCMLoss v2, 3 MultiLabelAUCMLoss, 4 CompositionalAUCLoss and PDSCA, 5 PESG."
VERSIONS = ("libauc", "chestfed", "torch", "numpy")


def main() -> None:
    """Print and save the tables; the exit status is 1 if a line is not as described."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libauc", type=Path, help="folder that holds the package `libauc`; default: as installed")
    parser.add_argument("--save", type=Path, help="Markdown file for the tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stubs = import_libauc(options.libauc)
    rows = [*single_label(), *version_two(), *multi_label()]
    facts = [*state_facts(), *compositional_facts(), *proximal_facts()]
    losses = [
        [row.part, row.libauc, row.chestfed, row.batches]
        + [" / ".join(f"{figure:.0e}" for figure in pair) for pair in zip(*row.differences.values(), strict=True)]
        + [("same" if row.same else "differs") + ("" if row.same == row.expected else " (UNEXPECTED)"), row.why]
        for row in rows
    ]
    observed = [[fact.part, fact.what, fact.observed, "yes" if fact.as_described else "NO"] for fact in facts]
    timed = [
        [case, *(f"{ms:.3f}" for ms in pair["ms per call"].values()), *map(str, pair["ratios"].values())]
        for case, pair in time_losses().items()
    ]
    versions = [f"{name} {metadata.version(name)}" for name in VERSIONS] + [f"python {platform.python_version()}"]
    text = [
        "# LibAUC beside chestfed",
        f"`{' '.join(['python -m benchmarks.libauc_side_by_side', *sys.argv[1:]])}`",
        f"{', '.join(versions)}. {processor()}, one thread.",
        f"Replaced by an empty module: {', '.join(stubs) or 'nothing'}.",
        PARTS,
        "## Losses: largest absolute differences in float64 / float32, of the loss and of its gradients",
        table("part, LibAUC, chestfed, batches, loss, by scores, by (a b), by alpha, , why", losses),
        "## Optimizers and state",
        table("part, what, observed, as described", observed),
        "## Forward and backward, median ms",
        table("LibAUC's loss, chestfed, LibAUC, ratio", timed),
    ]
    page = "\n\n".join(text) + "\n"
    print(page)
    if options.save:
        options.save.write_text(page, encoding="utf-8")
    if "UNEXPECTED" in page or not all(fact.as_described for fact in facts):
        sys.exit("Some lines are not as described: this LibAUC may be another version than 2.0.1.")


def table(heads: str, rows: list[list[str]]) -> str:
    """A Markdown table."""
    names = heads.split(", ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)


if __name__ == "__main__":
    main()
