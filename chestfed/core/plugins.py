"""Plug-ins: named parts with options of their own, which anybody may bring.

A catalogue holds one kind of part (algorithms, objectives, networks). A part is found in three ways:

* built in: every declaration at the top level of a module of the catalogue's package;
* by entry point: an installed distribution that names its declaration in the catalogue's group;
* by reference, `package.module:Name`, from the folder the command runs in or from anything installed.

In a configuration a part is its name, or a mapping of its name and its options: `{name: fedprox, prox: 0.01}`. The
options are checked by the part's own `Options` model, so a key that another part would take is refused.
"""

from __future__ import annotations

import ast
import difflib
import dis
import hashlib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from functools import cache, cached_property, lru_cache, partial
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, Protocol, TypeVar

from pydantic import Field
from pydantic_core import core_schema

from chestfed.core.config import StrictModel
from chestfed.core.errors import ChestfedError, ConfigError


class Options(StrictModel):
    """Base of every part's options. `name` is the part's name or reference, as in the configuration."""

    name: str = Field("", description="a built-in name, an installed one, or package.module:Name")


class Declaration(Protocol):
    """What a catalogue needs of a declaration."""

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
    package of the group's name; `group` is the entry point group of the installed ones. `adapt` makes a declaration of
    another object that a reference names, or returns None: the networks take any factory.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        declaration: type[Declared],
        adapt: Callable[[str, Any], Declared | None] | None = None,
        *,
        packages: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.group = group
        self._packages = packages or (group,)
        self._declaration = declaration
        self._adapt = adapt
        self._registered: dict[str, Declared] = {}

    @cached_property
    def built_in(self) -> dict[str, Declared]:
        """The built-in parts by name, in the order of the modules' names."""
        found: dict[str, Declared] = {}
        for package in self._packages:
            for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
                module = importlib.import_module(f"{package}.{info.name}")
                for declared in self._declared_in(module):
                    found.setdefault(declared.name, declared)
        return found

    @property
    def installed(self) -> dict[str, metadata.EntryPoint]:
        """Entry points of the group by name; `find` refuses a name that is built in or that two packages claim."""
        return {name: points[0] for name, points in self._claims().items() if name not in self.built_in}

    def _claims(self) -> dict[str, list[metadata.EntryPoint]]:
        """The different entry points of each name."""
        return _entry_points(self.group, tuple(sys.path))

    def register(self, declared: Declared) -> str:
        """Make a declaration known by its name in this process, as from a notebook; returns the name.

        Raises
        ------
        ConfigError
            If a built-in or installed part has the name.
        """
        if declared.name in self.built_in or declared.name in self.installed:
            raise ConfigError(f"{self.kind} '{declared.name}': the name is taken; choose another")
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
            return self._as_declaration(name, _load(name, point.value.partition(":")[0]), point.value.partition(":")[2])
        if ":" in name:
            module, _, attribute = name.partition(":")
            return self._as_declaration(name, _load(name, module), attribute)
        close = difflib.get_close_matches(name, self.names, 1)
        hint = f"; did you mean '{close[0]}'?" if close else "."
        raise ConfigError(
            f"unknown {self.kind} '{name}'{hint} Known: {', '.join(self.names)}; or package.module:Name for your own"
        )

    def owners(self, key: str) -> list[str]:
        """Names of the built-in parts that have this option."""
        return [name for name, declared in self.built_in.items() if key in declared.options.model_fields]

    def digest(self, name: str) -> str | None:
        """What identifies a plug-in's code, see `source_digest`; None for a built-in part."""
        if name in self.built_in:
            return None
        if name in self._registered:
            return _digest_of_parts(self.kind, name, self._registered[name])
        target = self.installed[name].value if name in self.installed else name
        return source_digest(_load(name, target.partition(":")[0]))

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
        own = [value for value in vars(module).values() if isinstance(value, self._declaration)]
        return list({id(value): value for value in own}.values())

    def _as_declaration(self, name: str, module: ModuleType, attribute: str) -> Declared:
        value: Any = module
        for part in attribute.split(".") if attribute else []:
            if not hasattr(value, part):
                raise ConfigError(f"{self.kind} '{name}': {module.__name__} has no '{attribute}'{self._hint(module)}")
            value = getattr(value, part)
        if isinstance(value, self._declaration):
            return value
        declared = self._declared_in(module)
        builders = [entry for entry in declared if getattr(entry, "rule", None) is value]
        if len(builders) == 1 or (not attribute and len(declared) == 1):
            return builders[0] if builders else declared[0]
        adapted = None if self._adapt is None else self._adapt(name, value)
        if adapted is None:
            raise ConfigError(
                f"{self.kind} '{name}': {module.__name__}:{attribute} is not an instance of "
                f"{self._declaration.__name__}{self._hint(module)}"
            )
        return adapted

    def _hint(self, module: ModuleType) -> str:
        """The references to what a module declares, for a message."""
        own = [key for key, value in vars(module).items() if isinstance(value, self._declaration)]
        return f"; {module.__name__} declares {', '.join(f'{module.__name__}:{key}' for key in own)}" if own else ""


