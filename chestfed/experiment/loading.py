"""Reading a pipeline: its file, sites added on the command line, graphs, and `--set`.

Everything is merged as plain data, and checked once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chestfed.algorithms import ALGORITHMS
from chestfed.core.config import Document, checked, expand_path, refuse_other_kind
from chestfed.core.errors import ConfigError
from chestfed.engines.topology import NAMED_GRAPHS, read_edges
from chestfed.experiment.pipeline import Pipeline, clients_of
from chestfed.experiment.stage_2 import SERVER_KEYS, name_of
from chestfed.sites.config import load_site_config


def load_pipeline(path: Path, overrides: Sequence[str] = (), added: Sequence[Path] = ()) -> Pipeline:
    """Read a pipeline; `added` are the YAMLs of further sites, which come after its own, one client each.

    Where the pipeline lists its `k`, the new numbers of clients are added to them, unless an override says `k`. See
    `chestfed.core.config.load_config` for the errors.
    """
    return checked(pipeline_document(path, overrides, added), Pipeline)


def pipeline_document(path: Path, overrides: Sequence[str] = (), added: Sequence[Path] = ()) -> Document:
    """The merged data of `load_pipeline`, not checked yet."""
    document = Document(path)
    refuse_other_kind(document, "pipeline")
    if added:
        _append_sites(document, added)
    for override in overrides:
        document.override(override)
    if added and not any(override.partition("=")[0] == "k" for override in overrides):
        _extend_k(document, len(added))
    _narrow_comparison(document, overrides)
    _let_overrides_win(document, overrides)
    _read_graphs(document)
    return document


def _narrow_comparison(document: Document, overrides: Sequence[str]) -> None:
    """An algorithm or a window from the command line is the only one that the pipeline's comparison runs."""
    comparison, federated = document.data.get("comparison"), document.data.get("federated")
    if not isinstance(comparison, dict) or not isinstance(federated, dict):
        return
    said = {override.partition("=")[0] for override in overrides}
    if said & {"federated.algorithm", "federated.algorithm.name"} and "comparison.algorithms" not in said:
        comparison["algorithms"] = [name_of(federated["algorithm"])]
    if "federated.window" in said and "comparison.windows" not in said:
        comparison["windows"] = [federated["window"]]


def _let_overrides_win(document: Document, overrides: Sequence[str]) -> None:
    """A key of `federated` from the command line holds for every algorithm, as `_let_parts_win` has it in parts.

    And what the file says of another algorithm than the one trained goes: its objective, if the command line named the
    algorithm; and the keys that need a server, if the algorithm is decentralized.
    """
    said = {tuple(override.partition("=")[0].split(".")) for override in overrides}
    common = {place[1] for place in said if len(place) == 2 and place[0] == "federated"}
    own = document.data.get("per_algorithm")
    for keys in own.values() if isinstance(own, dict) else []:
        for key in common & set(keys if isinstance(keys, dict) else ()):
            del keys[key]
    section = document.data.get("federated")
    if not isinstance(section, dict):
        return
    options = {place[2] for place in said if len(place) == 3 and place[:2] == ("federated", "algorithm")} - {"name"}
    kept = section.get("algorithm")
    if lost := options - set(kept if isinstance(kept, dict) else ()):
        raise ConfigError(
            f"federated.algorithm.{min(lost)} is said before federated.algorithm, which replaces it: say it behind, or "
            f"write federated.algorithm={{name: ..., {min(lost)}: ...}}"
        )
    if options and isinstance(own, dict):  # the algorithm's own keys, said last
        name = name_of(section.get("algorithm"))
        own[name] = {**(own.pop(name, None) or {}), **{key: section["algorithm"][key] for key in options}}
    if "algorithm" in common and "objective" not in common:
        objective = section.pop("objective", None)
        if said_of_it := {place[2] for place in said if len(place) > 2 and place[:2] == ("federated", "objective")}:
            section["objective"] = {key: objective[key] for key in said_of_it}
    _let_parts_win(section, own if isinstance(own, dict) else {}, said)
    name = name_of(section.get("algorithm"))
    if name in ALGORITHMS.built_in and ALGORITHMS.find(name).decentralized:
        for key in set(SERVER_KEYS) - common:
            section.pop(key, None)


def _let_parts_win(section: dict[str, Any], own: dict[str, Any], said: set[tuple[str, ...]]) -> None:
    """A key of the objective or of the privacy from the command line holds for every algorithm with the same objective.

    The name of an objective holds for every algorithm.
    """
    for part in ("objective", "privacy"):
        keys = {place[2] for place in said if len(place) > 2 and place[:2] == ("federated", part)}
        for entry in own.values() if keys else ():
            theirs = entry.get(part) if isinstance(entry, dict) else None
            if theirs is None:
                continue
            if part == "objective" and name_of(theirs) not in ("", _objective(section)):
                if "name" in keys:
                    del entry[part]
                continue
            its = {"name": theirs} if isinstance(theirs, str) else theirs
            entry[part] = {**its, **{key: section[part][key] for key in keys}}


def _objective(section: dict[str, Any]) -> str:
    """The name of the objective: that of the file, or else the algorithm's own, if it is built in."""
    spec = ALGORITHMS.built_in.get(name_of(section.get("algorithm", "codasca")))
    return name_of(section.get("objective")) or (spec.objective if spec else "")


def _read_graphs(document: Document) -> None:
    """Put a graph's edges in the place of its file: what is in the file determines the result, not where it lies."""
    own = document.data.get("per_algorithm")
    places: list[tuple[str, ...]] = [("federated", "algorithm")]
    places += [("per_algorithm", name) for name in own] if isinstance(own, dict) else []
    for place in places:
        section: Any = document.data
        for name in place:
            section = section.get(name) if isinstance(section, dict) else None
        topology = section.get("topology") if isinstance(section, dict) else None
        if isinstance(topology, str) and topology not in NAMED_GRAPHS:
            where = (*place, "topology")
            try:
                section["topology"] = read_edges(expand_path(topology, document.path.parent))
            except ConfigError as error:
                raise ConfigError(f"{document.place(where)}: '{'.'.join(where)}': {error}") from None


def _append_sites(document: Document, added: Sequence[Path]) -> None:
    sites = document.data.get("sites")
    if not isinstance(sites, list) or not sites:
        raise ConfigError(f"--add-site: {document.path} has no 'sites' to add a hospital to")
    configs = [load_site_config(site) for site in added]
    entries = [
        {"config": str(site.absolute()), **_own_root(site, config.root)}
        for site, config in zip(added, configs, strict=True)
    ]
    document.data["sites"] = [*sites, *entries]
    if isinstance(document.data.get("title"), str):
        document.data["title"] += "".join(f" + {config.site}" for config in configs)


def _own_root(site: Path, root: str) -> dict[str, str]:
    """Where an added site's files are if its YAML says so from its own folder; else they are below the data root."""
    beside = expand_path(root, site.absolute().parent)
    return {"root": str(beside)} if beside.is_dir() else {}


def _extend_k(document: Document, added: int) -> None:
    """The numbers of clients that come about by the added sites, one client each, behind those listed."""
    k, sites = document.data.get("k"), document.data["sites"]
    if isinstance(k, list) and k and isinstance(sites, list):
        before = sum(clients_of(entry) for entry in sites[:-added])
        total = before + sum(clients_of(entry) for entry in sites[-added:])
        document.data["k"] = [*k, *range(before + 1, total + 1)]
