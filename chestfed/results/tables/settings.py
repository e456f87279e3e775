"""Settings and costs of methods, fairness over hospitals, and figures of papers, with which results are compared."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
import pandas as pd

from chestfed.core.disk import size_text
from chestfed.core.provenance import Origin
from chestfed.results.tables.columns import OWN_DATA
from chestfed.results.tables.frames import Results, Row
from chestfed.results.tables.grid import Grid, Rows, make_grid, number
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.titles import ALTERNATIVE_TITLES

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


class MethodFacts(TypedDict):
    """Settings and costs of one method of a comparison."""

    method: str
    algorithm: str
    objective: str
    #: `network`, and its options with `model.` before them; missing in folders of earlier releases.
    network: NotRequired[dict[str, Any]]
    settings: dict[str, float | str]
    #: Steps of a client in each stage, in whole rounds; missing in folders of earlier releases.
    steps: NotRequired[list[int]]
    options: dict[str, float | str | None]
    chosen: str
    #: Means over the seeds; megabytes up and down of all clients.
    rounds: float
    gradients_per_client: float
    megabytes: float


class PublishedFigures(TypedDict):
    """`published` of a pipeline: the figures of a paper."""

    source: str
    note: str | None
    auc: dict[str, dict[str, float]]
    largest_window: dict[str, int]
    tolerance: float


def describe_method(name: str, runs: Sequence[RunFolder], k: int) -> MethodFacts:
    """Settings and costs of one method's runs, one per seed, at this K."""
    first = runs[0].configuration
    federated = first["federated"]
    options = {
        f"{part}.{key}": value
        for part in ("algorithm", "objective", "server_optimizer", "compression")
        for key, value in (federated[part].items() if isinstance(federated.get(part), Mapping) else ())
        if key != "name"
    }
    settings = {key: federated[key] for key in _COMMON if federated.get(key) is not None}
    costs = pd.DataFrame([run.costs(k) for run in runs]).mean()
    clients = federated.get("clients_per_round") or k
    steps: list[int] | None = runs[0].about.get("stage_batches")
    facts: MethodFacts = {
        "method": name,
        "algorithm": runs[0].settings.algorithm,
        "objective": runs[0].settings.objective.partition(",")[0],
        "network": _list_network(runs[0]),
        "settings": settings,
        "options": options,
        "chosen": describe_tuning(first.get("tuning")),
        "rounds": float(costs["rounds"]),
        "gradients_per_client": float(costs["gradients"] / clients),
        "megabytes": float((costs["bytes_up"] + costs["bytes_down"]) / 1e6),
    }
    return facts if steps is None else {**facts, "steps": steps}


def describe_network(run: RunFolder) -> str:
    """The network of a run with all of its options that have a value, and its initial weights."""
    network = _list_network(run)
    return _join_network(network, network)


def name_networks(runs: Sequence[RunFolder]) -> str:
    """The network of all runs, for captions; of different ones, where they stand."""
    if len({describe_network(run) for run in runs}) > 1:
        return "networks: see the settings of each method"
    return str(runs[0].about["scored"]["model"])


def _list_network(run: RunFolder) -> dict[str, Any]:
    """`network`, and its options: those of a part below the part's name."""
    options = dict(run.configuration.get("model") or {})
    options.pop("name", None)
    flat: dict[str, Any] = {"network": run.about["scored"]["model"]}
    for key, value in options.items():
        parts = {f".{name}": part for name, part in value.items()} if isinstance(value, Mapping) else {"": value}
        flat |= {f"model.{key}{name}": part for name, part in parts.items()}
    return flat


def _join_network(network: Mapping[str, Any], shown: Collection[str]) -> str:
    options = {key: value for key, value in network.items() if key in shown and key != "network" and value is not None}
    return ", ".join([network["network"], *(f"{key.removeprefix('model.')} {value}" for key, value in options.items())])


