"""From arguments of the Python API to what the commands take: a pipeline's file, and keys as after `--set`."""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chestfed.core.bundled import pipeline_file, site_file
from chestfed.core.config import Document, StrictModel, as_path
from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Catalogue

if TYPE_CHECKING:
    from chestfed.data.collections.memory import Samples

#: A part of an experiment: its name or reference, a mapping of `name` and options, or a declaration.
Part = str | Mapping[str, Any] | object
#: A pipeline: a YAML, the name of a bundled one, its content as a mapping, or a model that was read from one.
PipelineSource = str | Path | Mapping[str, Any] | StrictModel
#: Keys whose argument has another name.
_ARGUMENTS: Final = {
    "selected": "methods or algorithm",
    "methods.*.algorithm": "algorithm",
    "methods.*.objective": "objective",
    "runtime.device": "device",
    **dict.fromkeys(("collection", "sites", "samples"), "clients"),
}


@dataclass
class Declarations:
    """The declarations that are passed as objects, which only this process knows."""

    names: list[str] = field(default_factory=list)

    def convert(self, key: str, part: Part) -> object:
        """A part as plain data; a declaration is registered and named."""
        if not isinstance(part, str | Mapping):
            if not hasattr(part, "options"):
                text = "is not a name, a mapping or a declaration; name a class or function as 'package.module:Name'"
                raise ConfigError(f"{key}: {part!r} {text}", kind="not a part", key=key)
            part = _catalogues()[key].register(part)
            self.names.append(part)
        return dict(part) if isinstance(part, Mapping) else part

    def convert_method(self, number: int, method: Part) -> object:
        """An entry of `methods` as plain data, or the name of one."""
        if isinstance(method, Mapping):
            if "algorithm" not in method:
                text = "an entry of methods has the key 'algorithm', as in a pipeline"
                raise ConfigError(f"methods[{number}]: {dict(method)}: {text}", kind="no algorithm", place=number)
            keys = set(_catalogues()) & {key for key, value in method.items() if value is not None}
            return dict(method) | {key: self.convert(key, method[key]) for key in keys}
        if isinstance(method, str):
            return method
        return {"algorithm": self.convert("algorithm", method)}

    def refuse_several_processes(self, jobs: int) -> None:
        """Other processes import what they need."""
        if jobs > 1 and self.names:
            raise ConfigError(
                f"jobs={jobs}: {', '.join(self.names)} is a declaration that only this process knows: save it in a "
                "file, and name it 'module:NAME'",
                kind="declaration of one process",
            )


def locate_pipeline(pipeline: PipelineSource, declared: Declarations) -> Path | Document:
    """The pipeline's file; a mapping or model as plain data, under a name that its title and content make.

    Paths in a mapping are relative to the working folder.
    """
    if isinstance(pipeline, str | Path):
        return pipeline_file(pipeline)
    if isinstance(pipeline, StrictModel):
        pipeline = _list_keys(pipeline)
    if not isinstance(pipeline, Mapping):
        raise ConfigError(
            f"pipeline={pipeline!r}: give a YAML, the name of a bundled one, a mapping of its keys, or a Pipeline",
            kind="not a pipeline",
        )
    import yaml

    from chestfed.studies.experiment.methods import PipelineFile

    data = {key: _locate_files(str(key), value) for key, value in pipeline.items()}
    if isinstance(methods := data.get("methods"), list):
        data["methods"] = [declared.convert_method(number, entry) for number, entry in enumerate(methods)]
    for key in set(_catalogues()) & set(data):
        data[key] = declared.convert(key, data[key])
    plain = json.loads(as_json(data))
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)  # the digest that names the run folders
    title = re.sub(r"[^a-z0-9]+", "_", str(data.get("title", "pipeline")).lower()).strip("_")[:40]
    path = Path(f"{title}_{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}.yaml").absolute()
    return Document(path, PipelineFile, given=plain)


def _list_keys(pipeline: StrictModel) -> dict[str, Any]:
    """The keys of a pipeline's file, also of a model of one method."""
    data = pipeline.model_dump(mode="json", exclude_unset=True)
    if design := data.pop("design", None):
        data[design.pop("name")] = design
    if "method" in data or "algorithm" in data.get("federated", {}):
        method = {"name": data.pop("method", ""), "tuning": data.pop("tuning", None), "algorithm": "codasca"}
        data["methods"] = [method | data.pop("federated", {})]
    elif data.get("windows"):  # beside which a method has no window of its own
        for method in data.get("methods", []):
            method.pop("window", None)
    return data


def _locate_files(key: str, value: Any) -> Any:
    """Paths of the mapping that are relative to the working folder, from anywhere."""
    if key == "extends" and isinstance(value, str):
        return str(pipeline_file(value).absolute())
    if key == "sites" and isinstance(value, list):
        return [
            {**entry, "config": str(site_file(entry["config"]).absolute())}
            if isinstance(entry, Mapping) and isinstance(entry.get("config"), str | Path)
            else entry
            for entry in value
        ]
    return list(value) if isinstance(value, tuple) else value


