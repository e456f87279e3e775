"""Which method has the best AUC, at which hospital, at what cost: the table and figure of docs/comparisons.md.

    python -m benchmarks.methods films=runs/comparison-0123456789ab phantoms=runs/synthetic-comparison-... \
        --save benchmarks/results/methods.csv --figure docs/images/methods.svg

Reads finished comparisons (`chestfed study pipelines/films_methods_tuned.yaml --seeds 10`), whose first method is the
reference. Intervals and tests are over test patients and training seeds, p values after Holm's correction over the
methods of a data set. Pairs with the same federated step and another objective are compared with each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import chestfed
from chestfed.results.differences import compare_with_first
from chestfed.results.predictions import Predictions, load_predictions, merge_seeds
from chestfed.results.run_folder import RunFolder

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


def main() -> None:
    """Read the comparisons, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparisons", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--save", type=Path, help="CSV with a row per data set and method; pairs in NAME_pairs.csv")
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args()
    named = dict(text.split("=", 1) for text in chosen.comparisons)
    comparisons = {name: chestfed.Comparison.load(folder) for name, folder in named.items()}
    rows = pd.DataFrame([row for name, whole in comparisons.items() for row in describe_methods(name, whole)])
    pairs = pd.concat([compare_pairs(name, whole) for name, whole in comparisons.items()], ignore_index=True)
    print(write_markdown(rows), write_markdown_pairs(pairs), sep="\n\n")
    if chosen.save:
        rows.round(5).to_csv(chosen.save, index=False)
        pairs.round(5).to_csv(chosen.save.with_name(f"{chosen.save.stem}_pairs.csv"), index=False)
    if chosen.figure:
        plot(rows, chosen.figure)


def describe_methods(name: str, comparison: chestfed.Comparison) -> Iterator[dict[str, object]]:
    """A row per method: AUCs, the difference from the first method, hospitals and costs."""
    tests = comparison.significance()
    tests = tests[tests["disease"] == "mean"].set_index("model")
    fairness, settings = comparison.fairness(), comparison.settings()
    for method in comparison.methods:
        runs = [RunFolder(comparison.study(method, seed).folder) for seed in comparison.seeds]
        k = max(runs[0].configuration["k"])
        predictions = merge_seeds([load_predictions(run.path, k) for run in runs])
        rounds = [entry for run in runs for entry in run.rounds(k)]
        row: dict[str, object] = {"data": name, "method": method, "seeds": len(runs)}
        row |= dict(zip(("auc", "low", "high"), estimate(predictions), strict=True))
        if method in tests.index:
            row |= {f"minus_{key}": tests.loc[method, key] for key in ("difference", "low", "high", "p", "p_holm")}
        if method in fairness.index:
            row |= fairness.loc[method, ["worst", "spread", "losing"]].to_dict()
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
    return tuple(0.5 + row[key] for key in ("difference", "low", "high"))  # type: ignore[return-value]


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


def compare_pairs(name: str, comparison: chestfed.Comparison) -> pd.DataFrame:
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
        values = differences.loc["mean", ["difference", "low", "high", "p"]]
        rows.append({"data": name, "objective": pair[0], "minus": pair[1], **values})
    pairs = pd.DataFrame(rows)
    return pairs.assign(p_holm=chestfed.statistics.holm(pairs["p"].tolist())) if len(pairs) else pairs


def write_markdown(rows: pd.DataFrame) -> str:
    """The table of the documentation: a line per method, columns for each data set."""
    names = list(rows["data"].unique())
    heads = [f"{name}: AUC | minus {rows['method'].iloc[0]} | worst | spread" for name in names]
    lines = [f"| method | {' | '.join(heads)} | kB up per round | gradients |", "|---|" + "--:|" * (4 * len(names) + 2)]
    for method in rows["method"].unique():
        of_method = rows[rows["method"] == method].set_index("data")
        cells = [cell for name in names for cell in _list_cells(of_method, name)]
        last = of_method.iloc[0]
        costs = [f"{last['kilobytes_up_per_round']:.1f}", f"{last['gradients_per_client']:.0f}"]
        lines.append(f"| `{method}` | {' | '.join([*cells, *costs])} |")
    return "\n".join(lines)


def write_markdown_pairs(pairs: pd.DataFrame) -> str:
    """The table of the pairs."""
    lines = ["| data | AUC objective | cross-entropy | difference | p (Holm) |", "|---|---|---|--:|--:|"]
    for row in pairs.itertuples():
        difference = f"{_signed(row.difference)} [{_signed(row.low)}, {_signed(row.high)}]"
        lines.append(f"| {row.data} | `{row.objective}` | `{row.minus}` | {difference} | {row.p_holm:.3f} |")
    return "\n".join(lines)


def plot(rows: pd.DataFrame, file: Path) -> None:
    """Mean AUC and interval of every method, one panel per data set; transparent, for pages light and dark."""
    import matplotlib.pyplot as plt

    names, methods = list(rows["data"].unique()), _sort_methods(rows["method"].unique())
    settings = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _GRAY)
    with plt.rc_context({**settings, "svg.hashsalt": "methods", "svg.fonttype": "none"}):
        figure, axes = plt.subplots(
            1, len(names), figsize=(3 + 3 * len(names), 1.5 + 0.24 * len(methods)), sharey=True, squeeze=False
        )
        for axis, name in zip(axes[0], names, strict=True):
            part = rows[rows["data"] == name].set_index("method")
            for place, method in enumerate(methods):
                if method not in part.index:
                    continue
                row, (marker, color, _) = part.loc[method], FAMILIES[_find_family(method)]
                axis.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.5)
                axis.plot(row["auc"], place, marker, color=color, markersize=9 if marker == "*" else 6)
            axis.axvline(part["auc"].iloc[0], color=_GRAY, linewidth=0.8, linestyle=":")
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


def _list_cells(of_method: pd.DataFrame, name: str) -> Sequence[str]:
    if name not in of_method.index:
        return ["-"] * 4
    row = of_method.loc[name]
    auc = f"{_short(row['auc'])} [{_short(row['low'])}, {_short(row['high'])}]"
    star = "*" if row.get("minus_p_holm", np.nan) < 0.05 else ""
    minus = [_signed(row.get(f"minus_{key}", np.nan)) for key in ("difference", "low", "high")]
    change = "-" if np.isnan(row.get("minus_difference", np.nan)) else f"{minus[0]} [{minus[1]}, {minus[2]}]{star}"
    return [auc, change, _short(row.get("worst", np.nan)), _short(row.get("spread", np.nan))]


def _sort_methods(methods: Sequence[str]) -> list[str]:
    order = [name for _, _, names in FAMILIES.values() for name in names.split()]
    return sorted(methods, key=lambda name: order.index(name) if name in order else len(order))


def _find_family(method: str) -> str:
    return next((family for family, (_, _, names) in FAMILIES.items() if method in names.split()), "cross-entropy")


def _short(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}".removeprefix("0")


def _signed(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:+.3f}".replace("+0.", "+.").replace("-0.", "−.")


if __name__ == "__main__":
    main()
