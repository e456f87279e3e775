"""Several K, or several algorithms with the largest K, over several seeds: tables.

Every seed (and algorithm) is a study of its own (`experiment.variants`) in its own run folder; stage 1 of a seed is
shared. The budget that algorithms have in common is the number of local steps, and so of images and gradients; rounds
and bytes are what they differ in. `report.run_figures.comparison_curves` draws them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.diseases import title_of
from chestfed.core.manifest import name_of_text
from chestfed.core.provenance import Origin
from chestfed.evaluation.estimates import Estimate
from chestfed.results import hospital_table, significance
from chestfed.results.batch_norm import describe_statistics
from chestfed.results.chance import describe_chance, list_hospitals
from chestfed.results.grid import Cell, Grid, Line, rich_table
from chestfed.results.hospital_table import ALTERNATIVE_TABLE, ALTERNATIVES_TITLE, HospitalTable
from chestfed.results.predictions import as_one, read_run
from chestfed.results.run_folder import COMPARISON, SIGNIFICANCE, RunFolder, expected, read_json_file
from chestfed.results.significance import Significance

if TYPE_CHECKING:
    from chestfed.experiment.pipeline import Published


#: What a run's last round records beside its own AUC: that of either rule of output, see `federated.stage_output`.
OUTPUTS = ("auc_of_last", "auc_of_average")


@dataclass(frozen=True)
class Comparison:
    """Finished runs side by side."""

    title: str
    origin: Origin
    results: pd.DataFrame  #: one row per run, seed and disease
    #: One row per run, seed and evaluated round; its counters are sums from the start of stage 2 over all clients.
    curves: pd.DataFrame
    published: Published | None
    runs: tuple[dict[str, Any], ...] = ()  #: label, seed and folder of each; the label is of an algorithm, or `K=5`
    #: What a page says of them: model, protocol, images, patients, versions, device.
    about: Mapping[str, Any] = field(default_factory=dict)
    compared: Significance | None = None  #: the others minus the first, with two or more seeds
    hospitals: HospitalTable | None = None  #: all of them at every hospital that takes part, if there are several
    alternatives: HospitalTable | None = None  #: what hospitals could do instead of using the largest K

    @property
    def trained(self) -> list[int]:
        """The training seeds."""
        return sorted({int(seed) for seed in self.results["seed"]})

    @property
    def seeds(self) -> int:
        """How many."""
        return len(self.trained)


def collect(
    runs: Sequence[RunFolder], title: str, published: Published | None = None, *, by_window: bool = False
) -> Comparison:
    """Put the results of finished runs, of several K each or of one, side by side; with several seeds, test them."""
    results: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    models: dict[str, list[tuple[Path, int, str]]] = {}
    for run, k in ((one, k) for one in runs for k in one.settings.ks):
        settings, row = run.settings, run.row(k)
        label = f"{settings.algorithm}, I={settings.window}" if by_window else settings.algorithm
        label = f"K={k}" if len(settings.ks) > 1 else label
        head = {"run": label, "algorithm": settings.algorithm, "window": settings.window, "k": k, "seed": settings.seed}
        names.append({"run": label, "seed": settings.seed, "folder": run.path.name, "digest": run.digest})
        models.setdefault(label, []).append((run.path, k, ""))
        results += [head | {"added": row.clients[-1], "disease": one.disease, "auc": one.value} for one in row.diseases]
        sums = dict.fromkeys(("bytes_up", "bytes_down", "images", "gradients"), 0)
        for entry in run.rounds(k):
            for name in sums:
                sums[name] += entry[name]
            if "mean_auc" in entry:
                plain = {name: entry[name] for name in ("round", "loss", "drift", "gradient_drift", "mean_auc")}
                outputs = {name: entry.get(name) for name in OUTPUTS}
                curves.append(head | plain | sums | {"bytes": sums["bytes_up"] + sums["bytes_down"]} | outputs)
    origin, compared = Origin.together(run.origin for run in runs), None
    several = len(models) > 1 and len({run.settings.seed for run in runs}) > 1
    if several and not any(run.scores_stay for run in runs):
        every = [
            replace(as_one([read_run(path, k) for path, k, _ in its]), name=label) for label, its in models.items()
        ]
        compared = significance.compare_with_first(every, 0)
    table = runs[0].table()
    about = {name: getattr(table, name) for name in ("model", "protocol", "images", "patients")}
    about |= {name: runs[0].about[name] for name in ("machine", "versions")}
    about |= {"objectives": _objectives(runs), "batch_norm": table.statistics}
    frames = pd.DataFrame(results).astype({"auc": float}), pd.DataFrame(curves).astype({"mean_auc": float})
    hospitals = hospital_table.of_models(models)
    alternatives = hospital_table.read_alternatives(runs) if next(iter(models)).startswith("K=") else None
    return Comparison(title, origin, *frames, published, tuple(names), about, compared, hospitals, alternatives)


def write(comparison: Comparison, out: Path) -> Path:
    """Write tables (CSV), `comparison.json`, and `significance.*`; returns their folder, named by the runs."""
    folder = out / _name([run["folder"] for run in comparison.runs], comparison.origin)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("results", "curves", "table"):
        part = table_frame(comparison) if name == "table" else getattr(comparison, name)
        write_text(folder / f"{name}.csv", part.assign(data=str(comparison.origin)).to_csv(index=False))
    published = comparison.published
    write_json(
        folder / COMPARISON,
        {
            "title": comparison.title,
            **comparison.origin.keys(),
            "published": None if published is None else published.model_dump(),
            "largest_window": largest_windows(comparison),
            "runs": list(comparison.runs),
            "about": dict(comparison.about),
            "table": json.loads(table_frame(comparison).to_json(orient="records", double_precision=15)),
            "verdict": "" if comparison.compared is None else significance.verdict(comparison.compared),
        },
    )
    if comparison.compared is not None:
        significance.write(comparison.compared, folder, "significance")
    if comparison.hospitals is not None:
        hospital_table.write(comparison.hospitals, folder)
    if comparison.alternatives is not None:
        hospital_table.write(comparison.alternatives, folder, ALTERNATIVE_TABLE)
    return folder


def folder_of(runs: Sequence[RunFolder], out: Path) -> Path:
    """Where `write` puts a comparison of these runs."""
    return out / _name([run.path.name for run in runs], Origin.together(run.origin for run in runs))


def _name(folders: Sequence[str], origin: Origin) -> str:
    runs = "\n".join(sorted(set(folders)))
    return f"{origin.prefix}comparison-{name_of_text(runs)}"


def read(folder: Path) -> Comparison:
    """What `write` wrote.

    Raises `ChestfedError` if a file is damaged.
    """
    plain, tested = read_json_file(folder / COMPARISON), read_json_file(folder / SIGNIFICANCE, optional=True)
    with expected(folder / COMPARISON):
        published = plain["published"]
        return Comparison(
            plain["title"],
            Origin(plain["data"]),
            pd.read_csv(folder / "results.csv"),
            pd.read_csv(folder / "curves.csv"),
            None if published is None else SimpleNamespace(**published),  # type: ignore[arg-type]
            tuple(plain["runs"]),
            plain["about"],
            None if tested is None else significance.from_json(tested),
            hospital_table.read(folder),
            hospital_table.read(folder, ALTERNATIVE_TABLE),
        )


def table_frame(comparison: Comparison) -> pd.DataFrame:
    """One row per run and disease (and the mean): mean AUC over the seeds, and its standard deviation, `sd`."""
    results = comparison.results
    means = results.groupby(["run", "seed"], sort=False)["auc"].mean().reset_index().assign(disease="mean")
    rows = pd.concat([results, means]).groupby(["run", "disease"])["auc"].agg(auc="mean", sd="std", seeds="count")
    order = pd.MultiIndex.from_product(
        [results["run"].unique(), [*results["disease"].unique(), "mean"]], names=rows.index.names
    )
    return rows.reindex(order).reset_index()


def metrics(comparison: Comparison) -> dict[str, float | None]:
    """For MLflow: of each run the mean AUC over seeds, with its spread; of the last, how it differs from the first."""
    rows = table_frame(comparison).query("disease == 'mean'")
    found: dict[str, float | None] = {}
    for row in rows.to_dict("records"):
        name = row["run"].replace("=", "")
        of_row = {f"auc/{name}": row["auc"], f"auc_sd/{name}": row["sd"]}
        found |= {key: None if np.isnan(value) else value for key, value in of_row.items()}
    if comparison.compared is not None:
        mean = comparison.compared.comparisons[-1][-1]
        low, high = mean.interval or (None, None)
        found |= {"gain/mean": mean.difference, "gain/low": low, "gain/high": high, "gain/p": mean.p}
    found |= hospital_table.metrics(comparison.hospitals) if comparison.hospitals else {}
    return found | (hospital_table.alternative_metrics(comparison.alternatives) if comparison.alternatives else {})


def largest_windows(comparison: Comparison) -> dict[str, int]:
    """Per algorithm the largest window whose mean AUC is not lower than the smallest window's by the tolerance.

    Windows are tried in increasing order, up to the first that costs AUC. Empty if one window was run.
    """
    tolerance = comparison.published.tolerance if comparison.published else 0.005
    means = comparison.results.groupby(["algorithm", "window"])["auc"].mean()
    found = {}
    for algorithm, of_window in means.groupby(level="algorithm", sort=False):
        curve = of_window.droplevel("algorithm").sort_index()
        if len(curve) > 1:
            costs = (curve < curve.iloc[0] - tolerance).cummax()
            found[str(algorithm)] = int(curve.index[~costs][-1])
    return found


def comparison_grid(comparison: Comparison, caption: str = "") -> Grid:
    """A line per run with mean and standard deviation over the seeds, below it the paper's where there is one."""
    results, every = comparison.results, table_frame(comparison)
    diseases = list(results["disease"].unique())
    names = [*diseases, "mean"] if len(diseases) > 1 else diseases
    of_k = results["run"].iloc[0].startswith("K=")
    printed = comparison.published.auc if comparison.published else {}
    lines = []
    for label, part in every.groupby("run", sort=False):
        aucs = part.set_index("disease").loc[names]
        last = comparison.curves[comparison.curves["run"] == label].groupby("seed").last()
        sums = (f"{last['round'].max():,}", f"{last['bytes'].mean() / 1e6:,.1f} MB", f"{last['images'].mean():,.0f}")
        added = [results.loc[results["run"] == label, "added"].iloc[0]] if of_k else []
        shown = (_mean_and_spread(*pair) for pair in zip(aucs["auc"], aucs["sd"], strict=True))
        lines.append(Line(str(label), tuple(map(Cell, (*added, *shown, *sums)))))
        if theirs := printed.get(str(label)):
            of = {**theirs, names[0]: theirs.get("mean")} if len(names) == 1 else theirs
            shown = ("" if (value := of.get(name)) is None else f"{value:.3f}" for name in names)
            lines.append(Line("  paper", tuple(map(Cell, (*shown, "", "", ""))), "paper"))
    heads = [*(["K", "added"] if of_k else ["algorithm"]), *map(title_of, names), "rounds", "sent", "images"]
    return Grid("comparison", caption, tuple(map(Cell, heads)), tuple(lines))


