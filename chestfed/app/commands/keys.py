"""Keys of a YAML file, from its JSON schema: what each takes, and the words of `--set` that set it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from rich.console import Group
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from chestfed.app.commands.machine.schema import schemas

Schema = dict[str, Any]

#: What a cell of a spreadsheet may look like in YAML.
_ANY_CELL: Final = {"string", "integer", "number", "boolean"}
#: At most so many keys are named to somebody who typed an option that there is not, and so many choices of a value.
_NAMED, _CHOICES = 5, 8


class SchemaReader:
    """Reads a JSON schema: what is behind references, and types in words.

    `limits` are JSON schema keywords, each with how a limit is written; `quote` stands around values, `between` between
    those to choose from.
    """

    limits: ClassVar[Mapping[str, str]] = {}
    quote: ClassVar[str] = ""
    between: ClassVar[str] = "|"

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def resolve(self, value: Schema) -> Schema:
        """The schema behind a reference."""
        while "$ref" in value:
            value = self.schema["$defs"][value["$ref"].rpartition("/")[2]]
        return value

    @staticmethod
    def list_alternatives(target: Schema) -> list[Schema]:
        """The parts of a union; empty for others."""
        return [*target.get("anyOf", ()), *target.get("oneOf", ())]

    def list_parts(self, value: Schema) -> Iterator[Schema]:
        """The alternatives that a value is, through references and unions."""
        target = self.resolve(value)
        parts = self.list_alternatives(target)
        if target.get("properties") or not parts:
            yield target
        for part in parts:
            yield from self.list_parts(part)

    def type_of(self, value: Schema) -> str:
        """The type in words."""
        target = self.resolve(value)
        choices = target.get("enum", [target["const"]] if "const" in target else [])
        if choices:
            return self.between.join(f"{self.quote}{one}{self.quote}" for one in choices)
        if parts := self.list_alternatives(target):
            kinds = list(dict.fromkeys(self.type_of(part) for part in parts))
            if set(kinds) >= _ANY_CELL:
                kinds = ["text or number", *(kind for kind in kinds if kind not in _ANY_CELL)]
            return " or ".join(kinds)
        limits = [words.format(target[key]) for key, words in self.limits.items() if key in target]
        limits = ["not empty" if limit == "at least 1 long" else limit for limit in limits]
        return " ".join([self._kind_of(target), *([f"({', '.join(limits)})"] if limits else [])])

    def _kind_of(self, target: Schema) -> str:
        """The type without its limits."""
        kind: str = target.get("type", "any value")
        if kind == "array":
            return f"list of {self._inner(target['items'])}" if target.get("items") else "list"
        if kind == "object" and not target.get("properties"):
            more = target.get("additionalProperties")
            return f"mapping to {self._inner(more)}" if isinstance(more, dict) and more else "mapping"
        return {"object": "section", "null": f"{self.quote}null{self.quote}"}.get(kind, kind)

    def _inner(self, value: Schema) -> str:
        """The type of an item, in brackets if it is a choice of several."""
        text = self.type_of(value)
        return f"({text})" if " or " in text else text


@dataclass(frozen=True)
class Key:
    """One key of a file.

    Attributes
    ----------
    name
        Dotted; N stands for the number of an entry of a list, NAME for a name.
    parts
        Names of the parts, such as networks, that have it; empty: all.
    shares
        Names of earlier keys whose keys are in this section too.
    """

    name: str
    value: Schema
    required: bool
    parts: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()


class KeyReader(SchemaReader):
    """Lists the keys of a schema."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._shown: dict[str, set[str]] = {}

    def list_keys(self) -> list[Key]:
        """All keys in the order of the schema; those that a section shares with an earlier one are there only."""
        return self._list("", [part for part in self.list_parts(self.schema) if part.get("properties")])[1]

    def _list(self, path: str, sections: Sequence[Schema]) -> tuple[str, list[Key]]:
        """The path of the section whose keys are all in these ones too, and the other keys."""
        entries, names = self._merge(sections), {_find_name(section) for section in sections} - {""}
        alike = [at for at, shown in self._shown.items() if shown <= entries.keys()]
        base = next((at for at in alike if len(self._shown[at]) > 1 or path.startswith(f"{at}.")), "")
        new = [entry for mark, entry in entries.items() if mark not in self._shown.get(base, ())]
        self._shown[path] = set(entries)
        keys: list[Key] = []
        for entry in new:
            name = f"{path}.{entry.name}" if path else entry.name
            inside = [self._list(at, parts) for at, parts in self._find_sections(name, entry.value).items()]
            parts = () if names <= set(entry.parts) else tuple(filter(None, entry.parts))
            keys.append(replace(entry, name=name, parts=parts, shares=tuple(base for base, _ in inside if base)))
            keys += [key for _, more in inside for key in more]
        return base, keys

    def _merge(self, sections: Sequence[Schema]) -> dict[str, Key]:
        """The keys of sections that are alternatives, by name and schema; a constant is the name of a part."""
        found: dict[str, Key] = {}
        for section in sections:
            for key, value in section["properties"].items():
                if "const" not in value:
                    mark = json.dumps([key, value], sort_keys=True)
                    entry = found.get(mark, Key(key, value, key in section.get("required", ())))
                    found[mark] = replace(entry, parts=(*entry.parts, _find_name(section)))
        return found

    def _find_sections(self, path: str, value: Schema) -> dict[str, list[Schema]]:
        """The sections of a value by path, also those of its items and entries."""
        found: dict[str, list[Schema]] = {}
        for part in self.list_parts(value):
            inner = {path: [part]} if part.get("properties") else {}
            if isinstance(items := part.get("items"), dict):
                inner |= self._find_sections(f"{path}.{self._place(items)}", items)
            if isinstance(more := part.get("additionalProperties"), dict):
                inner |= self._find_sections(f"{path}.NAME", more)
            for at, sections in inner.items():
                found.setdefault(at, []).extend(sections)
        return found

    def _place(self, items: Schema) -> str:
        """How an entry of a list is called: by its name if it has one."""
        return "NAME" if any("name" in part.get("properties", ()) for part in self.list_parts(items)) else "N"

    def assign(self, name: str, value: Schema, text: str) -> str:
        """The assignment for an option that was typed with this text, or without any."""
        parts = [part for part in self.list_parts(value) if part.get("type") != "null"]
        types = {part.get("type") for part in parts}
        if types == {"object"} and not text.startswith("{"):
            required = {key: part["properties"][key] for part in parts for key in part.get("required", ())}
            if text and len(required) == 1:
                ((key, inner),) = required.items()
                return self.assign(f"{name}.{key}", inner, text)
            text = "VALUE" if required or not any(part.get("properties") for part in parts) else "{}"
        elif types == {"boolean"} and text != "false":
            text = "true"
        elif text and "array" in types and not text.startswith("[") and ("," in text or types == {"array"}):
            text = f"[{text}]"
        return f"{name.replace('methods.NAME.', 'methods.*.')}={text or 'VALUE'}"

    def takes(self, value: Schema, text: str) -> bool:
        """Whether a text may be a value: false for words where a number stands, and for none of listed words."""
        parts = [part for part in self.list_parts(value) if part.get("type") != "null"]
        listed = [word for part in parts for word in part.get("enum", ())]
        numbers = bool(parts) and {part.get("type") for part in parts} <= {"integer", "number"}
        if text and numbers:
            return bool(re.fullmatch(r"[-+.\deE]+", text))
        return not text or not all(part.get("enum") for part in parts) or text in map(str, listed)

    def describe(self, key: Key) -> str:
        """The first sentence of a key's description."""
        text = key.value.get("description", "") or self.resolve(key.value).get("description", "")
        return re.split(r"(?<!e\.g)[.;] ", text, maxsplit=1)[0].rstrip(".")


