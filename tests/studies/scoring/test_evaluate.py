"""`chestfed evaluate`: models and programs on a tiny synthetic hospital."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import nn

from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import save_checkpoint
from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.provenance import Origin
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.learning.models import ModelOptions, build_model, network_options
from chestfed.results.evaluation.estimates import auc_per_disease
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.protocols import PROTOCOLS, Protocol
from chestfed.results.evaluation.summary import summarize
from chestfed.studies.experiment.device import Machine
from chestfed.studies.scoring.evaluate import Evaluation, evaluate_model
from chestfed.studies.scoring.evaluation_output import FRAMES, render, write
from chestfed.studies.scoring.scorers import Declared, Scorer, open_scorer
from tests.cases import assert_refused
from tests.results.tables.finished_runs import seal_run, write_run
from tests.studies.scoring.onnx_program import make_weights, write_program

MACHINE = Machine(torch.device("cpu"), 1, False, False, 0)
SIZE = 64
SMALL = network_options("small", blocks=[1])
ORDER = Declared(diseases=DISEASES, size=SIZE)


@pytest.fixture(scope="module")
def home(tiny_hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the hospitals."""
    folder = tmp_path_factory.mktemp("evaluating")
    (folder / "data").symlink_to(tiny_hospitals)
    return folder


@pytest.fixture(scope="module")
def site(home: Path) -> SiteTable:
    """The first hospital, all views."""
    config = load_site_config(bundled("site_configs") / "synthetic" / "chexpert.yaml", ["views=all"])
    return open_site(config, home / "data")


def score(scorer: Scorer, site: SiteTable, home: Path, protocol: Protocol = "frontal-image") -> Evaluation:
    return evaluate_model(scorer, site, "valid", protocol, home / "cache", MACHINE, how=Intervals(resamples=20))


def read_scores(evaluation: Evaluation) -> np.ndarray:
    return evaluation.predictions[[f"score_{name}" for name in evaluation.scorer.diseases]].to_numpy()


def write_chestfed_model(path: Path, options: ModelOptions = SMALL) -> nn.Module:
    module = build_model(options, 5, seed=3).eval()
    values = {
        "model": options.model_dump(mode="json"),
        "diseases": list(DISEASES),
        "preprocess": {"size": SIZE, "fit": "stretch", "levels": "window"},
        "output": "logits [n, diseases]",
        "synthetic": True,
        "data": "synthetic",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(path, module.state_dict(), values)
    return module


def test_weights_and_checkpoints_score_alike(home: Path, site: SiteTable, tmp_path: Path) -> None:
    module = write_chestfed_model(tmp_path / "k1" / "model.safetensors")
    torch.save({"state_dict": module.state_dict()}, tmp_path / "m.pth")
    lightning = {f"model.{name}": tensor for name, tensor in module.state_dict().items()}
    torch.save({"state_dict": {**lightning, "loss.weight": torch.ones(5)}, "epoch": 3}, tmp_path / "m.ckpt")
    (tmp_path / "m.yaml").write_text(
        f"model: {{name: small, blocks: [1]}}\ndiseases: [{', '.join(DISEASES)}]\npreprocess: {{size: {SIZE}}}\n"
    )
    reference = score(open_scorer(str(tmp_path / "k1"), Declared(), MACHINE), site, home)
    assert "small DenseNet" in reference.scorer.kind
    for name, declared in (
        ("m.pth", Declared(config=tmp_path / "m.yaml")),
        ("m.ckpt", Declared(config=tmp_path / "m.yaml")),
    ):
        other = score(open_scorer(str(tmp_path / name), declared, MACHINE), site, home)
        np.testing.assert_allclose(read_scores(other), read_scores(reference), rtol=1e-4, atol=1e-6, err_msg=name)
        assert other.predictions["image"].tolist() == reference.predictions["image"].tolist()
        assert [note for note in other.notes if "loss.weight" in note] == (
            list(other.notes) if name == "m.ckpt" else []
        )


def test_onnx_program_scores_as_torch_does(home: Path, site: SiteTable, tmp_path: Path) -> None:
    scorer = open_scorer(str(write_program(tmp_path / "m.onnx")), ORDER, MACHINE)
    images = torch.randn(4, 3, SIZE, SIZE)
    weights = torch.from_numpy(make_weights(5, 3 * SIZE**2))
    torch.testing.assert_close(scorer.call(images), images.flatten(1) @ weights.T, rtol=1e-4, atol=1e-5)
    three = open_scorer(str(write_program(tmp_path / "three.onnx", shape=(3, 3, SIZE, SIZE))), ORDER, MACHINE)
    assert (scorer.batch, three.batch) == (None, 3)
    scores = (read_scores(score(model, site, home)) for model in (scorer, three))
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-6)


