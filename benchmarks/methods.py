"""Which method has the best AUC, at which hospital, at what cost: the table and figure of docs/comparisons.md.

    python -m benchmarks.methods films=runs/comparison-0123456789ab phantoms=benchmarks/results/phantoms_methods.csv \
        --save benchmarks/results/methods.csv --figure docs/images/methods.svg

Reads finished comparisons (`chestfed study pipelines/films_methods_tuned.yaml`), whose first method is the reference;
intervals and tests are over test patients and training seeds. Or a CSV with an AUC per run and seed
(`benchmarks/results/phantoms_methods.csv`), which can tell about seeds alone. p values are after Holm's correction over
the methods of a data set. Pairs with the same federated step and another objective are compared with each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy

import chestfed
from chestfed.results.tables.differences import compare_with_first
from chestfed.results.tables.predictions import Predictions, load_predictions, merge_seeds
from chestfed.results.tables.run_folder import RunFolder

#: Family -> marker, color that is readable on white and on black, methods.
FAMILIES = {
    "cross-entropy": (
        "o",
        "#3b82c4",
        "fedavg fedprox feddyn fedsam q_fedavg local_sgdm mime scaffold fedavg+adam fedavg+top_k fedavg+8_bits",
    ),
    "AUC, or weighted": (
        "s",
        "#d9742b",
        "coda coda_plus codasca npa local_sgda local_sgdam local_scgdam fedxl1 fedxl2 fedavg+sopa_s fedavg+soap "
        "local_sgdm_ratio",
    ),
    "a model per hospital": ("D", "#2f9e6e", "fedper fedrep fedbn ditto"),
    "without a server": ("^", "#a066c8", "pdmm admm gossip"),
    "all images in one place": ("*", "#8a8a8a", "centralized centralized_auc"),
}
#: AUC objective, cross-entropy, with the same step of clients and server.
PAIRS = (
    ("coda_plus", "fedavg"),
    ("codasca", "scaffold"),
    ("local_sgdam", "local_sgdm"),
    ("fedxl1", "fedavg"),
    ("fedavg+sopa_s", "fedavg"),
    ("fedavg+soap", "fedavg"),
    ("centralized_auc", "centralized"),
)
_GRAY = "#808080"
_COSTS = {"kilobytes_up_per_round": 1, "gradients_per_client": 0}
_DIFFERENCE = ("difference", "low", "high")


def main() -> None:
    """Read the comparisons, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparisons", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--save", type=Path, help="CSV with a row per data set and method; pairs in NAME_pairs.csv")
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args()
    rows, pairs = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, path in (text.split("=", 1) for text in chosen.comparisons):
        if path.endswith(".csv"):
            of_seeds = pd.read_csv(path).pivot_table(index="seed", columns="run", values="auc")
            rows += describe_seeds(name, of_seeds)
            pairs += correct([{"data": name, **row} for row in compare_seeds(of_seeds)])
            continue
        comparison = chestfed.Comparison.load(path)
        rows += describe_methods(name, comparison)
        pairs += correct(compare_pairs(name, comparison))
    print(write_markdown(rows), write_markdown_pairs(pairs), sep="\n\n")
    if chosen.save:
        pd.DataFrame(rows).round(5).to_csv(chosen.save, index=False)
        pd.DataFrame(pairs).round(5).to_csv(chosen.save.with_name(f"{chosen.save.stem}_pairs.csv"), index=False)
    if chosen.figure:
        plot(rows, chosen.figure)


def describe_methods(name: str, comparison: chestfed.Comparison) -> Iterator[dict[str, Any]]:
    """A row per method: AUCs, the difference from the first method, hospitals and costs."""
    tests = comparison.significance()
    tests = tests[tests["disease"] == "mean"].set_index("model")
    fairness, settings = comparison.fairness(), comparison.settings()
    for method in comparison.methods:
        runs = [RunFolder(comparison.study(method, seed).folder) for seed in comparison.seeds]
        k = max(runs[0].configuration["k"])
        predictions = merge_seeds([load_predictions(run.path, k) for run in runs])
        rounds = [entry for run in runs for entry in run.rounds(k)]
        row: dict[str, Any] = {"data": name, "method": method, "seeds": len(runs)}
        row |= dict(zip(("auc", "low", "high"), estimate(predictions), strict=True))
        if method in tests.index:
            row |= {f"minus_{key}": tests.loc[method, key] for key in ("difference", "low", "high", "p", "p_holm")}
        if method in fairness.index:
            row |= {key: fairness.loc[method, key] for key in ("worst", "spread", "losing")}
            row |= {f"auc_at_{place}": auc for place, auc in list_hospitals(comparison, method)}
        row["kilobytes_up_per_round"] = float(np.mean([entry["bytes_up"] for entry in rounds])) / 1e3
        row["rounds"] = len(rounds) / len(runs)
        row["gradients_per_client"] = settings.loc[method, "gradients per client"]
        yield row | {"local_lr": settings.loc[method, "local_lr"], "options": settings.loc[method, "options"]}