def _list_different(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that differ; options of networks only between networks that have them."""
    keys = dict.fromkeys(key for part in parts for key in part)
    values = {
        key: {str(part.get(key)) for part in parts if key in part or not key.startswith("model.")} for key in keys
    }
    return [key for key in keys if len(values[key]) > 1]


def describe_tuning(tuning: Mapping[str, Any] | None) -> str:
    """Describe how settings were found, as `methods[].tuning` of a pipeline says."""
    if not tuning:
        return "by hand"
    how = "grid" if tuning["grid"] else "search"
    confirmed = f", confirmed on {len(seeds)}" if (seeds := tuning.get("confirmed")) else ""
    return f"{how}: {tuning['trials']} trials of {len(tuning['seeds'])} seeds{confirmed}"


def tabulate_settings(methods: Sequence[MethodFacts]) -> pd.DataFrame:
    """One row per method: settings, options that differ from method to method, how they were found, and costs."""
    rows = [
        {
            "method": method["method"],
            "algorithm": method["algorithm"],
            "objective": method["objective"],
            **({"network": _join_network(network, network)} if (network := method.get("network")) else {}),
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


def make_settings_grid(methods: Sequence[MethodFacts]) -> Grid:
    """A line per method of a comparison; see `tabulate_settings`. Networks stand there if they differ."""
    rows: Rows = []
    networks = [method.get("network", {}) for method in methods]
    different = _list_different(networks)
    shown = [*different, *(key for part in networks for key in part if key.endswith("initial_weights"))]
    for method in methods:
        settings = method["settings"]
        steps = method.get("steps", [])
        run = _format(steps[0] if steps else settings.get("stage_steps", ""))
        run = f"{min(steps)} to {max(steps)}" if len(set(steps)) > 1 else run
        numbers = (*(_format(settings.get(key, "")) for key in ("local_lr", "window")), run)
        costs = [
            f"{method['rounds']:,.0f}",
            f"{method['gradients_per_client']:,.0f}",
            size_text(round(method["megabytes"] * 1e6)),
        ]
        network = [_join_network(method["network"], shown)] if different and "network" in method else []
        parts = (
            ", ".join([method["algorithm"], method["objective"], *network]),
            *numbers,
            "; ".join(_list_options(method)),
        )
        rows.append((method["method"], [*parts, method["chosen"], *costs]))
    what = "algorithm, objective, network" if different else "algorithm, objective"
    heads = ("method", what, "local_lr", "window", "steps per stage", "options", "chosen", "rounds")
    caption = "Settings of each method, how they were found, and what a client computes and all send"
    return make_grid("settings", caption, (*heads, "gradients", "sent"), rows, "settings")


def make_fairness_grid(results: Results) -> Grid | None:
    """A line per model, beside each hospital's own data, or the first model where that was not trained.

    See `summarize_hospitals`. None where hospitals were not scored apart.
    """
    estimates = results.view("hospitals")
    own = {row["place"]: row["auc"] for row in results.list_estimates("alternatives", disease="mean", kind=OWN_DATA)}
    first = next(iter(estimates["model"]), "")
    summary = summarize_hospitals(estimates, first, own)
    if summary.empty:
        return None
    lines, reference = [], ALTERNATIVE_TITLES[OWN_DATA] if own else first
    for name, worst, spread, losing, hospitals in summary.itertuples():
        lost = "-" if name == reference or np.isnan(losing) else f"{losing:.0%} of {hospitals}"
        lines.append((str(name), (number(worst), number(spread), lost)))
    caption = (
        f"Mean AUC over hospitals: the worst, the standard deviation, and the share of hospitals below {reference}"
    )
    return make_grid("fairness", caption, ("model", "worst hospital", "spread", f"below {reference}"), lines)


def state_settings(methods: Sequence[MethodFacts]) -> str:
    """One sentence: what differs between the methods of a comparison, and how it was found; empty without methods."""
    if not methods:
        return ""
    about = ({"objective": part["objective"], **part.get("network", {})} for part in methods)
    different = _list_different(
        [every | part["settings"] | part["options"] for every, part in zip(about, methods, strict=True)]
    )
    chosen: dict[str, list[str]] = {}
    for part in methods:
        chosen.setdefault(part["chosen"], []).append(part["method"])
    each = [f"{how} ({', '.join(names)})" if len(chosen) > 1 else how for how, names in chosen.items()]
    text = f"differ in {', '.join(different)}" if different else "are those of every method alike"
    return f"Settings {text}; chosen {'; '.join(each)}. All of them: --verbose, or the page."


def _list_options(method: MethodFacts) -> list[str]:
    named = {key.removeprefix("algorithm."): value for key, value in method["options"].items() if value is not None}
    return [f"{key} {_format(value)}" for key, value in named.items()]


def _format(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def summarize_hospitals(
    estimates: pd.DataFrame, reference: str, own: Mapping[str, float | None] | None = None
) -> pd.DataFrame:
    """Fairness over hospitals of each model: `worst`, `spread` and `losing`, by the mean AUC at each hospital.

    `estimates` are those of the view `hospitals`. Spread is the standard deviation over hospitals; losing the share of
    hospitals at which the model is below the model `reference`, or below `own`, the AUC of each hospital's own data,
    of the `hospitals` where both are known.
    Empty with fewer than two hospitals.
    """
    rows = estimates[(estimates["disease"] == "mean") & estimates["auc"].notna()]
    if rows.empty or rows["place"].nunique() < 2:
        return pd.DataFrame(columns=["worst", "spread", "losing", "hospitals"])
    aucs = rows.pivot_table(index="model", columns="place", values="auc", sort=False)
    bars = pd.Series(own, dtype=float).reindex(aucs.columns) if own else None
    if bars is None and reference in aucs.index:
        bars = aucs.loc[[reference]].iloc[0]
    compared = aucs.notna() if bars is None else aucs.notna() & bars.notna()
    below = np.nan if bars is None else aucs.lt(bars).where(compared).mean(axis=1)
    counts = {"losing": below, "hospitals": compared.sum(axis=1)}
    summary = {"worst": aucs.min(axis=1), "spread": aucs.std(axis=1), **counts}
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


# ---- figures of papers -------------------------------------------------------------------------------------------

_PAPER_TABLES: Final = {f"densenet{n}": f"table{table}_chexpert_densenet{n}.csv" for n, table in ((121, 4), (161, 5))}


@cache
def read_paper_table(model: str) -> tuple[dict[str, float], ...]:
    """The source paper's Table 4 (DenseNet121) or 5 (DenseNet161): AUC on the real CheXpert validation set.

    One row per K with `sources`, each disease, and `mean`. Empty for another network.
    """
    if model not in _PAPER_TABLES:
        return ()
    with resources.files("chestfed.results.tables").joinpath("paper", _PAPER_TABLES[model]).open() as file:
        return tuple(
            {"mean" if name == "average" else name: float(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        )


def find_paper(run: RunFolder, row: Row, label: str, *, is_largest: bool) -> Mapping[str, float]:
    """The AUCs that a paper printed for this model, by disease and `mean`."""
    published, settings = run.configuration.get("published"), run.settings
    keys = [label, *([f"{settings.algorithm}, I={settings.window}", settings.algorithm] if is_largest else [])]
    printed: dict[str, float] = (
        next((published["auc"][key] for key in keys if key in published["auc"]), {}) if published else {}
    )
    if not printed and _is_paper_table(run, row):
        return next((theirs for theirs in _read_paper(run) if theirs["sources"] == row.k), {})
    return printed | ({row.diseases[0].disease: printed["mean"]} if len(row.diseases) == 1 and printed else {})


def _read_paper(run: RunFolder) -> Sequence[Mapping[str, float]]:
    return read_paper_table(str(run.configuration.get("model", {}).get("name")))


def _is_paper_table(run: RunFolder, row: Row) -> bool:
    real = run.origin is Origin.REAL and not run.configuration.get("held_out")
    return real and row.clients[0] == "chexpert" and bool(_read_paper(run))


def name_paper(run: RunFolder, row: Row) -> str:
    """The source of the paper's figures; empty without."""
    if published := run.configuration.get("published"):
        note = published.get("note")
        return published["source"] + (f"; {note}" if note else "")
    table = "the source paper's Table 4 or 5, on the real CheXpert validation set"
    return table if _is_paper_table(run, row) else ""
