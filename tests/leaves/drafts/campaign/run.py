"""Describes each made hospital with `chestfed site new`, and compares every cell with the truth about its films.

A user gives the policies (`--uncertain`, `--blank`, `--raters`, `--no-split`) in the first call; where it stops, the
options and rows of the code book that settle it, or what has to be fixed in the table. A user who has read the first
section of docs/tutorial_sixth_hospital.md also gives at once what that section lists (`informed`).
"""

from __future__ import annotations

import re
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from typer.testing import CliRunner

from chestfed.app.cli import app
from chestfed.core.errors import ChestfedError
from chestfed.data.sites import load_site_config, open_site
from chestfed.data.sites.tables.codebook import EMPTY, normalize_value, read_book, write_book
from chestfed.data.sites.tables.schema import ROLES
from tests.leaves.drafts.campaign.maker import DISEASES, FURTHER, SHAPES, Case, Place

MOST_CALLS = 3
#: Options that the first section of the tutorial tells a user to give in the first call, besides the policies.
LISTED = ("--set=header_row", "--set=sheet", "--set=threshold", "--column=patient=folder", "--column=patient=none")
#: Values whose meaning it tells to give at once: numbers, shares, single letters, signs.
_CODED = re.compile(r"[+-]?\d+([.,/]\d+)?|\w|[^\w\s]+(/[^\w\s]+)?")

#: What an open question has to name: an option, the code book, or what to do with the table.
_STEP = re.compile(r"--\w|label map|\b(give|write|export|add|change|fill|move|remove|name)\b", re.IGNORECASE)


@dataclass
class Outcome:
    """What became of one hospital. `calls` is None if no YAML opened; `wrong` cells are silent errors.

    `known` are the options that the tutorial tells to give in the first call, `informed` the calls with them.
    """

    name: str
    about: str
    calls: int | None = None
    means: str = ""
    cells: int = 0
    wrong: int = 0
    missing: int = 0
    text: str = ""
    known: tuple[str, ...] = ()
    informed: int | None = None

    @property
    def right(self) -> bool:
        """Whether it was described by documented means, and no cell is wrong or missing."""
        return self.calls is not None and not self.wrong and not self.missing and self.cells > 0


def compare(path: Path, data: Path, truth: Mapping[str, Mapping[str, Any]], outcome: Outcome) -> None:
    """The table that the YAML opens against the truth; an image that should be left out is wrong in all its cells."""
    config = load_site_config(path)
    rows = {str(row["image"]): row for _, row in open_site(config, data).frame.iterrows()}
    root = data / config.root
    expected = {Path(data, image).relative_to(root).as_posix(): about for image, about in truth.items()}
    patients: dict[str, set[str]] = {}
    for image, about in expected.items():
        row = rows.get(image)
        for column, value in about.items():
            outcome.cells += 1
            value_read = None if row is None or pd.isna(row.get(column)) else row[column]
            if column == "patient" and value_read is not None:
                patients.setdefault(value, set()).add(str(value_read))
            elif value_read is None or (column == "view" and value_read == "unknown" != value):
                outcome.missing += value is not None
            elif value is None or (str(value_read) != value if isinstance(value, str) else float(value_read) != value):
                outcome.wrong += 1
    names = [name for names in patients.values() for name in names]
    outcome.wrong += sum(len(of) > 1 for of in patients.values()) + len(names) - len(set(names))
    outcome.wrong += sum(len(DISEASES) for image in rows if image not in expected)


def describe(name: str, folder: Path, known: Sequence[str] = ()) -> Outcome:
    """One hospital, from its folder to a YAML that is right; `known` are further options of the first call."""
    about, make = {**SHAPES, **FURTHER}[name]
    case, outcome = make(Place(folder)), Outcome(name, about)
    book, means = folder / "out" / "hospital.codes.csv", list[str]()
    options, then = [*case.first, *known], [option for option in case.then if option not in known]
    for number in range(1, MOST_CALLS + 1):
        outcome.text = call(folder, case, options)
        if not outcome.text:
            outcome.calls = outcome.informed = number
            break
        if number == 1:
            outcome.known = (*(o for o in case.then if o.startswith(LISTED)), *list_codes(book, case.book))
        before = list(means)
        if case.repair is not None and "table fixed" not in means:
            case.repair()
            means.append("table fixed")
        if book.exists() and case.book and fill(book, case.book):
            means.append("label map")
        if then and number == 1:
            options += then
        elif means == before:
            break
    if outcome.calls is None:
        return outcome
    given = len(options)
    path = folder / "out" / "hospital.yaml"
    if case.edit is not None:
        site = yaml.safe_load(path.read_text(encoding="utf-8"))
        case.edit(site)
        path.write_text(yaml.safe_dump(site, allow_unicode=True, sort_keys=False), encoding="utf-8")
        means.append("keys of the YAML")
    compare(path, folder, case.truth, outcome)
    outcome.means = (
        ", ".join([*([f"{given} option{'s' if given > 1 else ''}"] if given else []), *dict.fromkeys(means)]) or "-"
    )
    return outcome


