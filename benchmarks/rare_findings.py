"""When does AUC maximization pay? Every table of docs/rare_findings.md.

    python -m benchmarks.rare_findings --data radiographs --save benchmarks/results/rare_findings.json

For two collections of radiographs and five shares of positives `chestfed tune` chooses the step size of every method on
validation patients, with equally many trials, and `chestfed study` trains the chosen ones with five splits of the
patients and two seeds. Heads on frozen features are trained, and at Guangzhou small networks on pixels, as a whole,
with three scalings of their input (`benchmarks.pixels`). What is finished in --out is not run again.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from benchmarks.radiographs import measure_splits, run_chestfed

_ROOT = Path(__file__).parents[1]
_PIPELINE = str(_ROOT / "pipelines" / "rare_findings.yaml")
SHARES = (0.01, 0.03, 0.1, 0.3, 0.5)
#: Collection -> how the pipeline reads it.
COLLECTIONS = {
    "guangzhou": (),
    "nih": ("sites.0.config=../site_configs/films/nih_five.yaml", "diseases=[pleural_effusion]"),
    **{
        f"guangzhou, pixels scaled by {scaling}": (
            "preprocess.size=32",
            f"model={{name: 'benchmarks.pixels:build_network', options: {{scaling: {scaling}}}}}",
        )
        for scaling in ("imagenet", "image", "pixel")
    },
}

#: Title -> methods, the first of which the others are compared with; each is trained once.
METHODS = {
    "minus plain cross-entropy": (
        *("fedavg", "weighted", "balanced", "coda_plus", "coda_plus+balanced", "partial_auc", "pairs"),
        *("scaffold", "scaffold+balanced", "codasca", "codasca+balanced"),
    ),
    "minus weighted cross-entropy": (
        *("weighted", "balanced", "coda_plus", "coda_plus+balanced", "partial_auc", "pairs"),
        "codasca+balanced",
    ),
    "minus cross-entropy with drift corrected": ("scaffold", "scaffold+balanced", "codasca", "codasca+balanced"),
}
#: The same for networks on pixels, which are trained as a whole.
PIXEL_METHODS = {
    "minus plain cross-entropy": ("fedavg", "weighted", "balanced", "coda_plus", "coda_plus+balanced", "pairs"),
    "minus cross-entropy on balanced batches": ("balanced", "coda_plus", "coda_plus+balanced", "pairs"),
}


def main() -> None:
    """Run what is missing, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the radiographs")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--trials", type=int, default=6, help="step sizes tried per method")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs_rare_findings"))
    parser.add_argument("--only", default="", help="regular expression of names such as 'guangzhou, 0.01'")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    figures: dict[str, Any] = json.loads(chosen.save.read_text("utf-8")) if chosen.save and chosen.save.exists() else {}
    for collection, share in ((collection, share) for share in SHARES for collection in COLLECTIONS):
        if re.search(chosen.only, f"{collection}, {share}"):
            figures[f"{collection}, {share}"] = measure_share(chosen, collection, share)
            if chosen.save:
                chosen.save.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def measure_share(chosen: argparse.Namespace, collection: str, share: float) -> dict[str, Any]:
    """Tune every method, and train the chosen settings with all splits and seeds."""
    settings = [f"sites.0.positives={share}", *COLLECTIONS[collection]]
    changes = [word for setting in settings for word in ("--set", setting)]
    compared = PIXEL_METHODS if "pixels" in collection else METHODS
    chosen_methods = ("--methods", ",".join(next(iter(compared.values())))) if compared is PIXEL_METHODS else ()
    search = ("--trials", str(chosen.trials), "--seeds", "1", *chosen_methods)
    printed = run_chestfed(chosen, "tune", _PIPELINE, *search, *changes)
    tuned = re.findall(r"chestfed study (\S+tuned\.yaml)", printed)[-1]
    comparisons = {
        name: measure_splits(chosen, tuned, ("--methods", ",".join(of)), ()) for name, of in compared.items()
    }
    return {"share": share, "settings": settings, "comparisons": comparisons}


if __name__ == "__main__":
    main()