def test_onnx_without_onnxruntime_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    (tmp_path / "m.onnx").write_bytes(b"x")
    with assert_refused(ConfigError, "missing package", extra="onnx"):
        open_scorer(str(tmp_path / "m.onnx"), ORDER, MACHINE)


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("name", ["m.pt", "m.pth", "m.bin", "m.pt2"])
def test_pickle_that_runs_code_is_refused(name: str, tmp_path: Path) -> None:
    torch.save({"weight": Hostile(tmp_path / "harm")}, tmp_path / name)
    with pytest.raises(ConfigError):
        open_scorer(str(tmp_path / name), ORDER, MACHINE)
    assert not (tmp_path / "harm").exists()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")
def test_programs_of_torch_are_refused(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(nn.Flatten(), torch.zeros(2, 3, SIZE, SIZE)), str(tmp_path / "m.pt"))
    torch.export.save(torch.export.export(nn.Flatten(), (torch.zeros(2, 3, SIZE, SIZE),)), tmp_path / "m.pt2")
    (tmp_path / "m.pt2").rename(tmp_path / "e.pt")
    (tmp_path / "empty.pt2").touch()
    for name in ("m.pt", "e.pt", "empty.pt2"):
        with assert_refused(ConfigError, "program of torch"):
            open_scorer(str(tmp_path / name), ORDER, MACHINE)


def test_order_of_labels_may_not_contradict(home: Path, site: SiteTable, tmp_path: Path) -> None:
    plain = str(write_program(tmp_path / "plain.onnx"))
    with assert_refused(ConfigError, "unnamed outputs"):
        open_scorer(plain, Declared(), MACHINE)
    with assert_refused(ConfigError, "repeated output", disease="edema"):
        open_scorer(plain, Declared(diseases=("edema",) * 5), MACHINE)
    with assert_refused(ChestfedError, "another number of outputs"):
        score(open_scorer(plain, Declared(diseases=DISEASES[:4]), MACHINE), site, home)
    carrying = str(write_program(tmp_path / "own.onnx", diseases=DISEASES))
    assert open_scorer(carrying, Declared(), MACHINE).diseases == DISEASES
    with assert_refused(ConfigError, "contradicted outputs"):
        open_scorer(carrying, Declared(diseases=DISEASES[::-1]), MACHINE)
    some = open_scorer(carrying, Declared(diseases=("-", "edema", "-", "-", "-")), MACHINE)
    everything = score(open_scorer(carrying, Declared(), MACHINE), site, home)
    np.testing.assert_array_equal(read_scores(score(some, site, home))[:, 0], read_scores(everything)[:, 1])


def test_weights_need_a_fitting_description(tmp_path: Path) -> None:
    torch.save(build_model(SMALL, 5, 1).state_dict(), tmp_path / "m.pth")
    with assert_refused(ConfigError, "weights without a network"):
        open_scorer(str(tmp_path / "m.pth"), ORDER, MACHINE)
    (tmp_path / "m.yaml").write_text("model: {name: small, blocks: [1]}\n")
    declared = Declared(diseases=DISEASES[:4], config=tmp_path / "m.yaml")
    with assert_refused(ConfigError, "other diseases"):
        open_scorer(str(tmp_path / "m.pth"), declared, MACHINE)


