"""Which running statistics of batch normalization a hospital is scored with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from chestfed.core.bundled import bundled
from chestfed.data.images.batches import NoiseImages, normalize
from chestfed.learning.models import FlatModule
from chestfed.studies.experiment.device import Machine, prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.data.clients import Outputs, TestSet, score
from chestfed.studies.training.data.experiment import Experiment, load_images
from tests.studies.training.tiny_studies import SMALL, read_rows

PIPELINES = bundled("pipelines")


class Tiny(nn.Module):
    """An affine map of the mean of each image, after batch normalization; dropout shows what is in training mode."""

    def __init__(self, diseases: int) -> None:
        super().__init__()
        self.norm, self.drop, self.last = nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Linear(3, diseases)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(self.norm(images).square().mean((2, 3))))


def load_data(
    home: Path, *overrides: str, name: str = "source_addition_samples"
) -> tuple[Pipeline, Experiment, Machine]:
    file = PIPELINES / f"{name}.yaml"
    pipeline = load_pipeline(file, [*SMALL, *overrides]).resolve()
    (data,) = load_images([read_rows(pipeline, file, home / "synthetic_hospitals")], home / "cache")
    return pipeline, data, prepare_machine(pipeline.runtime)


@pytest.fixture
def network() -> FlatModule:
    torch.manual_seed(0)
    return FlatModule(Tiny(5))


def outputs(network: FlatModule, test: TestSet, machine: Machine, batch: int = 64) -> Outputs:
    averaged = torch.cat([torch.full((3,), 5.0), torch.full((3,), 9.0)])
    return score(network, network.parameters(), averaged, test, batch, machine)


def test_own_statistics_of_hospital(home: Path, network: FlatModule) -> None:
    _, data, machine = load_data(home, "k=[1,2]")
    for client in data.clients[:2]:
        pixels = normalize(torch.from_numpy(client.images.read(np.arange(len(client.labels)))))
        whole = len(pixels) - len(pixels) % 32 if len(pixels) > 32 else len(pixels)
        chosen = pixels[torch.arange(whole) * len(pixels) // whole].split(32)
        test = data.hospitals[client.name]
        result = outputs(network, test, machine)
        mean = torch.stack([part.mean((0, 2, 3)) for part in chosen]).mean(0)
        variance = torch.stack([part.var((0, 2, 3)) for part in chosen]).mean(0)
        torch.testing.assert_close(result.buffers, torch.cat([mean, variance]), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(outputs(network, test, machine, batch=7).scores, result.scores, rtol=1e-6)
        again = score(network, network.parameters(), result.buffers, replace(test, statistics_images=None), 64, machine)
        assert (again.scores == result.scores).all()  # so a stored model is scored as it was in the study


def test_averaged_statistics(home: Path, network: FlatModule) -> None:
    _, data, machine = load_data(home, "k=[1,2]", "evaluation.batch_norm=averaged")
    assert outputs(network, data.test, machine).buffers.tolist() == [5.0] * 3 + [9.0] * 3
    _, other, _ = load_data(home, "k=[1,2]")
    assert (outputs(network, other.test, machine).scores != outputs(network, data.test, machine).scores).any()


def test_common_set_scored_by_hospital(home: Path, network: FlatModule) -> None:
    parts = [f"sites.{n}.test_fraction=0.3" for n in (0, 1)]
    _, data, machine = load_data(home, *parts, "evaluation.split=test", "k=[1,2]")
    result = outputs(network, data.test, machine)
    each = [outputs(network, test, machine).scores for test in data.hospitals.values()]
    assert (result.scores == np.concatenate(each)).all()
    assert result.buffers.tolist() == [5.0] * 3 + [9.0] * 3


@pytest.mark.slow
def test_noise_keeps_real_statistics(home: Path) -> None:
    _, data, _ = load_data(home, "k=[1,2]", "sites.1.control=noise")
    client, test = data.clients[1], data.hospitals["chestxray8"]
    assert isinstance(client.images, NoiseImages)
    assert test.statistics_images is not None
    assert (test.statistics_images.read([0]) != client.images.read([0])).any()


def test_no_statistics_from_held_out(home: Path) -> None:
    _, data, _ = load_data(home, "held_out.sites=[chexpert]", name="leave_one_site_out")
    assert data.test.statistics_images is None
    assert all(test.statistics_images is not None for test in data.hospitals.values())
