"""Reading a pipeline: its file, sites added on the command line, files of options, and `--set`.

Everything is merged as plain data, completed (`complete_methods`), and checked once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from chestfed.core.bundled import advise_name, list_sites
from chestfed.core.config import Document, OptionAssignment, check_document, expand_path, keep_last, names_file
from chestfed.core.config.mistakes import describe_found
from chestfed.core.errors import ConfigError, list_near
from chestfed.data.sites.config import load_site_config, refuse_other_kind
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.studies.designs.design import DESIGNS, list_keys
from chestfed.studies.experiment.methods import Method, PipelineFile
from chestfed.studies.experiment.pipeline import count_clients
from chestfed.studies.experiment.quick import shorten
from chestfed.studies.experiment.stage_2 import complete_entry, get_part_name, idle_keys


def load_pipeline(
    source: Path | Document,
    overrides: Sequence[str] = (),
    added: Sequence[Path] = (),
    methods: Sequence[str] = (),
    *,
    sites_here: bool = True,
) -> PipelineFile:
    """Read a pipeline from a file or plain data.

    `added` are the YAMLs of further sites, which come after its own, one client each. Where the pipeline lists its `k`,
    the new numbers of clients are added to them, unless an override gives `k`.
    `methods` are selected; a name that is not in the pipeline is that of an algorithm with the common settings.
    `sites_here`: the YAMLs of the sites are on this machine, not at their hospitals.
    See `chestfed.core.config.load_config` for the errors; a site that is not there is one.
    """
    document = pipeline_document(source, overrides, added, methods)
    shorten(document, [load_site_config(site).site for site in added])
    complete_methods(document)
    complete_design(document)
    pipeline = check_document(document, PipelineFile)
    for number, entry in enumerate(pipeline.sites if sites_here else ()):
        _refuse_missing_site(document, ("sites", number, "config"), entry.config)
    return pipeline


def complete_design(document: Document) -> None:
    """Move the key of a design, such as `target_images`, into `design`, with its name."""
    given = [key for key in list_keys() if document.data.get(key) is not None]
    if "design" in document.data or len(given) > 1:
        key = "design" if "design" in document.data else given[1]
        text = "unknown key 'design'" if key == "design" else f"{key}: not with {given[0]}; remove one of them"
        kind, place = "unknown key" if key == "design" else "invalid value", document.place((key,))
        raise ConfigError(f"{place}: {text}", kind=kind, key=key, place=place)
    for key in (name for name in DESIGNS.names if (name,) in document.blank):
        place = document.place((key,))
        text = f"{place}: '{key}' has no value; write {{}} for its defaults, or null to leave it out"
        raise ConfigError(text, kind="invalid value", key=key, place=place)
    for key, spec in list_keys().items():
        options = document.data.pop(key, None)
        if options is None:
            continue
        if not isinstance(options, dict) or "name" in options:
            place = document.place((key,))
            text = f"{place}: '{key}' should be keys and values, such as {{}}, found {describe_found(options)}"
            raise ConfigError(text, kind="invalid value", key=key, place=place)
        for idle in spec.ignores:
            if document.is_override((idle,)):
                place = document.place((idle,))
                raise ConfigError(f"{place}: no effect with {key}; remove it", kind="no effect", key=idle, place=place)
        document.data["design"] = {"name": key, **options}
        document.move((key,), ("design",))


def complete_methods(document: Document) -> None:
    """Move the keys of `federated` into each method that lacks them and on whose algorithm they have an effect."""
    methods = document.data.setdefault("methods", [{"algorithm": "codasca"}])
    entries = methods if isinstance(methods, list) else []
    _refuse_own_windows(document, entries)
    common = document.data.pop("federated", {})
    place = document.place(("federated",))
    if not isinstance(common, dict):
        text = (
            f"{place}: 'federated' should be keys and values, found {describe_found(common)}; write its keys, such as "
            "{window: 32}, or remove it"
        )
        raise ConfigError(text, kind="invalid value", key="federated", place=place)
    if own := [key for key in common if key in Method.own_keys]:
        key, place = f"federated.{own[0]}", document.place(("federated", own[0]))
        text = f"{place}: unknown key '{key}': it is a key of an entry of 'methods'"
        raise ConfigError(text, kind="unknown key", key=key, place=place)
    for index, entry in enumerate(entries):
        if isinstance(entry, dict):
            entries[index] = complete_entry(common, entry)
            for key in entries[index].keys() - entry.keys():
                document.move(("federated", key), ("methods", index, key))


def list_methods(document: Document) -> dict[str, dict[str, Any]]:
    """The entries of `methods` by name, as they are written."""
    methods = document.data["methods"]
    return {name: methods[index] for name, index in _list_names(methods).items() if name}


def _refuse_own_windows(document: Document, methods: Sequence[Any]) -> None:
    """Refuse a method's own window where windows are compared."""
    names, selected = _list_names(methods), document.data.get("selected")
    for name, index in names.items() if document.data.get("windows") else ():
        is_selected = name in selected if isinstance(selected, list) else True
        if is_selected and isinstance(methods[index], dict) and "window" in methods[index]:
            place = document.place(("methods", index, "window"))
            text = f"{place}: methods, {name}: window has no effect beside windows; remove one"
            raise ConfigError(text, kind="invalid value", key=f"methods.{index}.window", place=place)