def call(folder: Path, case: Case, options: Sequence[str]) -> str:
    """Calls `chestfed site new`; what it says if it stops, or if the site does not open, else empty."""
    images = next((text.partition("=")[2] for text in options if text.startswith("--images=")), case.images)
    command = ["site", "new", "hospital", "--images", str(folder / images), "--out", str(folder / "out"), "--force"]
    command += ["--data", str(folder), "--no-input", *(text for text in options if not text.startswith("--images="))]
    command += [] if case.labels is None else ["--labels", str(folder / case.labels)]
    for policy, value in (("--uncertain", "missing"), ("--blank", "missing")):
        command += [] if any(text.startswith(policy) for text in options) else [policy, value]
    if not any(about["split"] != "train" for about in case.truth.values()) or "--column=split=none" in options:
        command += ["--no-split"]
    result = CliRunner().invoke(app, command)
    if isinstance(result.exception, SystemExit) or result.exception is None:
        listed = result.output.partition("\nopen: ")[2].partition("\nAdd an option for each")[0]
        questions = re.split(r"\n\d+\. ", listed)[1:]
        assert all(map(_STEP.search, questions)), questions
        return result.output if result.exit_code else ""
    text = f"{result.output}\n{type(result.exception).__name__}: {result.exception}"
    if not isinstance(result.exception, ChestfedError):
        raise AssertionError(text) from result.exception
    return text


def fill(path: Path, meanings: Mapping[str, str]) -> bool:
    """Enters the meanings of the values that wait for a person; whether there are any."""
    codes, _ = read_book(path)
    by_value = {value if value != EMPTY else "": meaning for value, meaning in meanings.items()}

    def enter(code: Any) -> Any:
        value = next((v for v in by_value if normalize_value(code.kind, v) == code.value), None)
        return code if code.is_known or value is None else replace(code, meaning=by_value[value], confirmed="yes")

    filled = [enter(code) for code in codes]
    write_book(path, filled)
    return filled != codes


def list_codes(path: Path, meanings: Mapping[str, str]) -> list[str]:
    """`--code` of the numbers, letters and signs that wait for a person."""
    if not path.exists():
        return []
    roles = {kind: role for role, kind in ROLES.items() if role != "finding"}
    by_value = {(kind, normalize_value(kind, value)): meaning for value, meaning in meanings.items() for kind in roles}
    return [
        f"--code={code.column or roles.get(code.kind, '')}:{code.value}={by_value[code.kind, code.value]}"
        for code in read_book(path)[0]
        if not code.is_known and _CODED.fullmatch(code.value) and (code.kind, code.value) in by_value
    ]


def run(names: Sequence[str]) -> list[Outcome]:
    """The outcome of each hospital."""
    outcomes = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="chestfed-") as folder:
            outcomes.append(describe(name, Path(folder).resolve()))
        if outcomes[-1].known:
            with tempfile.TemporaryDirectory(prefix="chestfed-") as folder:
                informed = describe(name, Path(folder).resolve(), outcomes[-1].known)
            outcomes[-1].wrong += informed.wrong
            outcomes[-1].informed = informed.calls if informed.right else None
    return outcomes


def format_table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table, and its sums."""
    lines = ["| hospital | calls | informed | takes | cells | wrong | missing |", "|---|---|---|---|---|---|---|"]
    for each in outcomes:
        calls, informed = each.calls or "refused", each.informed or "refused"
        cells = f"{each.cells:,} | {each.wrong} | {each.missing}"
        lines.append(f"| {each.about} | {calls} | {informed} | {each.means or '-'} | {cells} |")
    right, wrong = sum(each.right for each in outcomes), sum(each.wrong for each in outcomes)
    lines += [
        "",
        f"{len(outcomes)} hospitals: {right} described correctly by documented means, "
        f"{sum(each.calls is None for each in outcomes)} refused; {wrong} of {sum(each.cells for each in outcomes):,} "
        f"cells wrong. Calls: {_count_calls([each.calls for each in outcomes])} with the policies alone; "
        f"{_count_calls([each.informed for each in outcomes])} with all that the tutorial's first section lists.",
    ]
    return "\n".join(lines)


def _count_calls(calls: Sequence[int | None]) -> str:
    numbers = [number for number in calls if number is not None]
    spread = ", ".join(f"{numbers.count(n)} in {n}" for n in range(1, MOST_CALLS + 1))
    return f"{spread}, median {statistics.median(numbers or [0]):g},"
