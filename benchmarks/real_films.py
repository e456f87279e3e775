"""Does adding hospitals help on real films, and does the answer depend on weights, pairs, step size or the partner?

    python -m benchmarks.real_films --data films --save benchmarks/results/real_films_128.json --readme
    python -m benchmarks.real_films --data films --size 224 --save benchmarks/results/real_films_224.json

Pneumonia at NIH (sample), Guangzhou and Hannover: `pipelines/real_films.yaml` with ten training seeds, and variants of
it, each a `chestfed study` command that is printed as it starts. What is finished in --out is not run again. Some 40
minutes on two cores with 128 pixels, two hours with 224. With --readme the table between README's markers is renewed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.source_addition import _processor
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import read_comparison
from chestfed.results.tables.differences import compare_with_first
from chestfed.results.tables.frames import Results, list_records
from chestfed.results.tables.predictions import Predictions, load_predictions, merge_seeds
from chestfed.results.tables.run_folder import HOSPITALS
from chestfed.results.tables.views import make_hospital_grid

_ROOT = Path(__file__).parents[1]
_MARKS = ("<!-- real films: begin -->", "<!-- real films: end -->")
_SITE = "{config: ../site_configs/films/%s.yaml, validation_fraction: 0.15%s}"
_NIH_HANNOVER = ", ".join((_SITE % ("nih_sample", ", test_fraction: 0.35"), _SITE % ("hannover", "")))
_WITHIN = "methods.*.objective={name: auc, pairs: within_site}"
#: The hospital whose AUC is compared besides that of the target.
_PARTNER = "guangzhou"


@dataclass(frozen=True)
class Variant:
    """A change of the pipeline, and the K that are trained with it."""

    name: str
    settings: tuple[str, ...] = ()
    ks: tuple[int, ...] = (2, 3)


VARIANTS = (
    Variant("Hannover alone", (f"sites=[{_NIH_HANNOVER}]",), (2,)),
    Variant("weights: sqrt", ("federated.weights=sqrt",)),
    Variant("weights: images", ("federated.weights=images",)),
    Variant("Hannover alone, weights: sqrt", (f"sites=[{_NIH_HANNOVER}]", "federated.weights=sqrt"), (2,)),
    Variant("Hannover alone, weights: images", (f"sites=[{_NIH_HANNOVER}]", "federated.weights=images"), (2,)),
    Variant("pairs within hospitals", (_WITHIN,)),
    Variant("Hannover alone, pairs within hospitals", (f"sites=[{_NIH_HANNOVER}]", _WITHIN), (2,)),
    Variant("labels of Guangzhou permuted", ("sites.1.control=labels_permuted",), (2,)),
    Variant("Guangzhou's images are noise", ("sites.1.control=noise",), (2,)),
    Variant("step 0.1", ("federated.local_lr=0.1",), (1, 3)),
    Variant("step 2", ("federated.local_lr=2",), (1, 3)),
)


def main() -> None:
    """Run what is missing, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the films")
    parser.add_argument("--size", type=int, default=128, help="pixels of a side")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs_real_films"))
    parser.add_argument("--only-study", action="store_true", help="without the variants")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--readme", action="store_true")
    chosen = parser.parse_args()
    study = _run(chosen, (), (1, 2, 3))
    figures = {"size": chosen.size, "seeds": chosen.seeds, **_describe_study(study)}
    reference = _models(chosen.out, study, 1)
    variants = {}
    for variant in () if chosen.only_study else VARIANTS:
        settings = (*variant.settings, "alternatives=null")
        comparison = _run(chosen, settings, variant.ks)
        for k in variant.ks:
            variants[f"{variant.name}, K={k}"] = _compare(reference, _models(chosen.out, comparison, k))
    for k in (2, 3):
        variants[f"the study, K={k}"] = _compare(reference, _models(chosen.out, study, k))
    figures["minus K=1 of the study"] = variants
    print(json.dumps(figures, indent=1))
    if chosen.save:
        machine = {"processor": _processor(), "cores": os.cpu_count(), "torch": metadata.version("torch")}
        chosen.save.write_text(json.dumps({"machine": machine, **figures}, indent=1) + "\n", "utf-8")
    if chosen.readme:
        _write_readme(study)