def pipeline_document(
    source: Path | Document, overrides: Sequence[str] = (), added: Sequence[Path] = (), methods: Sequence[str] = ()
) -> Document:
    """The merged data of `load_pipeline`, not checked yet."""
    document = deepcopy(source) if isinstance(source, Document) else Document(source, PipelineFile)
    refuse_other_kind(document, "pipeline")
    if added:
        _append_sites(document, added)
    chosen = [OptionAssignment(f"selected={json.dumps(list(methods))}", "--methods")] if methods else []
    overrides = keep_last([*overrides, *chosen])
    keys = {override: override.partition("=")[0] for override in overrides}
    document.override_all([override for override, key in keys.items() if not _names_method(key)])
    if added and "k" not in keys.values():
        _extend_k(document, len(added))
    selected = _select_methods(document)
    for override in sorted(overrides, key=lambda override: keys[override].count(".")):
        if keys[override].startswith("federated."):
            _override_common(document, override, selected)
    _override_methods(document, [override for override, key in keys.items() if _names_method(key)], selected)
    _refuse_idle_keys(document, selected)
    _read_option_files(document)
    _locate_sites(document)
    return document


def _names_method(key: str) -> bool:
    return key.startswith("methods.")


def _select_methods(document: Document) -> dict[str, int]:
    """The names of the methods that run, each with its index in `methods`; a new name becomes an entry.

    Only the command line adds entries. Empty where the names cannot be read, which the check refuses.
    """
    methods = document.data.setdefault("methods", [{"algorithm": "codasca"}])
    age = {key: document.find_age(key) for key in ("methods", "selected")}
    if age["methods"] < age["selected"]:
        document.data.pop("selected", None)  # it selects from the list that was replaced
    selected = document.data.get("selected")
    names = _list_names(methods)
    if not isinstance(selected, list) or not all(isinstance(name, str) for name in selected):
        return names
    if isinstance(methods, list) and document.is_override(("selected",)):
        new = [name for name in dict.fromkeys(selected) if name not in names]
        _refuse_unknown(new, names, place := document.place(("selected",)))
        document.data["methods"] = [*methods, *({"algorithm": name} for name in new)]
        document.places |= {("methods", len(methods) + number): place for number in range(len(new))}
        names = _list_names(document.data["methods"])
    return {name: names[name] for name in selected if name in names}