def caption_of(comparison: Comparison) -> str:
    """What the numbers of the table are."""
    about, seeds = comparison.about, comparison.seeds
    where = f" on {about['images']:,} images of {about['patients']:,} patients ({about['protocol']})"
    spread = "one seed, so no spread" if seeds == 1 else f"mean over {seeds} seeds ± the standard deviation over them"
    differ = f" Objectives: {about['objectives']}." if about["objectives"] else ""
    statistics = describe_statistics(about["batch_norm"])
    return f"AUC{where}, {spread}. Sums over all clients.{differ} {statistics}".strip()


def _objectives(runs: Sequence[RunFolder]) -> str:
    """Which algorithms trained with which objective; empty if all trained with the same."""
    trained: dict[str, dict[str, None]] = {}
    for run in runs:
        trained.setdefault(run.settings.objective, {})[run.settings.algorithm] = None
    if len(trained) == 1:
        return ""
    names = [objective.partition(",")[0] for objective in trained]  # options only where they are what differs
    shown = [name if names.count(name) == 1 else whole for name, whole in zip(names, trained, strict=True)]
    return "; ".join(f"{objective} ({', '.join(its)})" for objective, its in zip(shown, trained.values(), strict=True))


def render(comparison: Comparison) -> RenderableType:
    """The table for a terminal; the paper's source and largest windows below."""
    title, caption = f"{comparison.origin.mark}{comparison.title}", caption_of(comparison)
    parts: list[RenderableType] = [rich_table(comparison_grid(comparison), title, caption, dim=["paper"])]
    if comparison.published is not None:
        note = f"; {comparison.published.note}" if comparison.published.note else ""
        parts.append(Text(f"paper: {comparison.published.source}{note}"))
    ends = comparison.curves.groupby(["run", "seed"], sort=False)[[*OUTPUTS]].last().astype(float)
    of_both = ends.groupby("run", sort=False).mean().dropna()
    if len(of_both):
        both = "; ".join(f"{run} {one:.3f}, {other:.3f}" for run, one, other in of_both.itertuples())
        parts.append(Text(f"mean AUC of the last point and of the average over the last stage's rounds: {both}"))
    for algorithm, window in largest_windows(comparison).items():
        theirs = comparison.published.largest_window.get(algorithm) if comparison.published else None
        beside = "" if theirs is None else f"; the paper's: {theirs}"
        parts.append(Text(f"{algorithm}: largest window without loss of AUC: {window}{beside}"))
    if (found := comparison.compared) is not None:
        parts += [
            significance.render(found, "Differences", spread=False),
            Text(significance.verdict(found).replace("−", "-")),
        ]
    if comparison.hospitals is not None:
        parts.append(hospital_table.render(comparison.hospitals))
    if comparison.alternatives is not None:
        parts.append(hospital_table.render(comparison.alternatives, ALTERNATIVES_TITLE))
    if warning := warn_of_chance(comparison):
        parts.append(Text(warning))
    return Group(*parts)


def warn_of_chance(comparison: Comparison) -> str:
    """Which runs are worse than chance where they were trained: `describe_chance`, of the means over the seeds."""
    if comparison.hospitals is not None:
        return describe_chance(list_hospitals(comparison.hospitals))
    means = table_frame(comparison).query("disease == 'mean'").dropna(subset="auc")
    return describe_chance(
        (str(run), [Estimate("mean", float(auc))]) for run, auc in zip(means["run"], means["auc"], strict=True)
    )


def _mean_and_spread(mean: float, spread: float) -> str:
    return "n/a" if np.isnan(mean) else f"{mean:.3f}" + ("" if np.isnan(spread) else f" ±{spread:.3f}")
