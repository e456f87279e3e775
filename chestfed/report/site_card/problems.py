"""The section on problems: kinds, counts and rows, without names of images or patients, or values of cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import numpy as np

from chestfed.core.console import plural
from chestfed.core.errors import Problem
from chestfed.inspection.problems import NO_LABELS, ONE_CLASS
from chestfed.report.site_card.build import Section, SiteCard
from chestfed.results.grid import grid_of

_ROWS: Final = 12  # runs of rows of a kind of problem that are named
#: Kinds of problems whose message is made of counts and the names of diseases and splits.
_PLAIN_KINDS: Final = (ONE_CLASS, NO_LABELS)


def verdict(card: SiteCard) -> str:
    """Passed or failed, with the numbers of errors and warnings."""
    errors, warnings = card.report.errors, card.report.warnings
    word = "passed" if card.report.passed else "FAILED"
    return f"{word}: {plural(len(errors), 'error')}, {plural(len(warnings), 'warning')}"


def problem_section(card: SiteCard) -> Section:
    """The problems, by kind and row."""
    rows = []
    for word, problems in (("error", card.report.errors), ("warning", card.report.warnings)):
        kinds: dict[str, list[Problem]] = {}
        for problem in problems:
            kinds.setdefault(problem.kind, []).append(problem)
        for kind, members in kinds.items():
            rows.append((kind, (word, _where(kind, members, card.config.label_files), f"{len(members):,}")))
    words = [f"Check {verdict(card)}."]
    if not rows:
        words.append("No problems found in labels and images.")
        return Section("problems", "Data quality", tuple(words))
    table = grid_of("problems", "Problems by kind", ("kind", "severity", "where", "count"), rows)
    remark = (
        "Rows are those of the label file that has this role in the site's YAML; the header is row 1. Names of "
        "files and patients and values of cells are left out of this card: chestfed site check lists them, with what "
        "to do about each, to those who have the files. Errors must be fixed; warnings should be reviewed."
    )
    return Section("problems", "Data quality", tuple(words), (table,), (), (remark,))


def _where(kind: str, problems: Iterable[Problem], label_files: Mapping[str, Sequence[str]]) -> str:
    """The rows of each label file, by its role in the site's YAML, or messages that quote nothing of the site."""
    rows: dict[str, list[int]] = {}
    others = []
    for problem in problems:
        if problem.row is not None:
            rows.setdefault(_role(problem.file, label_files), []).append(problem.row)
        elif kind in _PLAIN_KINDS:
            others.append(problem.message)
        else:
            others.append("no single row")
    found = [f"{role}: {row_ranges(numbers)}" for role, numbers in rows.items()]
    return "; ".join([*found, *dict.fromkeys(others)])


def _role(file: str, label_files: Mapping[str, Sequence[str]]) -> str:
    name = PurePath(file.removesuffix(".gz"))
    return next((role for role, patterns in label_files.items() if any(map(name.match, patterns))), "label file")


def row_ranges(numbers: Iterable[int]) -> str:
    """`rows 2-5, 9`, and how many more if they are many."""
    ordered = np.unique(list(numbers))
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs[:_ROWS])
    rest = sum(map(len, runs[_ROWS:]))
    return f"row{'s' if len(ordered) > 1 else ''} {shown}{f' and {rest:,} more' if rest else ''}"