def _find_name(section: Schema) -> str:
    """The name of a part that is chosen by it; empty of other sections."""
    return next((str(value["const"]) for value in section["properties"].values() if "const" in value), "")


def advise(kind: str, option: str, words: Sequence[str]) -> str:
    """The `--set` words for an option that there is not but that is a key, or the last part of one; else nothing."""
    reader, name = KeyReader(schemas()[kind]), option.lstrip("-").replace("-", "_")
    text = _find_value(option, words)
    keys = [key for key in reader.list_keys() if reader.takes(key.value, text)]
    found = [key for key in keys if key.name == name]
    found = found or [key for end in (f".{name}", f"_{name}") for key in keys if key.name.endswith(end)]
    if not found and "_" in name:
        phrase = re.compile(rf"\b{re.escape(name.replace('_', ' '))}\b")
        found = [key for key in keys if phrase.search(reader.describe(key))]
    assignments = list(dict.fromkeys(reader.assign(key.name, key.value, text) for key in found))
    *first, last = [f"--set {shlex.quote(text)}" for text in assignments[:_NAMED]] or [""]
    more = ", or see --help-all" if len(assignments) > _NAMED else ""
    return f"Type {' or '.join(filter(None, (', '.join(first), last)))}{more}" if last else ""


def _find_value(option: str, words: Sequence[str]) -> str:
    """The text that was typed for an option, behind it or behind an equals sign; empty: none."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word == option:
            return following if not re.match(r"-\D", following) else ""
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return ""


def render_keys(kind: str) -> Panel:
    """All keys that `--set` takes: type, default and one sentence."""
    reader = KeyReader(schemas()[kind])
    lines = [line for key in reader.list_keys() for line in _render(reader, key)]
    return Panel(Group(*lines), title=f"Keys of a {kind}, for --set", title_align="left", border_style="dim")


def _render(reader: KeyReader, key: Key) -> Iterator[Text | Padding]:
    """Two lines: name, type and default; and what it means."""
    facts, default = _name_types(reader, key.value), key.value.get("default")
    if key.required:
        facts += " [required]"
    elif "default" in key.value and not (isinstance(default, Mapping) and default):
        facts += f" [default: {default if isinstance(default, str) and default else json.dumps(default)}]"
    text, others = reader.describe(key), len(key.parts) - _NAMED
    names = [*key.parts[:_NAMED], *([f"{others} more"] if others > 0 else [])]
    text += f" (for {', '.join(names)})" if names else ""
    text += "".join(f"; with the keys of {name} too" for name in key.shares)
    yield Text.assemble((key.name, "bold cyan"), "  ", (facts, "yellow"))
    yield Padding(Text(text.replace("`", "")), (0, 0, 0, 4))


def _name_types(reader: KeyReader, value: Schema) -> str:
    """The type in words, with the names of parts in place of any text, unless they are many."""
    words = reader.type_of(value)
    names = [name for part in reader.list_parts(value) for name in part.get("examples", ())]
    return words.replace("string", ", ".join(names) if len(names) <= _CHOICES else "name", 1) if names else words