def _run(chosen: argparse.Namespace, settings: Sequence[str], ks: Sequence[int]) -> Results:
    """Run one command, and read the tables that it has written."""
    command = [sys.executable, "-m", "chestfed", "study", str(_ROOT / "pipelines" / "real_films.yaml")]
    command += ["--data", str(chosen.data), "--out", str(chosen.out), "--no-tracking", "--jobs", str(chosen.jobs)]
    command += ["--seeds", str(chosen.seeds), "--k", ",".join(map(str, ks))]
    for setting in (f"preprocess.size={chosen.size}", *settings):
        command += ["--set", setting]
    print("\n$", shlex.join(command[1:]), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, flush=True)
    (folder,) = set(re.findall(r"chestfed report (\S+comparison-\w+)", done.stdout))
    return read_comparison(Path(folder))


def _models(out: Path, comparison: Results, k: int) -> dict[str, Predictions]:
    """Predictions of the model of K over the seeds, at the target and, if it was scored there, at the partner."""
    folders = list(dict.fromkeys(out / run["folder"] for run in comparison.about["runs"]))
    models = {"target": merge_seeds([load_predictions(folder, k) for folder in folders])}
    place = f"{HOSPITALS}/{_PARTNER}"
    if all((folder / f"k{k}" / place).is_dir() for folder in folders):
        models[_PARTNER] = merge_seeds([load_predictions(folder, k, place) for folder in folders])
    return models


def _compare(reference: dict[str, Predictions], models: dict[str, Predictions]) -> dict[str, Any]:
    """At each hospital the AUC over the seeds, and the difference to the reference over patients and seeds."""
    figures = {}
    for hospital, model in models.items():
        named = [replace(reference[hospital], name="reference"), replace(model, name="model")]
        mean = list_records(compare_with_first(named, 0))[-1]
        figures[hospital] = {
            "auc": _rounded(mean["auc_model"]),
            "sd over seeds": _rounded(mean["seed_sd_model"]),
            "difference": _rounded(mean["difference"]),
            "95% over patients and seeds": mean["low"] and [_rounded(mean[end]) for end in ("low", "high")],
            "p": None if mean["p"] is None else float(f"{mean['p']:.2g}"),
            "seeds above 0": sum(value is not None and value > 0 for value in json.loads(mean["of_seeds"]).values()),
        }
    return figures


def _describe_study(study: Results) -> dict[str, Any]:
    """AUC by K and seed, the verdict, and the tables of hospitals and alternatives."""
    means = study.view("seeds").groupby(["k", "seed"])["auc"].mean().unstack()
    columns = ["hospital", "model", "auc", "sd", "images", "patients"]
    figures: dict[str, Any] = {
        "AUC at the target by seed": {f"K={k}": [_rounded(value) for value in row] for k, row in means.iterrows()},
        "verdict": str(answer_study(study)),
    }
    for view in ("hospitals", "alternatives"):
        if len(rows := study.view(view, disease="mean")):
            figures[view] = list_records(rows[columns].round(3))
            gains = study.gains(view, disease="mean")[["hospital", "model", "difference", "low", "high", "p_holm"]]
            figures[f"differences, {view}"] = list_records(gains.round(4))
    return figures


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 4)


def _write_readme(study: Results) -> None:
    """The table between README's markers: each hospital alone and with all, and the answer."""
    heads = ["hospital", "test images", "K=1", "K=3", "change [95% interval]"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for line in make_hospital_grid(study, "hospitals").lines:
        images, first, *_, last, change = line.cells
        interval = f" {change.below[0]}" if change.below else ""
        lines.append([line.head, images.text, first.text, last.text, f"{change.text}{interval}"])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
    readme = _ROOT / "README.md"
    before, begin, rest = readme.read_text("utf-8").partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not (begin and end):
        raise SystemExit(f"{readme}: the marks {' and '.join(_MARKS)} are missing")
    text = f"{text}\n{answer_study(study)}"
    readme.write_text(f"{before}{_MARKS[0]}\n{text}\n{_MARKS[1]}{after}", "utf-8")


if __name__ == "__main__":
    main()
