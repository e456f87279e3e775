"""What it takes to describe made hospitals of many shapes with `chestfed site new`, and whether a label is wrong.

    python -m benchmarks.new_hospitals --save benchmarks/results/new_hospitals.md

Each hospital is written to a temporary folder with pictures of a few pixels. `chestfed site new NAME --images ...
--labels ... --yes` is called as the documentation says: first without more flags; where that stops, with the flags that
settle it, or after what it says is fixed in the table. A YAML that opens is compared cell by cell with the truth about
each film, before and after a person fills in the mapping table and changes keys of the YAML. The films are made up: no
patients.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from typer.testing import CliRunner

from benchmarks.hospital_shapes import SHAPES, Case, Place
from benchmarks.hospital_shapes.maker import DISEASES
from chestfed.cli import app
from chestfed.core.errors import ChestfedError
from chestfed.sites import load_site_config, open_site
from chestfed.sites.spreadsheet.term_table import read_terms, terms_text
from chestfed.sites.terms import normal


@dataclass(frozen=True)
class Compared:
    """Cells of an open site: how many there are, are wrong, and are missing though the table tells them."""

    cells: int = 0
    wrong: int = 0
    missing: int = 0


@dataclass
class Outcome:
    """What became of one hospital. `calls` is None if no YAML opened; `wrong` counts over every YAML that opened."""

    name: str
    about: str
    known: bool
    calls: int | None = None
    flags: int = 0
    means: str = ""
    compared: Compared = Compared()
    wrong: int = 0
    said: str = ""

    @property
    def right(self) -> bool:
        """Whether it was described by documented means, and no cell was wrong on the way, or missing at the end."""
        return self.calls is not None and not self.wrong and not self.compared.missing and self.compared.cells > 0


def compare(path: Path, data: Path, truth: dict[str, dict[str, Any]]) -> Compared:
    """The table that the YAML opens against the truth; a lateral that is kept is wrong in all its cells."""
    config = load_site_config(path)
    frame = open_site(config, data).frame
    frame = frame[frame["image"].map(lambda name: (data / config.root / str(name)).exists())]
    rows = {str(row["image"]): row for _, row in frame.iterrows()}
    cells = wrong = missing = 0
    patients: dict[str, set[str]] = {}
    for image, expected in truth.items():
        row = rows.get(image)
        for what, value in expected.items():
            cells += 1
            found = None if row is None or pd.isna(row.get(what)) else row[what]
            if what == "patient" and found is not None:
                patients.setdefault(value, set()).add(str(found))
            elif found is None:
                missing += value is not None
            elif value is None or (str(found) != value if isinstance(value, str) else float(found) != value):
                lost = what == "view" and found == "unknown"
                wrong, missing = wrong + (not lost), missing + lost
    of_one = [names for names in patients.values() if len(names) > 1]
    different = {name for names in patients.values() for name in names}
    wrong += len(of_one) + (len(different) != len(patients))
    wrong += sum(len(DISEASES) for image in rows if image not in truth)
    return Compared(cells, wrong, missing)


def describe(name: str, folder: Path) -> Outcome:
    """One hospital, from its folder to a YAML that is right."""
    about, known, make = SHAPES[name]
    place = Place(folder)
    case, outcome = make(place), Outcome(name, about, known)
    path, terms = folder / "out" / "hospital.yaml", folder / "out" / "hospital.terms.csv"
    means, flags = list[str](), list[str]()
    steps = [list[str](), case.flags] if case.flags and not case.beforehand else [case.flags]
    steps = [*steps, steps[-1]] if case.repair or case.words else steps
    for number, flags in enumerate(steps, start=1):
        if case.repair and number == len(steps):
            case.repair()
            means.append("table fixed")
        if number == len(steps) and case.words and _filled(terms, case.words):
            means.append("mapping table")
        error = _called(folder, case, flags)
        if error is None:
            outcome.calls, outcome.flags = number, len(flags)
            break
        outcome.said = error
    if outcome.calls is None:
        return outcome
    if outcome.flags:
        means.insert(0, f"{outcome.flags} flag{'s' if outcome.flags > 1 else ''}")
    looks = [compare(path, folder, case.truth)]
    if case.meanings and _filled(terms, case.meanings):
        means.append("mapping table")
        looks.append(compare(path, folder, case.truth))
    if case.edit is not None:
        site = yaml.safe_load(path.read_text(encoding="utf-8"))
        case.edit(site)
        path.write_text(yaml.safe_dump(site, allow_unicode=True, sort_keys=False), encoding="utf-8")
        means.append("keys of the YAML")
        looks = [compare(path, folder, case.truth)]
    outcome.compared, outcome.wrong = looks[-1], sum(look.wrong for look in looks)
    outcome.means = ", ".join(means) or "nothing"
    return outcome


def _called(folder: Path, case: Case, flags: Sequence[str]) -> str | None:
    """Calls `chestfed site new`; what it says if it stops, or if the site does not open."""
    images = next((flag.partition("=")[2] for flag in flags if flag.startswith("--images=")), case.images)
    command = ["site", "new", "hospital", "--images", str(folder / images), "--out", str(folder / "out"), "--force"]
    command += ["--data", str(folder), "--yes", *(flag for flag in flags if not flag.startswith("--images="))]
    command += [] if case.labels is None else ["--labels", str(folder / case.labels)]
    result = CliRunner().invoke(app, command)
    if result.exception is None or (isinstance(result.exception, SystemExit) and not result.exit_code):
        return None
    if not isinstance(result.exception, ChestfedError):
        return f"{type(result.exception).__name__}: {result.exception}\n{result.output}"
    return str(result.exception)


def _filled(path: Path, said: Mapping[str, str]) -> bool:
    """Writes the meanings of the terms that wait for a person; whether there are any."""
    rows, _ = read_terms(path)
    meanings = {normal(term): meaning for term, meaning in said.items()}
    waiting = [row for row in rows if not row.known and row.term in meanings]
    told = [replace(row, meaning=meanings[row.term], confirmed="yes") if row in waiting else row for row in rows]
    path.write_text(terms_text(told), encoding="utf-8-sig")
    return bool(waiting)


def run(names: Sequence[str]) -> list[Outcome]:
    """The outcome of each hospital."""
    outcomes = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="chestfed-") as folder:
            outcomes.append(describe(name, Path(folder).resolve()))
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table, and its sums."""
    lines = ["| hospital | calls | takes | cells | wrong | missing |", "|---|---|---|---|---|---|"]
    for one in outcomes:
        calls = "never opens" if one.calls is None else one.calls
        cells = f"{one.compared.cells:,} | {one.wrong} | {one.compared.missing}"
        lines.append(f"| {one.about}{'' if one.known else ' *'} | {calls} | {one.means} | {cells} |")
    calls = [one.calls for one in outcomes if one.calls is not None]
    first = sum(number == 1 for number in calls)
    lines += [
        "",
        f"{len(outcomes)} hospitals, {sum(not one.known for one in outcomes)} of them (*) of shapes not tried before: "
        f"{sum(one.right for one in outcomes)} described correctly by documented means; {first} open at the first "
        f"call, median {statistics.median(calls):g} (most: {max(calls)}); {sum(one.wrong for one in outcomes)} of "
        f"{sum(one.compared.cells for one in outcomes):,} cells wrong.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these hospitals, and what stops them")
    parser.add_argument("--save", type=Path, help="file for the table")
    options = parser.parse_args()
    started = time.perf_counter()
    outcomes = run(options.only or list(SHAPES))
    text = table(outcomes)
    print(text)
    for one in outcomes:
        if not one.right or options.only:
            print(f"\n{one.name}: {one.calls} calls, {one.compared}, wrong {one.wrong}\n{one.said}")
    print(f"\n{time.perf_counter() - started:.0f} s")
    if options.save is not None:
        options.save.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