def test_studies_are_scored_as_pandas_would(home: Path, site: SiteTable, tmp_path: Path) -> None:
    scorer = open_scorer(str(write_program(tmp_path / "m.onnx")), ORDER, MACHINE)
    images = score(scorer, site, home, "all-image")
    frame = site.select(split="valid").frame.reset_index(drop=True)
    by_study = images.predictions.drop(columns="image").groupby([frame["patient"], frame["study"]], sort=False)
    for protocol, how in (("study-max", "max"), ("study-mean", "mean")):
        evaluation = score(scorer, site, home, protocol)  # type: ignore[arg-type]
        columns = [f"score_{name}" for name in DISEASES]
        np.testing.assert_allclose(evaluation.predictions[columns], by_study[columns].agg(how), rtol=1e-6)
        labels = by_study[[f"label_{name}" for name in DISEASES]].max().to_numpy()
        expected = auc_per_disease(Scored(read_scores(evaluation), labels, np.arange(len(labels)), DISEASES))
        assert {disease: evaluation.auc[disease] for disease in DISEASES} == expected
        assert evaluation.summary.units == by_study.ngroups
        assert evaluation.predictions["image"].is_unique


def test_unlabeled_disease_null_with_reason(home: Path, site: SiteTable, tmp_path: Path) -> None:
    negative = site.with_frame(site.frame.assign(edema=np.float32(0)))
    declared = Declared(diseases=("edema", "hernia", "cardiomegaly", "-", "-"), size=SIZE)
    evaluation = score(open_scorer(str(write_program(tmp_path / "m.onnx")), declared, MACHINE), negative, home)
    summary = evaluation.summary
    assert (evaluation.auc["edema"], summary.row("edema")["reason"]) == (None, "no positive image")
    assert (evaluation.auc["hernia"], summary.row("hernia")["reason"]) == (None, "not labeled at site 'chexpert'")
    assert summary.row("mean")["over_diseases"] == 1
    assert evaluation.auc["mean"] == evaluation.auc["cardiomegaly"]
    assert summary.row("mean", "brier")["over_diseases"] == 1  # edema has one class, hernia no label
    console = Console(record=True, width=200, file=(tmp_path / "printed").open("w"))
    console.print(render(evaluation))
    text = console.export_text()
    assert "over 1 of 3" in text
    threshold = summary.row("cardiomegaly", "at_specificity_0.9.threshold")["value"]
    assert f"specificity of 0.9: Cardiomegaly {threshold:.3g} (sensitivity" in text


def test_synthetic_training_or_test_is_named(home: Path, site: SiteTable, tmp_path: Path) -> None:
    done = score(open_scorer(str(write_program(tmp_path / "m.onnx")), ORDER, MACHINE), site, home)
    trained = replace(done, scorer=replace(done.scorer, origin=Origin.MIXED), tested=Origin.REAL)
    for text in (trained.answer, trained.headline):
        assert text.startswith("model trained on PARTLY SYNTHETIC hospitals, real test images: ")
    tested = replace(done, scorer=replace(done.scorer, origin=Origin.REAL))
    assert tested.answer.startswith("model trained on real hospitals, SYNTHETIC test images: ")


