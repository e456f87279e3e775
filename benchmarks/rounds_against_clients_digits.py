r"""Communication rounds to a fixed AUC as the number of clients grows, on handwritten digits with unlike clients.

    .venv/bin/python benchmarks/rounds_against_clients_digits.py \
        --save benchmarks/results/rounds_against_clients_digits.json

The digits that come with scikit-learn, 0-4 against 5-9, all training images, each client a run of the images sorted
by class (one or two classes of either label). Window, step sizes and everything else are the same for all numbers of
clients; the figure is the first round after which the test AUC is at least `--auc`. Medians over seeds; the slope is
that of log rounds against log K. The total number of images is fixed, so that more clients have fewer each.
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
    parser.add_argument("--auc", type=float, default=0.95)
    parser.add_argument("--rounds", type=int, default=80, help="give up after these")
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--out", type=Path, help="keep the runs here, to go on after an interruption")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    counts = [int(k) for k in options.clients.split(",")]
    report: dict = {"command": " ".join(["python", *sys.argv]), "rounds": {}, "slope": {}, "final_auc": {}}
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        for algorithm in options.algorithms.split(","):
            medians = []
            for k in counts:
                found = [rounds_needed(algorithm, k, seed, out, options) for seed in range(1, options.seeds + 1)]
                rounds = [number for number, _ in found]
                medians.append(float(np.median(rounds)))
                report["rounds"][f"{algorithm} K={k}"] = rounds
                report["final_auc"][f"{algorithm} K={k}"] = [auc for _, auc in found]
                print(f"{algorithm:10} K={k:2}: {medians[-1]:5.0f} rounds {found}", flush=True)
            reached = [(k, m) for k, m in zip(counts, medians, strict=True) if np.isfinite(m)]
            if len(reached) > 1:
                ks, ms = zip(*reached, strict=True)
                report["slope"][algorithm] = float(np.polyfit(np.log(ks), np.log(ms), 1)[0])
                print(f"{algorithm:10} slope of log rounds against log K: {report['slope'][algorithm]:+.2f}")
    if options.save:
        text = json.dumps(report, indent=2).replace("Infinity", "null")
        options.save.write_text(text + "\n", encoding="utf-8")


def rounds_needed(algorithm: str, k: int, seed: int, out: Path, options: argparse.Namespace) -> tuple[float, float]:
    """The first round with the AUC, infinity if there is none; and the last round's AUC."""
    own = out / f"{algorithm}-{k}-{seed}"
    settings = {
        "collection.clients": k,
        "collection.partition": "sorted",
        "collection.imratio": "null",
        "federated.algorithm": algorithm,
        "federated.window": options.window,
        "federated.local_lr": options.lr,
        "federated.stages": 1,
        "federated.stage_steps": options.rounds * options.window,
        "federated.returned": "last",
        "evaluation.every": 1,
        "evaluation.resamples": 0,
        "comparison": "null",
        "per_algorithm": "{}",
        "seed": seed,
    }
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "chestfed", "study", ROOT / "pipelines" / "digits_ih.yaml", "--no-tracking"]
    subprocess.run([*command, "--out", own, *pairs], check=True, capture_output=True, cwd=ROOT)
    (file,) = own.glob(f"digits_ih-*/k{k}/rounds.jsonl")
    aucs = [json.loads(line)["mean_auc"] for line in file.read_text().splitlines()]
    reached = [number for number, auc in enumerate(aucs, start=1) if auc >= options.auc]
    return (float(reached[0]) if reached else float("inf")), aucs[-1]


if __name__ == "__main__":
    main()
