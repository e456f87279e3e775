"""Importing the modules of plug-ins: those that are allowed, and again when their files have changed."""

from __future__ import annotations

import importlib
import linecache
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from chestfed.core.errors import ChestfedError, ConfigError, first_line
from chestfed.core.plugins.code import find_sources, identify_code, is_released


class NotAllowedError(ChestfedError):
    """A reference that whoever runs this process has not allowed."""


_allowed: ContextVar[Collection[str] | None] = ContextVar("allowed", default=None)


@contextmanager
def allow_references(references: Collection[str]) -> Iterator[None]:
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
def freeze_plugins() -> Iterator[None]:
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
class LoadedModule:
    """A plug-in's module as it was imported: from which working folder, its files' states, and its code's identity."""

    module: ModuleType
    folder: Path
    files: dict[Path, tuple[int, int]]
    code: str

    def is_current(self) -> bool:
        """Whether the module in memory is still the code on disk that its name stands for."""
        if sys.modules.get(self.module.__name__) is not self.module or _states(self.files) != self.files:
            return False
        return self.folder == Path.cwd() or _place(self.module.__name__) == getattr(self.module, "__file__", None)


_loaded: dict[str, LoadedModule] = {}


def load_module(name: str, module: str) -> LoadedModule:
    """Import a plug-in's module; again if its files have changed, so that what runs is what is identified."""
    allowed = _allowed.get()
    if ":" in name and allowed is not None and name not in allowed:
        raise NotAllowedError(f"'{name}' is not among the plug-ins that are allowed here")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(f"'{name}': module '{module}' is of Python's standard library, which has no plug-ins")
    if module.startswith(".") or {"/", "\\"} & set(module):
        text = f"'{name}': write module:NAME, not a path: run in the folder of {Path(module).name}.py"
        raise ConfigError(text, kind="path of a plug-in")
    if module == "__main__":
        raise ConfigError(f"'{name}': pass the declaration itself, as in chestfed.run(algorithm=MINE)")
    with _working_folder_first():
        known = _loaded.get(module)
        if known is not None and (_pinned.get() or known.is_current()):
            return known
        if known is not None:
            files = {str(path) for path in known.files}
            for other in [key for key, part in sys.modules.items() if getattr(part, "__file__", None) in files]:
                del sys.modules[other]
            importlib.invalidate_caches()
        try:
            imported = importlib.import_module(module)
        except (Exception, SystemExit) as error:
            top = module.partition(".")[0]
            missing = isinstance(error, ModuleNotFoundError) and error.name == top
            advice = f". Run the command in the folder that contains {top}, or install its package" if missing else ""
            if module.endswith(".py") and isinstance(error, ModuleNotFoundError):
                advice = ". A module's name is without .py"
            *_, frame = traceback.extract_tb(error.__traceback__)
            place = "" if missing or frame.filename.startswith("<") else f"{Path(frame.filename).name}:{frame.lineno}: "
            why = f"{place}{type(error).__name__}: {error}{advice}"
            raise ConfigError(f"'{name}': module '{module}' cannot be imported: {why}") from error
        sources = [] if is_released(imported) else find_sources(imported).values()
        _loaded[module] = LoadedModule(imported, Path.cwd(), _states(sources), identify_code(imported))
        return _loaded[module]


def modules_in_use() -> list[str]:
    """The modules of the plug-ins that this process has imported."""
    return list(_loaded)


def find_fault(error: BaseException) -> str:
    """The line of a plug-in's own code that an error came from, and the error: "mine.py:7, in loss: ..."; or empty."""
    tops = {module.partition(".")[0] for module in _loaded} - {"chestfed"}
    files = {str(file) for loaded in _loaded.values() for file in loaded.files}
    fault = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_filename in files or str(frame.f_globals.get("__name__")).partition(".")[0] in tops:
            name = Path(code.co_filename).name
            text = linecache.getline(code.co_filename, line).strip()
            fault = f"{name}:{line}, in {code.co_name}: {type(error).__name__}: {first_line(error)}\n    {text}"
    return fault


def codes_in_use() -> dict[str, str]:
    """The identities of the code of these modules, as it was when they were imported last."""
    return {module: loaded.code for module, loaded in _loaded.items()}


def _states(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Time and size of files; those that are gone have none."""
    states = {path: path.stat() for path in files if path.exists()}
    return {path: (state.st_mtime_ns, state.st_size) for path, state in states.items()}


def _place(module: str) -> str | None:
    """The file that a top-level module would be imported from now."""
    spec = PathFinder.find_spec(module.partition(".")[0])
    return None if spec is None or "." in module else spec.origin
