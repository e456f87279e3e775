"""Models from elsewhere on a tiny synthetic hospital: other input sizes, outputs and inputs than chestfed's models."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from rich.console import Console
from torch import nn

from chestfed.core.bundled import bundled
from chestfed.core.config import load_config
from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.data.images.batches import IMAGENET, NetworkInput
from chestfed.data.images.preprocess import Preprocess
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.results.evaluation.estimates import auc_per_disease, mean_of
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.protocols import Protocol
from chestfed.results.evaluation.summary import summarize
from chestfed.results.tables.differences import compare_with_first
from chestfed.results.tables.predictions import load_predictions
from chestfed.studies.experiment.device import Machine
from chestfed.studies.scoring import model_outputs
from chestfed.studies.scoring.evaluate import Evaluation, evaluate_model
from chestfed.studies.scoring.evaluation_output import render, write
from chestfed.studies.scoring.scorer import ModelDescription, Output, Scorer
from chestfed.studies.scoring.scorers import Declared, open_scorer
from tests.cases import assert_refused
from tests.studies.scoring.onnx_program import write_program

MACHINE = Machine(torch.device("cpu"), 1, False, False, 0)


@pytest.fixture(scope="module")
def home(tiny_hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the hospitals."""
    folder = tmp_path_factory.mktemp("own_models")
    (folder / "data").symlink_to(tiny_hospitals)
    return folder


def hospital(home: Path, name: str) -> SiteTable:
    config = load_site_config(bundled("site_configs") / "synthetic" / f"{name}.yaml", ["views=all"])
    return open_site(config, home / "data")


@pytest.fixture(scope="module")
def site(home: Path) -> SiteTable:
    return hospital(home, "chexpert")


class Pooling(nn.Module):
    """Takes any size; its outputs are the logits of a small network times `factor`, or percentages."""

    def __init__(self, factor: float = 1.0, channels: int = 3, percent: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(16 * channels, len(DISEASES))
        self.factor, self.percent = factor, percent

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(images, 4)
        logits = self.layer(pooled.flatten(1)) * self.factor
        return 100 * torch.sigmoid(logits) if self.percent else logits


def score(
    module: nn.Module | Scorer,
    site: SiteTable,
    home: Path,
    split: str = "valid",
    protocol: Protocol = "frontal-image",
    *,
    size: int = 64,
    output: Output = "logits",
    names: tuple[str, ...] = DISEASES,
    given: NetworkInput = IMAGENET,
) -> Evaluation:
    scorer = module
    if isinstance(module, nn.Module):
        call = module.eval()
        scorer = Scorer("own", "a model", f"{size}", names, Preprocess(size=size), output, call, given)
    assert isinstance(scorer, Scorer)
    return evaluate_model(scorer, site, split, protocol, home / "cache", MACHINE, how=Intervals(resamples=20))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["frontal-image", "study-max"])
def test_two_input_sizes_are_compared(protocol: Protocol, home: Path, site: SiteTable, tmp_path: Path) -> None:
    for size in (64, 48):
        write(score(Pooling(), site, home, protocol=protocol, size=size), tmp_path / str(size))
    first, second = (pd.read_parquet(tmp_path / size / "predictions.parquet") for size in ("64", "48"))
    assert first["image"].tolist() == second["image"].tolist()
    assert (first["score_edema"] != second["score_edema"]).any()
    table = compare_with_first([load_predictions(tmp_path / "64"), load_predictions(tmp_path / "48")], 20)
    assert set(table["images"]) == {len(first)}


def test_evaluations_of_two_sites_refused(home: Path, site: SiteTable, tmp_path: Path) -> None:
    write(score(Pooling(), site, home), tmp_path / "here")
    write(score(Pooling(), hospital(home, "mimic_cxr"), home, "test"), tmp_path / "there")
    with assert_refused(ConfigError, "other images", differ=(24, 23)):
        compare_with_first([load_predictions(tmp_path / "here"), load_predictions(tmp_path / "there")], 20)


def list_aucs(evaluation: Evaluation) -> list[float | None]:
    return [evaluation.auc[disease] for disease in DISEASES]


def scored(predictions: pd.DataFrame) -> Scored:
    """What is stored of an evaluation."""
    scores, labels = (predictions[[f"{part}_{name}" for name in DISEASES]].to_numpy() for part in ("score", "label"))
    return Scored(scores, labels, predictions["patient"].to_numpy(), DISEASES)


def render_text(evaluation: Evaluation) -> str:
    """What is printed, its lines joined."""
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(render(evaluation))
    return " ".join(console.export_text().split())


