"""A YAML file with what it extends and what overrides it, as a checked model."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from chestfed.core.bundled import advise_name, list_pipelines
from chestfed.core.config.mistakes import Location, describe_found, is_text_key, refuse
from chestfed.core.errors import ConfigError

#: More bytes and values than any configuration has: the parser takes seconds for as many brackets, and aliases of
#: aliases come to any number of values.
_MOST_BYTES, _MOST_VALUES = 250_000, 200_000
#: The place of keys that are given in Python, in place of file and line.
ARGUMENT: Final = "argument pipeline"
#: Kind of the error of a text that cannot be parsed.
_NO_YAML: Final = "not valid YAML"


@dataclass(frozen=True)
class NamesFile:
    """Mark of a key whose text names a file of this machine, unless it is one of `words`.

    `read` gives what stands in the file: an algorithm's option is replaced by it, for it determines the result.
    """

    words: tuple[str, ...] = ()
    read: Callable[[Path], object] | None = None


@dataclass(frozen=True)
class AddedLater:
    """Mark of a key that stored runs do not have: at its default it is in no identity, so they stay valid."""


def names_file(field: FieldInfo) -> NamesFile | None:
    """The mark of a key that names a file; None for other keys."""
    return next((mark for mark in field.metadata if isinstance(mark, NamesFile)), None)


class StrictModel(BaseModel):
    """A configuration section: immutable, no unknown keys, no silent conversion of types, no infinite numbers.

    The model of a whole file declares its `short_forms`: the keys whose value may be a word alone, each with the key
    that the word stands for in the long form, such as `model: small` for `model: {name: small}`. `own_keys` are those
    that are not taken from a section in common; `in_common` are these sections, each with the list that takes them.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    short_forms: ClassVar[Mapping[str, str]] = {}
    own_keys: ClassVar[frozenset[str]] = frozenset()
    in_common: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def list_known_keys(cls) -> list[str]:
        """The keys that may be written, for advice."""
        return [*cls.model_fields]

    def relocate(self, place: Callable[[str, str], str]) -> Self:
        """The section with every file that it names where `place(key, text)` puts it; keys are those of `NamesFile`."""
        moved = dict[str, Any]()
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            mark = names_file(field)
            if isinstance(value, StrictModel):

                def place_within(key: str, text: str, name: str = name) -> str:
                    return place(f"{name}.{key}", text)

                moved[name] = value.relocate(place_within)
            elif mark and isinstance(value, str) and value not in mark.words:
                moved[name] = place(name, value)
        update = {name: value for name, value in moved.items() if value is not getattr(self, name)}
        return self.model_copy(update=update) if update else self


def drop_added(section: StrictModel, data: dict[str, Any]) -> None:
    """Remove from the plain data of a section, and of those in it, each `AddedLater` key that has its default."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if any(isinstance(mark, AddedLater) for mark in field.metadata) and value == field.get_default():
            data.pop(name, None)
        elif isinstance(value, StrictModel) and isinstance(data.get(name), dict):
            drop_added(value, data[name])
        elif isinstance(value, list) and isinstance(data.get(name), list):
            for part, plain in zip(value, data[name], strict=True):
                if isinstance(part, StrictModel):
                    drop_added(part, plain)


class OptionAssignment(str):
    """A `key=value` that an option of a command stands for; messages name the `option`, as it was typed."""

    __slots__ = ("option",)
    option: str

    def __new__(cls, text: str, option: str) -> Self:
        """As `str`."""
        assignment = super().__new__(cls, text)
        assignment.option = option
        return assignment


Model = TypeVar("Model", bound=StrictModel)


def load_config(path: str | Path, model: type[Model], overrides: Sequence[str] = ()) -> Model:
    """Read a YAML file as `model`.

    Raises
    ------
    ConfigError
        One message with all mistakes, each with file, line, key and, for an unknown key, a suggestion. Its kind
        (unknown key, missing key, invalid value), `key`, `place` and `suggestion` are those of the first.
    """
    document = Document(Path(path), model)
    document.override_all(overrides)
    return check_document(document, model)


def check_document(document: Document, model: type[Model]) -> Model:
    """The data of a document as `model`; raises as `load_config`."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise refuse(document, model, error) from None