def estimate(predictions: Predictions) -> tuple[float, float, float]:
    """Mean AUC over diseases and seeds with its 95% interval over patients and seeds.

    That is the interval of the difference from scores that are all equal, whose AUC is .5 with any patients.
    """
    frame, scores = predictions.frames[0], [_take(frame, "score_") for frame in predictions.frames]
    row = chestfed.statistics.compare(
        [np.zeros_like(one) for one in scores],
        scores,
        _take(frame, "label_"),
        patients=frame["patient"].to_numpy(),
        hospitals=frame["hospital"].to_numpy() if "hospital" in frame else None,
    ).iloc[-1]
    return 0.5 + row["difference"], 0.5 + row["low"], 0.5 + row["high"]


def _take(frame: pd.DataFrame, prefix: str) -> np.ndarray:
    """Columns of one kind, float `[n, J]`."""
    columns = [name for name in frame.columns if name.startswith(prefix)]
    return frame[columns].to_numpy(float)


def list_hospitals(comparison: chestfed.Comparison, method: str) -> Iterator[tuple[str, float]]:
    """Hospitals with both classes of a disease, and the method's mean AUC over diseases and seeds there."""
    seeds = [comparison.study(method, seed).hospitals() for seed in comparison.seeds]
    rows = pd.concat(seeds)
    rows = rows[(rows["disease"] == "mean") & rows["auc"].notna()]
    yield from rows.groupby("hospital", sort=False)["auc"].mean().items()  # type: ignore[misc]


def compare_pairs(name: str, comparison: chestfed.Comparison) -> list[dict[str, Any]]:
    """The AUC objective minus cross-entropy of each pair that was trained, on all test images."""
    rows = []
    for pair in PAIRS:
        if not set(pair) <= set(comparison.methods):
            continue
        models = [
            merge_seeds([load_predictions(comparison.study(method, seed).folder) for seed in comparison.seeds])
            for method in reversed(pair)
        ]
        differences = compare_with_first(models).set_index("disease")
        values: dict[str, Any] = {key: differences.loc["mean", key] for key in ("difference", "low", "high", "p")}
        rows.append({"data": name, "objective": pair[0], "minus": pair[1], **values})
    return rows


