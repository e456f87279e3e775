"""`chestfed new pipeline`: a copy that runs what the bundled pipeline runs, wherever it lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from chestfed.app.commands.options import known_pipelines
from chestfed.core.bundled import pipeline_file
from chestfed.core.errors import ConfigError
from chestfed.leaves.copies.command import new_pipeline
from chestfed.studies.experiment.loading import load_pipeline
from tests.cases import assert_refused, each
from tests.command_line import call


def _content(path: Path) -> dict[str, Any]:
    """A pipeline with its sites' files as they are found."""
    data = load_pipeline(path).model_dump(mode="json")
    for entry in data["sites"]:
        entry["config"] = str((path.parent / entry["config"]).resolve())
    return data


@each("pipeline", known_pipelines())
def test_copy_runs_what_was_copied(tmp_path: Path, pipeline: str) -> None:
    target = tmp_path / "own" / "copy.yaml"
    new_pipeline(str(target), pipeline)
    assert _content(target) == _content(pipeline_file(pipeline))
    assert not [line for line in target.read_text().splitlines() if "../" in line.partition("#")[0]]


def test_comments_are_kept_and_name_the_copy(tmp_path: Path) -> None:
    assert call("new", "pipeline", "mine", "--from", "controls/noise", folder=tmp_path).code == 0
    lines = (tmp_path / "mine.yaml").read_text().splitlines()
    assert "#   chestfed study mine.yaml --seeds 5" in lines
    assert "extends: source_addition_samples" in lines
    before = pipeline_file("controls/noise").read_text().splitlines()
    assert [line for line in before if line.startswith("# The other control")] == [
        line for line in lines if line.startswith("# The other control")
    ]


def test_default_pipeline_is_copied(tmp_path: Path) -> None:
    called = call("new", "pipeline", "mine.yaml", "--json", folder=tmp_path)
    assert json.loads(called.out)["result"]["copied"] == "source_addition_samples.yaml"
    lines = (tmp_path / "mine.yaml").read_text().splitlines()
    assert "#   chestfed study mine.yaml" in lines
    assert any("# in the order of addition" in line for line in lines)


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("title: x\n")
    with assert_refused(ConfigError, "exists", file=str(tmp_path / "mine.yaml")):
        new_pipeline(str(tmp_path / "mine"), "real_films")
    assert (tmp_path / "mine.yaml").read_text() == "title: x\n"


def test_own_file_is_not_bundled(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("title: x\n")
    with assert_refused(ConfigError, "not bundled"):
        new_pipeline(str(tmp_path / "mine"), str(tmp_path / "own.yaml"))


def test_sites_and_pipelines_have_names(tmp_path: Path) -> None:
    text = {"extends": "controls/noise", "title": "x", "sites": [{"config": "synthetic/vindr"}], "k": [1]}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(text))
    (entry,) = load_pipeline(tmp_path / "p.yaml").sites
    assert Path(entry.config).is_file()
    (tmp_path / "synthetic").mkdir()
    (tmp_path / "synthetic" / "vindr").write_text("a file beside the pipeline comes first")
    (entry,) = load_pipeline(tmp_path / "p.yaml").sites
    assert entry.config == "synthetic/vindr"
