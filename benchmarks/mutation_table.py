"""Which check notices which slip: mutants of the update rules against the checks that they must hold.

    python -m benchmarks.mutation_table --save benchmarks/results/mutation_table.md

A mutant is the module with one piece of its source replaced: a wrong sign, a divisor off by one, clipping, a noisy
reference point. Each must fail at least one check of `tests/invariants/`; the table shows which fail (x).
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import torch

from tests.invariants.mutants import build_mutant
from tests.invariants.proofs import CHECKS, MUTANTS, fails


def main() -> int:
    """Print and save the tables; 1 if a module fails a check or a mutant passes all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", help="comma-separated, e.g. algorithms.codasca; default: all")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.modules.split(",") if options.modules else list(CHECKS)
    text, unnoticed, total = "", [], 0
    for name in names:
        table, passed = table_of(name)
        print(table, flush=True)
        text += table + "\n"
        unnoticed += [f"{name}: {mutant}" for mutant in passed]
        total += len(MUTANTS[name])
    summary = f"{total} mutants of {len(names)} modules, {len(unnoticed)} not noticed by any check."
    print(summary, *unnoticed, sep="\n")
    if options.save:
        head = "# Mutation table\n\n`python " + " ".join(sys.argv) + f"`\n\n{summary}\n\n"
        options.save.write_text(head + text, encoding="utf-8")
    return 1 if unnoticed else 0


def table_of(name: str) -> tuple[str, list[str]]:
    """A module's table in Markdown, and the mutants that no check notices (or the module itself, if one does)."""
    checks = CHECKS[name]
    unnoticed = [] if not any(fails(check, importlib.import_module(f"chestfed.{name}")) for check in checks) else [name]
    titles = [check.__name__.removeprefix("check_").replace("_", " ") for check in checks]
    lines = [f"## {name}", "", *(f"{number}. {title}" for number, title in enumerate(titles, start=1)), ""]
    lines.append("| mutant | " + " | ".join(str(number) for number in range(1, len(checks) + 1)) + " |")
    lines.append("|---|" + ":-:|" * len(checks))
    for mutant, (old, new) in MUTANTS[name].items():
        module = build_mutant(f"chestfed.{name}", old, new)
        found = [fails(check, module) for check in checks]
        if not any(found):
            unnoticed.append(mutant)
        lines.append(f"| {mutant} | " + " | ".join("x" if noticed else "" for noticed in found) + " |")
    return "\n".join(lines) + "\n", unnoticed


if __name__ == "__main__":
    raise SystemExit(main())