def _refuse_unknown(new: Sequence[str], known: Iterable[str], place: str) -> None:
    """Refuse a name of the command line, at `place`, that is neither a method of the pipeline nor an algorithm."""
    for name in new:
        try:
            ALGORITHMS.find(name)
        except ConfigError as error:
            text, known = str(error), list(known)
            if not error.fields.get("file") and error.kind == f"unknown {ALGORITHMS.kind}":
                near = list_near(name, [*known, *ALGORITHMS.names])[:3]
                hint = f"did you mean {' or '.join(near)}? " if near else ""
                text = (
                    f"no method of the pipeline and no algorithm has the name '{name}'; {hint}Methods of the pipeline: "
                    f"{', '.join(known)}. `chestfed algorithms` lists all; package.module:Name is your own"
                )
                error.fields["suggestion"] = near[0] if near else ""
            raise ConfigError(f"{place}: {text}", kind=error.kind, **error.fields) from error


def _list_names(methods: Any) -> dict[str, int]:
    """The names of the methods, each with its index."""
    entries = methods if isinstance(methods, list) else []
    names = [
        (entry.get("name") or get_part_name(entry.get("algorithm"))) if isinstance(entry, dict) else ""
        for entry in entries
    ]
    return {name: index for index, name in enumerate(names) if isinstance(name, str)}


def _override_common(document: Document, override: str, selected: dict[str, int]) -> None:
    """Let a common key of the command line hold for every method that runs, also where an entry differs."""
    key, _, value = override.partition("=")
    first, _, inner = key.removeprefix("federated.").partition(".")
    if first == "window" and document.data.get("windows"):
        raise ConfigError(f"--set {key}: no effect: the pipeline compares windows; write --set windows=[{value}]")
    for index in selected.values():
        entry = document.data["methods"][index]
        _forget_tuning(document, entry, key.removeprefix("federated."))
        if inner and isinstance(entry.get(first), dict):
            document.override(f"methods.{index}.{first}.{inner}={value}", key)
        elif not inner:
            entry.pop(first, None)


def _forget_tuning(document: Document, entry: dict[str, Any], key: str) -> None:
    """Drop how settings were found, and this key among those of single K and of own data: it is set by hand for all."""
    entry.pop("tuning", None)
    alternatives = document.data.get("alternatives")
    own_data = alternatives.get("own_data_settings") if isinstance(alternatives, dict) else None
    for settings in (entry.get("by_k"), own_data):
        for values in settings.values() if isinstance(settings, dict) else ():
            if isinstance(values, dict):
                values.pop(key.removeprefix("algorithm."), None)


def _override_methods(document: Document, overrides: Sequence[str], selected: dict[str, int]) -> None:
    """Apply `methods.NAME.KEY=VALUE`, and before it `methods.*.KEY=VALUE`, which is for every method that runs."""
    for override in sorted(overrides, key=lambda text: (not text.startswith("methods.*."), text.count("."))):
        key, _, value = override.partition("=")
        rest = key.removeprefix("methods.")
        if rest.startswith("*."):
            targets = {index: rest.removeprefix("*.") for index in selected.values()}
        else:
            targets = {
                index: rest.removeprefix(f"{name}.") for name, index in selected.items() if rest.startswith(f"{name}.")
            }
        if not targets:
            name = rest.partition(".")[0]
            near = [] if name in selected else list_near(name, selected)[:1]
            hint = f"did you mean methods.{near[0]}? " if near else ""
            if name not in selected and name in (*_list_names(document.data["methods"]), *ALGORITHMS.names):
                near, hint = [], f"{name} does not run; select it too (--methods). "
            text = (
                f"--set {key}: no effect: {hint}write methods.NAME.KEY, where NAME is a method that runs: "
                f"{', '.join(selected)}; or methods.*.KEY for all of them"
            )
            raise ConfigError(text, kind="no effect", key=key, suggestion="".join(near))
        for index, inner in targets.items():
            _forget_tuning(document, document.data["methods"][index], inner)
            document.override(f"methods.{index}.{inner}={value}", key)


