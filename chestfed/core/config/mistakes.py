"""Mistakes in the data of a document: each with its place, its key, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Final, Protocol, Union, get_args, get_origin, runtime_checkable

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from chestfed.core.errors import ConfigError, UnknownNameError, nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from chestfed.core.config.document import Document

#: Keys and positions from the top of a document to a value.
Location = tuple[str | int, ...]

#: In place of pydantic's words, behind `should`; `{...}` are pydantic's values.
_WORDS: Final = {
    "model_type": "be keys and values",
    "dict_type": "be keys and values",
    "model_attributes_type": "be keys and values",
    "string_pattern_mismatch": "have the form {pattern}",
    "greater_than_equal": "be at least {ge}",
    "less_than_equal": "be at most {le}",
    "int_type": "be a whole number",
    "int_from_float": "be a whole number",
    "float_type": "be a number",
    "bool_type": "be true or false",
    "string_type": "be text",
    "list_type": "be a list",
    "too_short": "have {min_length} or more entries",
    "tuple_type": "be a list",
    "literal_error": "be {expected}",
}
_CONTAINERS: Final[dict[type, str]] = {list: "a list", dict: "keys and values"}
_SECTIONS: Final = {"model_type", "dict_type", "model_attributes_type"}
#: Keys of a section that advice lists.
_KEYS_NAMED: Final = 6
_KINDS: Final = {"extra_forbidden": "unknown key", "missing": "missing key"}


def refuse(document: Document, model: type[BaseModel], error: ValidationError) -> ConfigError:
    """The error for what the model found: its message has all mistakes, its kind and fields are those of the first."""
    mistakes = [_Mistake(document, model, details) for details in _join_unions(document, model, error.errors())]
    first, text = mistakes[0], "\n".join(dict.fromkeys(mistake.text for mistake in mistakes))  # of a moved value: once
    return ConfigError(text, kind=first.kind, key=first.key, place=first.place, suggestion=first.suggestion)


def describe_value(*details: ErrorDetails) -> str:
    """Words for a wrong value: `should be a number or a list, found 'x'`; `details` are of what it may be."""
    value: object = details[0].get("input")
    words = [_WORDS.get(detail["type"], "").format(**detail.get("ctx", {})) for detail in details]
    expected = [
        text or detail["msg"].partition(" should ")[2] or "be " + detail["msg"]
        for text, detail in zip(words, details, strict=True)
    ]
    first, *others = dict.fromkeys(expected)
    either = "".join(f" or {text.removeprefix('be ')}" for text in others)
    return f"should {first}{either}, found {describe_found(value)}"


def describe_found(value: object) -> str:
    """Words for what stands in a file; what is in a list or mapping is not shown."""
    if value == []:
        return "an empty list"
    return "nothing" if value is None else _CONTAINERS.get(type(value), repr(value))


def _join_unions(
    document: Document, model: type[BaseModel], details: Sequence[ErrorDetails]
) -> Iterator[list[ErrorDetails]]:
    """The details without pydantic's names of the types that a value may have; those of one value together.

    Of a value that is of one of its types, with a mistake in it, that mistake alone remains.
    """
    groups: dict[tuple[Location, int], list[ErrorDetails]] = {}
    for number, detail in enumerate(details):
        location, value = _strip_types(document, model, detail)
        key = (location, -number - 1) if value is None else (value, 0)  # a mistake beside others, or of one type
        groups.setdefault(key, []).append({**detail, "loc": location})
    for (value, _), group in groups.items():
        inside = [detail for detail in group if len(detail["loc"]) > len(value)]
        refused = [detail for detail in group if detail["type"] == "value_error"]
        yield from ([detail] for detail in inside)
        if not inside:
            yield refused[:1] or group


class _Mistake:
    """One mistake: `text` is its line of the message. `details` are several if a value may have several types."""

    def __init__(self, document: Document, model: type[BaseModel], details: Sequence[ErrorDetails]) -> None:
        detail = details[0]
        text = detail["msg"].removeprefix("Value error, ")
        inside = document.written(tuple(detail["loc"]))
        location = inside or _named_first(text, document)
        self.kind = _KINDS.get(detail["type"], "invalid value")
        self.key, self.place, self.suggestion = ".".join(map(str, location)), document.place(location), ""
        dotted = ".".join(map(str, inside))
        if inside and inside in document.places and self.place.startswith("--set "):
            dotted = self.place.removeprefix("--set ")  # as it was written: a method by its name, not by its number
        if self.kind == "unknown key":
            hint, self.suggestion = _hint(document, model, tuple(detail["loc"]), dotted)
            text = f"unknown key '{dotted}'{hint}"
        elif self.kind == "missing key":
            text = f"key '{dotted}' is missing{_describe_key(document, model, tuple(detail['loc']))}"
        elif detail["type"] == "value_error":
            cause: object = detail.get("ctx", {}).get("error")
            self.suggestion = cause.suggestion if isinstance(cause, UnknownNameError) else ""
            text = f"'{dotted}': {text}" if dotted else text
        else:  # of pydantic itself: `Input should be ...`, `String should match ...`
            value: object = detail.get("input")
            if detail["type"] == "literal_error" and isinstance(value, str):
                self.suggestion = nearest(value, re.findall(r"'([^']*)'", str(detail["ctx"]["expected"])))
            text = f"'{dotted}' {describe_value(*details)}{self._advise(document, model, details)}"
        self.text = f"{self.place}: {text}"

    def _advise(self, document: Document, model: type[BaseModel], details: Sequence[ErrorDetails]) -> str:
        """Advice what to write: the nearest choice, a list, or the keys that a section needs."""
        value: object = details[0].get("input")
        if self.suggestion:
            return f"; did you mean '{self.suggestion}'?"
        types, location = {detail["type"] for detail in details}, tuple(details[0]["loc"])
        models, _ = _models_at(model, location, document.data, "")
        needed = [name for kind in models for name, field in kind.model_fields.items() if field.is_required()]
        is_plain = isinstance(value, str | int | float)
        item, example = str(value) if is_plain else "...", ""
        if "list_type" in types and (value is not None or len(types) == 1):
            entry = f"{{{needed[0]}: {item}}}" if needed else item
            example = f"[{entry}]" if is_plain or needed else "a list, as [A, B]"
        elif types & _SECTIONS and len(needed) == 1:
            example = f"{{{needed[0]}: {item}}}"
        elif types & _SECTIONS and isinstance(value, list):
            example = "its keys without a dash (-) before them"
        elif types & _SECTIONS and models:
            known = sorted(_known_keys(models[0]))
            more = ", ..." if len(known) > _KEYS_NAMED else ""
            example = f"its keys ({', '.join(known[:_KEYS_NAMED])}{more})"
        if value is None or value == []:
            parents, _ = _models_at(model, location[:-1], document.data, "")
            fields = [kind.model_fields[str(location[-1])] for kind in parents if location[-1] in kind.model_fields]
            if value == []:
                meanings = [re.search("null: ([^;]+)", field.description or "") for field in fields]
                return "".join(f"; write null for {meaning[1]}" for meaning in meanings[:1] if meaning)
            is_required = any(field.is_required() for field in fields)
            return f"; write {example or 'one'}{'' if is_required else ', or remove it'}"
        return f"; write {example}" if example else ""


def _describe_key(document: Document, model: type[BaseModel], location: Location) -> str:
    """Words for what a missing key is for, from its description."""
    models, _ = _models_at(model, location[:-1], document.data, "")
    fields = [field for kind in models if (field := kind.model_fields.get(str(location[-1])))]
    text = re.split(r"(?<!e\.g)[.;] ", (fields[0].description or "") if fields else "", maxsplit=1)[0].rstrip(".")
    return f": {text}" if text else ""


def _strip_types(document: Document, model: type[BaseModel], detail: ErrorDetails) -> tuple[Location, Location | None]:
    """The location of a mistake without pydantic's names of types, and the value that has several; None: no such."""
    location, value = list[str | int](), None
    data: object = document.data
    for place, part in enumerate(detail["loc"]):
        is_last = place == len(detail["loc"]) - 1
        models, _ = _models_at(model, tuple(location), document.data, "")
        is_key = (isinstance(data, dict) and part in data) or any(part in kind.model_fields for kind in models)
        if isinstance(part, str) and not is_key and not (is_last and detail["type"] == "missing"):
            value = tuple(location)
            continue
        if isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            data = data.get(part) if isinstance(data, dict) else None
        location.append(part)
    return tuple(location), value


