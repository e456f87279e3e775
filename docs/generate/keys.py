"""The reference of the YAML keys, from the JSON schemas of the configuration models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from docs.generate.markdown import escaped

Schema = dict[str, Any]

PAGES = {
    "pipeline": ("Pipeline keys", "Every key of a pipeline, the YAML that `chestfed study` runs ([how](../study.md))."),
    "site": ("Site keys", "Every key of a site's YAML ([how to write one](../new_site.md))."),
}
COMMON = """`extends: other.yaml` takes over the keys of another file. Unknown keys are refused.

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
#: What a cell of a spreadsheet may look like in YAML.
ANY_CELL = {"string", "integer", "number", "boolean"}


def pages() -> dict[str, str]:
    """File name (without .md) -> text."""
    from chestfed.app.commands.machine.schema import schemas

    return {f"{kind}_keys": page(kind, schema) for kind, schema in schemas().items()}


def page(kind: str, schema: Schema) -> str:
    """The page of one kind of YAML file."""
    title, about = PAGES[kind]
    walk = _Walk(kind, schema)
    return "\n".join([f"# {title}\n", f"{about} {COMMON}", *walk.sections()])


class _Walk:
    """Goes through a schema, one section per object; an object that occurs twice has one section."""

    def __init__(self, kind: str, schema: Schema) -> None:
        self.kind = kind
        self.schema = schema
        self.waiting: list[tuple[str, Schema]] = [("", one) for one in self.objects(schema)]
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
        text = escaped(value.get("description", "") or self.resolved(value).get("description", "")).rstrip(".")
        if "search" in value:
            low, high, scale = value["search"]
            text += f". `chestfed tune` searches {low} to {high}, {scale}"
        links = ", ".join(f"[{name}](#{label})" for name, label in sections)
        yield f"`{key}` ({facts})"
        yield f": {text}.{f' Keys: {links}.' if links else ''}\n"

    def sections_of(self, path: str, value: Schema) -> Iterator[tuple[str, str]]:
        """Name and label of the sections that hold the keys of a value; new ones are queued."""
        value = self.without_title(value)
        if "$ref" in value:
            name = value["$ref"]
            path = self.places.get(name, path)
        target = self.resolved(value)
        for part in (*target.get("anyOf", ()), *target.get("oneOf", ())):
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

    def objects(self, schema: Schema) -> Iterator[Schema]:
        """The objects that a schema is, through references and unions."""
        target = self.resolved(schema)
        if target.get("properties"):
            yield target
        for part in (*target.get("anyOf", ()), *target.get("oneOf", ())):
            yield from self.objects(part)

    def heading(self, path: str, section: Schema) -> str:
        """Where the keys are: `table.columns`, or `methods[].algorithm` with `name: fedprox`."""
        constants = [f"`{key}: {one['const']}`" for key, one in section["properties"].items() if "const" in one]
        place = f"`{path}`" if path else "Top level"
        return f"{place} with {', '.join(constants)}" if constants else place

    def label(self, path: str, section: Schema) -> str:
        """The anchor of a section."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.kind} keys {self.heading(path, section)}".lower()).strip("-")

    def resolved(self, value: Schema) -> Schema:
        """The schema behind a reference."""
        while "$ref" in value:
            value = self.schema["$defs"][value["$ref"].rpartition("/")[2]]
        return value

    @staticmethod
    def without_title(value: Schema) -> Schema:
        """A reference that pydantic wrapped into `allOf`, to give it a description, as the reference."""
        (only, *more) = value.get("allOf", [value])
        return value if more else only

    def type_of(self, value: Schema) -> str:
        """The type in words."""
        target = self.resolved(self.without_title(value))
        if "const" in target:
            return f"`{target['const']}`"
        if "enum" in target:
            return " or ".join(f"`{one}`" for one in target["enum"])
        parts = (*target.get("anyOf", ()), *target.get("oneOf", ()))
        if parts:
            kinds = list(dict.fromkeys(self.type_of(part) for part in parts))
            return "text or number" if set(kinds) == ANY_CELL else " or ".join(kinds)
        limits = [words.format(target[key]) for key, words in LIMITS.items() if key in target]
        limits = ["not empty" if limit == "at least 1 long" else limit for limit in limits]
        return " ".join([self.kind_of(target), *([f"({', '.join(limits)})"] if limits else [])])

    def kind_of(self, target: Schema) -> str:
        """The type without its limits."""
        kind = target.get("type", "any value")
        if kind == "array":
            return f"list of {self.inner(target['items'])}" if target.get("items") else "list"
        if kind == "object" and not target.get("properties"):
            more = target.get("additionalProperties")
            return f"mapping to {self.inner(more)}" if isinstance(more, dict) and more else "mapping"
        return {"object": "section", "null": "`null`"}.get(kind, kind)

    def inner(self, value: Schema) -> str:
        """The type of an item, in brackets if it is a choice of several."""
        text = self.type_of(value)
        return f"({text})" if "` or " in text else text


def _paragraphs(text: str) -> str:
    return "\n\n".join(escaped(one) for one in text.split("\n\n"))