def list_samples_keys(
    clients: Sequence[Samples] | None, test: Samples | None, tasks: Sequence[str] | None, *, own_k: bool
) -> tuple[dict[str, Any], list[str]]:
    """The pipeline of data sets that are in memory, and the keys that put them into another pipeline.

    `own_k`: the numbers of clients are named elsewhere.
    """
    from chestfed.data.collections.memory import register_samples

    if not clients or test is None:
        raise ConfigError("clients, test: give the data set of each client, and one to score", kind="no test set")
    name, count, side = register_samples(clients, test)
    default = ["positive"] if count == 1 else [f"task_{number}" for number in range(1, count + 1)]
    names = default if tasks is None else list(tasks)
    entry = {"name": name, "clients": len(clients), "partition": "client", "imratio": None, "tasks": names}
    base = {
        "title": "Data sets in memory",
        "collection": entry,
        "preprocess": {"size": side},
        "augment": {"enabled": False},
        "pretrain": {"epochs": 0},
    }
    keys = [f"collection={json.dumps(entry)}", "sites=[]", "samples=null", *([] if own_k else ["k=null"])]
    return base, keys


def join_keys(overrides: Sequence[str], given: Sequence[str], defaults: Sequence[str] = ()) -> list[str]:
    """The overrides, the keys that arguments stand for, and the defaults of keys that no override is about.

    Raises `ConfigError` if an override and an argument give the same key.
    """
    keys = {override.partition("=")[0]: override for override in overrides}
    for key in (setting.partition("=")[0] for setting in given):
        if key in keys:
            text = f"overrides: '{keys[key]}' and the argument {_ARGUMENTS.get(key, key)} are the same key: give one"
            raise ConfigError(text, kind="given twice", key=key)
    first = {key.partition(".")[0] for key in keys}
    return [*overrides, *given, *(setting for setting in defaults if setting.partition("=")[0] not in first)]


def select_methods(source: Path | Document, methods: Sequence[Part], declared: Declarations) -> list[str]:
    """The keys that select these methods, which the file has or has not."""
    entries = [declared.convert_method(number, method) for number, method in enumerate(methods)]
    if not entries:
        raise ConfigError("methods=[]: name one or more", kind="no methods")
    if all(isinstance(entry, str) for entry in entries):
        return [f"selected={json.dumps(entries)}"]
    from chestfed.studies.experiment.loading import list_methods, pipeline_document

    stored = list_methods(pipeline_document(source))
    whole = [stored.get(entry, {"algorithm": entry}) if isinstance(entry, str) else entry for entry in entries]
    return [f"methods={as_json(whole)}", "selected=null"]


def select_algorithm(
    source: Path | Document, overrides: Sequence[str], algorithm: Part | None, declared: Declarations
) -> list[str]:
    """The selection of one method, as `--set` takes it: of this algorithm, else the pipeline's first.

    None where overrides name methods.
    """
    from chestfed.studies.experiment.loading import load_pipeline

    if algorithm is None:
        if any(re.match(r"selected[.=]|methods=", override) for override in overrides):
            return []
        return [f"selected={json.dumps([load_pipeline(source).selected_methods[0].name])}"]
    part = declared.convert("algorithm", algorithm)
    if isinstance(part, str):
        return [f"selected={json.dumps([part])}"]
    assert isinstance(part, dict)
    if not isinstance(part.get("name"), str):
        raise ConfigError(f"algorithm: {part!r} has no 'name'", kind="no name", key="algorithm")
    return [f"selected={json.dumps([part['name']])}", f"methods.*.algorithm={as_json(part)}"]


def list_parts(objective: Part | None, model: Part | None, declared: Declarations) -> list[str]:
    """The parts that have an argument of their own, as `--set` takes them."""
    given = [("methods.*.objective", "objective", objective), ("model", "model", model)]
    return [f"{place}={as_json(declared.convert(key, part))}" for place, key, part in given if part is not None]


def list_plain_keys(k: int | Sequence[int] | None, seed: int | None, device: str | None) -> list[str]:
    """The keys that have an argument of their own, as `--set` takes them."""
    numbers = None if k is None else check_whole_numbers(k, "k")
    given = {"k": numbers, "seed": seed, "runtime.device": device}
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def check_whole_numbers(numbers: int | Sequence[int], key: str) -> list[int]:
    """One or several whole numbers, of any library, as a list."""
    try:
        return [operator.index(number) for number in (numbers if isinstance(numbers, Iterable) else [numbers])]
    except TypeError:
        raise ConfigError(f"{key}={numbers!r}: give whole numbers", kind="not whole numbers", key=key) from None


def optional_path(value: object, key: str) -> Path | None:
    """An argument that is a path, or None."""
    return None if value is None else as_path(value, key)


def check_positive(number: object, key: str) -> int:
    """A whole number from 1 up."""
    try:
        whole = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        whole = 0
    if whole < 1:
        raise ConfigError(f"{key}={number!r}: give a whole number from 1 up", kind="not a count", key=key)
    return whole


def check_seeds(seeds: int | Sequence[int] | None) -> int | Sequence[int]:
    """Several seeds, or how many; 1 for one."""
    if seeds is None:
        return 1
    named = check_whole_numbers(seeds, "seeds")
    count = len(set(named)) if isinstance(seeds, Iterable) else named[0]
    if count < max(2, len(named)) or min(named) < 0:
        text = "name two or more different seeds from 0 up, or one as seed=3"
        raise ConfigError(f"seeds={seeds!r}: {text}", kind="not several seeds")
    return named if isinstance(seeds, Iterable) else count


def as_json(value: object) -> str:
    """Plain data as JSON; options may be numbers and arrays of NumPy, mappings of any kind, and paths."""
    return json.dumps(value, default=_make_plain)


def _make_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _catalogues() -> dict[str, Catalogue[Any]]:
    """The kinds of parts by their keys."""
    from chestfed.learning.algorithms import ALGORITHMS
    from chestfed.learning.models import MODELS
    from chestfed.learning.objectives import OBJECTIVES

    return {"algorithm": ALGORITHMS, "objective": OBJECTIVES, "model": MODELS}
