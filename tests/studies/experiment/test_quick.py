"""`quick: true`: every pipeline becomes a study of few steps, and what the command line sets stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from chestfed.app.commands.options import known_pipelines
from chestfed.core.bundled import pipeline_file, site_file
from chestfed.core.checkpoint import save_checkpoint
from chestfed.core.config import Document
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.alternatives import Alternatives
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.methods import PipelineFile
from chestfed.studies.experiment.quick import IMAGES, shorten
from chestfed.studies.experiment.resolved import identity, shareable
from tests.cases import each

SAMPLES = pipeline_file("source_addition_samples")


@each("name", known_pipelines())
def test_every_pipeline_has_few_steps(name: str) -> None:
    file = load_pipeline(pipeline_file(name), ["quick=true"])
    assert file.quick
    assert file.title.endswith("(quick)")
    assert len(file.draws) == 1
    assert len(file.k) <= 2
    assert len(file.windows) <= 2
    of_all = 0
    for method in file.selected_methods:
        pipeline = file.resolve(method.name)
        steps = sum(stage.window * stage.rounds for stage in pipeline.federated.schedule)
        assert steps <= 250, (method.name, steps)
        of_all += steps * max(1, len(file.windows)) * max(pipeline.k)
        assert pipeline.evaluated_rounds == (pipeline.federated.rounds,)
        assert pipeline.pretrain.steps(IMAGES) <= 500
        assert not pipeline.model.name.startswith("densenet")
        assert pipeline.preprocess.size <= 64 or pipeline.model.name == "features"
    assert of_all <= 12_000 or pipeline.model.name == "features"  # whole rounds are more than 10,000


def test_many_methods_share_the_steps() -> None:
    def count_steps(overrides: tuple[str, ...] = (), methods: tuple[str, ...] = ()) -> tuple[int, int]:
        file = load_pipeline(pipeline_file("digits_methods"), ["quick=true", *overrides], methods=methods)
        steps = {file.resolve(method.name).federated.steps for method in file.selected_methods}
        assert len(steps) == 1
        return len(file.selected_methods), steps.pop()

    assert count_steps() == (27, 72)
    assert count_steps(methods=("fedavg", "codasca")) == (2, 208)
    assert count_steps(("federated.stage_steps=100", "federated.window=16")) == (27, 208)


def test_identity_is_its_own() -> None:
    plain, quick = (load_pipeline(SAMPLES, overrides).resolve() for overrides in ([], ["quick=true"]))
    assert "quick" not in identity(plain)
    assert identity(quick)["quick"] is True
    small = plain.model_copy(update={"quick": True})  # a pipeline that has little of everything already
    assert identity(small) != identity(plain)


def test_what_the_command_line_sets_stays() -> None:
    overrides = ["quick=true", "preprocess.size=96", "federated.stage_steps=200", "k=[1,2,3]", "seeds=2"]
    file = load_pipeline(SAMPLES, overrides)
    pipeline = file.resolve()
    assert (pipeline.preprocess.size, pipeline.federated.stage_steps, pipeline.k) == (96, 200, [1, 2, 3])
    assert len(file.draws) == 2
    assert pipeline.pretrain.epochs == 20


def test_seeds_beside_quick_stay(tmp_path: Path) -> None:
    (tmp_path / "seeds.yaml").write_text("extends: source_addition_samples\nseeds: 3\n")
    (tmp_path / "quick.yaml").write_text("extends: source_addition_samples\nquick: true\nseeds: 3\n")
    (tmp_path / "above.yaml").write_text("extends: quick.yaml\nseeds: 2\n")
    (tmp_path / "below.yaml").write_text("extends: seeds.yaml\nquick: true\n")
    assert [load_pipeline(tmp_path / f"{name}.yaml").seeds for name in ("quick", "above", "below")] == [3, 2, 1]
    assert load_pipeline(tmp_path / "quick.yaml", ["quick=true"]).seeds == 1


def test_own_data_of_an_added_site_is_trained() -> None:
    def read(*overrides: str) -> Alternatives | None:
        return load_pipeline(SAMPLES, ["quick=true", *overrides], [site_file(Path("vindr"))]).alternatives

    alternatives = read()
    assert alternatives is not None
    assert (alternatives.own_data, alternatives.hospitals) == (True, ["vindr"])
    assert read("alternatives=null") is None
    assert load_pipeline(SAMPLES, ["quick=true"]).alternatives is None


def test_saved_quick_study_is_the_same(tmp_path: Path) -> None:
    """With what the command line set, and the alternatives of the added site."""
    overrides = ["quick=true", "preprocess.size=96", "federated.stage_steps=200"]
    pipeline = load_pipeline(SAMPLES, overrides, [site_file(Path("vindr"))]).resolve()
    (tmp_path / "study.json").write_text(json.dumps({"configuration": shareable(pipeline)}))
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(RunFolder(tmp_path).pipeline_file))
    again = load_pipeline(tmp_path / "again.yaml").resolve()
    assert again.alternatives == pipeline.alternatives
    assert again.model_dump(exclude={"sites", "data_root"}) == pipeline.model_dump(exclude={"sites", "data_root"})


def test_site_added_to_a_saved_study_has_own_data(tmp_path: Path) -> None:
    overrides = ["quick=true", "preprocess.size=96"]
    saved = load_pipeline(SAMPLES, overrides).resolve()
    (tmp_path / "study.json").write_text(json.dumps({"configuration": shareable(saved)}))
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(RunFolder(tmp_path).pipeline_file))

    def read(*overrides: str) -> PipelineFile:
        return load_pipeline(tmp_path / "again.yaml", overrides, [site_file(Path("vindr"))])

    again = read().resolve()
    directly = load_pipeline(SAMPLES, [*overrides, "k=[1,5,6]"], [site_file(Path("vindr"))]).resolve()
    assert again.alternatives == directly.alternatives
    assert again.alternatives is not None
    assert again.alternatives.hospitals == ["vindr"]
    assert again.model_dump(exclude={"sites", "data_root"}) == directly.model_dump(exclude={"sites", "data_root"})
    assert again.title.endswith("+ vindr (quick)")
    assert read("alternatives=null").alternatives is None
    assert read("evaluation.hospitals=none", "alternatives=null").alternatives is None


def test_search_is_cut_as_the_settings_are() -> None:
    spaces = {"window": "[8, 16, 64]", "stage_steps": "[50, 400, log]", "batch_size": "[64, 256, log]", "prox": "null"}
    text = ", ".join(f"{key}: {space}" for key, space in spaces.items())
    file = load_pipeline(SAMPLES, ["quick=true", f"search={{{text}}}"])
    cut = {"window": [8, 16], "stage_steps": [50, 100, "log"], "batch_size": None, "prox": None}
    assert file.search == cut


def test_features_of_a_study_have_its_image_size(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "model.safetensors", {"a": torch.zeros(1)}, {"preprocess": {"size": 96}})
    settings = ["quick=true", f"model.network={tmp_path / 'model.safetensors'}"]
    path = pipeline_file("phantoms_methods")
    assert load_pipeline(path, settings).preprocess.size == 96
    assert load_pipeline(path, [*settings, "preprocess.size=80"]).preprocess.size == 80
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    assert load_pipeline(path, settings).preprocess.size == load_pipeline(path).preprocess.size


def test_own_network_is_kept(tmp_path: Path) -> None:
    text = {"extends": "source_addition_samples", "quick": True, "model": "mylab.networks:Big"}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(text))
    document = Document(tmp_path / "p.yaml", PipelineFile)
    shorten(document)
    assert document.data["model"] == {"name": "mylab.networks:Big"} or document.data["model"] == "mylab.networks:Big"


def test_shortened_twice_is_the_same() -> None:
    document = Document(SAMPLES, PipelineFile)
    document.override("quick=true")
    shorten(document)
    once = yaml.safe_dump(document.data)
    shorten(document)
    assert yaml.safe_dump(document.data) == once


@pytest.mark.parametrize("value", [{"sites": 3}, {"federated": []}, {"pretrain": "x"}, {"windows": "a"}, {"k": "all"}])
def test_unreadable_values_are_left_to_the_check(value: dict[str, object]) -> None:
    document = Document(SAMPLES, PipelineFile)
    document.data |= {"quick": True, **value}
    shorten(document)
    for key, given in value.items():
        assert document.data[key] == given
