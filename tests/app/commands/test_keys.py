"""Keys beside options: the panel of --help-all has every key of the schema, and an option that is a key has advice."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chestfed.app.commands.keys import KeyReader
from chestfed.app.commands.machine.schema import schemas
from chestfed.core.bundled import bundled
from chestfed.studies.designs.design import list_variants
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.identity import identify_settings
from tests.command_line import call

FILE = bundled("pipelines") / "source_addition_samples.yaml"
#: Options that there were -> what each set.
REMOVED = {
    "--windows 1,8": {"windows": [1, 8]},
    "--engine in-process": {"engine": "in-process"},
    "--interval=bca": {"evaluation": {"interval": "bca"}},
    "--subsets": {"subsets": {}},
    "--subsets --seeds 2": {"subsets": {}},
    "--target-images 80,160,all": {"target_images": {"counts": [80, 160, None]}},
}


def advised(*words: str, command: str = "study") -> list[str]:
    """The assignments that the message about an unknown option advises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "400")
        called = call(*command.split(), *words)
    assert (called.code, called.out) == (2, "")
    return re.findall(r"--set ('[^']*'|\S+?(?=[\s,]|\.\s))", called.err)


@pytest.mark.parametrize("words", REMOVED)
def test_removed_option_has_advice_that_works(words: str) -> None:
    (text,) = advised(*words.split())
    typed = load_pipeline(FILE, shlex.split(text))
    meant = load_pipeline(FILE, [f"{key}={value}" for key, value in flatten(REMOVED[words])])
    assert typed == meant != load_pipeline(FILE)


def flatten(keys: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys of a section each by itself, values as YAML; a design is set as a whole."""
    for key, value in keys.items():
        if isinstance(value, dict) and key == "evaluation":
            yield from ((f"{key}.{inner}", text) for inner, text in flatten(value))
        else:
            yield key, str(value).replace("None", "null")


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        (["subsets.target=padchest"], "subsets={target: padchest}"),
        (["subsets=null", "subsets.target=padchest"], "subsets={target: padchest}"),
        (["target_images.counts=[80,160,all]"], "target_images={counts: [80, 160, null]}"),
        (
            ["target_images.target=vindr", "target_images.counts=[80,all]"],
            "target_images={counts: [80, null], target: vindr}",
        ),
    ],
)
def test_keys_of_a_design_make_its_studies(typed: list[str], whole: str) -> None:
    from chestfed.studies.experiment.device import prepare_machine

    plans = []
    for settings in (typed, [whole]):
        file = load_pipeline(FILE, ["k=null", *settings] if "images" in whole else settings)
        machine = prepare_machine(file.runtime)
        plans.append(
            [(one.label, identify_settings(one.pipeline, machine).digest) for one in list_variants(file, FILE)]
        )
    assert plans[0] == plans[1]
    assert len(plans[0]) > 1


def test_target_of_either_design_is_named() -> None:
    assert set(advised("--target", "vindr")) == {"subsets.target=vindr", "target_images.target=vindr"}


def test_advice_takes_the_value_that_was_typed() -> None:
    assert advised("--split", "test") == ["evaluation.split=test"]
    assert "split=3" in advised("--split", "3")


@pytest.mark.parametrize(
    ("words", "assignment"),
    [
        ("--window 8", "federated.window=8"),
        ("--bf16", "runtime.bf16=true"),
        ("--diseases edema", "'diseases=[edema]'"),
        ("--prox 0.1", "'methods.*.algorithm.prox=0.1'"),
        ("--runtime.threads=2", "runtime.threads=2"),
        ("--compression top_k", "federated.compression.kind=top_k"),
        ("--window", "federated.window=VALUE"),
    ],
)
@pytest.mark.parametrize("command", ["study", "tune digits_ih", "federation run digits_ih --federation x"])
def test_an_option_that_is_a_key_has_advice(command: str, words: str, assignment: str) -> None:
    assert assignment in advised(*words.split(), command=command)


def test_evaluate_advises_keys_of_the_site() -> None:
    assert advised("--views", "all", command="evaluate model.onnx --site chexpert") == ["views=all"]


def list_dotted(schema: dict[str, Any], value: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every key of a schema by its whole name, as often as it occurs; constants are names of parts."""
    while "$ref" in value:
        value = schema["$defs"][value["$ref"].rpartition("/")[2]]
    for key, inner in value.get("properties", {}).items():
        if "const" not in inner:
            yield f"{path}.{key}".lstrip(".")
            yield from list_dotted(schema, inner, f"{path}.{key}".lstrip("."))
    for part in (part for word in ("anyOf", "oneOf") for part in value.get(word, ())):
        yield from list_dotted(schema, part, path)
    for word, place in (("items", "NAME" if path == "methods" else "N"), ("additionalProperties", "NAME")):
        if isinstance(value.get(word), dict):
            yield from list_dotted(schema, value[word], f"{path}.{place}")


@pytest.mark.parametrize(("kind", "command"), [("pipeline", "study"), ("pipeline", "tune"), ("site", "evaluate")])
def test_panel_names_every_key(kind: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    panel = call(command, "--help-all", folder=tmp_path).out.partition(f"Keys of a {kind}")[2]
    assert all(len(line) <= 80 for line in panel.splitlines())
    listed = set(re.findall(r"^│ ([a-zA-Z0-9_.]+)  \S", panel, re.MULTILINE))
    schema = schemas()[kind]
    expected = set(list_dotted(schema, schema))
    repeated = {"methods.NAME": "federated", "methods.NAME.model": "model"}
    for section, earlier in repeated.items():
        inside = {key for key in expected if key.startswith(f"{section}.")}
        again = {key for key in inside if f"{earlier}{key.removeprefix(section)}" in listed}
        assert not again & listed
        assert not again or f"with the keys of {earlier} too" in " ".join(panel.replace("│", " ").split())
        expected -= again
    assert listed == expected
    assert len(expected) > 80


def test_panel_is_in_help_all_alone(tmp_path: Path) -> None:
    assert "Keys of a" not in call("study", "--help", folder=tmp_path).out
    assert "Keys of a" not in call("report", "--help-all", folder=tmp_path).out


def test_parts_and_their_keys_are_named() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "common": {"$ref": "#/$defs/Common"},
            "rule": {
                "anyOf": [
                    {"type": "string", "examples": ["a", "b"]},
                    {"properties": {"name": {"const": "a"}, "both": {"type": "number"}, "x": {"type": "integer"}}},
                    {"properties": {"name": {"const": "b"}, "both": {"type": "number"}}},
                ]
            },
            "entries": {"type": "array", "items": {"$ref": "#/$defs/More"}},
        },
        "$defs": {
            "Common": {
                "properties": {"p": {"type": "integer"}, "q": {"type": "boolean", "description": "Yes. Or no."}}
            },
            "More": {"properties": {"p": {"type": "integer"}, "q": {"type": "boolean", "description": "Yes. Or no."}}},
        },
    }
    schema["$defs"]["More"]["properties"]["own"] = {"type": "string"}
    reader = KeyReader(schema)
    keys = {key.name: key for key in reader.list_keys()}
    assert [*keys] == ["common", "common.p", "common.q", "rule", "rule.both", "rule.x", "entries", "entries.N.own"]
    assert (keys["rule.both"].parts, keys["rule.x"].parts) == ((), ("a",))
    assert keys["entries"].shares == ("common",)
    assert reader.describe(keys["common.q"]) == "Yes"
