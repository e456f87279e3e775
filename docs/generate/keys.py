"""The reference of the YAML keys, from the JSON schemas of the configuration models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from chestfed.app.commands.keys import Schema, SchemaReader
from docs.generate.markdown import escaped

PAGES = {
    "pipeline": ("Pipeline keys", "Every key of a pipeline, the YAML that `chestfed study` runs ([how](../study.md))."),
    "site": ("Site keys", "Every key of a site's YAML ([how to write one](../new_site.md))."),
    "hospital": ("Keys of hospital.yaml", "Every key of a hospital's file in [a federation](../deployment.md)."),
    "federation": ("Keys of federation.yaml", "Every key of the server's file in [a federation](../deployment.md)."),
}
COMMON = "Unknown keys are refused.\n"
EDITORS = """`extends: other.yaml` takes over the keys of another file.
`chestfed schema` writes the same as JSON schemas [for editors](../installation.md#editors).
"""
#: JSON schema keyword -> how a limit is written.
LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} long",
    "minItems": "at least {} long",
    "pattern": "pattern `{}`",
}


def pages() -> dict[str, str]:
    """File name (without .md) -> text."""
    from chestfed.app.commands.machine.schema import schemas
    from chestfed.leaves.federation.settings import FederationFile, HospitalFile

    files = {"hospital": HospitalFile.model_json_schema(), "federation": FederationFile.model_json_schema()}
    return {
        **{f"{kind}_keys": page(kind, schema, EDITORS) for kind, schema in schemas().items()},
        **{f"{kind}_keys": page(kind, schema) for kind, schema in files.items()},
    }


def page(kind: str, schema: Schema, more: str = "") -> str:
    """The page of one kind of YAML file; `more` stands below its introduction."""
    title, about = PAGES[kind]
    walk = _Walk(kind, schema)
    return "\n".join([f"# {title}\n", f"{about} {COMMON}{more}", *walk.sections()])


class _Walk(SchemaReader):
    """Goes through a schema, one section per object; an object that occurs twice has one section."""

    limits, quote, between = LIMITS, "`", " or "

    def __init__(self, kind: str, schema: Schema) -> None:
        super().__init__(schema)
        self.kind = kind
        self.waiting = [("", one) for one in self.list_parts(schema) if one.get("properties")]
        self.places: dict[str, str] = {}
        self.labels: set[str] = set()
        self.shown: list[tuple[str, Schema]] = []

    def sections(self) -> Iterator[str]:
        """All sections, as Markdown."""
        while self.waiting:
            path, section = self.waiting.pop(0)
            yield f"({self.label(path, section)})="
            yield f"## {self.heading(path, section)}\n"
            if section.get("description"):
                yield f"{_paragraphs(section['description'])}\n"
            base, shared = self.common_keys(section)
            self.shown.append((path, section))
            if base:
                yield f"{base}\n"
            for key, value in section["properties"].items():
                if "const" in value or key in shared:  # it is in the heading, or in the other section
                    continue
                yield from self.entry(path, key, value, key in section.get("required", ()))

    def common_keys(self, section: Schema) -> tuple[str, set[str]]:
        """A sentence that names the earlier section with most of these keys, if it has three or more; and the keys."""
        best: tuple[str, set[str]] = "", set()
        for path, other in self.shown:
            keys = {key for key, value in section["properties"].items() if other["properties"].get(key) == value}
            if len(keys) >= max(3, len(best[1]) + 1):
                more = any(key not in keys and "const" not in value for key, value in section["properties"].items())
                name = f"[{self.heading(path, other)}](#{self.label(path, other)})"
                best = f"The keys of {name}{', and:' if more else '.'}", keys
        return best

    def entry(self, path: str, key: str, value: Schema, required: bool) -> Iterator[str]:
        """One key: its type, its default, what it means, and which sections hold its own keys."""
        inside = f"{path}.{key}" if path else key
        sections = list(self.sections_of(inside, value))
        facts = self.type_of(value)
        if required:
            facts += ", required"
        elif "default" in value and not (sections and isinstance(value["default"], dict)):
            facts += f", default `{json.dumps(value['default'], ensure_ascii=False)}`"
        text = escaped(value.get("description", "") or self.resolve(value).get("description", "")).rstrip(".")
        if "search" in value:
            low, high, scale = value["search"]
            text += f". `chestfed tune` searches {low} to {high}, {scale}"
        links = ", ".join(f"[{name}](#{label})" for name, label in sections)
        yield f"`{key}` ({facts})"
        yield f": {text}.{f' Keys: {links}.' if links else ''}\n"

    def sections_of(self, path: str, value: Schema) -> Iterator[tuple[str, str]]:
        """Name and label of the sections that hold the keys of a value; new ones are queued."""
        if "$ref" in value:
            name = value["$ref"]
            path = self.places.get(name, path)
        target = self.resolve(value)
        for part in self.list_alternatives(target):
            yield from self.sections_of(path, part)
        if isinstance(target.get("items"), dict):
            yield from self.sections_of(f"{path}[]", target["items"])
        if isinstance(target.get("additionalProperties"), dict):
            yield from self.sections_of(f"{path}.NAME", target["additionalProperties"])
        if any("const" not in part for part in target.get("properties", {}).values()):
            if "$ref" in value:
                known = value["$ref"] in self.places
                self.places[value["$ref"]] = path
            else:
                known = False
            label = self.label(path, target)
            if not known and label not in self.labels:  # a part that is not built in has one section, whatever it is
                self.waiting.append((path, target))
            self.labels.add(label)
            constants = [f"`{part['const']}`" for part in target["properties"].values() if "const" in part]
            yield ", ".join(constants) or self.heading(path, target), label

    def heading(self, path: str, section: Schema) -> str:
        """Where the keys are: `table.columns`, or `methods[].algorithm` with `name: fedprox`."""
        constants = [f"`{key}: {one['const']}`" for key, one in section["properties"].items() if "const" in one]
        place = f"`{path}`" if path else "Top level"
        return f"{place} with {', '.join(constants)}" if constants else place

    def label(self, path: str, section: Schema) -> str:
        """The anchor of a section."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.kind} keys {self.heading(path, section)}".lower()).strip("-")


def _paragraphs(text: str) -> str:
    return "\n\n".join(escaped(one) for one in text.split("\n\n"))
