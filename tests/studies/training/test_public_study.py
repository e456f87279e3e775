"""Studies on public image collections: the digits, and CIFAR-10 in a small `.npz`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import identity
from tests.cases import assert_refused
from tests.command_line import Called, call
from tests.studies.training.tiny_studies import read_collection

DIGITS = bundled("pipelines") / "digits_ih.yaml"


def write_cifar10(data: Path, per_class: int) -> None:
    """`cifar10.npz`: ten classes of random color images, with a test part."""
    data.mkdir()
    rng = np.random.default_rng(0)
    arrays = {}
    for suffix, count in (("", 5 * per_class), ("_test", per_class)):
        arrays[f"y{suffix}"] = np.tile(np.arange(10), count)
        arrays[f"x{suffix}"] = rng.integers(0, 256, (10 * count, 32, 32, 3), dtype=np.uint8)
    np.savez(data / "cifar10.npz", **arrays)


def run(folder: Path, pipeline: Path, *options: str) -> Called:
    return call("study", pipeline, "--no-tracking", *options, folder=folder)


def settings(*pairs: str) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


def test_digits_are_dealt_by_class() -> None:
    pipeline = load_pipeline(DIGITS).resolve()
    data = read_collection(pipeline)
    assert [client.name for client in data.clients] == [f"digits-{number}" for number in range(1, 6)]
    for client in data.clients:
        assert client.positive_ratios()[0] == pytest.approx(0.1, abs=0.01)
        assert client.images.read([0])[0].shape == (32, 32)
    assert data.test.labels.mean() == pytest.approx(0.5, abs=0.02)
    digests = [digest for client in data.clients for digest in client.images.digests.tolist()]
    assert not set(digests) & set(data.test.images.digests.tolist())
    again = read_collection(pipeline)
    assert again.digests == data.digests
    assert read_collection(load_pipeline(DIGITS, ["seed=2"]).resolve()).digests != data.digests
    places = ["collection.download=true", "collection.root=elsewhere"]
    assert identity(load_pipeline(DIGITS, places).resolve()) == identity(pipeline)


def test_more_clients_than_classes_refused() -> None:
    pipeline = load_pipeline(DIGITS, ["collection.clients=6"]).resolve()
    with assert_refused(ConfigError, "too few classes", clients=6):
        read_collection(pipeline)


def test_the_collections_clients_are_taken(tmp_path: Path) -> None:
    y = np.tile([0, 1], 20)
    patients, clients = np.repeat(np.arange(20), 2), np.repeat(["north", "south"], 20)
    np.savez(
        tmp_path / "skin.npz",
        x=np.arange(40 * 64, dtype=np.uint8).reshape(40, 8, 8),
        y=y,
        patient=patients,
        client=clients,
    )
    options = [
        "collection.name=skin",
        "collection.partition=client",
        "collection.clients=2",
        "collection.imratio=null",
        "collection.test_fraction=0.2",
    ]
    data = read_collection(load_pipeline(DIGITS, options).resolve(), tmp_path)
    assert [client.name for client in data.clients] == ["skin-1", "skin-2"]
    assert sum(len(client.labels) for client in data.clients) == 32
    assert len(set(data.test.patients.tolist())) == 4  # a fifth of the patients, with all their images
    assert data.test.labels.sum() == 4
    with assert_refused(ConfigError, "counts differ", clients=2):
        read_collection(
            load_pipeline(DIGITS, [option.replace("clients=2", "clients=3") for option in options]).resolve(), tmp_path
        )


def test_neither_sites_nor_collection() -> None:
    with pytest.raises(ValueError, match="either 'sites' or 'collection'"):
        Pipeline(title="nothing")


@pytest.mark.slow
def test_windows_beside_published_figures(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data", per_class=4)
    small = ["collection.imratio=0.3", "federated.stages=1", "federated.stage_steps=2", "federated.batch_size=2"]
    result = run(
        tmp_path,
        bundled("pipelines") / "compositional" / "table1_cifar10.yaml",
        "--data", "data", "--methods", "local_scgdam,local_sgdm_ratio", "--seeds", "1", "--verbose",
        *settings(*small, "windows=[4,8]", "evaluation.resamples=10", "runtime.threads=1"),
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


@pytest.mark.slow
def test_one_run_beside_the_published_figure(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data", per_class=4)
    pipeline = bundled("pipelines") / "compositional" / "figure5_stl10.yaml"
    text = pipeline.read_text().replace("name: stl10", "name: cifar10").replace("seeds: 3\n", "")
    (tmp_path / "own.yaml").write_text(text.replace("local_scgdam, scaffold, fedprox", "local_scgdam"))
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
    result = run(tmp_path, Path("own.yaml"), "--data", "data", "--verbose", *small)
    assert result.code == 0, result.err
    assert "0.8200" in result.out
    assert "Zhang et al." in result.out


def test_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    result = run(tmp_path, bundled("pipelines") / "compositional" / "table1_stl10.yaml", "--data", "data")
    assert result.code == 1
    assert "stl10" in result.err
    assert "Traceback" not in result.err
