"""Does the default study's answer hold with other training seeds?

    python -m benchmarks.source_addition --save benchmarks/results/source_addition_seeds.json

Ten seeds with 1 thread, K=1 and 5 with 2 threads, the ceiling, two negative controls, and pairs within a site: about an
hour on two cores. Every part is a `chestfed study` command, printed as it starts; what is finished in --out is not run
again. The ceiling is centralized training on the pooled images (`centralized_auc`), with as many steps and images per
step. With --page, the table between the marks of docs/measurements.md and docs/images/auc_against_k.png are renewed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from scipy import stats

from chestfed.core.diseases import DISEASES, TITLES
from chestfed.reports.pages.run_figures import draw_seeds
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import read_comparison
from chestfed.results.tables.frames import Results, list_records

_ROOT = Path(__file__).parents[1]
_MARKS = ("<!-- source addition: begin -->", "<!-- source addition: end -->")
_WITHIN = "methods.*.objective={name: auc, pairs: within_site}"


def main() -> None:
    """Run what is missing, and say what it came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="11-20", help="those that the default settings were not chosen with")
    parser.add_argument("--fewer", default="11-15", help="seeds of the ceiling and the controls")
    parser.add_argument("--out", type=Path, default=Path("runs_source_addition"))
    parser.add_argument("--parts", default="1,2,centralized,controls,within", help="1 and 2: the study, by threads")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--page", action="store_true")
    chosen = parser.parse_args()
    parts, found = chosen.parts.split(","), dict[str, Any]()
    for threads in (1, 2):
        if str(threads) in parts:
            ks = () if threads == 1 else ("--k", "1,5")
            main_study = _study(chosen, threads, "--seeds", chosen.seeds, *ks)
            found[f"{threads} thread{'s' * (threads > 1)}"] = by_seed(main_study, (1, 5))
            if threads == 1 and chosen.page:
                _write_page(main_study)
    if "centralized" in parts:
        both = _study(chosen, 1, "--seeds", chosen.fewer, "--methods", "codasca,centralized_auc")
        found["centralized"] = ceiling(both, _study(chosen, 1, "--seeds", chosen.fewer, "--k", "1,5"))
    for control in ("labels_permuted", "noise") if "controls" in parts else ():
        file = str(_ROOT / "pipelines" / "controls" / f"{control}.yaml")
        found[control] = by_seed(_study(chosen, 1, file, "--seeds", chosen.fewer), (1, 5))
    if "within" in parts:
        study = _study(chosen, 1, "--seeds", chosen.seeds, "--k", "1,5", "--set", _WITHIN)
        found["pairs within a site"] = by_seed(study, (1, 5))
    print(json.dumps(found, indent=1))
    if chosen.save:
        machine = {"processor": _processor(), "cores": os.cpu_count(), "torch": metadata.version("torch")}
        chosen.save.write_text(json.dumps({"synthetic": True, "machine": machine, **found}, indent=1) + "\n", "utf-8")


def _study(chosen: argparse.Namespace, threads: int, *words: str) -> Results:
    """Run one command, and read the tables that it has written."""
    command = [sys.executable, "-m", "chestfed", "study", *words, "--no-tracking", "--out", str(chosen.out)]
    command += ["--set", f"runtime.threads={threads}", "--jobs", "2" if threads == 1 else "1"]
    print("\n$", shlex.join(command[1:]), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout)
    (folder,) = set(re.findall(r"chestfed report (\S+comparison-\w+)", done.stdout))
    return read_comparison(Path(folder))


def by_seed(comparison: Results, ks: tuple[int, int]) -> dict[str, Any]:
    """AUC by K, the difference of two K seed by seed, and by disease; the intervals are t over the seeds."""
    results = comparison.view("seeds")
    means = results.groupby(["k", "seed"])["auc"].mean().unstack()
    per_disease = results.groupby(["disease", "k"])["auc"].mean().unstack()
    return {
        "mean AUC by K": _rounded(means.mean(axis=1)),
        "sd over seeds": _rounded(means.std(axis=1)),
        f"K={ks[1]} minus K={ks[0]}": {
            **_over_seeds(means.loc[ks[1]] - means.loc[ks[0]]),
            "by disease": _rounded((per_disease[ks[1]] - per_disease[ks[0]]).reindex(list(DISEASES))),
        },
        **_test(comparison),
    }


def _test(comparison: Results) -> dict[str, Any]:
    """The interval of the mean difference and its p value, both over patients and seeds."""
    means = list_records(comparison.gains("study", disease="mean"))
    if not means:
        return {}
    low, high, p = (means[-1][name] for name in ("low", "high", "p"))
    interval = None if low is None else [round(low, 3), round(high, 3)]
    p = None if p is None else float(f"{p:.3g}")
    return {"95% over patients and seeds": interval, "p, over patients and seeds": p}


def ceiling(algorithms: Results, alone: Results) -> dict[str, Any]:
    """What centralized training on the pooled images gains over the target alone, and CODASCA's share of it."""
    by_algorithm = algorithms.view("seeds").groupby(["algorithm", "seed"])["auc"].mean().unstack()
    one = alone.view("seeds", k=1).groupby("seed")["auc"].mean()
    gains = by_algorithm.loc[["codasca", "centralized_auc"]] - one
    found = {name: _over_seeds(gains.loc[name]) for name in gains.index}
    share = gains.loc["codasca"].mean() / gains.loc["centralized_auc"].mean()
    return found | {"share of the gain": round(float(share), 2)}


def _over_seeds(differences: pd.Series) -> dict[str, Any]:
    low, high = stats.t.interval(0.95, len(differences) - 1, differences.mean(), stats.sem(differences))
    return {
        "seed by seed": [round(float(one), 3) for one in differences],
        "positive": f"{int((differences > 0).sum())} of {len(differences)}",
        "mean": round(float(differences.mean()), 3),
        "95% over seeds": [round(float(low), 3), round(float(high), 3)],
    }


def _rounded(values: pd.Series) -> dict[str, float]:
    return {str(name): round(float(value), 3) for name, value in values.items()}


def _write_page(comparison: Results) -> None:
    """The table between the marks of docs/measurements.md, and the picture above it."""
    results = comparison.view("seeds")
    table = results.groupby(["k", "disease"])["auc"].mean().unstack()[list(DISEASES)]
    means = results.groupby(["k", "seed"])["auc"].mean().unstack()
    heads = ["K", *(TITLES[disease] for disease in DISEASES), f"mean ± sd of {means.shape[1]} seeds"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for k in table.index:
        cells = [f"{value:.3f}" for value in table.loc[k]]
        lines.append([str(k), *cells, f"**{means.loc[k].mean():.3f}** ± {means.loc[k].std():.3f}"])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text += f"\n\n{answer_study(comparison)}"
    page = _ROOT / "docs" / "measurements.md"
    before, begin, rest = page.read_text("utf-8").partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not (begin and end):
        raise SystemExit(f"{page}: the marks {' and '.join(_MARKS)} are missing")
    page.write_text(f"{before}{_MARKS[0]}\n{text}\n{_MARKS[1]}{after}", "utf-8")
    (picture,) = draw_seeds(comparison)
    with TemporaryDirectory() as folder:
        picture.save_png(Path(folder))
        shutil.copyfile(Path(folder, f"{picture.name}.png"), _ROOT / "docs" / "images" / "auc_against_k.png")


def _processor() -> str:
    """Its name, where Linux tells it."""
    told = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", told.read_text("utf-8")) if told.exists() else []
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
