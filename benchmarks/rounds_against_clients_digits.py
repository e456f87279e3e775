r"""Communication rounds to a fixed AUC as the number of clients grows, on heterogeneous handwritten digits.

    .venv/bin/python benchmarks/rounds_against_clients_digits.py \
        --save benchmarks/results/rounds_against_clients_digits.json

The digits that come with scikit-learn, 0-4 against 5-9, all training images, each client a run of the images sorted
by class (one or two classes of either label). Window, step sizes and everything else are the same for all numbers of
clients; the figure is the first round after which the test AUC is at least that of `--auc`. Medians over seeds; the
slope is that of log rounds against log K. The number of images is fixed: more clients have fewer each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="2,4,8,16,32")
    parser.add_argument("--algorithms", default="codasca,coda_plus")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--auc", default="0.95,0.98", help="the AUCs to reach")
    parser.add_argument("--rounds", type=int, default=40, help="give up after these")
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--out", type=Path, help="keep the runs here, to go on after an interruption")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    counts = [int(k) for k in options.clients.split(",")]
    report: dict = {"command": " ".join(["python", *sys.argv]), "rounds": {}, "slope": {}, "final_auc": {}}
    goals = [float(goal) for goal in options.auc.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        for algorithm in options.algorithms.split(","):
            curves = {
                k: [aucs_by_round(algorithm, k, seed, out, options) for seed in range(1, options.seeds + 1)]
                for k in counts
            }
            report["final_auc"][algorithm] = {k: [curve[-1] for curve in curves[k]] for k in counts}
            for goal in goals:
                found = {k: [first_round(curve, goal) for curve in curves[k]] for k in counts}
                name = f"{algorithm}, AUC {goal:g}"
                report["rounds"][name] = found
                medians = {k: float(np.median(found[k])) for k in counts}
                print(name, medians, found, flush=True)
                if all(np.isfinite(list(medians.values()))):
                    slope = np.polyfit(np.log(counts), np.log(list(medians.values())), 1)[0]
                    report["slope"][name] = float(slope)
                    print(f"{name}: slope of log rounds against log K {slope:+.2f}", flush=True)
    if options.save:
        text = json.dumps(report, indent=2).replace("Infinity", "null")
        options.save.write_text(text + "\n", encoding="utf-8")


def first_round(aucs: list[float], goal: float) -> float:
    """The first round, from 1, with at least this AUC; infinity if there is none."""
    return next((float(number) for number, auc in enumerate(aucs, start=1) if auc >= goal), float("inf"))


def aucs_by_round(algorithm: str, k: int, seed: int, out: Path, options: argparse.Namespace) -> list[float]:
    """The test AUC after every round of one study."""
    own = out / f"{algorithm}-{k}-{seed}"
    settings = {
        "collection.clients": k,
        "collection.partition": "sorted",
        "collection.imratio": "null",
        "methods": f"[{{algorithm: {algorithm}}}]",
        "federated.window": options.window,
        "federated.local_lr": options.lr,
        "federated.stages": 1,
        "federated.stage_steps": options.rounds * options.window,
        "evaluation.every": 1,
        "evaluation.resamples": 0,
        "seeds": 1,
        "seed": seed,
    }
    if algorithm == "coda_plus":
        settings["federated.stage_output"] = "last"
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "chestfed", "study", ROOT / "pipelines" / "digits_ih.yaml", "--no-tracking"]
    subprocess.run([*command, "--out", own, *pairs], check=True, capture_output=True, cwd=ROOT)
    (file,) = own.glob(f"digits_ih-*/k{k}/rounds.jsonl")
    return [json.loads(line)["mean_auc"] for line in file.read_text().splitlines()]


if __name__ == "__main__":
    main()
