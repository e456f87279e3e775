"""Reading a pipeline: its file, sites added on the command line, graphs, and `--set`.

Everything is merged as plain data, and checked once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from chestfed.algorithms import ALGORITHMS
from chestfed.core.config import Document, checked, expand_path, refuse_other_kind
from chestfed.core.errors import ConfigError
from chestfed.engines.topology import NAMED_GRAPHS, read_edges
from chestfed.experiment.pipeline import Pipeline, clients_of, names_in
from chestfed.experiment.stage_2 import idle_keys, name_of, section_for
from chestfed.objectives import OBJECTIVES
from chestfed.sites.config import load_site_config

#: The key that the command line may set for all algorithms at once.
_OBJECTIVE: Final = "federated.objective"


def load_pipeline(
    path: Path, overrides: Sequence[str] = (), added: Sequence[Path] = (), compared: Sequence[str] = ()
) -> Pipeline:
    """Read a pipeline; `added` are the YAMLs of further sites, which come after its own, one client each.

    Where the pipeline lists its `k`, the new numbers of clients are added to them, unless an override says `k`.
    `compared` are the algorithms that the command line names. See `chestfed.core.config.load_config` for the errors.
    """
    return checked(pipeline_document(path, overrides, added, compared), Pipeline)


def pipeline_document(
    path: Path, overrides: Sequence[str] = (), added: Sequence[Path] = (), compared: Sequence[str] = ()
) -> Document:
    """The merged data of `load_pipeline`, not checked yet."""
    document = Document(path)
    refuse_other_kind(document, "pipeline")
    _locate_sites(document)
    if added:
        _append_sites(document, added)
    for override in overrides:
        document.override(override)
    if added and not any(override.partition("=")[0] == "k" for override in overrides):
        _extend_k(document, len(added))
    _narrow_comparison(document, overrides)
    _let_overrides_win(document, overrides)
    _share_objective(document, overrides, compared)
    _select_algorithms(document, overrides, compared)
    _drop_idle_keys(document, overrides)
    _read_graphs(document)
    return document


def _narrow_comparison(document: Document, overrides: Sequence[str]) -> None:
    """An algorithm or a window from the command line is the only one that the pipeline's comparison runs."""
    comparison, federated = document.data.get("comparison"), document.data.get("federated")
    said = {override.partition("=")[0] for override in overrides}
    if not isinstance(comparison, dict) or not isinstance(federated, dict) or "comparison" in said:
        return
    if said & {"federated.algorithm", "federated.algorithm.name"} and "comparison.algorithms" not in said:
        comparison["algorithms"] = [name_of(federated["algorithm"])]
    if "federated.window" in said and "comparison.windows" not in said:
        comparison["windows"] = [federated["window"]]


def _let_overrides_win(document: Document, overrides: Sequence[str]) -> None:
    """A key of `federated` from the command line holds for every algorithm, and so does a key of its privacy.

    And the file's objective goes if the command line named the algorithm, whose own takes its place.
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
    noise = {place[2] for place in said if len(place) == 3 and place[:2] == ("federated", "privacy")}
    for keys in own.values() if isinstance(own, dict) and noise else ():
        if isinstance(keys, dict) and isinstance(keys.get("privacy"), dict):
            keys["privacy"] |= {key: section["privacy"][key] for key in noise}


def _objective(section: dict[str, Any]) -> str:
    """The name of the objective: that of the file, or else the algorithm's own."""
    named = name_of(section.get("objective"))
    try:
        return named or ALGORITHMS.find(name_of(section.get("algorithm", "codasca"))).objective
    except ConfigError:
        return ""  # refused where it is checked


def _share_objective(document: Document, overrides: Sequence[str], compared: Sequence[str]) -> None:
    """An objective from the command line holds for all algorithms that run; an option of it for all that have it."""
    options, section = _objective_options(overrides), document.data.get("federated")
    whole = "name" in options or any(override.partition("=")[0] == _OBJECTIVE for override in overrides)
    own = document.data.get("per_algorithm") or {}
    sound = isinstance(own, dict) and all(isinstance(keys, dict | None) for keys in own.values())
    objective: Any = section.get("objective") if isinstance(section, dict) else None
    if not sound or not isinstance(section, dict) or not (objective or whole):
        return
    trained = name_of(section.get("algorithm", "codasca"))
    names = _list_selected(document, compared) or [trained]
    if not whole and not options:
        _refuse_objective_of_one(document, trained, [name for name in names if not _objective_section(own, name)])
        return
    shared: dict[str, Any] = {}
    if whole:
        shared = dict.fromkeys(names, objective)
    else:
        wanted = _objective(section)
        for name in names:
            its = _objective_section(own, name) or (objective if name == trained else {})
            if _objective({"algorithm": name, "objective": its}) == wanted:
                said = {option: objective[option] for option in options}
                shared[name] = {**({"name": its} if isinstance(its, str) else its), **said}
        if not shared:
            raise ConfigError(
                f"--set {_OBJECTIVE}.{min(options)}: no effect: it is an option of {wanted}, which none of "
                f"{', '.join(names)} has; write {_OBJECTIVE}={{name: ..., {min(options)}: ...}}"
            )
    for name, its in shared.items():
        own[name] = {**(own.get(name) or {}), "objective": its}
    document.data["per_algorithm"] = own


