"""When does joining help, whom, and which rule bounds the loss: heads on frozen features, ten seeds.

    python -m benchmarks.joining --data radiographs --save benchmarks/results/joining_films.json
    python -m benchmarks.joining --phantoms --save benchmarks/results/joining_phantoms.json

    python -m benchmarks.joining --data radiographs --network "without guangzhou" --only "^sets" --seeds 3 --save FILE

First a network is trained: the pipeline's common model of all hospitals, with the first seed, on training patients.
Then heads on its features: every set of partners of each target, with what each hospital of the set could do instead,
and its gate; the same with 80, 160, 320 and all images of the target; with other weights, pairs and aggregation, and
with a gate that takes whatever looks best; and with a partner whose labels are permuted or whose images are noise.

A hospital that is left out is scored with heads on a network that was trained without its images. `--network` takes
such a network for the other parts too. Each part is a `chestfed study` command that is printed as it starts. What is
finished in --out is not run again, and parts are added to those in the saved file.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chestfed.app.cli import app
from chestfed.results.tables.collect import read_comparison
from chestfed.results.tables.frames import list_records

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
    "gate without caution": ("alternatives.gate={caution: 0}",),
    "labels of the first partner permuted": (_PERMUTED,),
    "images of the first partner are noise": (_NOISE,),
}


@dataclass(frozen=True)
class Part:
    """One command that trains heads; `left_out` names the hospital that only tests."""

    name: str
    words: tuple[str, ...]
    settings: tuple[str, ...] = ()
    left_out: str = ""


def list_parts(*, phantoms: bool) -> Iterator[Part]:
    """All commands that train heads."""
    targets = ("chexpert",) if phantoms else ("nih", "guangzhou")
    largest = "5" if phantoms else "3"
    for target in targets:
        yield Part(f"sets of {target}", (), (f"subsets={{target: {target}, alternatives: true}}",))
    for target in targets:
        counts = "20,40,all" if phantoms else "80,160,320,all"  # CheXpert's phantoms are 82 training images
        images = f"target_images={{counts: [{counts}], target: {target}}}"
        yield Part(f"images of {target}", ("--k", f"1,{largest}"), (images,))
    for name, settings in FACTORS.items():
        is_control = settings in ((_NOISE,), (_PERMUTED,))
        yield Part(name, ("--k", "1,2" if is_control else f"1,{largest}"), settings)
    for site in ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr") if phantoms else targets:
        yield Part(f"{site} left out", (), _leave_out(site), site)


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
    parser.add_argument("--network", default="", help="'without SITE': the network whose features are taken")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    os.environ["COLUMNS"] = "200"
    figures: dict[str, Any] = json.loads(chosen.save.read_text("utf-8")) if chosen.save and chosen.save.exists() else {}
    figures.pop("summary", None)
    for part in list_parts(phantoms=chosen.phantoms):
        if not re.search(chosen.only, part.name):
            continue
        started = time.monotonic()
        measured = measure_left_out(chosen, part) if part.left_out else measure_part(chosen, part)
        name = f"{part.name}, network {chosen.network}" if chosen.network else part.name
        figures[name] = {"seeds": chosen.seeds, **measured, "seconds": round(time.monotonic() - started)}
        if chosen.save:
            text = json.dumps({**figures, "summary": summarize(figures)}, indent=1)
            chosen.save.write_text(text + "\n", "utf-8")
    print(json.dumps(summarize(figures), indent=1))


def measure_part(chosen: argparse.Namespace, part: Part) -> dict[str, Any]:
    """The tables of heads on the network's features."""
    network = train_network(chosen, chosen.network.removeprefix("without "))
    words = (*part.words, "--seeds", str(chosen.seeds))
    return read_figures(run_study(chosen, chosen.out, (*_use(chosen, network), *part.settings), words))


