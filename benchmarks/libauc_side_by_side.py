"""LibAUC beside chestfed: where both define the same thing, the same loss, gradient and step; elsewhere what differs.

LibAUC is not a dependency of chestfed. Fetch it into a folder of its own, without what it asks for:

    .venv/bin/python -m pip install --target runs/libauc_pkgs --no-deps libauc==2.0.1
    .venv/bin/python benchmarks/libauc_side_by_side.py --libauc runs/libauc_pkgs --save runs/libauc

`libauc.losses` and `libauc.optimizers` import tqdm, scikit-learn and scipy. The last two come with chestfed; for tqdm,
a progress bar that they never call, an empty module stands in during the import where it is not installed. torchvision,
torch-geometric, ogb and the rest serve LibAUC's data sets, models and samplers, which are not imported.

The comparisons are in libauc_parts/. Everything is written in LibAUC's variables: its alpha is chestfed's plus 1, and
its loss is chestfed's plus p(1-p). Each line states beforehand whether the two should agree; where one does not turn
out as stated, the exit status is 1. `--save PATH` writes PATH.json and PATH.md.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from libauc_parts.compositional import compositional_facts
from libauc_parts.library import import_libauc
from libauc_parts.losses import Comparison, multi_label, single_label, version_two
from libauc_parts.problem import Fact
from libauc_parts.proximal import proximal_facts
from libauc_parts.speed import Speed, cpu_name, speed
from libauc_parts.state import state_facts

#: LibAUC's loss and the number of diseases.
TIMED = (("AUCMLoss", 1), ("MultiLabelAUCMLoss", 1), ("MultiLabelAUCMLoss", 5))
PARTS = "Parts: 1 AUCMLoss v1, 2 AUCMLoss v2, 3 MultiLabelAUCMLoss, 4 CompositionalAUCLoss and PDSCA, 5 PESG."


@dataclass(frozen=True)
class Report:
    """Everything that is shown and saved."""

    circumstances: dict[str, Any]
    losses: Sequence[Comparison]
    facts: Sequence[Fact]
    speeds: Sequence[Speed]

    @property
    def as_described(self) -> bool:
        """Whether every line turned out as it states beforehand."""
        return all(row.same == row.expected for row in self.losses) and all(fact.as_described for fact in self.facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libauc", type=Path, help="folder that holds the package `libauc`; default: as installed")
    parser.add_argument("--repeats", type=int, default=300, help="timed pairs per size")
    parser.add_argument("--save", type=Path, help="write PATH.json and PATH.md")
    options = parser.parse_args()

    torch.set_num_threads(1)
    stubs = import_libauc(options.libauc)
    comparisons = [*single_label(), *version_two(), *multi_label()]
    facts = [*state_facts(), *compositional_facts(), *proximal_facts()]
    speeds = [speed(loss, n, diseases, options.repeats) for loss, diseases in TIMED for n in (32, 4096)]
    circumstances = {
        "command": " ".join(["python", "benchmarks/libauc_side_by_side.py", *sys.argv[1:]]),
        "versions": {name: metadata.version(name) for name in ("libauc", "chestfed", "torch", "numpy")}
        | {"python": platform.python_version()},
        "cpu": f"{cpu_name()}, one thread",
        "stand_ins": stubs,
    }
    report = Report(circumstances, comparisons, facts, speeds)
    show(report)
    if options.save:
        save(options.save, report)
    if not report.as_described:
        sys.exit("Some lines did not turn out as described here: this LibAUC may be another version than 2.0.1.")


Tabular = tuple[str, list[str], list[list[str]]]


def tables(report: Report) -> list[Tabular]:
    """Title, heads and cells of the three tables."""
    losses = [
        [row.part, row.libauc, row.chestfed, row.batches]
        + [" / ".join(f"{figure:.0e}" for figure in pair) for pair in zip(*row.differences.values(), strict=True)]
        + [("same" if row.same else "differs") + ("" if row.same == row.expected else " (UNEXPECTED)"), row.why]
        for row in report.losses
    ]
    heads = ["part", "LibAUC", "chestfed", "batches", "loss", "by scores", "by a, b", "by alpha", "", "why"]
    observed = [[fact.part, fact.what, fact.observed, "yes" if fact.as_described else "NO"] for fact in report.facts]
    timed = [
        [
            row.loss,
            str(row.n),
            str(row.diseases),
            f"{row.libauc_ms:.3f}",
            f"{row.chestfed_ms:.3f}",
            f"{row.libauc_over_chestfed:.2f}",
        ]
        for row in report.speeds
    ]
    return [
        ("Losses: largest absolute differences in float64 / float32, of the loss and of its gradients", heads, losses),
        ("Optimizers and state", ["part", "what", "observed", "as described"], observed),
        ("Forward and backward, median ms", ["LibAUC's loss", "n", "J", "LibAUC", "chestfed", "ratio of pairs"], timed),
    ]


def show(report: Report) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    for title, heads, rows in tables(report):
        table = Table(*heads, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(PARTS)
    for key, value in report.circumstances.items():
        console.print(f"{key}: {value}", markup=False)


def save(path: Path, report: Report) -> None:
    """PATH.json with every figure and PATH.md with the tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(without_nan(asdict(report)), indent=2, ensure_ascii=False, allow_nan=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")

    about = report.circumstances
    page = io.StringIO()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    print(f"# LibAUC beside chestfed\n\n`{about['command']}`\n\n{versions}. {about['cpu']}.\n", file=page)
    print(f"Stood in for: {', '.join(about['stand_ins']) or 'nothing'}.\n\n{PARTS}\n", file=page)
    for title, heads, rows in tables(report):
        print(f"## {title}\n", file=page)
        for cells in (heads, ["---"] * len(heads), *rows):
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |", file=page)
        print(file=page)
    path.with_suffix(".md").write_text(page.getvalue().rstrip() + "\n", encoding="utf-8")


def without_nan(value: Any) -> Any:
    """The same with null for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


if __name__ == "__main__":
    main()
