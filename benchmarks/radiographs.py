"""When do other hospitals help, on open radiographs? Every table of docs/joining.md that is not of phantoms.

    python -m benchmarks.radiographs --data radiographs --save benchmarks/results/radiographs.json
    python -m benchmarks.radiographs --data radiographs --only "^parts"

Each study is a `chestfed study` command that is printed as it starts, with ten splits of the patients and one training
seed. What is finished in --out is not run again, and studies are added to those in the saved file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.source_addition import _processor
from chestfed.results.tables.collect import read_comparison
from chestfed.results.tables.frames import Results, list_records

_ROOT = Path(__file__).parents[1]
_ALONE = "alternatives=null"
_TRAINED = ("model.trained=1", "preprocess.size=128", "alternatives=null")
_BOTH = "sites=[{config: ../site_configs/films/nih_sample.yaml, test_fraction: 0.2, validation_fraction: 0.15}, %s]"
_ENTROPY = ("--methods", "fedavg")
_ENTROPY_STEPS = (
    "alternatives.centralized={algorithm: centralized, local_lr: 0.074}",
    "alternatives.own_data_settings={guangzhou: {local_lr: 0.033}}",
)
_HANNOVER = _BOTH % "{config: ../site_configs/films/hannover.yaml, validation_fraction: 0.15}"
_MATCHED = (
    _BOTH
    % "{config: ../site_configs/films/guangzhou.yaml, validation_fraction: 0.15, training_images: 464, positives: 0.5}"
)


@dataclass(frozen=True)
class Study:
    """One command; `words` and `settings` are added to those of all."""

    pipeline: str
    settings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


#: Name -> command.
STUDIES: Mapping[str, Study] = {
    "parts": Study("nih_parts"),
    "parts, other splits": Study("nih_parts", ("split=100",)),
    "parts, labels of the added ones permuted": Study("nih_parts", ("sites.0.control=labels_permuted",)),
    "parts, by images": Study("nih_parts", ("target_images={counts: [20, 80, all]}",), ("--k", "1,4")),
    "parts, methods": Study(
        "nih_parts", (), ("--methods", "fedavg,codasca,coda_plus,scaffold,centralized,centralized_auc")
    ),
    "ages": Study("nih_parts", ("sites.0.clients=3", "sites.0.partition={ages: [40, 60]}", "k=[1, 2, 3]")),
    "parts, 128 pixels": Study("nih_parts", ("preprocess.size=128", _ALONE), ("--k", "1,4")),
    "parts, last stage trained": Study("nih_parts", _TRAINED, ("--k", "1,4")),
    "wards": Study("nih_wards"),
    "wards, labels of the clinic permuted": Study("nih_wards", ("sites.1.control=labels_permuted", _ALONE)),
    "ward, by images": Study("nih_wards", ("target_images={counts: [20, 80, 320, all], target: nih_ward}", _ALONE)),
    "clinic, by images": Study("nih_wards", ("target_images={counts: [20, 80, 320, all], target: nih_clinic}", _ALONE)),
    "three hospitals": Study("three_hospitals"),
    "three hospitals, weights: images": Study("three_hospitals", ("federated.weights=images", _ALONE)),
    "three hospitals, labels of Guangzhou permuted": Study(
        "three_hospitals", ("sites.1.control=labels_permuted", _ALONE), ("--k", "1,2")
    ),
    "three hospitals, images of Guangzhou are noise": Study(
        "three_hospitals", ("sites.1.control=noise", _ALONE), ("--k", "1,2")
    ),
    "Guangzhou with as many images, half of them positive": Study("three_hospitals", (_MATCHED, _ALONE, "k=[1, 2]")),
    "Hannover alone": Study("three_hospitals", (_HANNOVER, _ALONE, "k=[1, 2]")),
    "three hospitals, cross-entropy": Study("three_hospitals", _ENTROPY_STEPS, _ENTROPY),
    "three hospitals, cross-entropy, labels of Guangzhou permuted": Study(
        "three_hospitals", ("sites.1.control=labels_permuted", _ALONE), (*_ENTROPY, "--k", "1,2")
    ),
    "three hospitals, cross-entropy, images of Guangzhou are noise": Study(
        "three_hospitals", ("sites.1.control=noise", _ALONE), (*_ENTROPY, "--k", "1,2")
    ),
    "cross-entropy, Guangzhou with as many images, half of them positive": Study(
        "three_hospitals", (_MATCHED, _ALONE, "k=[1, 2]"), _ENTROPY
    ),
    "cross-entropy, Hannover alone": Study("three_hospitals", (_HANNOVER, _ALONE, "k=[1, 2]"), _ENTROPY),
    "three hospitals, cross-entropy, weights: images": Study(
        "three_hospitals", ("federated.weights=images", _ALONE), _ENTROPY
    ),
    "three hospitals, cross-entropy, by images": Study(
        "three_hospitals", ("target_images={counts: [20, 80, all]}", _ALONE), (*_ENTROPY, "--k", "1,2,3")
    ),
    "parts, cross-entropy": Study("nih_parts", (), _ENTROPY),
    "wards, cross-entropy": Study(
        "nih_wards", ("alternatives.centralized={algorithm: centralized, local_lr: 0.1}",), _ENTROPY
    ),
    "three hospitals, by images": Study(
        "three_hospitals", ("target_images={counts: [20, 80, all]}", _ALONE), ("--k", "1,2,3")
    ),
}


def main() -> None:
    """Run what is missing, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the radiographs")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs_radiographs"))
    parser.add_argument("--only", default="", help="regular expression of the names of studies")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    figures: dict[str, Any] = json.loads(chosen.save.read_text("utf-8")) if chosen.save and chosen.save.exists() else {}
    for name, study in STUDIES.items():
        if not re.search(chosen.only, name):
            continue
        figures[name] = measure(chosen, study)
        if chosen.save:
            chosen.save.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
        print(json.dumps({name: figures[name]["gains"]}), flush=True)