def test_output_says_synthetic_names_nobody(home: Path, tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    write_chestfed_model(tmp_path / "k1" / "model.safetensors")
    site = bundled("site_configs") / "synthetic" / "chexpert.yaml"
    called = chestfed(
        *("evaluate", tmp_path / "k1", "--site", site, "--data", home / "data", "--cache", home / "cache"),
        *("--out", tmp_path / "out", "--interval", "bca", "--resamples", 20, "--batch-size", 8, "--device", "cpu"),
    )
    assert called.code == 0, called.err
    printed = called.out
    assert "SYNTHETIC" in printed
    assert "BCa" in printed
    names = {"evaluation.json", "metrics.csv", "subgroups.csv", "reliability.csv", "predictions.parquet", "methods.md"}
    names |= {"manifest.json"}
    assert {file.name for file in (tmp_path / "out").iterdir()} == names
    about = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert (about["synthetic"], about["data"], about["model"]["trained_on"]) == (True, "synthetic", "synthetic")
    assert about["unit"] == "image"
    for name in ("metrics", "subgroups", "reliability"):
        assert set(pd.read_csv(tmp_path / "out" / f"{name}.csv")["data"]) == {"synthetic"}
    predictions = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert predictions.attrs["synthetic"] is True
    assert predictions["image"].str.fullmatch("[0-9a-f]{32}").all()
    personal = re.compile(rb"patient\d{5}|view\d_frontal")
    assert not any(personal.search(file.read_bytes()) for file in (tmp_path / "out").iterdir())


def test_other_settings_have_another_folder(home: Path, site: SiteTable, tmp_path: Path) -> None:
    model = write_program(tmp_path / "model.onnx", sigmoid=True)
    names = []
    for kind, resamples in (("probabilities", 20), ("scores", 20), ("scores", 10), ("scores", 10)):
        scorer = open_scorer(str(model), Declared(diseases=DISEASES, size=SIZE, output=kind), MACHINE)  # type: ignore[arg-type]
        how = Intervals(resamples=resamples)
        names.append(evaluate_model(scorer, site, "valid", "frontal-image", home / "cache", MACHINE, how=how).name)
    assert len(set(names)) == 3
    assert names[2] == names[3]


def test_k_or_network_of_another_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, ks=(1,))
    write_chestfed_model(tmp_path / "k1" / "model.safetensors")
    seal_run(tmp_path)
    for part in ("k1", "k1/model.safetensors"):
        assert open_scorer(str(tmp_path / part), Declared(k=1), MACHINE).diseases == DISEASES
        with assert_refused(ConfigError, "another K"):
            open_scorer(str(tmp_path / part), Declared(k=2), MACHINE)
    program = str(write_program(tmp_path / "m.onnx"))
    (tmp_path / "study.json").unlink()
    with assert_refused(ConfigError, "no K"):
        open_scorer(program, Declared(k=1), MACHINE)
    with assert_refused(ConfigError, "network beside a program"):
        open_scorer(program, Declared(network="small"), MACHINE)


