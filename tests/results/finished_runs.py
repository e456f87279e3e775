"""Run folders as a study leaves them, without training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.evaluation.auc import auc_per_disease
from chestfed.results import table as tables

NAMES = ("edema", "atelectasis")
IMAGES = 40


def labels_and_patients() -> tuple[np.ndarray, np.ndarray]:
    """The test set of all runs."""
    labels = np.random.default_rng(0).integers(0, 2, (IMAGES, len(NAMES))).astype(np.float32)
    labels[3, 0] = np.nan
    return labels, np.arange(IMAGES) * 3 // 4


def write_run(folder: Path, *, seed: int = 1, ks: tuple[int, ...] = (1, 2), images: int = 0, lr: float = 0.1) -> Path:
    """A finished study; `images` shifts the names of that many images, as another test set would."""
    labels, patients = labels_and_patients()
    rows = []
    for k in ks:
        own = folder / f"k{k}"
        own.mkdir(parents=True)
        noise = np.random.default_rng([seed, k]).random(labels.shape)
        scores = (0.1 * k * np.nan_to_num(labels) + 0.5 * noise).astype(np.float32)
        names = [f"{n + (1000 if n < images else 0):032x}" for n in range(IMAGES)]
        frame = pd.DataFrame({"image": names, "patient": patients})
        for j, name in enumerate(NAMES):
            frame[f"score_{name}"], frame[f"label_{name}"] = scores[:, j], labels[:, j]
        frame.to_parquet(own / "predictions.parquet", index=False)
        results = auc_per_disease(scores, labels, NAMES)
        rows.append(tables.make_row(k, [f"site{n}" for n in range(k)], results, scores, labels, patients, 20))
        aucs = {result.disease: result.auc for result in results}
        history = [
            {"round": 1, "stage": 1, "loss": 1.0, "bytes_up": 1000 * k, "bytes_down": 2000 * k, "images": 64 * k},
            {"round": 2, "stage": 1, "loss": 0.5, "bytes_up": 1000 * k, "bytes_down": 2000 * k, "images": 64 * k},
        ]
        history[-1] |= {"auc": aucs, "mean_auc": rows[-1].mean}
        (own / "rounds.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in history))
        (own / "result.json").write_text("{}")
    table = tables.StudyTable("Study", "small", "frontal-image", IMAGES, 30, True, tuple(rows), None)
    (folder / "table.csv").write_text(tables.as_csv(table))
    configuration = {
        "seed": seed,
        "k": list(ks),
        "sites": [{}],
        "federated": {"algorithm": "codasca", "window": 4, "local_lr": lr},
        "evaluation": {"protocol": "frontal-image"},
    }
    about = {"title": "Study", "synthetic": True, "configuration": configuration}
    (folder / "study.json").write_text(json.dumps(about))
    return folder