def measure(chosen: argparse.Namespace, study: Study) -> dict[str, Any]:
    """Run one command, and read the tables that it has written."""
    file = _ROOT / "pipelines" / f"{study.pipeline}.yaml"
    return measure_splits(chosen, str(file if file.is_file() else study.pipeline), study.words, study.settings)


def measure_splits(
    chosen: argparse.Namespace, pipeline: str, words: Sequence[str], settings: Sequence[str]
) -> dict[str, Any]:
    """Run `chestfed study` with all splits and seeds, and read the tables that it has written."""
    repeats = ["--splits", str(chosen.splits), "--seeds", str(chosen.seeds)]
    changes = [word for setting in settings for word in ("--set", setting)]
    started = time.monotonic()
    printed = run_chestfed(chosen, "study", pipeline, *repeats, "--jobs", str(chosen.jobs), *words, *changes)
    (folder,) = set(re.findall(r"chestfed report (\S+comparison-\w+)", printed))
    return {
        "command": shlex.join(["chestfed", "study", Path(pipeline).stem, *repeats, *words, *changes]),
        "seconds": round(time.monotonic() - started),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "torch": metadata.version("torch")},
        **describe(read_comparison(Path(folder))),
    }


def run_chestfed(chosen: argparse.Namespace, *words: str) -> str:
    """What a command prints."""
    command = [*words, "--data", str(chosen.data), "--out", str(chosen.out), "--no-tracking"]
    print("\n$ chestfed", shlex.join(command), flush=True)
    run = subprocess.run(
        [sys.executable, "-P", "-m", "chestfed", *command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    print(run.stdout, flush=True)
    return run.stdout


def describe(results: Results) -> dict[str, Any]:
    """AUCs and differences of means over the diseases, and of the diseases at the target."""
    columns = [
        "method",
        "k",
        "kind",
        "target_images",
        "hospital",
        "disease",
        "auc",
        "low",
        "high",
        "positives",
        "patients",
    ]
    estimates = [results.view(view, **only) for view, only in _views(results)]
    differences = [results.gains(view, **only) for view, only in _views(results)]
    kept = ["hospital", "disease", "reference", "model", "auc_reference", "auc_model", "difference", "low", "high", "p"]
    gains = []
    for frame in differences:
        of_runs = [json.loads(text or "{}").values() for text in frame["of_seeds"]] if len(frame) else []
        rows = list_records(frame[[name for name in (*kept, "target_images") if name in frame]].round(4))
        for row, runs in zip(rows, of_runs, strict=True):
            row["higher in"] = f"{sum((value or 0) > 0 for value in runs)} of {len(runs)}"
        gains += rows
    rows = [
        row for frame in estimates for row in list_records(frame[[name for name in columns if name in frame]].round(4))
    ]
    return {"splits": len(results.splits), "seeds": len(results.seeds), "gains": gains, "aucs": rows}


def _views(results: Results) -> Sequence[tuple[str, dict[str, str]]]:
    return [("study", {}), ("alternatives", {"disease": "mean"}), ("gate", {"disease": "mean"})]


if __name__ == "__main__":
    main()
