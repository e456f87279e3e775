"""Contents of chestfed: its YAML files by name, and the requirements of its extras; and names of finished runs."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from chestfed.core.errors import ChestfedError, ConfigError, list_near, nearest

#: Names that an error lists at most.
_MOST_NAMED = 12
#: Files that make a folder one of a study, or of several together.
_OF_RUNS = ("study.json", "comparison.json")
#: Ends of the names of files that hold a model.
MODEL_SUFFIXES = (".onnx", ".safetensors", ".pt", ".pth", ".ckpt")
_YAML = "a pipeline's or site's YAML"


def bundled(folder: str) -> Path:
    """`pipelines` or `site_configs`: in the repository, or in the installed package."""
    package = Path(__file__).parents[1]
    for candidate in (package.parent / folder, package / "bundled" / folder):
        if candidate.is_dir():
            return candidate
    raise ChestfedError(f"this installation does not include the folder '{folder}'; give the path of the file")


@dataclass(frozen=True)
class NameKind:
    """Things that commands take by name: how they are listed, and a command that takes one."""

    list_names: Callable[[], Iterable[str]]
    command: str


def advise_name(given: str | Path, kind: str = "") -> tuple[str, str]:
    """Advice for a name that nothing of a kind of `NAME_KINDS` has, and the name that was probably meant, or "".

    The nearest name of the kind, or of another: a run where a pipeline was asked for. Without a kind, of all, and no
    advice if there is none.
    """
    name = str(given)
    listed = {other: sorted(about.list_names()) for other, about in NAME_KINDS.items()}
    for other, names in listed.items():
        if other != kind and name in names:
            return f"'{name}' is {_with_article(other)}: `{NAME_KINDS[other].command.format(name)}`", name
    names = listed.pop(kind, [])
    within = [known for known in names if len(name) > 2 and name.casefold() in known.casefold()]
    ends = [known for known in names if list_near(name, known.split("-")[-1:])]  # a run's digest
    if close := (list_near(name, names) or within or ends)[:3]:
        return f"Did you mean {' or '.join(close)}?", close[0]
    of_kind = {known: other for other, names in listed.items() for known in names}
    if near := nearest(name, of_kind, 0.75):
        other = of_kind[near]
        return f"Did you mean the {other} {near}? `{NAME_KINDS[other].command.format(near)}`", near
    if not kind:
        return "", ""
    few = sorted(names, key=lambda known: ("/" in known, known))[:_MOST_NAMED]
    more = f", and {len(names) - len(few)} more" if len(few) < len(names) else ""
    return f"Known: {', '.join(few)}{more}" if names else f"There is no {kind} yet", ""


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def list_pipelines() -> dict[str, Path]:
    """The bundled pipelines by name, such as `figure1/codasca`."""
    return _list_files(bundled("pipelines"))


def list_sites() -> dict[str, Path]:
    """The sites by name: those in ./site_configs, then the bundled ones, such as `chexpert` and `synthetic/vindr`."""
    return list_bundled_sites() | _list_files(Path("site_configs"))


def list_bundled_sites() -> dict[str, Path]:
    """The sites that come with chestfed, by name."""
    return _list_files(bundled("site_configs"))


def pipeline_file(pipeline: str | Path) -> Path:
    """The file of a pipeline, or of the bundled one of that name, with or without `.yaml`.

    Raises `ConfigError` if there is neither.
    """
    return _find_file(pipeline, "pipelines", list_pipelines(), "pipeline")


def site_file(site: str | Path) -> Path:
    """The YAML of a site, or of the one of that name in ./site_configs or bundled, with or without `.yaml`.

    Raises `ConfigError` if there is neither.
    """
    return _find_file(site, "site_configs", list_sites(), "site")


def run_path(run: str | Path, out: Path = Path("runs")) -> Path:
    """A path, or the folder in `out` of a run with this name, digest, or part of its name that no other has.

    `NAME/k5` is the folder of a K in it. What is not found is returned as it is. Raises `ConfigError` if several runs
    have that part.
    """
    path = Path(run)
    if len(path.parts) == 2 and re.fullmatch(r"k\d+", path.name) and not path.exists():
        return run_path(path.parent, out) / path.name
    if path.exists() or len(path.parts) != 1:
        return path
    names = list_runs(out)
    matches = [name for name in names if name == str(run)] or [name for name in names if str(run) in name]
    if len(matches) > 1:
        raise ConfigError(f"{run}: {len(matches)} runs in {out} have that name: {', '.join(matches)}", kind="several")
    return names[matches[0]] if matches else path


def advise_run(path: Path) -> tuple[str, str]:
    """As `advise_name`, for a path at which there is no run; of a `kN` folder that is missing in one, those there."""
    ks = sorted(int(folder.name[1:]) for folder in path.parent.glob("k*") if re.fullmatch(r"k\d+", folder.name))
    if re.fullmatch(r"k\d+", path.name) and ks:
        return f"The run has {', '.join(f'k{k}' for k in ks)}", ""
    return advise_name(path.name, "run")


def list_runs(out: Path) -> dict[str, Path]:
    """Folders of studies, and of several together, by name."""
    return {file.parent.name: file.parent for name in _OF_RUNS for file in sorted(out.glob(f"*/{name}"))}


#: By the word for one of them. The command line adds those of other rooms.
NAME_KINDS = {
    "pipeline": NameKind(list_pipelines, "chestfed study {}"),
    "site": NameKind(list_sites, "chestfed site check {}"),
    "run": NameKind(lambda: list_runs(Path("runs")), "chestfed report {}"),
}


def recognize(path: Path) -> tuple[str, str]:
    """Kind of a file or folder, and a command that takes it; empty where none does."""
    if (path / _OF_RUNS[0]).is_file():
        return "a run", f"chestfed report {path}"
    if (path / _OF_RUNS[1]).is_file():
        return "a comparison", f"chestfed report {path}"
    if (path.is_file() and path.suffix in MODEL_SUFFIXES) or (path / "model.safetensors").is_file():
        return "a model", f"chestfed evaluate {path} --site SITE"
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return _YAML, f"chestfed study {path}"
    return "", ""


def _list_files(folder: Path) -> dict[str, Path]:
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.yaml"))}


def _find_file(given: str | Path, folder: str, known: Mapping[str, Path], kind: str) -> Path:
    if not isinstance(given, str | Path):
        raise ConfigError(f"{given!r}: give the YAML of a {kind}, or its name", kind=f"not a {kind}")
    path = Path(given)
    what, command = recognize(path)
    if what and what != _YAML:
        text = f"{path}: {what}, where the YAML of a {kind} is expected. {what.capitalize()} is for `{command}`"
        raise ConfigError(text, kind=f"not a {kind}", suggestion=command)
    if path.exists():
        return path
    parts = path.parts[1:] if path.parts[:1] == (folder,) else path.parts
    name = Path(*parts).as_posix().removesuffix(".yaml") if parts else ""
    if name in known:
        return known[name]
    advice, close = advise_name(name, kind)
    text = f"{path}: no such file, and no {kind} of this name. {advice}"
    raise ConfigError(text, kind="no such name", suggestion=close)


def install_command(extra: str) -> str:
    """The command that installs what an extra needs, in the environment in use.

    It lists the extra's requirements: `chestfed[EXTRA]` would be looked up at a package index, where chestfed is not
    and anybody may register its name. In a checkout it takes the locked versions.
    """
    root = Path(__file__).parents[2]
    locks = root / "requirements"
    words = [sys.executable, "-m", "pip", "install"]
    if (locks / "constraints.txt").is_file():
        if extra == "flower":  # pins older versions than the others need: in an environment of its own
            return f'CHESTFED_VENV=federation "{sys.executable}" "{root / "bootstrap.py"}" install federation'
        words += ["--constraint", str(locks / "constraints.txt")]
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        needed = project["project"]["optional-dependencies"][extra]
    else:
        parts = [line.partition(";") for line in metadata.requires("chestfed") or ()]
        needed = [name.strip() for name, _, marker in parts if f"extra == '{extra}'" in marker.replace('"', "'")]
    return " ".join(f'"{word}"' if any(sign in word for sign in " <>=") else word for word in [*words, *needed])