def test_large_logits_keep_the_auc(home: Path, site: SiteTable) -> None:
    plain = score(Pooling(), site, home)
    large = score(Pooling(5000.0), site, home)
    assert list_aucs(large) == list_aucs(plain)
    assert len(set(list_aucs(plain))) > 1
    assert not any("--output-type scores" in note for note in plain.notes)
    assert any("use --output-type scores" in note for note in large.notes)
    stored = large.predictions[[f"score_{name}" for name in DISEASES]].to_numpy()
    assert 0 <= stored.min() <= stored.max() <= 1


@pytest.mark.slow
def test_percentages_are_ranked_as_scores(home: Path, site: SiteTable, tmp_path: Path) -> None:
    plain = score(Pooling(), site, home)
    percent = Pooling(percent=True)
    with assert_refused(ChestfedError, "not probabilities"):
        score(percent, site, home, output="probabilities")
    softmax = score(nn.Sequential(Pooling(), nn.Softmax(1)), site, home, output="probabilities")
    assert any("add up to 1, as after a softmax" in note for note in softmax.notes)
    evaluation = score(percent, site, home, output="scores")
    assert list_aucs(evaluation) == pytest.approx(list_aucs(plain))
    assert evaluation.predictions["score_edema"].max() > 1
    reasons = evaluation.summary.metrics.query("metric == 'ece' and disease != 'mean'")["reason"]
    assert set(reasons) == {"the scores are an order, not probabilities"}
    assert "no Brier score, no ECE" in render_text(evaluation)
    write(evaluation, tmp_path / "out")
    table = pd.read_csv(tmp_path / "out" / "metrics.csv", keep_default_na=False).query("disease == 'edema'")
    brier = table[table["metric"] == "brier"].iloc[0]
    assert (brier["value"], brier["reason"]) == ("", "the scores are an order, not probabilities")
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text())["model"]["output"] == "scores"


@pytest.mark.slow_but("logits")
@pytest.mark.parametrize("output", ["logits", "scores"])
def test_large_outputs_can_be_computed_again(output: Output, home: Path, site: SiteTable, tmp_path: Path) -> None:
    evaluation = score(Pooling(5000.0), site, home, output=output)
    write(evaluation, tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    again = summarize(scored(frame), "frontal-image", Intervals(resamples=20), probabilities=output != "scores")
    pd.testing.assert_frame_equal(again.metrics, evaluation.summary.metrics, check_exact=True)
    pd.testing.assert_frame_equal(again.reliability, evaluation.summary.reliability, check_exact=True)


def test_scoring_reports_its_progress(home: Path, site: SiteTable) -> None:
    scorer = Scorer("own", "a model", "0", DISEASES, Preprocess(size=64), "logits", Pooling().eval())
    calls: list[tuple[int, int]] = []
    evaluate_model(
        *(scorer, site, "valid", "frontal-image", home / "cache", MACHINE),
        how=Intervals(resamples=0),
        batch_size=10,
        scored=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(10, 24), (20, 24), (24, 24)]


class Recorder(nn.Module):
    """Gives the mean, lowest and highest number that it is given, of the first and last channel."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.shape[1] != 1 and images.shape[1] != 3:
            raise ValueError("channels")
        ends = torch.stack([images[:, 0], images[:, -1]], 1).flatten(2)
        count = torch.full((len(images), 1), float(images.shape[1]))
        return torch.cat([ends.mean(2), ends.amin(2), ends.amax(2)[:, :1], count], 1)


INPUTS = [
    ("channels: 1, range: [-1024, 1024]", [0], [1], "1 channel, -1024 to 1024, not normalized"),
    ("channels: 3", [0, 0, 0], [1, 1, 1], "3 channels, 0 to 1, not normalized"),
    ("channels: 1, mean: [0.5], std: [0.25]", [0.5], [0.25], "1 channel, 0 to 1, mean 0.5, deviation 0.25"),
    (
        "channels: 3, range: [0, 255], mean: [123, 116, 103], std: [58, 57, 56]",
        *([123, 116, 103], [58, 57, 56], "mean 123, 116, 103, deviation 58, 57, 56"),
    ),
    (None, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225], "3 channels, 0 to 1, ImageNet's mean"),
]


def test_model_gets_the_declared_input(home: Path, site: SiteTable, tmp_path: Path) -> None:
    from chestfed.data.images.cache import fill_cache

    chosen = site.select(split="valid", views=("pa", "ap", "frontal"))
    images = fill_cache(chosen, home / "cache", Preprocess(size=64))
    gray = images.read(range(len(chosen.frame))).astype(np.float64)
    for text, mean, std, note in INPUTS:
        given = IMAGENET if text is None else NetworkInput(**yaml.safe_load(f"{{{text}}}"))
        low, high = given.range
        evaluation = score(Recorder(), site, home, output="scores", names=(*DISEASES, "-"), given=given)
        values = [(gray / 255 * (high - low) + low - mean[c]) / std[c] for c in (0, -1)]
        expected = np.stack(
            [*(v.mean((1, 2)) for v in values), *(v.min((1, 2)) for v in values), values[0].max((1, 2))], axis=1
        )
        got = evaluation.predictions[[f"score_{name}" for name in DISEASES]].to_numpy()
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * (high - low) / min(std), err_msg=str(text))
        assert note in render_text(evaluation)
        write(evaluation, tmp_path / "out")
        about = json.loads((tmp_path / "out" / "evaluation.json").read_text())["model"]["input"]
        assert (about["channels"], about["range"]) == (len(mean), [low, high])


def test_senseless_input_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "model.yaml"
    for text in (
        "channels: 2",
        "range: [1, 0]",
        "range: [0, 1, 2]",
        "mean: [0.5, 0.5, 0.5]",
        "channels: 1, mean: [0.5, 0.5], std: [1, 1]",
        "mean: [0, 0, 0], std: [1, 0, 1]",
        "mean: [0, 0, .nan], std: [1, 1, 1]",
    ):
        config.write_text(f"input: {{{text}}}\n")
        with assert_refused(ConfigError, "invalid value", place=f"{config}:1"):
            load_config(config, ModelDescription)


class Convolution(nn.Module):
    """One channel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, len(DISEASES), 8, 8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images).mean((2, 3))


