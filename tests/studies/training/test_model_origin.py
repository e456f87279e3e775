"""A model's file says what the model was trained on, which is not all that its study reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.provenance import Origin
from chestfed.learning.models import FlatModule, build_model
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.experiment import Experiment, with_label_clients
from chestfed.studies.training.run_files import write_weights
from tests.studies.training.tiny_studies import FILE, SETTINGS, read_rows


@pytest.fixture
def mixed(home: Path) -> Experiment:
    """A study of a real hospital and four synthetic ones; its rows and no image."""
    rows = with_label_clients(read_rows(load_pipeline(FILE, SETTINGS), FILE, home / "synthetic_hospitals"))
    first, *others = rows.clients
    return replace(rows, clients=(replace(first, origin=Origin.REAL), *others))


@pytest.mark.parametrize(("k", "origin"), [(1, Origin.REAL), (2, Origin.MIXED)])
def test_model_names_what_trained_it(mixed: Experiment, tmp_path: Path, k: int, origin: Origin) -> None:
    network = FlatModule(build_model(mixed.pipeline.model, len(mixed.diseases), seed=1))
    weights = (network.parameters(), network.buffers())
    write_weights(tmp_path / "model.safetensors", network, *weights, mixed, mixed.find_model_origin(k))
    assert mixed.origin is Origin.MIXED
    assert Origin.read(load_checkpoint(tmp_path / "model.safetensors")[1]) is origin


def test_stage_1_counts_after_the_first_left(mixed: Experiment) -> None:
    left = replace(mixed, members={2: [mixed.clients[1].name]})
    assert left.find_model_origin(2) is Origin.MIXED
