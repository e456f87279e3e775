"""A document as a pydantic model, with a message for each mistake: file, line, key and suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar, cast, get_args, runtime_checkable

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from chestfed.core.config.document import Document
from chestfed.core.config.parsing import Location
from chestfed.core.errors import ConfigError


class StrictModel(BaseModel):
    """A configuration section: immutable, no unknown keys, no silent conversion of types, no infinite numbers.

    The model of a whole file declares its `short_forms`: the keys whose value may be a word alone, each with the key
    that the word stands for in the long form, such as `model: small` for `model: {name: small}`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    short_forms: ClassVar[Mapping[str, str]] = {}


Model = TypeVar("Model", bound=StrictModel)


def load_config(path: str | Path, model: type[Model], overrides: Sequence[str] = ()) -> Model:
    """Read a YAML file as `model`.

    Raises
    ------
    ConfigError
        One message with all mistakes, each with file, line, key and, for an unknown key, a suggestion. Its kind
        (unknown key, missing key, invalid value), `key` and `place` are those of the first.
    """
    document = Document(Path(path), model.short_forms)
    document.override_all(overrides)
    return check_document(document, model)


def check_document(document: Document, model: type[Model]) -> Model:
    """The data of a document as `model`; raises as `load_config`."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        first = error.errors()[0]
        location = tuple(first["loc"]) or _named_first(first["msg"], document)
        kind = {"extra_forbidden": "unknown key", "missing": "missing key"}.get(first["type"], "invalid value")
        key, place = ".".join(map(str, location)), document.place(location)
        raise ConfigError("\n".join(_explain(document, model, error)), kind=kind, key=key, place=place) from None


def _explain(document: Document, model: type[BaseModel], error: ValidationError) -> list[str]:
    messages = []
    for detail in error.errors():
        location = tuple(detail["loc"])
        dotted = ".".join(str(part) for part in location)
        place = document.place(location or _named_first(detail["msg"], document))
        if detail["type"] == "extra_forbidden":
            messages.append(f"{place}: unknown key '{dotted}'{_hint(document, model, location)}")
        elif detail["type"] == "missing":
            messages.append(f"{place}: key '{dotted}' is missing")
        else:
            text, value = detail["msg"].removeprefix("Value error, "), cast("object", detail.get("input"))
            shown = "" if isinstance(value, dict | list) else f", found {value!r}"
            message = f"'{dotted}': {text}" if dotted else text
            if detail["type"] != "value_error":  # of pydantic itself: `Input should be ...`, `String should match ...`
                message = f"'{dotted}' should {text.partition(' should ')[2] or f'be {text}'}{shown}"
            messages.append(f"{place}: {message}")
    return messages


def _named_first(message: str, document: Document) -> Location:
    """The key that the message about a whole file begins with: `Value error, k must be ...`."""
    key = message.removeprefix("Value error, ").partition(" ")[0].rstrip(":,")
    return (key,) if key in document.data else ()


def _hint(document: Document, model: type[BaseModel], location: Location) -> str:
    """What to write in place of an unknown key: a key much like it, or where it is an option, or all keys."""
    *parents, key = location
    models, owners = _models_at(model, tuple(parents), document.data, str(key))
    if owners:
        return f": it is an option of {', '.join(owners)}"
    known = [name for kind in models for name in kind.model_fields] or ["name"]  # without it a part has no options
    close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    for kind in models:
        for name, field in kind.model_fields.items():
            owners = [owner for mark in _choices(field) for owner in mark.catalogue.owners(str(key))]
            if owners:
                return f": it is an option of {', '.join(owners)}, under '{'.'.join(map(str, (*parents, name)))}'"
    return f"; known keys: {', '.join(sorted(known))}"


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


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for argument in get_args(annotation) for kind in _models_in(argument)]