def _refuse_idle_keys(document: Document, selected: dict[str, int]) -> None:
    """Refuse a common key that has no effect on any method: of those that run, for a key of the command line.

    A file that extends another one may have methods that do not need all of its keys.
    """
    section, methods = document.data.get("federated"), document.data["methods"]
    try:
        algorithms = [ALGORITHMS.find(get_part_name(entry.get("algorithm"))) for entry in methods]
    except (AttributeError, TypeError, ConfigError):
        return  # refused where it is checked
    for key in section if isinstance(section, dict) else ():
        place = document.place(("federated", key))
        if document.is_override(("federated", key)):
            concerned = [algorithms[index] for index in selected.values()]
        elif place.rpartition(":")[0] == document.place(("methods",)).rpartition(":")[0]:
            concerned = algorithms
        else:
            continue
        if concerned and all(key in idle_keys(spec) for spec in concerned):
            names = ", ".join(dict.fromkeys(spec.name for spec in concerned))
            text = f"{place}: 'federated.{key}': no effect with {names}; remove it"
            raise ConfigError(text, kind="no effect", key=f"federated.{key}", place=place)


def _read_option_files(document: Document) -> None:
    """Replace what names a file in an algorithm's options by its content, which determines the result."""
    for index, entry in enumerate(document.data["methods"] if isinstance(document.data["methods"], list) else ()):
        algorithm = entry.get("algorithm") if isinstance(entry, dict) else None
        if not isinstance(algorithm, dict):
            continue
        try:
            fields = ALGORITHMS.find(get_part_name(algorithm)).options.model_fields
        except ConfigError:
            continue  # refused where it is checked
        for option, field in fields.items():
            mark, text, where = names_file(field), algorithm.get(option), ("methods", index, "algorithm", option)
            if mark is None or mark.read is None or not isinstance(text, str) or text in mark.words:
                continue
            try:
                algorithm[option] = mark.read(expand_path(text, document.folder(where)))
            except ConfigError as error:
                key = ".".join(map(str, where))
                place = document.place(where)
                raise ConfigError(f"{place}: '{key}': {error}", kind=error.kind, key=key, place=place) from None


def _locate_sites(document: Document) -> None:
    """A site's YAML lies where the file says that names it, be it one that the pipeline extends; or it has a name."""
    sites, known = document.data.get("sites"), dict[str, Path]()
    for number, entry in enumerate(sites if isinstance(sites, list) else ()):
        if not isinstance(entry, dict) or not isinstance(entry.get("config"), str):
            continue
        where, config = ("sites", number, "config"), entry["config"]
        folder, name = document.folder(where), config.removesuffix(".yaml")
        is_there = (folder / config).exists()
        known = known if is_there or known else list_sites()
        if not is_there and name in known:
            entry["config"] = str(known[name].absolute())
        elif (is_there or Path(config).suffix) and folder != document.path.parent:
            entry["config"] = str(folder.absolute() / config)


def _refuse_missing_site(document: Document, where: tuple[str | int, ...], config: str) -> None:
    """Raise `ConfigError` with file, line and key if there is no YAML of a site."""
    file = document.path.parent / config
    if not file.exists():
        key, place = ".".join(map(str, where)), document.place(where)
        advice, close = advise_name(Path(config).stem, "site")
        text = f"{place}: '{key}': {file}: no such file, and no site of this name. {advice}"
        raise ConfigError(text, kind="no such name", key=key, place=place, suggestion=close)


def _append_sites(document: Document, added: Sequence[Path]) -> None:
    sites = document.data.get("sites")
    if not isinstance(sites, list) or not sites:
        raise ConfigError(f"--add-site: {document.path} has no 'sites' to add a hospital to", kind="no sites")
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
        total = sum(map(count_clients, sites))
        document.data["k"] = [*k, *range(total - sum(map(count_clients, sites[-added:])) + 1, total + 1)]