def measure_left_out(chosen: argparse.Namespace, part: Part) -> dict[str, Any]:
    """AUCs, threshold and probabilities at a hospital that no seed has trained on, neither network nor heads."""
    network, aucs, transfer = train_network(chosen, part.left_out), [], []
    settings = (*_use(chosen, network), "alternatives=null", *part.settings)
    for seed in range(1, chosen.seeds + 1):
        written = run_study(chosen, chosen.out, settings, ("--seed", str(seed)))
        (folder,) = {Path(path) for path in re.findall(r"chestfed report (\S+held-out-\w+)", written)}
        aucs.append(pd.read_csv(folder / "held_out.csv").query("disease == 'mean'"))
        transfer.append(pd.read_csv(folder / "transfer.csv"))
    values = pd.concat(aucs).groupby("hospital", sort=False)["auc"].agg(["mean", "std", "count"])
    numbers = ["sensitivity", "specificity", "brier", "ece"]
    each = pd.concat(frame.groupby("images", sort=False)[numbers].mean() for frame in transfer)
    spread = each.groupby(level=0).agg(["mean", "std"])
    spread.columns = spread.columns.map(" ".join)
    return {
        "aucs": list_records(values.round(4).reset_index()),
        "transfer": list_records(spread.round(4).reset_index()),
    }


def train_network(chosen: argparse.Namespace, left_out: str = "") -> Path:
    """The model file of all hospitals together with the first seed, or of all but one."""
    largest = "5" if chosen.phantoms else "3"
    training = [setting for setting in _settings(chosen) if not setting.startswith("alternatives")]
    settings = (*training, "alternatives=null", *(_leave_out(left_out) if left_out else ()))
    out = chosen.out / "networks" if left_out else chosen.out
    written = run_study(chosen, out, settings, () if left_out else ("--k", largest))
    if left_out:
        (path,) = out.glob(f"*-{left_out}-*/k*/model.safetensors")
        return path
    (folder,) = {Path(path) for path in re.findall(r"chestfed report (\S+)", written)}
    return folder / f"k{largest}" / "model.safetensors"


def _settings(chosen: argparse.Namespace) -> tuple[str, ...]:
    return _PHANTOMS if chosen.phantoms else _FILMS


def _leave_out(site: str) -> tuple[str, ...]:
    return ("k=null", f"held_out={{sites: [{site}], images: all}}")


def _use(chosen: argparse.Namespace, network: Path) -> tuple[str, ...]:
    model = f"model={{name: features, network: {json.dumps(str(network))}}}"
    return (*_settings(chosen), model, "pretrain.epochs=0")


def run_study(chosen: argparse.Namespace, out: Path, settings: tuple[str, ...], words: tuple[str, ...]) -> str:
    """Run one command in this process, and return what it prints."""
    pipeline = "source_addition_samples" if chosen.phantoms else "real_films"
    command = ["study", str(_ROOT / "pipelines" / f"{pipeline}.yaml")]
    command += ["--out", str(out), "--cache", str(chosen.cache), "--no-tracking", *words]
    command += ["--data", str(chosen.data)] if chosen.data else []
    command += ["--jobs", str(chosen.jobs)] if chosen.jobs > 1 and "--seeds" in words else []
    for setting in settings:
        command += ["--set", setting]
    print("\n$ chestfed", shlex.join(command), flush=True)
    with redirect_stdout(io.StringIO()) as written:
        code = app(command, prog_name="chestfed", standalone_mode=False)
    print(written.getvalue(), flush=True)
    if code:
        sys.exit(code)  # interrupted
    return written.getvalue()


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


def summarize(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Over all hospitals of all sets, and of all parts: how each model compares with own data."""
    summary: dict[str, Any] = {}
    for group, pattern in (
        ("sets", "^sets of [^,]+$"),
        ("sets, other networks", "^sets of .+ network"),
        ("fewer images", "^images of (?!the)"),
        ("factors and controls", "^(?!sets|images of (?!the))"),
    ):
        parts = [part for name, part in figures.items() if re.search(pattern, name) and isinstance(part, dict)]
        rows = [row for part in parts for row in part.get("alternatives", ())]
        frame = pd.DataFrame(rows)
        if not len(frame):
            continue
        frame["model"] = frame["model"].str.replace(r"^K=\d+$", "common model", regex=True)
        for model, part in frame.groupby("model", sort=False):
            worst = part.sort_values("difference").iloc[0]
            summary.setdefault(group, {})[str(model)] = {
                "hospitals": len(part),
                "mean": round(float(part["difference"].mean()), 4),
                "lower": int((part["difference"] < 0).sum()),
                f"lower by more than {BOUND}": int((part["difference"] < -BOUND).sum()),
                "worst": [worst["hospital"], float(worst["difference"])],
                "lowest auc": float(part["auc_model"].min()),
                "spread of auc": round(float(part["auc_model"].std()), 4),
            }
    return summary


if __name__ == "__main__":
    main()