class Choice:
    """Marks a configuration field that holds one part of a catalogue, by name or as a mapping with its options."""

    def __init__(self, catalogue: Catalogue[Any], *, optional: bool = False) -> None:
        self.catalogue = catalogue
        self._optional = optional

    def validate(self, value: Any) -> Options | None:
        """The part's options, checked by the part's own model; None where nothing is chosen and need not be."""
        if isinstance(value, Options) or (value is None and self._optional):
            return value
        given = {"name": value} if isinstance(value, str) else value
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise ValueError(f"needs the name of one {self.catalogue.kind}, or a mapping with 'name' and its options")
        return self._declared(given["name"]).options.model_validate(given)

    def model_of(self, value: Any) -> type[Options] | None:
        """The options' model that a value would be checked by; None if its name is not known."""
        name = value.get("name") if isinstance(value, dict) else value
        try:
            return self.catalogue.find(name).options if isinstance(name, str) else None
        except ConfigError:
            return None

    def _declared(self, name: str) -> Any:
        try:
            return self.catalogue.find(name)
        except ConfigError as error:
            raise ValueError(str(error)) from None

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
        """A name, one object per built-in part, told apart by `name`, or an object with a reference and any options."""
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


@lru_cache(maxsize=32)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, list[metadata.EntryPoint]]:
    """Entry points by name; `path` is `sys.path`, which decides what is installed. One found twice counts once."""
    found: dict[str, dict[tuple[str, str], metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=group):
        found.setdefault(point.name, {}).setdefault((_owner(point), point.value), point)
    return {name: list(points.values()) for name, points in found.items()}


def _owner(point: metadata.EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"package '{point.dist.name}'"


class NotAllowedError(ChestfedError):
    """A reference that whoever runs this process has not allowed."""


_allowed: ContextVar[Collection[str] | None] = ContextVar("allowed", default=None)


@contextmanager
def only(references: Collection[str]) -> Iterator[None]:
    """Take no references but these, from a configuration that somebody else has written.

    A reference can name any function of any installed package, and a network's is called with arguments of the
    configuration: whoever may write one can run what they like.
    """
    token = _allowed.set(references)
    try:
        yield
    finally:
        _allowed.reset(token)


_pinned: ContextVar[bool] = ContextVar("pinned", default=False)


@contextmanager
def pinned() -> Iterator[None]:
    """Keep plug-ins as they are in memory, whatever happens to their files: what is under way has been identified."""
    token = _pinned.set(True)
    try:
        yield
    finally:
        _pinned.reset(token)


@contextmanager
def _working_folder_first() -> Iterator[None]:
    """`python -m` finds modules of the working folder, an installed command does not: here both do."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


@dataclass(frozen=True)
class _Loaded:
    """A plug-in's module as it was imported: from which working folder, and the state of its source files."""

    module: ModuleType
    folder: Path
    files: dict[Path, tuple[int, int]]
    digest: str

    def is_current(self) -> bool:
        """Whether the module in memory is still the code on disk that its name stands for."""
        if sys.modules.get(self.module.__name__) is not self.module or _states(self.files) != self.files:
            return False
        return self.folder == Path.cwd() or _place(self.module.__name__) == getattr(self.module, "__file__", None)


_loaded: dict[str, _Loaded] = {}


def _load(name: str, module: str) -> ModuleType:
    """Import a plug-in's module; again if its files have changed, so that what runs is what is identified."""
    allowed = _allowed.get()
    if ":" in name and allowed is not None and name not in allowed:
        raise NotAllowedError(f"'{name}' is not among the plug-ins that are allowed here")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(f"'{name}': module '{module}' is of Python's standard library, which has no plug-ins")
    with _working_folder_first():
        known = _loaded.get(module)
        if known is not None and (_pinned.get() or known.is_current()):
            return known.module
        if known is not None:
            own = {str(path) for path in known.files}
            for other in [key for key, part in sys.modules.items() if getattr(part, "__file__", None) in own]:
                del sys.modules[other]
            importlib.invalidate_caches()
        try:
            found = importlib.import_module(module)
        except Exception as error:
            top = module.partition(".")[0]
            missing = isinstance(error, ModuleNotFoundError) and error.name == top
            advice = f". Run the command in the folder that contains {top}, or install its package" if missing else ""
            if module.endswith(".py") and isinstance(error, ModuleNotFoundError):
                advice = ". A module's name is without .py"
            why = f"{type(error).__name__}: {error}{advice}"
            raise ConfigError(f"'{name}': module '{module}' cannot be imported: {why}") from error
        _loaded[module] = _Loaded(
            found, Path.cwd(), _states([] if _distribution(found) else _sources(found)[1]), source_digest(found)
        )
        return found


def modules_in_use() -> list[str]:
    """The modules of the plug-ins that this process has imported."""
    return list(_loaded)


def _states(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Time and size of files; those that are gone have none."""
    states = {path: path.stat() for path in files if path.exists()}
    return {path: (state.st_mtime_ns, state.st_size) for path, state in states.items()}


def _place(module: str) -> str | None:
    """The file that a top-level module would be imported from now."""
    spec = PathFinder.find_spec(module.partition(".")[0])
    return None if spec is None or "." in module else spec.origin


def source_digest(module: ModuleType) -> str:
    """What identifies the code of a plug-in.

    Name and version of its distribution where the module was installed from one; otherwise a digest of its source: the
    file of the module and every file beside it that it imports, or all files of its top-level package.
    """
    known = _loaded.get(module.__name__)
    if _pinned.get() and known is not None and known.module is module:
        return known.digest
    distribution = _distribution(module)
    if distribution is not None:
        return distribution
    root, files = _sources(module)
    digest = hashlib.blake2b(digest_size=8)
    for part in files:
        digest.update(part.relative_to(root).as_posix().encode() + b"\0" + part.read_bytes() + b"\0")
    return digest.hexdigest()


def _file_of(module: ModuleType) -> Path:
    file = getattr(module, "__file__", None)
    if file is None:
        raise ConfigError(
            f"plug-in module '{module.__name__}' has no source file, so its runs cannot be "
            f"identified; put it into a file"
        )
    return Path(file).resolve()


def _distribution(module: ModuleType) -> str | None:
    """Name and version of the distribution that a module was installed from; None for other code."""
    if not {"site-packages", "dist-packages"} & set(_file_of(module).parts):
        return None
    names = _distributions().get(module.__name__.partition(".")[0], [])
    return f"{names[0]} {metadata.version(names[0])}" if names else None


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _sources(module: ModuleType) -> tuple[Path, list[Path]]:
    """The folder and the files that a plug-in's code is in."""
    path = _file_of(module)
    package = sys.modules[module.__name__.partition(".")[0]]
    root = Path(package.__file__ or path).resolve().parent
    return root, sorted(root.rglob("*.py")) if hasattr(package, "__path__") else sorted(_with_imports(path))


def _digest_of_parts(kind: str, name: str, declared: Any) -> str:
    """The digest of a declaration that was made in this process.

    That of the modules that its parts come from or reach; for what was defined in a notebook or a script the source of
    every function that the parts reach there, fields and plain values.
    """
    parts = [value for value in vars(declared).values() if not isinstance(value, str)]
    try:
        found = Definitions(parts)
    except (OSError, TypeError):
        raise ConfigError(f"{kind} '{name}': its source cannot be read; put it into a file and import it") from None
    direct = {part.__module__ for part in parts if inspect.isclass(part) or inspect.isfunction(part)}
    digests = [_digest_in_memory(sys.modules[one]) for one in sorted(found.modules) if _is_own(one, one in direct)]
    return hashlib.blake2b("\0".join([*digests, *sorted(found.texts)]).encode(), digest_size=8).hexdigest()


def _is_own(module: str, direct: bool) -> bool:
    """Whether a module's code may change a result: files of the user, and distributions that a part comes from."""
    known = {"__main__", "chestfed", *sys.stdlib_module_names}
    if module.partition(".")[0] in known or not getattr(sys.modules.get(module), "__file__", None):
        return False
    return direct or _distribution(sys.modules[module]) is None


#: By module as it was imported (its specification is another after a reload): its digest when that was first asked for.
_in_memory: dict[str, tuple[Any, str]] = {}


def _digest_in_memory(module: ModuleType) -> str:
    """The digest of a module's source, which must still be what runs."""
    now = source_digest(module)
    spec, digest = _in_memory.setdefault(module.__name__, (module.__spec__, now))
    if _pinned.get():
        return digest
    if spec is module.__spec__ and digest != now:
        raise ConfigError(
            f"module '{module.__name__}', or one that it imports, has changed since it was imported, and the old code "
            "would run: restart the notebook or script, or reload it with importlib.reload"
        )
    _in_memory[module.__name__] = module.__spec__, now
    return now


_PLAIN = (str, bytes, int, float, complex, type(None))


class Definitions:
    """What was defined in a notebook or a script and is reached from some parts: sources and plain values.

    `texts` change if one of these does. `modules` are the other modules that are reached.

    Raises
    ------
    OSError, TypeError
        If a source cannot be read.
    """

    def __init__(self, parts: Iterable[Any]) -> None:
        self.texts: list[str] = []
        self.modules: set[str] = set()
        self._seen: dict[int, Any] = {}
        for part in parts:
            self._add(part)

    def _add(self, value: Any) -> None:
        if isinstance(value, _PLAIN) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, ModuleType):
            self.modules.add(value.__name__)
        elif inspect.isclass(value) or inspect.isfunction(value):
            value = inspect.unwrap(value)
            if value.__module__ != "__main__":
                self.modules.add(value.__module__)
            elif inspect.isclass(value):
                self._add_class(value)
            elif value.__code__.co_filename != "<string>":  # a dataclass makes these
                self._add_function(value)
        else:
            for part in _inside(value):
                self._add(part)

    def _add_class(self, value: type) -> None:
        own = {key: part for key, part in vars(value).items() if not key.startswith("__") or inspect.isfunction(part)}
        schema = getattr(value, "model_json_schema", None)
        fields = inspect.get_annotations(value) if schema is None else schema()
        self.texts.append(repr((value.__qualname__, fields, _plain(own))))
        for part in (*value.__bases__, *own.values()):
            self._add(part)

    def _add_function(self, value: FunctionType) -> None:
        outer = {key: value.__globals__[key] for key in _names(value.__code__) if key in value.__globals__}
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        outer |= {key: cell.cell_contents for key, cell in cells}
        outer |= {"": [value.__defaults__, value.__kwdefaults__]}
        self.texts.append(inspect.getsource(value) + repr(_plain(outer)))
        for part in outer.values():
            self._add(part)


def _names(code: CodeType) -> Iterator[str]:
    """The global names that a function uses, and the functions and comprehensions in it."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)


def _inside(value: Any) -> Iterable[Any]:
    """What a value that is neither a function nor a class holds."""
    match value:
        case Mapping():
            return value.values()
        case list() | tuple() | set() | frozenset():
            return value
        case staticmethod() | classmethod():
            return (value.__func__,)
        case property():
            return (value.fget, value.fset, value.fdel)
        case cached_property() | partial():
            return (value.func, *([*value.args, *value.keywords.values()] if isinstance(value, partial) else ()))
    return (type(value), *vars(value).values()) if is_dataclass(value) else ()


def _plain(value: Any) -> Any:
    """The plain values in a value, in an order that is always the same; None in the place of others."""
    if isinstance(value, _PLAIN):
        return value
    if hasattr(value, "tolist"):  # a tensor or an array
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(vars(value))
    if isinstance(value, Mapping):
        return sorted(repr((_plain(key), _plain(part))) for key, part in value.items())
    if isinstance(value, set | frozenset):
        return sorted(repr(_plain(part)) for part in value)
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else None


def _with_imports(file: Path) -> set[Path]:
    """A file, and the files beside it (or packages) that it imports, directly or not."""
    found, waiting = {file}, [file]
    while waiting:
        tree = ast.parse(waiting.pop().read_bytes())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        for name in names:
            beside = file.parent / name.partition(".")[0]
            near = [beside.with_suffix(".py")] if beside.with_suffix(".py").is_file() else sorted(beside.rglob("*.py"))
            waiting += [path for path in near if path not in found]
            found |= set(near)
    return found
