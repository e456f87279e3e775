"""When does joining help, whom, and which rule makes it safe: heads on frozen features, ten seeds.

    python -m benchmarks.joining --data films --save benchmarks/results/joining_films.json
    python -m benchmarks.joining --phantoms --save benchmarks/results/joining_phantoms.json

First a network is trained: the pipeline's common model of all hospitals, with the first seed, on training patients.
Then heads on its features: every set of partners of each target, with what each hospital of the set could do instead,
and its gate; the same with 80, 160, 320 and all images of the target; with other weights, pairs and aggregation; and
with a partner whose labels are permuted or whose images are noise. Each is a `chestfed study` command that is printed
as it starts. What is finished in --out is not run again.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chestfed.results.collect import read_comparison
from chestfed.results.frames import list_records

_ROOT = Path(__file__).parents[1]
#: No hospital should end below its own data by more than this.
BOUND = 0.01
_TUNING = "alternatives={fine_tuned: {epochs: [1], lr_factors: [1.0, 0.1]}, centralized: null, gate: {}}"
_FILMS = ("evaluation.every=60", _TUNING)
_PHANTOMS = (
    "evaluation.every=1000",
    *(f"sites.{place}.validation_fraction=0.15" for place in range(5)),
    _TUNING,
)
_CODA = "methods=[{algorithm: {name: coda_plus, dual_step: preconditioned, dual_lr: 0.1}}]"
_NOISE, _PERMUTED = "sites.1.control=noise", "sites.1.control=labels_permuted"
#: Factor -> settings of a study of all K of the pipeline.
FACTORS = {
    "as it is": (),
    "weights: sqrt": ("federated.weights=sqrt",),
    "weights: images": ("federated.weights=images",),
    "pairs within hospitals": ("methods.*.objective={name: auc, pairs: within_site}",),
    "coda_plus": (_CODA,),
    "coda_plus, median": (_CODA, "federated.aggregation=median"),
    "coda_plus, norm clipping": (_CODA, "federated.aggregation=norm_clipping"),
    "labels of the first partner permuted": (_PERMUTED,),
    "images of the first partner are noise": (_NOISE,),
}


@dataclass(frozen=True)
class Part:
    """One command."""

    name: str
    words: tuple[str, ...]
    settings: tuple[str, ...] = ()


def list_parts(*, phantoms: bool) -> Iterator[Part]:
    """All commands that train heads."""
    targets = ("chexpert",) if phantoms else ("nih", "guangzhou")
    largest = "5" if phantoms else "3"
    for target in targets:
        yield Part(f"sets of {target}", ("--subsets", "--target", target), ("subsets.alternatives=true",))
    for target in targets:
        words = ("--target-images", "80,160,320,all", "--target", target, "--k", f"1,{largest}")
        yield Part(f"images of {target}", words)
    for name, settings in FACTORS.items():
        is_control = settings in ((_NOISE,), (_PERMUTED,))
        yield Part(name, ("--k", "1,2" if is_control else f"1,{largest}"), settings)


def main() -> None:
    """Run what is missing, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the films")
    parser.add_argument("--phantoms", action="store_true", help="the sample hospitals instead")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs_joining"))
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--only", default="", help="regular expression of the names of parts")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    pipeline = "source_addition_samples" if chosen.phantoms else "real_films"
    settings = _PHANTOMS if chosen.phantoms else _FILMS
    largest = "5" if chosen.phantoms else "3"
    training = tuple(setting for setting in settings if not setting.startswith("alternatives"))
    written = run_study(chosen, pipeline, (*training, "alternatives=null"), ("--k", largest))
    (folder,) = {Path(path) for path in re.findall(r"chestfed report (\S+)", written)}
    network = folder / f"k{largest}" / "model.safetensors"
    heads = (*settings, f"model={{name: features, network: {json.dumps(str(network))}}}", "pretrain.epochs=0")
    figures: dict[str, Any] = {}
    for part in list_parts(phantoms=chosen.phantoms):
        if not re.search(chosen.only, part.name):
            continue
        started = time.monotonic()
        words = (*part.words, "--seeds", str(chosen.seeds))
        written = run_study(chosen, pipeline, (*heads, *part.settings), words)
        figures[part.name] = {**read_figures(written), "seconds": round(time.monotonic() - started)}
    figures["summary"] = summarize(figures)
    print(json.dumps(figures["summary"], indent=1))
    if chosen.save:
        chosen.save.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def run_study(chosen: argparse.Namespace, pipeline: str, settings: tuple[str, ...], words: tuple[str, ...]) -> str:
    """Run one command, and return what it prints."""
    command = [sys.executable, "-P", "-m", "chestfed", "study", str(_ROOT / "pipelines" / f"{pipeline}.yaml")]
    command += ["--out", str(chosen.out), "--cache", str(chosen.cache), "--no-tracking", *words]
    command += ["--data", str(chosen.data)] if chosen.data else []
    command += ["--jobs", str(chosen.jobs)] if chosen.jobs > 1 and "--seeds" in words else []
    for setting in settings:
        command += ["--set", setting]
    print("\n$", shlex.join(command[1:]), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, flush=True)
    return done.stdout


def read_figures(written: str) -> dict[str, Any]:
    """The tables that a command has written: alternatives, what the gate costs and chose, contributions."""
    comparisons = {Path(path) for path in re.findall(r"chestfed report (\S+comparison-\w+)", written)}
    figures: dict[str, Any] = {}
    for folder in comparisons:
        results = read_comparison(folder)
        columns = ["hospital", "model", "reference", "auc_reference", "auc_model", "difference", "low", "high", "p"]
        for view in ("study", "alternatives", "gate"):
            rows = results.gains(view, disease="mean")
            seeds = [json.loads(text or "{}") for text in rows["of_seeds"]]
            rows = rows[columns].astype({"difference": float}).round(4)
            rows["seeds_above"] = [sum((value or 0) > 0 for value in one.values()) for one in seeds]
            rows["worst_seed"] = [min(one.values(), default=None) for one in seeds]
            figures[view] = list_records(rows)
        figures["choices"] = results.about["gate"]
    for path in re.findall(r"written to (\S+contributions-\w+)", written):
        figures["contributions"] = list_records(pd.read_csv(Path(path) / "contributions.csv").round(4))
    return figures


def summarize(figures: dict[str, Any]) -> dict[str, Any]:
    """Over all hospitals of all sets, and of all parts: how each model compares with own data."""
    summary: dict[str, Any] = {}
    for group, pattern in (
        ("sets", "^sets"),
        ("fewer images", "^images"),
        ("factors and controls", "^(?!sets|images)"),
    ):
        rows = [row for name, part in figures.items() if re.search(pattern, name) for row in part["alternatives"]]
        frame = pd.DataFrame(rows)
        if not len(frame):
            continue
        frame["model"] = frame["model"].str.replace(r"^K=\d+$", "common model", regex=True)
        for model, part in frame.groupby("model", sort=False):
            worst = part.loc[part["difference"].idxmin()]
            summary.setdefault(group, {})[str(model)] = {
                "hospitals": len(part),
                "mean": round(float(part["difference"].mean()), 4),
                "lower": int((part["difference"] < 0).sum()),
                f"lower by more than {BOUND}": int((part["difference"] < -BOUND).sum()),
                "worst": [worst["hospital"], float(worst["difference"])],
            }
    return summary


if __name__ == "__main__":
    main()
