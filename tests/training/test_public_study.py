"""Studies on public image collections: the digits, and CIFAR-10 in small files of the published layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.experiment.loading import load_pipeline
from chestfed.experiment.pipeline import Pipeline
from chestfed.training.public_clients import load_collection
from tests.command_line import Called, call

DIGITS = bundled("pipelines") / "digits_ih.yaml"


def write_cifar10(root: Path, per_class: int) -> None:
    """The binary version: one byte of class and 3072 of pixels per image, five training files and a test file."""
    root.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        classes = np.repeat(np.arange(10, dtype=np.uint8), per_class)
        pixels = rng.integers(0, 256, (len(classes), 3072), dtype=np.uint8)
        (root / name).write_bytes(np.concatenate([classes[:, None], pixels], axis=1).tobytes())
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (root / "batches.meta.txt").write_text("\n".join(names) + "\n")


def run(folder: Path, pipeline: Path, *options: str) -> Called:
    return call("study", pipeline, "--no-tracking", *options, folder=folder)


def settings(*pairs: str) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


def test_the_digits_are_cut_into_clients_without_a_common_class() -> None:
    pipeline = load_pipeline(DIGITS)
    data = load_collection(pipeline, None)
    assert [client.name for client in data.clients] == [f"digits-{number}" for number in range(1, 6)]
    for client in data.clients:
        assert client.positive_ratios()[0] == pytest.approx(0.1, abs=0.01)
        assert client.images.read([0])[0].shape == (32, 32)
    assert data.test.labels.mean() == pytest.approx(0.5, abs=0.02)
    digests = [digest for client in data.clients for digest in client.images.digests.tolist()]
    assert not set(digests) & set(data.test.images.digests.tolist())
    again = load_collection(pipeline, None)
    assert again.digests == data.digests
    assert load_collection(load_pipeline(DIGITS, ["seed=2"]), None).digests != data.digests


def test_more_clients_than_classes_is_refused_with_a_way_out() -> None:
    pipeline = load_pipeline(DIGITS, ["collection.clients=6"])
    with pytest.raises(ConfigError, match="5 for 6 clients; take fewer clients, or partition: random"):
        load_collection(pipeline, None)


def test_sites_and_a_collection_together_or_neither_are_refused() -> None:
    with pytest.raises(ValueError, match="either 'sites' or 'collection'"):
        Pipeline(title="nothing")


def test_a_comparison_of_windows_stands_beside_the_papers_figures(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data" / "cifar10", per_class=4)
    small = ["collection.imratio=0.3", "federated.stages=1", "federated.stage_steps=2", "federated.batch_size=2"]
    result = run(
        tmp_path,
        bundled("pipelines") / "compositional" / "table1_cifar10.yaml",
        "--data", "data", "--algorithms", "local_scgdam,local_sgdm_ratio", "--windows", "4,8", "--seeds", "1",
        *settings(*small, "evaluation.resamples=10", "runtime.threads=1"),
    )  # fmt: skip
    assert result.code == 0, result.err
    below = " ".join(result.out.split())
    assert "paper: Zhang et al., NeurIPS 2023, Table 1, CIFAR10; the paper gives mean and variance across" in below
    assert "0.914" in result.out
    (folder,) = (tmp_path / "runs").glob("comparison-*")
    results = pd.read_csv(folder / "results.csv")
    models = results["model"].drop_duplicates().tolist()
    assert models == [f"{a}, I={w}" for a in ("local_scgdam", "local_sgdm_ratio") for w in (4, 8)]
    assert set(results["data"]) == {"real"}
    stored = json.loads((folder / "comparison.json").read_text())
    assert set(stored["largest_window"]) == {"local_scgdam", "local_sgdm_ratio"}


def test_one_run_stands_beside_the_papers_figure_and_a_dry_run_counts(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data" / "cifar10", per_class=4)
    pipeline = bundled("pipelines") / "compositional" / "figure5_stl10.yaml"
    text = pipeline.read_text().replace("name: stl10", "name: cifar10").split("comparison:")
    own = text[0] + "published:" + text[1].split("published:")[1]
    (tmp_path / "own.yaml").write_text(own)
    small = settings(
        "collection.imratio=0.3",
        "federated.stages=1",
        "federated.stage_steps=4",
        "federated.batch_size=2",
        "runtime.threads=1",
    )
    plan = run(tmp_path, Path("own.yaml"), "--data", "data", "--dry-run", *small)
    assert plan.code == 0, plan.err
    assert "cifar10-4" in plan.out
    assert not (tmp_path / "runs").exists()
    result = run(tmp_path, Path("own.yaml"), "--data", "data", *small)
    assert result.code == 0, result.err
    assert "0.8200" in result.out
    assert "Zhang et al." in result.out


def test_missing_files_are_named_with_where_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    result = run(tmp_path, bundled("pipelines") / "compositional" / "table1_stl10.yaml", "--data", "data")
    assert result.code == 1
    assert "stl10" in result.err
    assert "Traceback" not in result.err