@pytest.mark.slow_but("study-max")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbers_can_be_computed_again(protocol: Protocol, home: Path, site: SiteTable, tmp_path: Path) -> None:
    evaluation = score(open_scorer(str(write_program(tmp_path / "m.onnx")), ORDER, MACHINE), site, home, protocol)
    write(evaluation, tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    scores, labels = (frame[[f"{part}_{name}" for name in DISEASES]].to_numpy() for part in ("score", "label"))
    stored = Scored(scores, labels, frame["patient"].to_numpy(), DISEASES)
    columns = {name: frame[f"group_{name}"] for name in evaluation.summary.subgroups["column"].unique()}
    assert columns
    again = summarize(stored, protocol, Intervals(resamples=20), columns)
    for name in FRAMES:
        first, second = (getattr(summary, name) for summary in (evaluation.summary, again))
        if name == "subgroups":  # text does not keep the order of the bands
            order = {"by": ["column", "group"], "kind": "stable", "ignore_index": True}
            first, second = first.sort_values(**order), second.sort_values(**order)
        pd.testing.assert_frame_equal(second, first, check_exact=True)
    rows = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    for name in FRAMES:  # the same rows in both files
        written = pd.read_csv(tmp_path / "out" / f"{name}.csv", keep_default_na=False)
        assert len(rows[name]) == len(written) > 0
        assert list(written)[3:] == list(rows[name][0])
        for row, line in zip(rows[name], written.to_dict("records"), strict=True):
            values = {key: "" if value is None else value for key, value in row.items()}
            assert {key: str(line[key]) for key in row} == {
                key: "inf" if value == "infinity" else str(value) for key, value in values.items()
            }
    assert set(frame["group_age"].dropna()) <= {"<40", "40-59", "60-79", ">=80"}


def test_altered_description_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    damaged = "damaged description"
    for harm, kind in (
        ({"model": {"name": "no such"}}, "unknown network"),
        ({"model": 3}, damaged),
        ({"model": {"name": "small", "blocks": "many"}}, damaged),
        ({"diseases": "edema"}, damaged),
        ({"diseases": []}, damaged),
        ({"preprocess": {"size": 10**9}}, damaged),
        ({"preprocess": {"color": "red"}}, damaged),
        ({"preprocess": None}, damaged),
    ):
        values = {"model": {"name": "densenet121"}, "diseases": list(DISEASES), "preprocess": {"size": SIZE}, **harm}
        save_checkpoint(file, {"weight": torch.zeros(1)}, values)
        (key,) = harm
        with assert_refused(ConfigError, kind, **({"key": key} if kind == damaged else {})):
            open_scorer(str(file), Declared(), MACHINE)


def test_disease_of_no_model_is_noted(home: Path, site: SiteTable, tmp_path: Path) -> None:
    write_chestfed_model(tmp_path / "m.safetensors")
    scorer = open_scorer(str(tmp_path / "m.safetensors"), Declared(), MACHINE)
    more = replace(site, diseases=(*site.diseases, "pneumothorax"), frame=site.frame.assign(pneumothorax=1.0))
    assert [note for note in score(scorer, more, home).notes if "Pneumothorax" in note]
    assert not [note for note in score(scorer, site, home).notes if "Pneumothorax" in note]


def test_excluded_views_name_their_protocol(home: Path, site: SiteTable, tmp_path: Path) -> None:
    write_chestfed_model(tmp_path / "m.safetensors")
    unknown = site.with_frame(site.frame.assign(view="unknown"))
    scorer = open_scorer(str(tmp_path / "m.safetensors"), Declared(), MACHINE)
    with assert_refused(ConfigError, "no image to score", views=("unknown",), protocol="frontal-image"):
        score(scorer, unknown, home)
    rows = np.flatnonzero((site.frame["split"] == "valid") & site.frame["view"].isin(["pa", "ap"]))[:3]
    some = site.frame.assign(view=site.frame["view"].mask(np.isin(np.arange(len(site.frame)), rows), "unknown"))
    note = "3 images of unknown view were not scored; if they are frontal, use --protocol all-image."
    assert note in score(scorer, site.with_frame(some), home).notes
    assert note not in score(scorer, site.with_frame(some), home, "all-image").notes


def test_threshold_adds_matrix_and_curve(home: Path, site: SiteTable, tmp_path: Path) -> None:
    write_chestfed_model(tmp_path / "model.safetensors")
    scorer = open_scorer(str(tmp_path / "model.safetensors"), Declared(), MACHINE)
    given = ("frontal-image", home / "cache", MACHINE)
    how = Intervals(resamples=20)
    done = evaluate_model(scorer, site, "valid", *given, how=how, thresholds=["0.3", "edema=0.6"])
    write(done, tmp_path / "out")
    confusion = pd.read_csv(tmp_path / "out" / "confusion.csv").set_index("disease")
    assert confusion.loc["edema", "threshold"] == 0.6
    scores, labels = (done.predictions[f"{kind}_cardiomegaly"].to_numpy() for kind in ("score", "label"))
    assert confusion.loc["cardiomegaly", "true_positives"] == int(((scores >= 0.3) & (labels == 1)).sum())
    curve = pd.read_csv(tmp_path / "out" / "decision_curve.csv")
    assert set(curve["disease"]) == set(DISEASES)
    assert done.numbers["decisions"][0]["disease"] == DISEASES[0]
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(render(done))
    assert "Decisions at a threshold" in console.export_text()
    plain = evaluate_model(scorer, site, "valid", *given, how=how)
    assert plain.name != done.name
    write(plain, tmp_path / "plain")
    assert not (tmp_path / "plain" / "confusion.csv").exists()
    with assert_refused(ConfigError, "invalid threshold", option="threshold"):
        evaluate_model(scorer, site, "valid", *given, thresholds=["edma=0.2"])
