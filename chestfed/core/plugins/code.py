"""Identity of the code of a plug-in, so that results of other code are not taken for its own.

* Of a distribution that was installed from an index: its name and version.
* Of other code in files: a digest of the files, see `find_sources`. That is also code installed from a folder, a
  repository or a file, which may change under the same version.
* Of a declaration that was passed as an object and stands in no file, as in a notebook: the `version` that it declares.
  Without one nothing identifies it, and its results are not used again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from chestfed.core.errors import ChestfedWarning, ConfigError

_SUFFIXES: Final = (".py", ".so", ".pyd")
_INSTALLED: Final = {"site-packages", "dist-packages"}
#: Where a file may import what its text does not name.
_DYNAMIC: Final = re.compile(
    r"\b(__import__|import_module)\b|\b(exec|run_path|run_module|iter_modules)\s*\(|\bsys\.path\b"
)


@dataclass(frozen=True)
class Versioned:
    """Base of declarations that may be passed as objects.

    Attributes
    ----------
    version
        Identifies the code where no file does, as in a notebook: change it with the code. Runs of one name and version
        share their results.
    """

    version: str = field(default="", kw_only=True)
    _made: float = field(default_factory=time.time, init=False, repr=False, compare=False)


def identify_code(module: ModuleType) -> str:
    """Name and version of the distribution that a module belongs to, or the digest of its files.

    Raises
    ------
    ConfigError
        If the module has no file.
    """
    if is_released(module):
        return ", ".join(f"{part.metadata['Name']} {part.version}" for part in _find_distributions(module))
    digest = hashlib.blake2b(digest_size=8)
    for name, file in sorted(find_sources(module).items()):
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def is_released(module: ModuleType) -> bool:
    """Whether a module was installed from an index, where other code has another version."""
    parts = _find_distributions(module)
    return bool(parts) and all(part.read_text("direct_url.json") is None for part in parts)


def find_sources(module: ModuleType) -> dict[str, Path]:
    """The files that a module's code is in, by their relative names: those of its distribution or top-level package.

    Of a module that is in neither its own file, and the files and packages in the same folder whose names occur in the
    text of one of these files; all of them, if that imports by a computed name or changes `sys.path`.
    """
    path = _get_file(module)
    if parts := _find_distributions(module):
        listed = {str(name): Path(str(name.locate())) for part in parts for name in part.files or ()}
        return {name: file for name, file in listed.items() if file.suffix in _SUFFIXES and file.is_file()}
    package = sys.modules.get(_get_top_name(module))
    if folders := [Path(folder).resolve() for folder in getattr(package, "__path__", ())]:
        return {name: file for folder in folders for name, file in _list_package(folder).items()}
    sources, waiting = {path.name: path}, [path]
    while waiting and not _INSTALLED & set(path.parts):
        text = waiting.pop().read_text(encoding="utf-8", errors="replace")
        beside = _list_beside(path.parent, None if _DYNAMIC.search(text) else set(re.findall(r"\w+", text)))
        waiting += [file for name, file in beside.items() if name not in sources and file.suffix == ".py"]
        sources |= beside
    return sources


def identify_object(kind: str, declared: Any, *, repeated: bool) -> str:
    """Identify the code of a declaration that was passed as an object.

    `repeated`: one of its name was passed before. A script may have changed what it uses since, as in a loop.

    Raises
    ------
    ConfigError
        If a file has changed since the declaration was made: what runs is not what is in the file.
    """
    version, homes = getattr(declared, "version", ""), _find_homes(declared)
    if repeated and not version and any(home.__name__ == "__main__" for home in homes):
        homes = []
    codes = [_identify_imported(home, declared) for home in homes]
    if version:
        codes.append(f"version {version}")
    if codes:
        return ", ".join(codes)
    text = (
        f"{kind} '{declared.name}': neither a file nor a version identifies its code, so its results will not be used "
        'again or resumed. Declare version="1", and another version whenever the code changes; or import it from a file'
    )
    warnings.warn(text, ChestfedWarning, stacklevel=2)
    return f"not identified {secrets.token_hex(8)}"


def _find_homes(declared: object) -> list[ModuleType]:
    """The modules with a file that have a declaration at their top level; the script only if no other has it."""
    modules = [
        part for name, part in sorted(sys.modules.items()) if isinstance(part, ModuleType) and part.__name__ == name
    ]
    homes = [part for part in modules if any(value is declared for value in list(vars(part).values()))]
    homes = [part for part in homes if Path(getattr(part, "__file__", None) or "").is_file()]
    interactive = hasattr(sys, "ps1")  # there the main module is more than its file
    return [part for part in homes if part.__name__ != "__main__"] or ([] if interactive else homes)


#: Code of the script of this process: what is edited after its first run does not run in this process.
_script: list[str] = []


def _identify_imported(module: ModuleType, declared: Any) -> str:
    """The code of a module that others imported; of a script also its arguments, which its file lacks."""
    is_script = module.__name__ == "__main__"
    if is_script and _script:
        return _script[0]
    code = identify_code(module)
    changed = [file for file in find_sources(module).values() if file.stat().st_mtime > declared._made]
    if changed and not is_released(module):
        raise ConfigError(
            f"{changed[0]} has changed since '{declared.name}' was imported from '{module.__name__}', and the old code "
            "would run: restart the notebook or script, or reload the module with importlib.reload",
            kind="plug-in changed after its import",
        )
    if is_script:
        _script.append(code := "; ".join([code, *sys.argv[1:]]))
    return code


def _get_file(module: ModuleType) -> Path:
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        raise ConfigError(
            f"plug-in module '{module.__name__}' has no source file, so its runs cannot be identified; put it into a "
            "file, or pass its declaration, with a version, to chestfed.run"
        )
    return Path(file).resolve()


def _get_top_name(module: ModuleType) -> str:
    """The name of a module's top-level package, also if it is run by `python -m`."""
    return (module.__spec__.name if module.__spec__ is not None else module.__name__).partition(".")[0]


def _find_distributions(module: ModuleType) -> list[metadata.Distribution]:
    """The distributions that a module was installed from, several for a namespace package; none for other code."""
    if not _INSTALLED & set(_get_file(module).parts):
        return []
    return [metadata.distribution(name) for name in sorted(set(_get_distributions().get(_get_top_name(module), ())))]


@cache
def _get_distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _list_package(folder: Path) -> dict[str, Path]:
    """The Python files of a package, without hidden ones."""
    files = {file.relative_to(folder.parent): file for file in folder.rglob("*") if file.suffix in _SUFFIXES}
    return {str(name): file for name, file in files.items() if not any(part.startswith(".") for part in name.parts)}


def _list_beside(folder: Path, names: set[str] | None) -> dict[str, Path]:
    """The Python files of the modules and packages of a folder with these names; None: of all."""
    beside: dict[str, Path] = {}
    for entry in folder.iterdir():
        name = entry.name.partition(".")[0]
        if not name.isidentifier() or name == "chestfed" or (names is not None and name not in names):
            continue
        if entry.suffix in _SUFFIXES and entry.is_file():
            beside[entry.name] = entry
        elif entry.is_dir() and any(entry.glob("*.py")):
            beside |= _list_package(entry)
    return beside
