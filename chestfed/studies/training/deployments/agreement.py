"""What all ranks must have alike, and its check: a rank with other settings, code or data trains another study."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from chestfed.core.errors import ConfigError
from chestfed.core.plugins.code import identify_code
from chestfed.core.pseudonyms import PUBLISHED, VARIABLE
from chestfed.learning.engines.ranks.link import LONG, Link
from chestfed.learning.models import FeatureOptions, load_frozen
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import plugin_digests, shareable
from chestfed.studies.training.data.clients import ClientData, TestSet
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.deployments.scores import list_tests
from chestfed.studies.training.identity import RESULTS_VERSION
from chestfed.studies.training.versions import describe_maker

#: Plain data by name, in sections.
Description = dict[str, dict[str, Any]]

#: Section -> what to do if it differs; the sections are reported in this order.
_ADVICE: Final = {
    "settings": "Start every rank with the same options",
    "studies": "Start every rank with the same options",
    "code": "Install the same versions on every machine",
    "data": f"Give every rank the same files, and the same key of names (${VARIABLE})",
}
_MACHINE: Final = "machine"  # ranks may differ in it
_DIGEST: Final = re.compile('"[0-9a-f]{16,}"')
_SHOWN, _WIDTH = 8, 60  # differences, characters of a value


def describe_studies(pipelines: Mapping[str, Pipeline], machine: Machine) -> Description:
    """Settings of the studies, whose labels are the keys, code and machine: what is known before images are read."""
    described = {
        label: shareable(pipeline) | {"plugins": plugin_digests(pipeline)} for label, pipeline in pipelines.items()
    }
    for settings in described.values():
        del settings["runtime"]["device"], settings["engine"]  # machines may differ in them
    first = _flatten(next(iter(described.values())))
    changed = {
        label: {key: value for key, value in _flatten(settings).items() if first.get(key) != value}
        for label, settings in described.items()
    }
    code = {name: version for name, version in describe_maker(machine).items() if name != "commit"}
    here = {"device": machine.device.type, "threads": machine.threads, "processor": code.pop("processor")}
    digests = {"results version": RESULTS_VERSION, "files of chestfed": identify_code(sys.modules["chestfed"])}
    return {"settings": first, "studies": changed, "code": {**code, **digests}, _MACHINE: here}


def describe_data(studies: Sequence[Experiment]) -> Description:
    """Digests of all images and labels that the ranks train on and score, in order."""
    data: dict[str, Any] = {"key of names": studies[0].test.key}
    digests: dict[int, str] = {}  # several studies share their images
    for number, experiment in enumerate(studies, start=1):
        parts: list[tuple[str, ClientData | TestSet]] = [
            *((f"training images of {client.name}", client) for client in experiment.clients),
            *((f"test images {place}, {test.site}", test) for place, test in enumerate(list_tests(experiment))),
        ]
        for name, part in parts:
            if id(part) not in digests:
                digests[id(part)] = part.digest(PUBLISHED)
            data[f"{name} (study {number})" if len(studies) > 1 else name] = digests[id(part)]
        if isinstance(model := experiment.pipeline.model, FeatureOptions):
            data[f"frozen network of {model.name} (study {number})"] = load_frozen(model).digest
    return {"data": data}


def agree(link: Link, mine: Description, limit: timedelta = LONG) -> list[str]:
    """Compare what this rank has with what rank 0 has; every rank calls it, at the same time.

    A rank may take until the `limit` for its own. Returns at rank 0 in what machines differ.

    Raises
    ------
    ConfigError
        At rank 0, if another has anything else: which rank, and what. The others hear of it with their next note.
    """
    if link.rank:
        for work in link.post(0, {"differences": _compare(link.hear(), mine)}):
            link.finish(work, "rank 0", LONG)
        return []
    link.announce(mine)
    what = "with its settings and data"
    by_rank = {rank: link.fetch(rank, f"rank {rank} {what}", limit)["differences"] for rank in range(1, link.size)}
    machines = {rank: _list_texts(differences.pop(_MACHINE, [])) for rank, differences in by_rank.items()}
    by_rank = {rank: differences for rank, differences in by_rank.items() if differences}
    if by_rank:
        keys = [key for differences in by_rank.values() for section in differences.values() for key, *_ in section]
        raise ConfigError(
            ".\n".join(_group({rank: _advise(differences) for rank, differences in by_rank.items()})),
            kind="ranks differ",
            ranks=list(by_rank),
            keys=list(dict.fromkeys(keys)),
        )
    return _group(machines)


def _flatten(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested data by dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            value = {str(number): entry for number, entry in enumerate(value, start=1)}
        flat |= _flatten(value, f"{before}{key}.") if isinstance(value, dict) and value else {f"{before}{key}": value}
    return flat


def _compare(reference: Mapping[str, Mapping[str, Any]], mine: Description) -> dict[str, list[list[str]]]:
    """By section: the name of each difference, the value of this rank, and that of the reference."""
    differences = {
        section: [
            [name, _show(own, name), _show(reference[section], name)]
            for name in dict.fromkeys([*own, *reference[section]])
            if own.get(name, ...) != reference[section].get(name, ...)
        ]
        for section, own in mine.items()
    }
    return {section: rows for section, rows in differences.items() if rows}


def _show(values: Mapping[str, Any], name: str) -> str:
    text = json.dumps(values[name], ensure_ascii=False) if name in values else "missing"
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def _list_texts(differences: Sequence[Sequence[str]]) -> str:
    shown = [
        f"other {name} than rank 0"
        if any(map(_DIGEST.fullmatch, (own, reference)))
        else f"{name} is {own} (rank 0: {reference})"
        for name, own, reference in differences[:_SHOWN]
    ]
    return ", ".join(shown + ([f"and {len(differences) - _SHOWN} more"] if len(differences) > _SHOWN else []))


def _advise(differences: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """The differences of a rank, section by section, and what to do."""
    sections = [name for name in _ADVICE if name in differences]
    if "settings" in sections and "studies" in sections:
        sections.remove("studies")  # the same difference in each
    return ". ".join(f"{_list_texts(differences[name])}. {_ADVICE[name]}" for name in sections)


def _group(texts: Mapping[int, str]) -> list[str]:
    """The texts that are not empty, each once, with its ranks."""
    ranks: dict[str, list[int]] = {}
    for rank, text in texts.items():
        ranks.setdefault(text, []).append(rank)
    return [
        f"rank{'s' if len(alike) > 1 else ''} {', '.join(map(str, alike))}: {text}"
        for text, alike in ranks.items()
        if text
    ]
