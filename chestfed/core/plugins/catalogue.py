"""Plug-ins: named parts with options of their own, which anybody may bring.

A catalogue holds one kind of part (algorithms, objectives, networks). A part is found in three ways:

* built in: every declaration at the top level of a module of the catalogue's packages, or of a leaf's;
* by entry point: an installed distribution that names its declaration in the catalogue's group;
* by reference, `package.module:Name`, from the folder the command runs in or from anything installed.

In a configuration a part is its name, or a mapping of its name and its options: `{name: fedprox, prox: 0.01}`. The
options are checked by the part's own `Options` model, so a key that another part would take is refused.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import Field
from pydantic_core import core_schema

from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError, UnknownNameError, nearest
from chestfed.core.leaves import list_packages
from chestfed.core.plugins.code import identify_object
from chestfed.core.plugins.loading import load_module


class Options(StrictModel):
    """Base of every part's options. `name` is the part's name or reference, as in the configuration."""

    own_keys: ClassVar[frozenset[str]] = frozenset({"name"})

    name: str = Field("", description="a built-in name, an installed one, or package.module:Name")


class Declaration(Protocol):
    """A declaration as a catalogue needs it."""

    @property
    def name(self) -> str:
        """The name in configurations and tables."""

    @property
    def options(self) -> type[Options]:
        """The model of its options."""


Declared = TypeVar("Declared", bound=Declaration)


class Catalogue(Generic[Declared]):
    """All parts of one kind, which messages call `kind`.

    The built-in ones are declared by objects of the class `declaration` in the modules of `packages`, by default the
    package of the group's name, and in those of the leaves that name this `kind`. `group` is the entry point group of
    the installed ones. `adapt` makes a declaration of another object that a reference names, or returns None: the
    networks take any factory. `example` shows what to write, to whoever names something else.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        declaration: type[Declared],
        adapt: Callable[[str, object], Declared | None] | None = None,
        *,
        packages: Sequence[str] | None = None,
        example: str = "",
    ) -> None:
        self._example = example
        self.kind = kind
        self.group = group
        self._packages = (group,) if packages is None else packages
        self._declaration = declaration
        self._adapt = adapt
        self._registered: dict[str, Declared] = {}
        self._codes: dict[str, str] = {}

    @cached_property
    def built_in(self) -> dict[str, Declared]:
        """The built-in parts by name, in the order of the modules' names."""
        declarations: dict[str, Declared] = {}
        for package in (*self._packages, *list_packages(self.kind)):
            for module in _list_modules(package):
                for declared in self._declared_in(module):
                    declarations.setdefault(declared.name, declared)
        return declarations

    @property
    def installed(self) -> dict[str, metadata.EntryPoint]:
        """Entry points of the group by name; `find` refuses a name that is built in or that two packages claim."""
        return {name: points[0] for name, points in self._claims().items() if name not in self.built_in}

    def _claims(self) -> dict[str, list[metadata.EntryPoint]]:
        """The different entry points of each name."""
        return _entry_points(self.group, tuple(sys.path))

    def register(self, declared: Declared) -> str:
        """Make a declaration known by its name in this process, as from a notebook; returns the name.

        Its code is identified here, once for all runs that follow until it is registered again.

        Raises
        ------
        ConfigError
            If a built-in or installed part has the name, or its file has changed since it was imported.
        """
        if declared.name in self.built_in or declared.name in self.installed:
            text = f"{self.kind} '{declared.name}': the name is taken; choose another"
            raise ConfigError(text, kind="name taken", part=declared.name)
        repeated = declared.name in self._registered
        self._codes[declared.name] = identify_object(self.kind, declared, repeated=repeated)
        self._registered[declared.name] = declared
        return declared.name

    @property
    def names(self) -> list[str]:
        """Built-in, installed and registered names."""
        return [*self.built_in, *self.installed, *self._registered]

    def find(self, name: str) -> Declared:
        """The part with this name or reference.

        Raises
        ------
        ConfigError
            If there is none, with the nearest name; if several packages claim the name, or one claims a built-in name;
            if the module cannot be imported or declares none of that name.
        """
        self._refuse_rivals(name)
        if name in self.built_in or name in self._registered:
            return self.built_in.get(name) or self._registered[name]
        if name in self.installed:
            point = self.installed[name]
            return self._as_declaration(name, *self._imported(name, point.value))
        if ":" in name:
            return self._as_declaration(name, *self._imported(name, name))
        stem = name.removeprefix("./").removesuffix(".py")
        if stem.replace("/", "_").isidentifier() and Path(f"{stem}.py").is_file():
            meant = f"{stem.replace('/', '.')}:NAME"
            text = f"unknown {self.kind} '{name}'; if it is in {stem}.py, write {meant} with its name there"
            raise ConfigError(text, kind=f"unknown {self.kind}", name=name, file=f"{stem}.py", suggestion=meant)
        close = nearest(name, self.names)
        hint = f"; did you mean '{close}'?" if close else "."
        raise ConfigError(
            f"unknown {self.kind} '{name}'{hint} Known: {', '.join(self.names)}; or package.module:Name for your own",
            kind=f"unknown {self.kind}",
            name=name,
            suggestion=close,
        )

    def owners(self, key: str) -> list[str]:
        """Names of the built-in parts that have this option."""
        return [name for name, declared in self.built_in.items() if key in declared.options.model_fields]

    def digest(self, name: str) -> str | None:
        """Identity of a plug-in's code, see `chestfed.core.plugins.code`; None for a built-in part."""
        if name in self.built_in:
            return None
        if name in self._registered:
            return self._codes[name]
        target = self.installed[name].value if name in self.installed else name
        return load_module(name, target.partition(":")[0]).code

    @staticmethod
    def _imported(name: str, target: str) -> tuple[ModuleType, str]:
        """The module of a reference, and the name in it."""
        module, _, attribute = target.partition(":")
        return load_module(name, module).module, attribute

    def _refuse_rivals(self, name: str) -> None:
        """Which part a name means must not depend on the order of the installed packages."""
        points = self._claims().get(name, [])
        claims = "; ".join(f"{_owner(point)} ({point.value})" for point in points)
        if points and name in self.built_in:
            raise ConfigError(
                f"{self.kind} '{name}' is built in, and {claims} claims its name: choose another name in that "
                "package's entry points, or uninstall it"
            )
        if len(points) > 1:
            raise ConfigError(f"{len(points)} {self.kind}s are called '{name}': {claims}. Rename or uninstall one")

    def _declared_in(self, module: ModuleType) -> list[Declared]:
        members: list[object] = list(vars(module).values())
        return list({id(value): value for value in members if isinstance(value, self._declaration)}.values())

    def _as_declaration(self, name: str, module: ModuleType, attribute: str) -> Declared:
        value: object = module
        for part in attribute.split(".") if attribute else []:
            if not hasattr(value, part):
                raise ConfigError(f"{self.kind} '{name}': {module.__name__} has no '{attribute}'{self._hint(module)}")
            value = getattr(value, part)
        if isinstance(value, self._declaration):
            return self._refuse_other_options(name, value)
        declared = self._declared_in(module)
        builders = [entry for entry in declared if getattr(entry, "rule", None) is value]
        if len(builders) == 1 or (not attribute and len(declared) == 1):
            return self._refuse_other_options(name, builders[0] if builders else declared[0])
        adapted = None if self._adapt is None else self._adapt(name, value)
        if adapted is None:
            what = f"{module.__name__}{':' * bool(attribute)}{attribute} is {_describe(value)}"
            text = f"{self.kind} '{name}': {what}; expected an instance of {self._declaration.__name__}"
            example = f". {self._example}" if self._example else ""
            raise ConfigError(f"{text}{self._hint(module)}{example}", kind="not a declaration")
        return adapted

    def _refuse_other_options(self, name: str, declared: Declared) -> Declared:
        options: object = getattr(declared, "options", Options)
        if not isinstance(options, type) or not issubclass(options, Options):
            shown = getattr(options, "__name__", repr(options))
            text = f"{self.kind} '{name}': options {shown} must be a class derived from chestfed.plugins.Options"
            raise ConfigError(text, kind="not options", part=name)
        return declared

    def _hint(self, module: ModuleType) -> str:
        """The references to what a module declares, for a message."""
        names = [key for key, value in vars(module).items() if isinstance(value, self._declaration)]
        return f"; {module.__name__} declares {', '.join(f'{module.__name__}:{key}' for key in names)}" if names else ""