def _named_first(text: str, document: Document) -> Location:
    """The key that the message about a whole file begins with: `k must be ...`."""
    key = text.partition(" ")[0].rstrip(":,")
    return (key,) if (key,) in document.places else ()


def _hint(document: Document, model: type[BaseModel], location: Location, dotted: str) -> tuple[str, str]:
    """Hint for an unknown key: the chosen part that has it, where it is an option or key, a near key, or all keys.

    And the key that was probably meant, where there is one; `dotted` is the unknown one as it was written.
    """
    *parents, key = location
    models, owners = _models_at(model, tuple(parents), document.data, str(key))
    if owners:
        return f": it is an option of {', '.join(owners)}", ""
    written = document.written(location)
    own = {kind: frozenset[str]() if written == location else _own_keys(kind) for kind in models}
    fields = [(name, field) for kind in models for name, field in kind.model_fields.items() if name not in own[kind]]
    known = [name for kind in models for name in _known_keys(kind) if name not in own[kind]]
    known = known or ["name"]  # without it a part has no options
    section: object = document.data
    for part in parents:
        if isinstance(section, list) and isinstance(part, int):
            section = section[part]
        else:
            section = section.get(part) if isinstance(section, dict) else None
    values: dict[object, object] = section if isinstance(section, dict) else {}
    for name, field in fields:
        chosen = [mark.find_model(values.get(name)) for mark in _choices(field)]
        if any(kind is not None and key in kind.model_fields for kind in chosen):
            meant = f"{dotted.removesuffix(str(key))}{name}.{key}"
            return f": it is an option of its {name}; did you mean '{meant}'?", meant
    for name, field in fields:
        owners = [owner for mark in _choices(field) for owner in mark.catalogue.owners(str(key))]
        if owners:
            return f": it is an option of {', '.join(owners)}, under '{'.'.join(map(str, (*parents, name)))}'", ""
    sections = {name: field.annotation for name, field in fields if key in _keys_in(field)}
    for kind in models:
        for name, entries in getattr(kind, "in_common", {}).items():
            if entries in sections and not any(key in _own_keys(entry) for entry in _models_in(sections[entries])):
                sections = {other: value for other, value in sections.items() if other != entries} | {name: dict}
    if sections:
        one = next(iter(sections)) if len(sections) == 1 and get_origin(*sections.values()) is not list else ""
        meant = f"{dotted.removesuffix(str(key))}{one}.{key}" if one else ""
        return f": it is a key of {', '.join(sections)}" + (f"; did you mean '{meant}'?" if meant else ""), meant
    if close := nearest(str(key), known):
        return f"; did you mean '{close}'?", close
    return f"; known keys: {', '.join(sorted(known))}", ""


