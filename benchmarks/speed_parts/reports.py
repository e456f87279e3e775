"""`chestfed site check` and `site card` on a table of a million images: processor time and memory of the command.

The table is drawn at random, no patients: as ChestX-ray8's label file, and as a hospital's own with a column of
findings and a code book. The images are absent, so that the cards list as many missing files as there are rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.speed_parts.opening import spent
from chestfed.core.bundled import bundled

ROWS = 1_000_000
TERMS = ("No Finding", "Edema", "Effusion", "Atelectasis|Effusion", "Cardiomegaly", "Consolidation|Edema", "Mass")
OWN = {
    "site": "own",
    "title": "Own table",
    "reader": "table",
    "root": "own",
    "label_files": {"table": ["labels.csv"]},
    "views": "all",
    "diseases": ["cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion"],
    "uncertain": "missing",
    "blank": "negative",
    "table": {
        "columns": {
            "image": "Image Index",
            "patient": "Patient ID",
            "findings": "Finding Labels",
            "split": "Split",
            "sex": "Patient Gender",
            "age": "Patient Age",
            "view": "View Position",
        },
        "codes": {
            "findings": {
                "No Finding": "normal",
                "Mass": "ignore",
                "Effusion": "pleural_effusion",
                **{name: name.lower() for name in ("Edema", "Atelectasis", "Cardiomegaly", "Consolidation")},
            }
        },
    },
}


def measure(rows: int = ROWS) -> dict[str, Any]:
    """Both commands on both tables; the first check reads labels only, the second writes every problem to files."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "check --no-images": ("check", "--no-images"),
            "check --out": ("check", "--out", f"{folder}/out"),
            "card": ("card", "--out", f"{folder}/card.html"),
        }
        for site, config in write_sites(Path(folder), rows).items():
            for name, (command, *words) in commands.items():
                where = (str(config), "--data", folder, "--cache", f"{folder}/{site} {name}")
                figures[f"{site}, {name}"] = spent("-m", "chestfed", "site", command, *where, *words, allowed=(0, 1))
    return figures


def write_sites(folder: Path, rows: int) -> dict[str, Path]:
    """Two label files of a site without its images, and their YAMLs."""
    chance, number = np.random.default_rng(1), np.arange(rows)
    patient = number // 3
    frame = pd.DataFrame({"Image Index": [f"{n:08d}_{m:03d}.png" for n, m in zip(patient, number % 3, strict=True)]})
    frame["Finding Labels"] = chance.choice(TERMS, rows)
    frame["Follow-up #"], frame["Patient ID"] = number % 3, patient
    frame["Patient Age"], frame["Patient Gender"] = chance.integers(1, 95, rows), chance.choice(["F", "M"], rows)
    frame["View Position"] = chance.choice(["PA", "AP"], rows)
    for name in ("chestxray8", "own"):
        (folder / name).mkdir()
    frame.to_csv(folder / "chestxray8" / "Data_Entry_2017_v2020.csv", index=False)
    test = patient % 5 == 0
    for name, part in (("train_val", ~test), ("test", test)):
        lines = "\n".join(frame["Image Index"][part])
        (folder / "chestxray8" / f"{name}_list.txt").write_text(f"{lines}\n", encoding="utf-8")
    frame.assign(Split=np.where(test, "test", "train")).to_csv(folder / "own" / "labels.csv", index=False)
    own = folder / "own.yaml"
    own.write_text(yaml.safe_dump(OWN, sort_keys=False), encoding="utf-8")
    return {"ChestX-ray8": bundled("site_configs") / "chestxray8.yaml", "own table": own}
