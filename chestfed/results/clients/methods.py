"""Which of several methods trained with which objective and step size, for captions."""

from __future__ import annotations

from collections.abc import Sequence

from chestfed.results.run_folder import RunFolder


def list_objectives(runs: Sequence[RunFolder]) -> str:
    """Which algorithms trained with which objective; empty if all trained with the same."""
    trained = [run.settings.objective for run in runs]
    different = list(dict.fromkeys(trained))
    if len(different) == 1:
        return ""
    names = [objective.partition(",")[0] for objective in different]  # options only where they are what differs
    texts = {whole: name if names.count(name) == 1 else whole for name, whole in zip(names, different, strict=True)}
    return _list_users(runs, [texts[objective] for objective in trained])


def list_step_sizes(runs: Sequence[RunFolder]) -> str:
    """Which of several methods trained with which `local_lr`; empty with one method."""
    sizes = [run.settings.local_lr for run in runs]
    if len({run.settings.method for run in runs}) == 1 or None in sizes:
        return ""
    return _list_users(runs, [f"{size:g}" for size in sizes])


def _list_users(runs: Sequence[RunFolder], values: Sequence[str]) -> str:
    """The values, one per run, each with the methods that have it."""
    users: dict[str, dict[str, None]] = {}
    for run, value in zip(runs, values, strict=True):
        users.setdefault(value, {})[run.settings.method] = None
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in users.items())