def _describe(value: object) -> str:
    """Words for what a reference names in place of a declaration."""
    if isinstance(value, type):
        bases = [base.__name__ for base in value.__bases__ if base is not object]
        return f"a class{' derived from ' if bases else ''}{', '.join(bases)}"
    if isinstance(value, ModuleType):
        return "a module"
    return "a function" if isinstance(value, FunctionType) else f"an object of class {type(value).__name__}"


class Choice:
    """Marks a configuration field that holds one part of a catalogue, by name or as a mapping with its options."""

    def __init__(self, catalogue: Catalogue[Declaration], *, optional: bool = False) -> None:
        self.catalogue = catalogue
        self._optional = optional

    def validate(self, value: object) -> Options | None:
        """The part's options, checked by the part's own model; None where nothing is chosen and need not be."""
        if isinstance(value, Options) or (value is None and self._optional):
            return value
        given = {"name": value} if isinstance(value, str) else value
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise ValueError(f"needs the name of one {self.catalogue.kind}, or a mapping with 'name' and its options")
        return self._declared(given["name"]).options.model_validate(given)

    def find_model(self, value: object) -> type[Options] | None:
        """The options' model that a value would be checked by; None if its name is not known."""
        name = value.get("name") if isinstance(value, dict) else value
        try:
            return self.catalogue.find(name).options if isinstance(name, str) else None
        except ConfigError:
            return None

    def _declared(self, name: str) -> Declaration:
        try:
            return self.catalogue.find(name)
        except ConfigError as error:
            raise UnknownNameError(str(error), str(error.fields.get("suggestion", ""))) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Checked by `validate`, dumped as the options' model does."""
        return core_schema.no_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value, info: (
                    None if value is None else value.model_dump(mode=info.mode, exclude_unset=info.exclude_unset)
                ),
                info_arg=True,
            ),
        )

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        """A name, an object per built-in part, distinguished by `name`, or one with a reference and any options."""
        objects: list[dict[str, Any]] = []
        for name, declared in self.catalogue.built_in.items():
            part = handler.resolve_ref_schema(handler(declared.options.__pydantic_core_schema__))
            properties = {**part["properties"], "name": {"const": name, "description": "chooses this one"}}
            required = ["name", *part.get("required", ())]
            about = {"description": ""} if declared.options is Options else {}
            objects.append({**part, **about, "title": name, "properties": properties, "required": required})
        other = {
            "type": "string",
            "not": {"enum": list(self.catalogue.built_in)},
            "description": "an installed name, or package.module:Name",
        }
        plugin = {
            "type": "object",
            "description": "A plug-in; further keys are its own options.",
            "properties": {"name": other},
            "required": ["name"],
        }
        nothing = [{"type": "null"}] if self._optional else []
        return {"anyOf": [{"type": "string", "examples": self.catalogue.names}, *objects, plugin, *nothing]}


def _list_modules(name: str) -> list[ModuleType]:
    """The modules of a package; a module alone is itself."""
    package = importlib.import_module(name)
    if not hasattr(package, "__path__"):
        return [package]
    return [importlib.import_module(f"{name}.{info.name}") for info in pkgutil.iter_modules(package.__path__)]


@lru_cache(maxsize=32)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, list[metadata.EntryPoint]]:
    """Entry points by name; `path` is `sys.path`, which decides what is installed. One found twice counts once."""
    points_by_name: dict[str, dict[tuple[str, str], metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=group):
        points_by_name.setdefault(point.name, {}).setdefault((_owner(point), point.value), point)
    return {name: list(points.values()) for name, points in points_by_name.items()}


def _owner(point: metadata.EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"package '{point.dist.name}'"