def _refuse_objective_of_one(document: Document, trained: str, names: Sequence[str]) -> None:
    """The file's objective is that of its algorithm: what is compared with it and takes it too must not go without."""
    objective = document.data["federated"]["objective"]
    options = isinstance(objective, dict) and bool(objective.keys() - {"name"})
    try:
        meant = OBJECTIVES.find(_objective({"algorithm": trained, "objective": objective}))
        others = [ALGORITHMS.find(name) for name in names if name != trained]
    except ConfigError:
        return  # refused where it is checked
    if unlike := [one.name for one in others if meant.kind in one.takes and (options or one.objective != meant.name)]:
        raise ConfigError(
            f"{document.place(('federated', 'objective'))}: 'federated.objective' holds for {trained} alone, and "
            f"{', '.join(unlike)} would train with their own: write it under per_algorithm, for each algorithm that it "
            f"is meant for, or for all of them as --set {_OBJECTIVE}=..."
        )


def _objective_options(overrides: Sequence[str]) -> set[str]:
    """The options of the objective that the command line says one by one."""
    keys = [override.partition("=")[0] for override in overrides]
    start = f"{_OBJECTIVE}."
    return {key.removeprefix(start).partition(".")[0] for key in keys if key.startswith(start)}


def _objective_section(own: dict[str, Any], algorithm: str) -> Any:
    """What `per_algorithm` says of an algorithm's objective; an entry for it alone comes last."""
    keys = sorted((key for key in own if algorithm in names_in(key)), key=lambda key: -len(names_in(key)))
    return next((own[key]["objective"] for key in reversed(keys) if (own[key] or {}).get("objective")), None)


def _list_selected(document: Document, compared: Sequence[str]) -> list[Any]:
    """The algorithms that the command line compares, else those of the file's comparison; empty without one."""
    comparison = document.data.get("comparison")
    listed = comparison.get("algorithms") if isinstance(comparison, dict) else None
    return list(compared) or (listed if isinstance(listed, list) else [])


def _select_algorithms(document: Document, overrides: Sequence[str], compared: Sequence[str]) -> None:
    """Settings need to suit only what runs: if that is not the pipeline's own algorithm, another takes its place.

    Raises
    ------
    ConfigError
        If the command line sets what only an algorithm has that does not run.
    """
    section, comparison = document.data.get("federated", {}), document.data.get("comparison")
    if compared and isinstance(comparison, dict):
        comparison["algorithms"] = list(compared)
    names = _list_selected(document, compared)
    if not isinstance(section, dict) or not names or not all(isinstance(name, str) for name in names):
        return
    keys, trained = {override.partition("=")[0] for override in overrides}, name_of(section.get("algorithm", "codasca"))
    useless = [key for key in keys if key.startswith("federated.algorithm") and trained not in names]
    useless += [key for key in keys if compared and not set(_list_owners(document, key) or names) & set(names)]
    if useless:
        raise ConfigError(f"--set {min(useless)}: no effect on {', '.join(names)}; write per_algorithm.NAME.KEY")
    if trained in names:
        return
    try:
        idle = {name: [key for key in idle_keys(ALGORITHMS.find(name)) if f"federated.{key}" in keys] for name in names}
    except ConfigError as error:
        if compared:
            raise ConfigError(f"--algorithms: {error}") from None
        return  # refused where it is checked
    first = min(names, key=lambda name: len(idle[name]))
    refused = {key: section[key] for key in idle[first]}  # by the check: it has no effect on any of them
    document.data["federated"] = section_for(section, first, {}) | refused


def _list_owners(document: Document, key: str) -> list[str]:
    """The algorithms that a key of the command line is for: `per_algorithm.NAME.KEY`, where NAME may have dots."""
    own = document.data.get("per_algorithm")
    named = [entry for entry in own if f"{key}.".startswith(f"per_algorithm.{entry}.")] if isinstance(own, dict) else []
    return [name for entry in named for name in names_in(entry)]


def _drop_idle_keys(document: Document, overrides: Sequence[str]) -> None:
    """Keys of `federated` go that mean nothing to the algorithm, if another file than that which names it gives them.

    Whoever writes both, in one file or on the command line, is told that they do not go together.
    """
    section, said = document.data.get("federated"), {override.partition("=")[0] for override in overrides}
    if not isinstance(section, dict) or not (name := name_of(section.get("algorithm"))):
        return
    try:
        idle = idle_keys(ALGORITHMS.find(name))
    except ConfigError:
        return  # refused where it is checked
    named = None if said & {"federated.algorithm", "federated.algorithm.name"} else _file(document, "algorithm")
    for key in idle:
        if f"federated.{key}" not in said and _file(document, key) != named:
            section.pop(key, None)


def _file(document: Document, key: str) -> str:
    """The file that gives a key of `federated`."""
    return document.place(("federated", key)).rpartition(":")[0]


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
                section["topology"] = read_edges(expand_path(topology, document.folder(where)))
            except ConfigError as error:
                raise ConfigError(f"{document.place(where)}: '{'.'.join(where)}': {error}") from None


def _locate_sites(document: Document) -> None:
    """A site's YAML lies where the file says that names it, be it one that the pipeline extends."""
    sites = document.data.get("sites")
    for number, entry in enumerate(sites if isinstance(sites, list) else ()):
        folder = document.folder(("sites", number, "config"))
        if folder != document.path.parent and isinstance(entry, dict) and isinstance(entry.get("config"), str):
            entry["config"] = str(folder.absolute() / entry["config"])


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
        total = sum(map(clients_of, sites))
        document.data["k"] = [*k, *range(total - sum(map(clients_of, sites[-added:])) + 1, total + 1)]
