"""Negative controls: added hospitals that cannot help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.experiment import Experiment, load_images
from tests.cases import assert_refused
from tests.studies.training.tiny_studies import read_rows

CONTROLS = bundled("pipelines") / "controls"


@pytest.fixture(scope="module")
def loaded(home: Path) -> Callable[[Path], Experiment]:
    def load(file: Path) -> Experiment:
        pipeline = load_pipeline(file, ["preprocess.size=64", "samples.size=tiny"]).resolve()
        return load_images([read_rows(pipeline, file, home / "synthetic_hospitals")], home / "cache")[0]

    return load


@pytest.fixture(scope="module")
def plain(loaded: Callable[[Path], Experiment]) -> Experiment:
    return loaded(bundled("pipelines") / "source_addition_samples.yaml")


def rows(labels: np.ndarray, repeats: np.ndarray) -> list[tuple[float, ...]]:
    return sorted(map(tuple, np.nan_to_num(np.column_stack([labels, repeats]), nan=-1).tolist()))


@pytest.mark.slow
def test_permuted_labels_move_rows(loaded: Callable[[Path], Experiment], plain: Experiment) -> None:
    control = loaded(CONTROLS / "labels_permuted.yaml")
    for true, false in zip(plain.clients[1:], control.clients[1:], strict=True):
        assert false.name == f"{true.name} (labels permuted)"
        assert np.array_equal(true.images.digests, false.images.digests)
        assert not np.array_equal(true.labels, false.labels, equal_nan=True)
        assert rows(true.labels, true.repeats) == rows(false.labels, false.repeats)
        assert control.digests[false.name] != plain.digests[true.name]


def test_noise_replaces_images_not_labels(loaded: Callable[[Path], Experiment], plain: Experiment) -> None:
    control, again = loaded(CONTROLS / "noise.yaml"), loaded(CONTROLS / "noise.yaml")
    for true, false, second in zip(plain.clients[1:], control.clients[1:], again.clients[1:], strict=True):
        assert false.name == f"{true.name} (noise)"
        assert np.array_equal(true.labels, false.labels, equal_nan=True)
        pixels = false.images.read(range(len(false.labels)))
        assert pixels.mean() == pytest.approx(127.5, abs=2)
        assert pixels.std() == pytest.approx(73.9, abs=2)
        assert len({picture.tobytes() for picture in pixels}) == len(pixels)
        assert np.array_equal(pixels[0], second.images.read([0])[0])
        assert control.digests[false.name] not in plain.digests.values()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["labels_permuted", "noise"])
def test_target_of_control_is_real(loaded: Callable[[Path], Experiment], plain: Experiment, name: str) -> None:
    control = loaded(CONTROLS / f"{name}.yaml")
    for part in (plain.clients[0].name, "test set"):
        assert control.digests[part] == plain.digests[part]


def test_the_target_cannot_be_a_control() -> None:
    with assert_refused(ConfigError, "invalid value", key=""):
        load_pipeline(CONTROLS / "noise.yaml", ["sites=[{config: a.yaml, control: noise}, {config: b.yaml}]"]).resolve()


@pytest.mark.parametrize("control", ["labels_permuted", "noise"])
def test_added_parts_of_target_are_controls(home: Path, control: str) -> None:
    def load(key: str) -> Experiment:
        file = bundled("pipelines") / "source_addition_samples.yaml"
        entry = f"sites=[{{config: ../site_configs/synthetic/chestxray8.yaml, clients: 3{key}}}]"
        changes = ["preprocess.size=64", "samples.size=tiny", entry, "k=[1, 3]"]
        changes += ["alternatives=null", "evaluation.split=test"]
        pipeline = load_pipeline(file, changes).resolve()
        return load_images([read_rows(pipeline, file, home / "synthetic_hospitals")], home / "cache")[0]

    plain, controlled = load(""), load(f", control: {control}")
    assert plain.digests[plain.clients[0].name] == controlled.digests[plain.clients[0].name]
    assert plain.digests["test set"] == controlled.digests["test set"]
    for true, false in zip(plain.clients[1:], controlled.clients[1:], strict=True):
        assert false.name == f"{true.name} ({control.replace('_', ' ')})"
        assert controlled.digests[false.name] not in plain.digests.values()
        assert rows(true.labels, true.repeats) == rows(false.labels, false.repeats)
