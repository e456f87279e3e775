"""Compared methods: their settings, how these were found, what they cost, and fairness over hospitals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.results.grid import Grid, Rows, make_grid, number
from chestfed.results.run_folder import RunFolder

#: Settings of stage 2 that every method has, in the order of the table.
_COMMON: Final = (
    "local_lr",
    "window",
    "batch_size",
    "stages",
    "stage_steps",
    "total_steps",
    "lr_decay",
    "weight_decay",
)
#: Sums over the rounds that a run folder has of each K.
_SUMS: Final = ("gradients", "bytes_up", "bytes_down")


def describe_method(name: str, runs: Sequence[RunFolder], k: int) -> dict[str, Any]:
    """Settings and costs of one method's runs, one per seed, at this K, as plain data.

    Costs are means over the seeds: `rounds`, `gradients_per_client`, and `megabytes` up and down of all clients.
    """
    first = runs[0].configuration
    federated = first["federated"]
    options = {
        f"{part}.{key}": value
        for part in ("algorithm", "objective", "server_optimizer", "compression")
        for key, value in (federated[part].items() if isinstance(federated.get(part), Mapping) else ())
        if key != "name"
    }
    settings = {key: federated[key] for key in _COMMON if federated.get(key) is not None}
    rounds = [run.rounds(k) for run in runs]
    sums = {key: float(np.mean([sum(entry[key] for entry in history) for history in rounds])) for key in _SUMS}
    count, clients = float(np.mean([len(history) for history in rounds])), federated.get("clients_per_round") or k
    return {
        "method": name,
        "algorithm": runs[0].settings.algorithm,
        "objective": runs[0].settings.objective.partition(",")[0],
        "settings": settings,
        "options": options,
        "chosen": describe_tuning(first.get("tuning")),
        "rounds": count,
        "gradients_per_client": sums["gradients"] / clients,
        "megabytes": (sums["bytes_up"] + sums["bytes_down"]) / 1e6,
    }


def describe_tuning(tuning: Mapping[str, Any] | None) -> str:
    """How settings were found, as `methods[].tuning` of a pipeline says."""
    if not tuning:
        return "by hand"
    how = "grid" if tuning["grid"] else "search"
    return f"{how}: {tuning['trials']} trials of {len(tuning['seeds'])} seeds"


def tabulate_settings(methods: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per method: settings, options that differ from method to method, how they were found, and costs."""
    rows = [
        {
            "method": method["method"],
            "algorithm": method["algorithm"],
            "objective": method["objective"],
            **method["settings"],
            "options": ", ".join(f"{key} {value}" for key, value in method["options"].items() if value is not None),
            "chosen": method["chosen"],
            "rounds": method["rounds"],
            "gradients per client": method["gradients_per_client"],
            "MB sent": method["megabytes"],
        }
        for method in methods
    ]
    return pd.DataFrame(rows).set_index("method")


def make_settings_grid(methods: Sequence[Mapping[str, Any]]) -> Grid:
    """A line per method of a comparison; see `tabulate_settings`."""
    rows: Rows = []
    for method in methods:
        settings = method["settings"]
        named = {key.removeprefix("algorithm."): value for key, value in method["options"].items() if value is not None}
        options = "; ".join(f"{key} {_format(value)}" for key, value in named.items())
        parts = [
            f"{method['algorithm']}, {method['objective']}",
            _format(settings.get("local_lr", "")),
            str(settings["window"]),
            _format(settings["stage_steps"]),
        ]
        costs = [f"{method['rounds']:,.0f}", f"{method['gradients_per_client']:,.0f}", f"{method['megabytes']:,.1f} MB"]
        rows.append((method["method"], [*parts, options, method["chosen"], *costs]))
    heads = ("method", "algorithm, objective", "local_lr", "window", "steps per stage", "options", "chosen", "rounds")
    caption = "Settings of each method, how they were found, and what a client computes and all send"
    return make_grid("settings", caption, (*heads, "gradients", "sent"), rows, "settings")


def make_fairness_grid(estimates: pd.DataFrame) -> Grid | None:
    """A line per model, beside the first; see `summarize_hospitals`. None where hospitals were not scored apart."""
    reference = next(iter(estimates["model"]), "")
    summary = summarize_hospitals(estimates, reference)
    if summary.empty:
        return None
    lines = []
    for name, worst, spread, losing, hospitals in summary.itertuples():
        lost = "-" if name == reference or np.isnan(losing) else f"{losing:.0%} of {hospitals}"
        lines.append((str(name), (number(worst), number(spread), lost)))
    caption = (
        f"Mean AUC over hospitals: the worst, the standard deviation, and the share of hospitals below {reference}"
    )
    return make_grid("fairness", caption, ("model", "worst hospital", "spread", "lose"), lines)


def _format(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def summarize_hospitals(estimates: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Fairness over hospitals of each model: `worst`, `spread` and `losing`, by the mean AUC at each hospital.

    `estimates` are those of the view `hospitals`. Spread is the standard deviation over hospitals; losing the share of
    hospitals at which the model is below the model `reference`. Empty with fewer than two hospitals.
    """
    rows = estimates[(estimates["disease"] == "mean") & estimates["auc"].notna()]
    if rows.empty or rows["hospital"].nunique() < 2:
        return pd.DataFrame(columns=["worst", "spread", "losing", "hospitals"])
    aucs = rows.pivot_table(index="model", columns="hospital", values="auc", sort=False)
    below = aucs.lt(aucs.loc[reference]).where(aucs.notna()).mean(axis=1) if reference in aucs.index else np.nan
    summary = {"worst": aucs.min(axis=1), "spread": aucs.std(axis=1), "losing": below, "hospitals": aucs.count(axis=1)}
    return pd.DataFrame(summary).rename_axis(index="method")


def list_objectives(runs: Sequence[RunFolder]) -> str:
    """Which algorithms trained with which objective; empty if all trained with the same."""
    trained = [run.settings.objective for run in runs]
    different = list(dict.fromkeys(trained))
    if len(different) == 1:
        return ""
    names = [objective.partition(",")[0] for objective in different]  # options only where they are what differs
    texts = {whole: name if names.count(name) == 1 else whole for name, whole in zip(names, different, strict=True)}
    users: dict[str, dict[str, None]] = {}
    for run, objective in zip(runs, trained, strict=True):
        users.setdefault(texts[objective], {})[run.settings.method] = None
    return "; ".join(f"{text} ({', '.join(methods)})" for text, methods in users.items())