class Document:
    """Parsed YAML: plain data, and for each key's location the file and line where it stands.

    `given` is plain data in place of a file; then `path` only gives folder and name, and mistakes are at `ARGUMENT`.
    `model` is that of the file, `extending` the files that extend this one; `files` are this one and those that it
    extends; `blank` are the keys behind which nothing is written, not even `null`.
    """

    def __init__(
        self,
        path: Path,
        model: type[StrictModel] = StrictModel,
        extending: tuple[Path, ...] = (),
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self._model = path, model
        self._extending = (*extending, path.resolve())
        if given is None:
            parsed = ParsedYaml(_read_text(path), str(path))
            data = {} if parsed.data is None else parsed.data
            if not isinstance(data, dict):
                shown = f"'key: value' lines{' without a dash (-)' if isinstance(data, list) else ''}"
                raise ConfigError(f"{path}:1: expected keys and values, found {describe_found(data)}; write {shown}")
            self.data: dict[Any, Any] = data
            self.files, self.places, self.blank = [str(path)], parsed.places, parsed.blank
        else:
            self.data = deepcopy(dict(given))
            self.files, self.places = [ARGUMENT], {(key,): ARGUMENT for key in given} | {(): ARGUMENT}
            self.blank = set()
        self._moved: dict[Location, Location] = {}
        self._extend()

    def _extend(self) -> None:
        if "extends" not in self.data:
            return
        name = self.data.pop("extends")
        if not isinstance(name, str) or "\0" in name:
            text = f"{self.place(('extends',))}: 'extends' takes one file name, found {describe_found(name)}"
            raise ConfigError(f"{text}; write a file or the name of a bundled pipeline, or remove it")
        base_path = self.path.parent / name
        if not base_path.is_file():  # or the name of a bundled pipeline, as commands take it
            base_path = list_pipelines().get(name.removesuffix(".yaml"), base_path)
        if base_path.resolve() in self._extending:
            raise ConfigError(f"{self.place(('extends',))}: a file cannot extend itself, nor one that extends it")
        if not base_path.is_file():
            place, (advice, close) = self.place(("extends",)), advise_name(Path(name).stem, "pipeline")
            text = f"{place}: no such file, and no pipeline of this name: {name}. {advice}"
            raise ConfigError(text, kind="no such file", place=place, suggestion=close)
        base = Document(base_path, self._model, self._extending)
        self.blank |= {location for location in base.blank if location not in self.places}
        self.data = self._merge(base.data, self.data)
        self.places = {**base.places, **self.places}
        self.files += base.files

    def place(self, location: Location) -> str:
        """File and line of the key, of one in it that an override alone gives, or of the nearest that encloses it."""
        while location and location not in self.places:
            if inside := [place for at, place in self.places.items() if at[: len(location)] == location]:
                return inside[-1]
            location = location[:-1]
        return self.places.get(location, str(self.path))

    def is_override(self, location: Location) -> bool:
        """Whether the command line gives the key."""
        return _is_option(self.place(location))

    def find_age(self, key: str) -> int:
        """0 for a key of the command line, 1 for one of the file, 2 for one of the file that it extends, and so on."""
        if (key,) not in self.places:
            return len(self.files) + 1
        place = self.place((key,))
        file = place if place in self.files else place.rpartition(":")[0]
        return self.files.index(file) + 1 if file in self.files else 0

    def move(self, source: Location, target: Location) -> None:
        """Note that a value was written elsewhere: mistakes in it are reported there."""
        self._moved[target] = source

    def written(self, location: Location) -> Location:
        """Where the value at a location was written: there, unless it was moved."""
        for length in range(len(location), 0, -1):
            if source := self._moved.get(location[:length]):
                return (*source, *location[length:])
        return location

    def folder(self, location: Location) -> Path:
        """The folder of the file that a key stands in; that of this file if an override gives it."""
        file = "" if self.is_override(location) else self.place(location).rpartition(":")[0]
        return Path(file or self.path).parent

    def override_all(self, assignments: Sequence[str]) -> None:
        """Apply assignments: of one key the last, and one of a whole section before those of its keys.

        Raises
        ------
        ConfigError
            If one of them has no place.
        """
        for assignment in sorted(keep_last(assignments), key=lambda text: text.partition("=")[0].count(".")):
            self.override(assignment)

    def override(self, assignment: str, source: str = "") -> None:
        """Apply one `a.b.0.c=value`, see `parse_assigned`. Messages name `source` as its key."""
        dotted, equals, text = assignment.partition("=")
        refuse_half_characters(dotted, "--set")
        typed, shown = f"--set {assignment}", f"--set {source or dotted}"
        if isinstance(assignment, OptionAssignment):
            typed = shown = assignment.option
        if not equals or not dotted:
            raise ConfigError(f"{typed}: expected KEY=VALUE, for example --set seed=2")
        location: list[str | int] = []
        target: object = self.data
        parts = dotted.split(".")
        for position, part in enumerate(parts):
            key: str | int = part
            if isinstance(target, list):
                if not part.isdecimal() or int(part) >= len(target):
                    raise ConfigError(f"{typed}: '{part}' is not an index of a list of {len(target)}")
                key = int(part)
            elif not isinstance(target, dict):
                raise ConfigError(f"{typed}: '{'.'.join(parts[:position])}' is a value, not a mapping of keys")
            location.append(key)
            values: dict[object, object] = target  # type: ignore[assignment]  # a list takes an index as a dict its key
            if position < len(parts) - 1:
                if isinstance(target, dict):
                    before = {} if target.get(key) is None else target[key]
                    target[key] = self._long_form(key, before, {})
                target = values[key]
            else:
                value = parse_assigned(text, typed, shown, is_text=is_text_key(self._model, tuple(location), self.data))
                before = target.get(key) if isinstance(target, dict) else None
                inner = self._model.short_forms.get(part)
                if inner == "name" and isinstance(before, dict) and isinstance(value, str):
                    # Naming the part that is there keeps its options.
                    value = {**before, "name": value} if before.get("name", value) == value else value
                values[key] = value
        self.places = {
            place: where for place, where in self.places.items() if place[: len(location)] != tuple(location)
        }
        self.places[tuple(location)] = shown
        self.blank.discard(tuple(location))

    def _merge(self, base: dict[object, object], over: dict[object, object]) -> dict[object, object]:
        """Mappings are merged key by key; one that names another part (`name: ...`) replaces the whole."""
        merged = dict(base)
        for key, value in over.items():
            under = self._long_form(key, base.get(key), value)
            merged[key] = value
            if (
                isinstance(value, dict)
                and isinstance(under, dict)
                and value.get("name", under.get("name")) == under.get("name")
            ):
                merged[key] = self._merge(under, value)
        return merged

    def _long_form(self, key: object, value: object, beside: object) -> object:
        """The long form of a word, such as `{name: small}`, to merge a mapping into it."""
        inner = self._model.short_forms.get(str(key))
        return {inner: value} if inner and isinstance(value, str) and isinstance(beside, dict) else value


def keep_last(assignments: Sequence[str]) -> list[str]:
    """The assignments, of one key the last, as options of a command line count; no other order has a meaning."""
    return list({assignment.partition("=")[0]: assignment for assignment in assignments}.values())


def parse_assigned(text: str, typed: str, shown: str, *, is_text: bool) -> object:
    """The value of `KEY=VALUE`, read as YAML; where the key `is_text`, other than one value in YAML is that text.

    Messages name the option as it was `typed`, or `shown` without its value.

    Raises
    ------
    ConfigError
        If the value of another key is not valid YAML.
    """
    try:
        value = ParsedYaml(text, shown).data
    except ConfigError as error:
        if error.kind != _NO_YAML:
            raise
        if not is_text:
            quoted = shlex.quote(f"{shown.removeprefix('--set ')}={json.dumps(text, ensure_ascii=False)}")
            advice = f"close brackets, or quote text: --set {quoted}" if shown.startswith("--set ") else "quote text"
            why = str(error).removeprefix(f"{shown}: ")
            raise ConfigError(f"{typed}: {why}; {advice}", kind=_NO_YAML) from None
        return text
    return text if is_text and isinstance(value, dict | list) else value


def _is_option(place: str) -> bool:
    return place.startswith("--")


def _read_text(path: Path) -> str:
    """The text of a YAML file, if it is one."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(
                f"{path}: not a file: give a YAML file", kind="not a file", file=path.name
            )  # a pipe would be waited for without end
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: more than {_MOST_BYTES // 1000} kB: no YAML of chestfed is as large")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8: give a YAML file", kind="not text") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads `1e-3` as a number, and `yes`/`no`/`on`/`off`, `010` and `1:30` as words (YAML 1.2)."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in [f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int", "timestamp")]
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false|True|False)$"), list("tfTF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|nan)$"),
    list("-+.0123456789"),
)


class ParsedYaml:
    """One YAML text as plain data, the place of each key's location (`name` and line), and the keys without a value."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self.places: dict[Location, str] = {}
        self.blank: set[Location] = set()
        try:
            node = yaml.compose(text, Loader=_Loader)
            self.data = None if node is None else self._build(node, ())
        except yaml.YAMLError as error:
            mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
            place = self._place(mark.line) if mark else name
            raise ConfigError(f"{place}: {_NO_YAML}: {getattr(error, 'problem', error)}", kind=_NO_YAML) from None
        except RecursionError:
            raise ConfigError(f"{name}: nested too deeply, or an alias (*) contains itself") from None

    def _place(self, line: int) -> str:
        return self._name if _is_option(self._name) else f"{self._name}:{line + 1}"

    def _build(self, node: yaml.Node, location: Location) -> object:
        self.places[location] = self._place(node.start_mark.line)
        if len(self.places) > _MOST_VALUES:
            raise ConfigError(f"{self._name}: more than {_MOST_VALUES:,} values: aliases (*) of lists of aliases?")
        if isinstance(node, yaml.MappingNode):
            mapping: dict[object, object] = {}
            pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
            for key_node, value_node in pairs:
                key, place = self._plain(key_node), self._place(key_node.start_mark.line)
                if key in mapping:
                    raise ConfigError(f"{place}: duplicate key '{key}'")
                mapping[key] = self._build(value_node, (*location, key))
                self.places[(*location, key)] = place
            return mapping
        if isinstance(node, yaml.SequenceNode):
            children: list[yaml.Node] = node.value
            return [self._build(child, (*location, index)) for index, child in enumerate(children)]
        if node.value == "" and node.tag == "tag:yaml.org,2002:null":
            self.blank.add(location)
        return self._plain(node)

    def _plain(self, node: yaml.Node) -> str | int:
        """A value that is neither a mapping nor a list; as a key it is a word or number."""
        place = self._place(node.start_mark.line)
        if not isinstance(node, yaml.ScalarNode):
            raise ConfigError(f"{place}: a key is one word or number, not a list or mapping")
        if node.tag == "tag:yaml.org,2002:merge":
            raise ConfigError(f"{place}: '<<' is not supported; extend another file with extends: FILE.yaml")
        try:
            value: str | int = _Loader("").construct_object(node, deep=True)
        except (
            ValueError,
            KeyError,
            AttributeError,
        ):  # the text does not fit its tag, or has too many digits
            raise ConfigError(f"{place}: not valid YAML: the value does not match its type") from None
        refuse_half_characters(value, place)
        return value


def refuse_half_characters(value: object, place: str) -> None:
    """Refuse text that UTF-8 cannot write: halves of characters (surrogates), which an escape may name."""
    if isinstance(value, str) and not value.isascii() and re.search("[\ud800-\udfff]", value):
        raise ConfigError(
            f"{place}: the text has half a character, such as \\ud800: write the character itself",
            kind="half a character",
            place=place,
        )
