"""Does adding hospitals raise the AUC? The sample study over several seeds, and K=5 minus K=1 with an interval.

    .venv/bin/python benchmarks/source_addition_seeds.py --seeds 1,2,3 --out runs

Each seed is one whole study (`chestfed study --set seed=S`), so finished ones are found again. The difference is
paired: the same test images under both models, averaged over the seeds; its interval is a patient-clustered bootstrap
over the test patients, for these trained models, and p is corrected by Holm's method over the diseases. The spread
over seeds is given apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.core.diseases import DISEASES, TITLES
from chestfed.evaluation.comparison import compare
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.labeled import Scored
from chestfed.training.identity import software_versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--pipeline", default="pipelines/source_addition_samples.yaml")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--save", type=Path, help="write the figures to this JSON file")
    parser.add_argument("study_options", nargs="*", help="further options of `chestfed study`, after --")
    options = parser.parse_args()

    folders = [run(int(seed), options) for seed in options.seeds.split(",")]
    report = summarize(folders)
    for line in report["lines"]:
        print(line)
    report |= {"command": " ".join(["python", *sys.argv]), "seeds": options.seeds, "versions": software_versions()}
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def run(seed: int, options: argparse.Namespace) -> Path:
    """Run one study and return its folder."""
    command = [
        sys.executable,
        "-m",
        "chestfed",
        "study",
        options.pipeline,
        "--out",
        str(options.out),
        "--no-tracking",
    ]
    command += ["--set", f"seed={seed}", *options.study_options]
    result = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    print(result.stdout, flush=True)
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("written to ")]
    return Path(line.removeprefix("written to ").split("/table.csv")[0])


def summarize(folders: list[Path]) -> dict:
    """Tables per seed, and the paired difference between the largest and the smallest K."""
    tables = [json.loads((folder / "table.json").read_text(encoding="utf-8")) for folder in folders]
    ks = [row["k"] for row in tables[0]["rows"]]
    frames = {k: [pd.read_parquet(folder / f"k{k}" / "predictions.parquet") for folder in folders] for k in ks}
    labels = frames[ks[0]][0][[f"label_{disease}" for disease in DISEASES]].to_numpy()
    patients = pd.factorize(frames[ks[0]][0]["patient"])[0]
    scores = {k: [frame[[f"score_{disease}" for disease in DISEASES]].to_numpy() for frame in frames[k]] for k in ks}

    lines, per_k = [], {}
    for position, k in enumerate(ks):
        rows = [table["rows"][position] for table in tables]
        aucs = np.array([[row["diseases"][disease]["auc"] for disease in DISEASES] for row in rows])
        per_k[k] = aucs.tolist()
        cells = "  ".join(
            f"{TITLES[d]} {m:.3f}±{s:.3f}" for d, m, s in zip(DISEASES, aucs.mean(0), aucs.std(0), strict=True)
        )
        lines.append(f"K={k}  mean {aucs.mean():.3f} (seeds {', '.join(f'{row.mean():.3f}' for row in aucs)})  {cells}")
    few, many = ([Scored(one, labels, patients, DISEASES) for one in scores[k]] for k in (ks[0], ks[-1]))
    *found, mean = compare(few, many)
    lines.append(f"K={ks[-1]} minus K={ks[0]}: mean {shown(mean.difference, mean.interval, mean.p)}")
    lines += [f"  {TITLES[d.disease]} {shown(d.difference, d.interval, d.p_holm)}" for d in found]
    return {
        "synthetic": tables[0]["synthetic"],
        "lines": lines,
        "auc_per_k_seed_disease": per_k,
        "difference": [d.difference for d in found],
        "interval": [d.interval for d in found],
        "p_holm": [d.p_holm for d in found],
        "difference_of_means": mean.difference,
        "interval_of_means": mean.interval,
        "p_of_means": mean.p,
    }


def shown(difference: float | None, interval: Interval | None, p: float | None) -> str:
    if difference is None:
        return "-"
    between = "" if interval is None else f" [{interval.low:+.3f}, {interval.high:+.3f}]"
    shown = "" if p is None else " p<0.001" if p < 0.001 else f" p={p:.3f}"
    return f"{difference:+.3f}{between}{shown}"


if __name__ == "__main__":
    main()
