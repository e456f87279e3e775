"""Programs of one's own on a tiny synthetic hospital: other input sizes, outputs and inputs than chestfed's models."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from chestfed.cli import bundled
from chestfed.diseases import DISEASES
from chestfed.errors import ConfigError
from chestfed.samples import write_hospitals
from chestfed.sites import SiteTable, load_site_config, open_site
from chestfed.study.evaluate import Evaluation, evaluate_model, write
from chestfed.study.machine import Machine
from chestfed.study.scorers import Declared, open_scorer
from chestfed.study.significance import compare_with_first, read_run

MACHINE = Machine(torch.device("cpu"), 1, False, False, 0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the hospitals."""
    folder = tmp_path_factory.mktemp("own_models")
    write_hospitals(folder / "data", size="tiny", workers=1)
    return folder


def hospital(home: Path, name: str) -> SiteTable:
    config = load_site_config(bundled("site_configs") / "synthetic" / f"{name}.yaml", ["views=all"])
    return open_site(config, home / "data")


@pytest.fixture(scope="module")
def site(home: Path) -> SiteTable:
    return hospital(home, "chexpert")


class Pooling(nn.Module):
    """Takes any size; its outputs are the logits of a small network times `factor`."""

    def __init__(self, factor: float = 1.0, channels: int = 3) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(16 * channels, len(DISEASES))
        self.factor = factor

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(images, 4)
        return self.layer(pooled.flatten(1)) * self.factor


def saved(path: Path, module: nn.Module) -> str:
    torch.jit.script(module.eval()).save(str(path))
    return str(path)


def score(
    file: str, site: SiteTable, home: Path, split: str = "valid", protocol: str = "frontal-image", **declared: object
) -> Evaluation:
    scorer = open_scorer(file, Declared(**{"diseases": DISEASES, "size": 64, **declared}), MACHINE)
    return evaluate_model(scorer, site, split, protocol, home / "cache", MACHINE, resamples=20)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["frontal-image", "study-max"])
def test_models_of_two_input_sizes_are_compared_on_the_same_images(
    protocol: str, home: Path, site: SiteTable, tmp_path: Path
) -> None:
    file = saved(tmp_path / "m.pt", Pooling())
    for size in (64, 48):
        write(score(file, site, home, protocol=protocol, size=size), tmp_path / str(size))
    first, second = (pd.read_parquet(tmp_path / size / "predictions.parquet") for size in ("64", "48"))
    assert first["image"].tolist() == second["image"].tolist()
    assert (first["score_edema"] != second["score_edema"]).any()
    found = compare_with_first([read_run(tmp_path / "64"), read_run(tmp_path / "48")], 20)
    assert found.units == len(first)


def test_evaluations_of_two_sites_are_not_compared(home: Path, site: SiteTable, tmp_path: Path) -> None:
    file = saved(tmp_path / "m.pt", Pooling())
    write(score(file, site, home), tmp_path / "here")
    write(score(file, hospital(home, "mimic_cxr"), home, "test"), tmp_path / "there")
    with pytest.raises(ConfigError, match=r"not about the same images: 24 of 24 and 22 of 22 differ\."):
        compare_with_first([read_run(tmp_path / "here"), read_run(tmp_path / "there")], 20)