class Fixed(nn.Module):
    """Takes 32 x 32 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 32 * 32, len(DISEASES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images.flatten(1))


class Twice(nn.Module):
    """Returns its logits and their negatives."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values = images.mean((2, 3))
        return values, -values


class Flat(nn.Module):
    """One number per image, in no column."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((1, 2, 3))


class Chance(Pooling):
    """Drops out, in training or not."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.dropout(images))


class Together(Pooling):
    """Norms by the other images of the batch."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.batch_norm(images, None, None, training=True))


def test_failing_model_has_a_hint(home: Path, site: SiteTable) -> None:
    for module, kind, fields in (
        (Convolution(), "failed on the images", {"cause": "channels"}),
        (Fixed(), "failed on the images", {"cause": "size"}),
        (Twice(), "not a tensor", {}),
        (Flat(), "another shape", {}),
        (Convolution().half(), "failed on the images", {"cause": "precision"}),
        (Pooling(channels=3).double(), "failed on the images", {"cause": "precision"}),
        (Chance(), "in training mode", {}),
        (Together(), "in training mode", {}),
    ):
        with assert_refused(ChestfedError, kind, **fields):
            score(module, site, home)


def test_one_channel_program_needs_its_input(home: Path, site: SiteTable, tmp_path: Path) -> None:
    program = str(write_program(tmp_path / "m.onnx", shape=("n", 1, 64, 64)))
    with assert_refused(ConfigError, "another number of channels"):
        open_scorer(program, Declared(diseases=DISEASES), MACHINE)
    config = tmp_path / "model.yaml"
    config.write_text("input: {channels: 1}\npreprocess: {fit: pad}\n")  # the size is the program's
    with assert_refused(ConfigError, "another image size"):
        open_scorer(program, Declared(diseases=DISEASES, config=config, size=128), MACHINE)
    declared = Declared(diseases=DISEASES, config=config)
    evaluation = score(open_scorer(program, declared, MACHINE), site, home)
    last = write_program(tmp_path / "last.onnx", shape=(2, 64, 64, 1))
    with assert_refused(ConfigError, "unusable input shape"):
        open_scorer(str(last), declared, MACHINE)
    aucs = auc_per_disease(scored(evaluation.predictions))
    assert evaluation.auc == {**aucs, "mean": mean_of(aucs.values())}


def test_a_model_without_an_end_is_given_up(home: Path, site: SiteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    class Endless(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            released.wait(60)
            return images.mean((2, 3))

    monkeypatch.setattr(model_outputs, "FIRST_BATCH_SECONDS", 0.1)
    with assert_refused(ChestfedError, "no output in time"):
        score(Endless(), site, home)
    released.set()
