"""Run folders as a study leaves them, without training."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import save

from chestfed.core.manifest import Part, write_manifest
from chestfed.core.provenance import Origin
from chestfed.results.evaluation import labeled
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.tables.collect import collect, write_results
from chestfed.results.tables.frames import Row, make_differences
from chestfed.results.tables.run_folder import FILES, FILES_OF_K, RunFolder

NAMES = ("edema", "atelectasis")
#: The files of each run that was asked for; None: every run is made anew (`tests.mutation`).
MADE: dict[str, dict[Path, bytes]] | None = {}
IMAGES = 120
PATIENTS = IMAGES * 3 // 4


def labels_and_patients() -> tuple[np.ndarray, np.ndarray]:
    """The test set of all runs."""
    labels = np.random.default_rng(0).integers(0, 2, (IMAGES, len(NAMES))).astype(np.float32)
    labels[3, 0] = np.nan
    return labels, np.arange(IMAGES) * 3 // 4


def write_run(
    folder: Path,
    *,
    seed: int = 1,
    ks: tuple[int, ...] = (1, 2),
    images: int = 0,
    lr: float = 0.1,
    compared: bool = True,
    labels: np.ndarray | None = None,
    reversed_labels: bool = False,
    digest: str = "0123456789ab",
    method: str = "",
) -> Path:
    """A finished study; `images` shifts the names of that many images, as another test set would.

    `compared`: with `significance.csv`; `labels`: of the test set, in place of the usual ones.
    `reversed_labels`: negative images have the higher scores. A run is made once; the next like it has the same files.
    """
    asked: dict[str, Any] = {"seed": seed, "ks": ks, "images": images, "lr": lr, "compared": compared, "labels": labels}
    asked |= {"reversed_labels": reversed_labels, "digest": digest, "method": method}
    if MADE is None:
        return _make_run(folder, **asked)
    key = repr((asked | {"labels": None if labels is None else labels.tolist()}, labeled.LEAST_PATIENTS))
    if key not in MADE:
        with TemporaryDirectory() as place:
            made = _make_run(Path(place) / "run", **asked)
            MADE[key] = {path.relative_to(made): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    for path, content in MADE[key].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def _make_run(
    folder: Path,
    *,
    seed: int,
    ks: tuple[int, ...],
    images: int,
    lr: float,
    compared: bool,
    labels: np.ndarray | None,
    reversed_labels: bool,
    digest: str,
    method: str,
) -> Path:
    """Write the files of `write_run`."""
    usual, patients = labels_and_patients()
    labels = usual if labels is None else labels
    rows = []
    for k in ks:
        k_folder = folder / f"k{k}"
        k_folder.mkdir(parents=True)
        noise = np.random.default_rng([seed, k]).random(labels.shape)
        higher = np.nan_to_num(1 - labels if reversed_labels else labels)
        scores = (0.1 * k * higher + 0.5 * noise).astype(np.float32)
        names = [f"{n + (1000 if n < images else 0):032x}" for n in range(IMAGES)]
        frame = pd.DataFrame({"image": names, "patient": patients})
        for j, name in enumerate(NAMES):
            frame[f"score_{name}"], frame[f"label_{name}"] = scores[:, j], labels[:, j]
        frame.to_parquet(k_folder / "predictions.parquet", index=False)
        sample = Scored(scores, labels, patients, NAMES)
        rows.append(Row.from_scores(k, [f"site{n}" for n in range(k)], sample, 20))
        counters = {"bytes_up": 1000 * k, "bytes_down": 2000 * k, "images": 64 * k, "gradients": 8 * k}
        drift = {"drift": 0.0 if k == 1 else 0.5, "gradient_drift": 0.0 if k == 1 else 0.25}
        history = [{"round": n, "stage": n, "loss": 1 / n, **drift, **counters} for n in (1, 2)]
        history[-1] |= {
            "auc": {disease.disease: disease.value for disease in rows[-1].diseases},
            "mean_auc": rows[-1].mean.value,
        }
        (k_folder / "rounds.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in history))
        (k_folder / "seconds.jsonl").write_text(
            "".join(json.dumps({"round": n, "seconds": n / 2}) + "\n" for n in (1, 2))
        )
        (k_folder / "time.json").write_text(json.dumps({"seconds": 1.5, "resumed": False, "on": "cpu"}))
        (k_folder / "result.json").write_text(json.dumps(rows[-1].to_plain()))
        (k_folder / "model.safetensors").write_bytes(save({"weights": np.zeros(1, np.float32)}))
    origin = Origin.SYNTHETIC
    configuration = {
        "seed": seed,
        "k": list(ks),
        "sites": [{"clients": 1, "test_fraction": None} for _ in ks],
        "federated": {
            "algorithm": {"name": "codasca", "local_lr": lr},
            "objective": {"name": "auc_margin"},
            "window": 4,
        },
        "evaluation": {"protocol": "frontal-image", "resamples": 20},
        **({"method": method} if method else {}),
    }
    scored = {"model": "small", "protocol": "frontal-image", "images": IMAGES, "patients": PATIENTS}
    about = {
        "scored": scored,
        **{"title": "Study", **origin.keys(), "configuration": configuration, "digest": digest},
        **{"key": None, "inputs": {"test set": "ab"}, "quarantined": {}, "notes": {}, "results_version": 1},
        **{"machine": {"device": "cpu", "threads": 1}, "versions": {"chestfed": "0.1.0"}},
    }
    (folder / "study.json").write_text(json.dumps(about))
    (folder / "sites.json").write_text(json.dumps({**origin.keys(), "bins": 64, "sites": [], "hospitals": []}))
    seal_run(folder)
    write_results(collect([RunFolder(folder)], differences=None if compared else make_differences([])), folder)
    seal_run(folder)
    return folder


def seal_run(folder: Path) -> None:
    """Write the manifests of a run folder anew, for a test that has changed its files."""
    digest = json.loads((folder / "study.json").read_text())["digest"]
    write_manifest(folder, Part(digest, "."), FILES)
    for result in folder.glob("k*/**/result.json"):
        place = result.parent.relative_to(folder).as_posix()
        write_manifest(result.parent, Part(digest, place), FILES_OF_K)