def _own_keys(kind: type[BaseModel]) -> frozenset[str]:
    """See `StrictModel.own_keys`."""
    keys: frozenset[str] = getattr(kind, "own_keys", frozenset())
    return keys


def _known_keys(kind: type[BaseModel]) -> list[str]:
    """See `StrictModel.list_known_keys`."""
    keys: list[str] = getattr(kind, "list_known_keys", lambda: [*kind.model_fields])()
    return keys


def _models_at(
    model: type[BaseModel], location: Location, data: object, key: str
) -> tuple[list[type[BaseModel]], list[str]]:
    """The models of the keys allowed at a location, following nested models, lists, mappings, unions and named parts.

    And the names of the other parts of the same kind that have the option `key`.
    """
    candidates: list[object] = [model]
    owners: list[str] = []
    for part in location:
        if isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            data = data.get(part) if isinstance(data, dict) else None
        following: list[object] = []
        owners = []
        for candidate in candidates:
            for kind in _models_in(candidate):
                if isinstance(part, str) and part in kind.model_fields:
                    choices = _choices(kind.model_fields[part])
                    following += [mark.find_model(data) for mark in choices] or [kind.model_fields[part].annotation]
                    owners += [name for mark in choices for name in mark.catalogue.owners(key)]
            if not _models_in(candidate) or isinstance(part, int):
                following.append(candidate)
        candidates = following or candidates
    return [kind for candidate in candidates for kind in _models_in(candidate)], owners


def is_text_key(model: type[BaseModel], location: Location, data: object) -> bool:
    """Whether the value of a key is text, or text or nothing."""
    models, _ = _models_at(model, location[:-1], data, "")
    fields = [kind.model_fields[str(location[-1])] for kind in models if location[-1] in kind.model_fields]
    return bool(fields) and all(_is_text(field.annotation) for field in fields)


def _is_text(annotation: object) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_text(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return all(_is_text(kind) for kind in get_args(annotation) if kind is not NoneType)
    return annotation is str


class Catalogue(Protocol):
    """The parts of one kind, see `chestfed.core.plugins.Catalogue`."""

    def owners(self, key: str) -> list[str]:
        """Names of the parts that have this option."""


@runtime_checkable
class Choice(Protocol):
    """The mark of a field that holds a named part, see `chestfed.core.plugins.Choice`."""

    @property
    def catalogue(self) -> Catalogue:
        """Where its parts are."""

    def find_model(self, value: object) -> type[BaseModel] | None:
        """The model of the options of the part that a value names."""


def _choices(field: FieldInfo) -> list[Choice]:
    return [mark for mark in field.metadata if isinstance(mark, Choice)]


def _keys_in(field: FieldInfo) -> list[str]:
    return [key for kind in _models_in(field.annotation) for key in _known_keys(kind)]


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for argument in get_args(annotation) for kind in _models_in(argument)]
