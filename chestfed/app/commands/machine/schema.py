"""`chestfed schema`: JSON schemas of the YAML files, with which an editor completes and checks keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from chestfed.core.console import open_console, say, show_answer

EXTENDS = {
    "type": "string",
    "description": "another YAML, relative to this one, whose keys this file takes over and overrides",
}


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON schema of each kind of YAML file by its name: `pipeline`, `site`."""
    from chestfed.data.sites.config import SiteConfig
    from chestfed.studies.experiment.methods import PipelineFile

    return {"pipeline": PipelineFile.model_json_schema(), "site": SiteConfig.model_json_schema()}


def for_editors(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of one file, which may take missing keys from the file it `extends`."""
    schema = {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    definitions = schema.get("$defs", {})
    roots = [schema, *schema.get("oneOf", ()), *schema.get("anyOf", ())]
    for root in roots:
        kind = definitions.get(str(root.get("$ref")).rpartition("/")[2], root)
        if "properties" in kind:
            kind["properties"] = {"extends": EXTENDS, **kind["properties"]}
            kind["if"] = {"not": {"required": ["extends"]}}
            kind["then"] = {"required": kind.pop("required", [])}
    return schema


Out = Annotated[Path, typer.Argument(help="Folder to write the schemas to.")]


def schema(out: Out = Path("schemas")) -> None:
    """Write the JSON schemas of pipelines and sites, with which an editor completes and validates YAML files.

    Example:

        chestfed schema schemas
    """
    console, files = open_console(), list[str]()
    out.mkdir(parents=True, exist_ok=True)
    for name, content in schemas().items():
        file = out / f"{name}.schema.json"
        file.write_text(json.dumps(for_editors(content), indent=2) + "\n", encoding="utf-8")
        files.append(str(file))
    say(console, "To let an editor check a YAML, make this its first line:")
    line = f"# yaml-language-server: $schema={(out / 'pipeline.schema.json').resolve()}"
    say(console, line)
    show_answer(console, f"written to {' and '.join(files)}", files=files)
