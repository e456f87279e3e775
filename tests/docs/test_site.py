"""The documentation site: it builds without a warning, and its references are those of the program."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import jsonschema
import pytest
import typer
import yaml
from pydantic import Field
from typer.testing import CliRunner

from chestfed.app.cli import app
from chestfed.app.commands.machine.schema import for_editors, schemas
from chestfed.core.config import Document, StrictModel
from chestfed.core.plugins import Catalogue, Choice, Options
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.leaves.federation.settings import HospitalFile, Leaves, Policy
from chestfed.studies.designs.design import make_design
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity
from docs.generate import algorithms, api, commands, keys
from docs.generate.badges import draw_badges
from docs.generate.markdown import escaped

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = {"pipeline": "pipelines", "site": "site_configs"}


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sphinx", reason="needs chestfed[docs]")
    from docs import build

    site = tmp_path / "site"
    assert build.main([str(site)]) == 0, capsys.readouterr().err
    for page in ("index", "reference/commands", "reference/pipeline_keys", "reference/site_keys", "reference/api"):
        assert (site / f"{page}.html").is_file()


def test_dead_links_fail_the_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sphinx", reason="needs chestfed[docs]")
    from sphinx.cmd.build import build_main

    (tmp_path / "index.md").write_text("# Title\n\n[a](missing.md), [b](../missing/README.md)\n", encoding="utf-8")
    options = ["--fail-on-warning", "--quiet", "--conf-dir", str(DOCS)]
    assert build_main([*options, str(tmp_path), str(tmp_path / "out")]) != 0
    assert capsys.readouterr().err.count("xref_missing") == 2


def test_links_lead_to_files_of_a_clone() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(DOCS / "sites").glob("*.md")]
    missing = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#\s]+)", text):
            if re.match(r"reference/\w+\.md", os.path.relpath(page.parent / link, DOCS)):
                assert "`python3 bootstrap.py docs`" in text, (
                    f"{page.name}: {link} is generated, and it does not say how"
                )
            elif ":" not in link and not (page.parent / link).exists():
                missing.append(f"{page.name}: {link}")
    assert missing == []


def test_readme_fits_a_screen_and_its_reader() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = readme.splitlines()
    assert len(lines) <= 90
    assert len(readme.split()) <= 700
    assert [line for line in lines if len(line) > 100] == []


def test_badges_are_of_this_version() -> None:
    for file, svg in draw_badges().items():
        assert (DOCS / "images" / file).read_text(encoding="utf-8") == svg, "run python -m docs.generate.badges"
        assert f"](docs/images/{file})" in (ROOT / "README.md").read_text(encoding="utf-8")
    alts = re.findall(r"^!\[(.*)\]\(docs/images/badge", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    titles = [re.findall("<title>(.*)</title>", svg)[0] for svg in draw_badges().values()]
    assert alts == titles


def test_every_page_is_on_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {line for line in index.splitlines() if re.fullmatch(r"[a-z_0-9/]+", line)}
    written = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert written <= listed
    files = ("pipeline_keys", "site_keys", "hospital_keys", "federation_keys")
    generated = ("commands", *files, "algorithms", "releases", "api")
    assert {f"reference/{name}" for name in generated} == listed - written


def test_reference_has_every_command() -> None:
    text = commands.page()

    def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        for key, child in getattr(command, "commands", {}).items():
            yield from leaves(child, f"{name} {key}")
        if not hasattr(command, "commands"):
            yield name, command

    all_commands, everywhere = (
        list(leaves(typer.main.get_command(app), "chestfed")),
        ("--help", "--help-all", "--quiet", "--json"),
    )
    assert len(all_commands) > 10
    for name, command in all_commands:
        section = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for parameter in command.params:
            for option in (flag for flag in parameter.opts if flag.startswith("--") and flag not in everywhere):
                assert option in section, (name, option)


def test_reference_describes_every_key() -> None:
    for kind, schema in schemas().items():
        text = keys.page(kind, schema)
        entries = re.findall(r"^`([a-z_0-9]+)` \(.*\)\n: (.*)$", text, re.MULTILINE)
        assert [key for key, meaning in entries if not re.search(r"[A-Za-z]{3}", meaning)] == []
        named = {key for part in (schema, *schema.get("$defs", {}).values()) for key in part.get("properties", ())}
        assert named <= {key for key, _ in entries}


def test_reference_has_the_keys_of_a_hospital() -> None:
    text = keys.pages()["hospital_keys"]
    assert "## `policy`\n" in text
    for name in (*HospitalFile.model_fields, *Policy.model_fields, *Leaves.model_fields):
        assert f"\n`{name}` (" in text, name


def test_key_reference_follows_nesting() -> None:
    text = keys.page(
        "pipeline",
        {
            "type": "object",
            "required": ["sites"],
            "properties": {
                "sites": {"type": "array", "items": {"$ref": "#/$defs/Site"}, "description": "some"},
                "more": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Site"}, "description": "others"},
                "method": {
                    "description": "which",
                    "anyOf": [
                        {"type": "string"},
                        {
                            "type": "object",
                            "properties": {"name": {"const": "a"}, "x": {"type": "integer", "default": 1}},
                        },
                        {"$ref": "#/$defs/B"},
                    ],
                },
            },
            "$defs": {
                "Site": {"type": "object", "properties": {"root": {"type": "string", "minLength": 1}}},
                "B": {"type": "object", "properties": {"name": {"const": "b"}, "y": {"enum": [1, 2]}}},
            },
        },
    )
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Top level",
        "`sites[]`",
        "`method` with `name: a`",
        "`method` with `name: b`",
    ]
    assert "`sites` (list of section, required)" in text
    assert text.count("Keys: [`sites[]`](#pipeline-keys-sites).") == 2
    assert "`root` (string (not empty))" in text
    assert "`x` (integer, default `1`)" in text
    assert "`y` (`1` or `2`)" in text


def test_named_parts_have_a_section_each() -> None:
    class Inner(StrictModel):
        depth: int = Field(1, description="how deep")

    class First(Options):
        inner: Inner = Field(Inner(), description="what is inside")

    class Second(Options):
        inner: Inner = Field(Inner(), description="what is inside")

    catalogue = Catalogue("method", "nowhere", SimpleNamespace)
    vars(catalogue)["built_in"] = {
        "first": SimpleNamespace(name="first", options=First),
        "second": SimpleNamespace(name="second", options=Second),
    }
    vars(catalogue)["installed"] = {}

    class Experiment(StrictModel):
        method: Annotated[Options, Choice(catalogue)] = Field(description="which method")

    schema = Experiment.model_json_schema()

    text = keys.page("pipeline", schema)
    for heading in ("`method` with `name: first`", "`method` with `name: second`", "`method.inner`"):
        assert text.count(f"## {heading}\n") == 1
    assert text.count("`depth` (integer, default `1`)") == 1
    validator = jsonschema.Draft202012Validator(for_editors(schema))
    for method in ("first", {"name": "second", "inner": {"depth": 2}}, "mylab:Rule", {"name": "mylab:Rule", "x": 1}):
        assert validator.is_valid({"method": method}), method
    for method in ({"name": "first", "x": 1}, {"name": "second", "inner": {"depth": "2"}}, {"x": 1}):
        assert not validator.is_valid({"method": method}), method


def test_api_page_has_every_public_name() -> None:
    text = api.page()
    for module in map(importlib.import_module, ("chestfed", "chestfed.plugins", "chestfed.testing")):
        missing = [name for name in module.__all__ if name[0] != "_" and f"### `{module.__name__}.{name}`" not in text]
        assert missing == []
    recipe = (DOCS / "examples" / "whole_study.py").read_text(encoding="utf-8")
    for module_name, names in re.findall(r"^from (chestfed[a-z.]*) import (.*)$", recipe, re.MULTILINE):
        for name in names.split(", "):
            assert f"### `{module_name}.{name}`\n" in text


def test_the_reference_has_every_algorithm() -> None:
    text, page = algorithms.page(), (DOCS / "algorithms.md").read_text(encoding="utf-8")
    for name, spec in ALGORITHMS.built_in.items():
        (row,) = re.findall(rf"^\| `{name}` \| .*$", text, re.MULTILINE)
        assert f" | {spec.paper} | {spec.variant} | {spec.where} | " in row
        assert f"`{name}`" in page


def test_help_is_not_taken_for_markup() -> None:
    assert escaped("a_b *c*  `d_*e` <f> [g]") == r"a\_b \*c\* `d_*e` \<f> \[g]"


def test_every_yaml_fits_the_editor_schema() -> None:
    for kind, schema in schemas().items():
        validator = jsonschema.Draft202012Validator(for_editors(schema))
        validator.check_schema(validator.schema)
        files = sorted((ROOT / FOLDERS[kind]).rglob("*.yaml"))
        assert files
        for file in files:
            for data in (Document(file).data, yaml.safe_load(file.read_text(encoding="utf-8"))):
                assert [error.message for error in validator.iter_errors(data)] == [], file


def test_command_writes_a_schema_per_kind(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["schema", str(tmp_path / "schemas")])
    assert result.exit_code == 0
    assert f"# yaml-language-server: $schema={tmp_path}/schemas/pipeline.schema.json" in result.output
    for kind, schema in schemas().items():
        written = json.loads((tmp_path / "schemas" / f"{kind}.schema.json").read_text(encoding="utf-8"))
        assert written == for_editors(schema)


def test_editor_schema_refuses_wrong_keys() -> None:
    for kind, start in {"pipeline": "source_addition_samples.yaml", "site": "chexpert.yaml"}.items():
        validator = jsonschema.Draft202012Validator(for_editors(schemas()[kind]))
        data = Document(ROOT / FOLDERS[kind] / start).data
        without = {key: value for key, value in data.items() if key != "title"}
        assert not validator.is_valid({**data, "tilte": "x"})
        assert not validator.is_valid(without)
        assert validator.is_valid({**without, "extends": "other.yaml"})


def test_slurm_script_requeues_the_job(tmp_path: Path) -> None:
    script = DOCS / "examples" / "slurm" / "study.sbatch"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    programs = {
        "chestfed": 'echo "study: $*"\nexec tail -f /dev/null\n',
        "scontrol": 'echo "scontrol: $*"\n',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{text}", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CHESTFED": str(tmp_path / "chestfed"),
        "CHESTFED_DATA": str(tmp_path),
        "SLURM_JOB_ID": "4711",
        "SLURM_CPUS_PER_TASK": "3",
    }
    job = subprocess.Popen(
        ["bash", script, "p.yaml", "--seeds", "2"],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "study: study p.yaml --seeds 2 --set runtime.threads=3 --no-tracking\n"
        job.send_signal(signal.SIGUSR1)
        printed, _ = job.communicate(timeout=300)
    except BaseException:
        os.killpg(job.pid, signal.SIGKILL)
        raise
    assert printed.splitlines()[-1] == "scontrol: requeue 4711"
    assert job.returncode == 0


def test_slurm_script_uses_all_gpus(tmp_path: Path) -> None:
    script, log = DOCS / "examples" / "slurm" / "study.sbatch", tmp_path / "log"
    (tmp_path / "torchrun").write_text(f'#!/bin/sh\necho "$*" "$OMP_NUM_THREADS" > {log}\n', encoding="utf-8")
    (tmp_path / "torchrun").chmod(0o755)
    variables = {**os.environ, "TORCHRUN": str(tmp_path / "torchrun"), "CHESTFED_DATA": ".", "SLURM_JOB_ID": "1"}
    variables |= {"SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_PER_TASK": "32"}
    assert subprocess.run(["bash", script, "p.yaml"], env=variables, check=False).returncode == 0
    start = "--standalone --nproc-per-node 4 -m chestfed study p.yaml"
    assert log.read_text() == f"{start} --set runtime.threads=8 --no-tracking 8\n"


def test_slurm_array_trains_a_seed_a_job(tmp_path: Path) -> None:
    """Of synthetic hospitals, whose folder nobody sets; the run is that of the same seed among several."""
    program = tmp_path / "chestfed"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    variables = {"PATH": os.environ["PATH"], "CHESTFED": str(program), "SLURM_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "2"}
    script = DOCS / "examples" / "slurm" / "study.sbatch"
    job = subprocess.run(["bash", script, "digits_ih"], env=variables, check=True, capture_output=True, text=True)
    words = job.stdout.splitlines()
    settings = [after for word, after in itertools.pairwise(words) if word == "--set" and "seeds" in after]
    assert settings == ["seeds=[2]"]
    path = ROOT / "pipelines" / "digits_ih.yaml"
    (alone,), (_, second) = (
        make_design(load_pipeline(path, [setting, "selected=[codasca]", "windows=[]"]), path).variants
        for setting in (*settings, "seeds=2")
    )
    assert identity(alone.pipeline) == identity(second.pipeline)


def test_slurm_script_returns_the_status(tmp_path: Path) -> None:
    script = DOCS / "examples" / "slurm" / "study.sbatch"
    for status in (0, 3):
        program = tmp_path / "chestfed"
        program.write_text(f"#!/bin/sh\nexit {status}\n", encoding="utf-8")
        program.chmod(0o755)
        variables = {**os.environ, "CHESTFED": str(program), "CHESTFED_DATA": str(tmp_path), "SLURM_JOB_ID": "1"}
        assert subprocess.run(["bash", script, "p.yaml"], env=variables, check=False).returncode == status