def correct(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with p values after Holm's correction over all of them."""
    corrected = chestfed.statistics.holm([row["p"] for row in rows])
    return [row | {"p_holm": p} for row, p in zip(rows, corrected, strict=True)]


def describe_seeds(name: str, of_seeds: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of `describe_methods` from AUCs `[seeds, methods]` alone: intervals and tests are over seeds."""
    methods = sorted(of_seeds, key=lambda method: method != "fedavg")
    rows: list[dict[str, Any]] = []
    for method in methods:
        low, high = _find_interval(of_seeds[method])
        rows.append({"data": name, "method": method, "seeds": len(of_seeds)})
        rows[-1] |= {"auc": of_seeds[method].mean(), "low": low, "high": high}
    tests = correct([_test_seeds(of_seeds[method] - of_seeds[methods[0]]) for method in methods[1:]])
    for row, test in zip(rows[1:], tests, strict=True):
        row |= {f"minus_{key}": value for key, value in test.items()}
    return rows


def compare_seeds(of_seeds: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of `compare_pairs` from AUCs `[seeds, methods]` alone."""
    for auc, entropy in PAIRS:
        if auc in of_seeds and entropy in of_seeds:
            yield {"objective": auc, "minus": entropy, **_test_seeds(of_seeds[auc] - of_seeds[entropy])}


def _test_seeds(differences: pd.Series[float]) -> dict[str, float]:
    """Student's t over paired seeds."""
    low, high = _find_interval(differences)
    p = scipy.stats.ttest_1samp(differences, 0).pvalue
    return {"difference": differences.mean(), "low": low, "high": high, "p": float(p)}


def _find_interval(values: pd.Series[float]) -> tuple[float, float]:
    mean, error = float(values.mean()), float(np.std(values, ddof=1)) / len(values) ** 0.5
    half = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return mean - half, mean + half


def write_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table of the documentation: a line per method, columns for each data set; without empty columns."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    by_place = {(row["data"], row["method"]): row for row in rows}
    heads = [f"{name}: {what}" for name in names for what in ("AUC", "minus the first", "worst", "spread")]
    table = pd.DataFrame(columns=[*heads, "kB up per round, all clients", "gradients per client"], dtype=str)
    for method in _sort_methods(row["method"] for row in rows):
        cells = [cell for name in names for cell in _list_cells(by_place.get((name, method), {}))]
        first = next((row for row in rows if row["method"] == method and "rounds" in row), {})
        costs = [f"{first[key]:.{digits}f}" if key in first else "-" for key, digits in _COSTS.items()]
        table.loc[f"`{method}`"] = [*cells, *costs]
    table = table.loc[:, (table != "-").any()]
    lines = ["| " + " | ".join(["method", *table.columns]) + " |", "|---|" + "--:|" * len(table.columns)]
    return "\n".join(lines + [f"| {' | '.join([method, *cells])} |" for method, *cells in table.itertuples()])


def write_markdown_pairs(pairs: Sequence[dict[str, Any]]) -> str:
    """The table of the pairs."""
    lines = ["| data | AUC objective | cross-entropy | difference | p (Holm) |", "|---|---|---|--:|--:|"]
    for row in pairs:
        names = f"| {row['data']} | `{row['objective']}` | `{row['minus']}` |"
        lines.append(f"{names} {_write_difference(row)} | {row['p_holm']:.3f} |")
    return "\n".join(lines)


def plot(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Mean AUC and interval of every method, one panel per data set; transparent, for pages light and dark."""
    import matplotlib.pyplot as plt

    names, methods = list(dict.fromkeys(row["data"] for row in rows)), _sort_methods(row["method"] for row in rows)
    gray = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _GRAY)
    settings: dict[Any, Any] = {**gray, "svg.hashsalt": "methods", "svg.fonttype": "none"}
    with plt.rc_context(settings):
        figure, axes = plt.subplots(
            1, len(names), figsize=(3 + 3 * len(names), 1.5 + 0.24 * len(methods)), sharey=True, squeeze=False
        )
        for axis, name in zip(axes[0], names, strict=True):
            part = [row for row in rows if row["data"] == name]
            for row in part:
                place, (marker, color, _) = methods.index(row["method"]), FAMILIES[_find_family(row["method"])]
                axis.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.5)
                axis.plot(row["auc"], place, marker, color=color, markersize=9 if marker == "*" else 6)
            axis.axvline(part[0]["auc"], color=_GRAY, linewidth=0.8, linestyle=":")
            axis.set(title=f"{name}: mean AUC", yticks=range(len(methods)), yticklabels=methods)
            axis.grid(axis="x", color=_GRAY, alpha=0.25)
        axes[0][0].invert_yaxis()
        marks = [
            plt.Line2D([], [], marker=marker, color=color, linestyle="", label=family)
            for family, (marker, color, _) in FAMILIES.items()
        ]
        figure.legend(handles=marks, loc="lower center", ncols=3, frameon=False)
        figure.tight_layout(rect=(0, 0.07, 1, 1))
        figure.savefig(file, transparent=True, metadata={"Date": None} if file.suffix == ".svg" else None)
        plt.close(figure)


def _list_cells(row: dict[str, Any]) -> Sequence[str]:
    """AUC, difference (with a star if its corrected p is below 0.05), worst hospital, spread; dashes without a run."""
    if not row:
        return ["-"] * 4
    auc = f"{_short(row['auc'])} [{_short(row['low'])}, {_short(row['high'])}]"
    test = {key.removeprefix("minus_"): value for key, value in row.items() if key.startswith("minus_")}
    star = "*" if test and test["p_holm"] < 0.05 else ""
    places = [_short(row[key]) if key in row else "-" for key in ("worst", "spread")]
    return [auc, f"{_write_difference(test)}{star}" if test else "-", *places]


def _sort_methods(methods: Iterable[str]) -> list[str]:
    """Each once, by family."""
    order = [name for _, _, names in FAMILIES.values() for name in names.split()]
    return sorted(set(methods), key=lambda name: (order.index(name) if name in order else len(order), name))


def _find_family(method: str) -> str:
    return next((family for family, (_, _, names) in FAMILIES.items() if method in names.split()), "cross-entropy")


def _write_difference(row: dict[str, Any]) -> str:
    difference, low, high = (f"{row[key]:+.3f}".replace("0.", ".", 1).replace("-", "−") for key in _DIFFERENCE)
    return f"{difference} [{low}, {high}]"


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


if __name__ == "__main__":
    main()
