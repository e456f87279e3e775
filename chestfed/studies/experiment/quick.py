"""A quick study: the same pipeline with less of everything, which takes minutes and still learns.

It is made of the plain data of a pipeline before they are checked. What the command line sets by itself stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from chestfed.core.checkpoint import load_checkpoint
from chestfed.core.config import Document
from chestfed.core.errors import ChestfedError
from chestfed.studies.experiment.pipeline import count_all_clients
from chestfed.studies.experiment.stage_2 import get_part_name

#: Training images of a client, of whole patients.
IMAGES: Final = 400
#: Images of a site that are scored as test set or as the hospital's own, of whole patients.
SCORED_IMAGES: Final = 1000
#: Ends the title of tables, page and records.
TITLE: Final = " (quick)"
_SIZE, _EPOCHS, _WINDOW, _STAGES, _STAGE_STEPS, _BATCH = 64, 20, 16, 2, 100, 32
#: Steps of stage 2 of all clients, methods and windows together, and the fewest steps of a stage.
_ALL_STEPS, _LEAST_STEPS = 10_000, 25
#: Own data alone, with as many steps as the study, as in the default study.
_OWN_DATA: Final = {
    "own_data": True,
    "own_data_steps": "study",
    "hospitals": [],
    "fine_tuned": None,
    "centralized": None,
    "gate": None,
}
#: In place of the larger networks that are built in.
_NETWORK: Final = {"name": "small", "init_features": 8, "growth_rate": 8, "blocks": [1, 2, 3, 3]}
_LARGE: Final = ("densenet121", "densenet161", "resnet20", "efficientnet-lite")
#: Step size of stage 1 for the small network from random weights.
_LR: Final = 1.0e-2
#: Later than the last round.
_NEVER: Final = 1_000_000


def shorten(document: Document, added: Sequence[str] = ()) -> None:
    """Let a pipeline with `quick: true` have less of everything: small images and network, few steps, one split and
    seed (unless `seeds` stands beside `quick`), and the ends of K, windows and counts; no published figures, and no
    alternatives but own data of the sites named in `added`. Values that cannot be read are left to the check.

    The saved configuration of a quick study stays as it is, with own data of the sites named in `added`.
    """
    data = document.data
    if data.get("quick") is not True:
        return
    given = _Given(document)
    if _is_saved(document):
        if added:
            data["title"] = data["title"].replace(TITLE, "") + TITLE
            _add_own_data(given, added)
        return
    if isinstance(title := data.get("title"), str) and not title.endswith(TITLE):
        data["title"] = title + TITLE
    alternatives = _shorten_alternatives(data.get("alternatives"), added)
    given.put({"splits": 1, "alternatives": alternatives, "published": None})
    if document.find_age("seeds") > document.find_age("quick"):  # beside `quick: true`, or above it, they stay
        given.put({"seeds": 1})
    given.change(data, "k", _ends)
    if data.get("k") is None and data.get("sites") and not data.get("held_out"):
        given.put({"k": sorted({1, max(count_all_clients(data), 1)})})
    _shorten_network(given)
    given.change(data, "windows", _ends)
    _shorten_steps(given, _count_stage_steps(data))


def _is_saved(document: Document) -> bool:
    """Whether this is the configuration of a quick study: one file, with `quick` and a title that says so."""
    title, in_file = document.data.get("title"), document.find_age("quick") == document.find_age("title") == 1
    return in_file and len(document.files) == 1 and isinstance(title, str) and TITLE in title


class _Given:
    """A pipeline's data, of which only what no `--set` gives is changed."""

    def __init__(self, document: Document) -> None:
        self.document, self.data = document, document.data

    def section(self, key: str) -> dict[str, Any]:
        """A section as plain data; a new one if there is none."""
        value = self.data.get(key)
        if value is None:
            value = self.data[key] = {}
        return value if isinstance(value, dict) else {}

    def is_set(self, *location: str | int) -> bool:
        """Whether the command line gives this key."""
        return self.document.is_override(location)

    def put(self, values: dict[str, Any], *parents: str | int, within: dict[str, Any] | None = None) -> None:
        """Give keys these values."""
        target = self.data if within is None else within
        for key, value in values.items():
            if not self.is_set(*parents, key):
                target[key] = value

    def change(self, target: dict[str, Any], key: str, change: Callable[[Any], Any], *parents: str | int) -> None:
        """Change the value of a key that is there."""
        if key in target and not self.is_set(*parents, key):
            target[key] = change(target[key])


def _add_own_data(given: _Given, added: Sequence[str]) -> None:
    """Own data of sites that are added to a saved quick study, which does not know those of its pipeline."""
    evaluation, earlier = given.section("evaluation"), given.data.get("alternatives") or _OWN_DATA
    if given.data.get("held_out") or evaluation.get("hospitals") == "none" or not isinstance(earlier, dict):
        return
    if isinstance(hospitals := earlier.get("hospitals"), list):  # else all have alternatives
        given.put({"alternatives": {**earlier, "hospitals": [*hospitals, *added]}})


def _shorten_alternatives(alternatives: Any, added: Sequence[str]) -> dict[str, Any] | None:
    """Own data of the sites that the command line adds, if the pipeline has own data; else None."""
    if not added or not isinstance(alternatives, dict) or not alternatives.get("own_data", True):
        return None
    return {**alternatives, "hospitals": [*added], "fine_tuned": None, "centralized": None, "gate": None}


def _shorten_network(given: _Given) -> None:
    """Small images and a small network; one on frozen features is fast and keeps both, or has those of a study."""
    name = get_part_name(given.data.get("model", "small"))
    if name == "features":
        if size_of_study := _read_size(given.data["model"]):
            given.put({"size": size_of_study}, "preprocess", within=given.section("preprocess"))
    else:
        size = given.section("preprocess")
        size.setdefault("size", _SIZE)
        given.change(size, "size", _at_most(_SIZE), "preprocess")
    large = isinstance(name, str) and name.startswith(_LARGE) and not given.is_set("model")
    if large:
        norm = given.data["model"].get("norm") if isinstance(given.data["model"], dict) else None
        given.data["model"] = {**_NETWORK, "norm": norm or "auto"}
    pretrain = given.section("pretrain")
    pretrain.setdefault("epochs", _EPOCHS)
    if isinstance(given.data.get("collection"), dict):
        given.change(pretrain, "epochs", _at_most(1), "pretrain")
    else:
        given.change(pretrain, "epochs", lambda epochs: _EPOCHS if epochs else epochs, "pretrain")
    if large and pretrain["epochs"]:
        given.put({"lr": _LR, "schedule": "cosine"}, "pretrain", within=pretrain)


def _read_size(model: Any) -> Any:
    """The size of the images of the study that made the model file whose features are taken; None if there is none."""
    network = model.get("network") if isinstance(model, dict) else None
    if not isinstance(network, str) or not Path(network).is_file():
        return None
    with suppress(ChestfedError):  # a damaged file is refused where it is opened
        preprocess = load_checkpoint(Path(network))[1].get("preprocess")
        return preprocess.get("size") if isinstance(preprocess, dict) else None
    return None


def _count_stage_steps(data: dict[str, Any]) -> int:
    """The most steps of a stage: fewer with many methods, windows and clients, unless features are frozen."""
    if get_part_name(data.get("model", "small")) == "features":
        return _STAGE_STEPS
    named, windows = data.get("selected") or data.get("methods"), data.get("windows")
    runs = math.prod(max(len(values), 1) for values in (named, windows) if isinstance(values, list))
    k = data.get("k")
    clients = max((value for value in k if isinstance(value, int)), default=0) if isinstance(k, list) else 0
    clients = max(clients or count_all_clients(data), 1)
    return min(_STAGE_STEPS, max(_LEAST_STEPS, _ALL_STEPS // (runs * clients * _STAGES)))


def _shorten_steps(given: _Given, stage_steps: int) -> None:
    """Few steps of stage 2, at most so many a stage, and one evaluation, after the last round."""
    federated, data = given.section("federated"), given.data
    most = {
        "window": min(_WINDOW, stage_steps // 4),
        "window_growth": 1,
        "stages": _STAGES,
        "stage_steps": stage_steps,
        "stage_growth": 1,
        "batch_size": _BATCH,
    }
    for key, default in (("stages", _STAGES), ("stage_steps", stage_steps)):
        federated.setdefault(key, default)
    sections: list[tuple[tuple[str | int, ...], Any]] = [(("federated",), federated)]
    methods = data.get("methods")
    entries = methods if isinstance(methods, list) else []
    sections += [(("methods", index), entry) for index, entry in enumerate(entries)]
    for place, section in sections:
        if not isinstance(section, dict):
            continue
        if "total_steps" in section and not given.is_set(*place, "total_steps"):
            del section["total_steps"]
        for key, value in most.items():
            given.change(section, key, _at_most(value), *place)
    if isinstance(search := data.get("search"), dict):  # also of the command line: the settings it finds are cut
        data["search"] = {key: _cut_space(space, most.get(key)) for key, space in search.items()}
    if "total_steps" in federated and not given.is_set("federated", "stages"):
        del federated["stages"]
    pretrain = given.section("pretrain")
    pretrain.setdefault("batch_size", _BATCH)
    given.change(pretrain, "batch_size", lambda size: size if size == _BATCH // 2 else _BATCH, "pretrain")
    given.change(data, "windows", lambda windows: _cut(windows, stage_steps // 4))
    evaluation = given.section("evaluation")
    if not given.is_set("evaluation", "every_steps"):
        evaluation.pop("every_steps", None)
        given.put({"every": _NEVER}, "evaluation", within=evaluation)
    given.put({"compare_outputs": False}, "evaluation", within=evaluation)
    if isinstance(counts := data.get("target_images"), dict):
        given.change(counts, "counts", _ends, "target_images")


def _at_most(most: int) -> Callable[[Any], Any]:
    return lambda value: min(value, most) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _cut(values: Any, most: int) -> Any:
    """Windows that are longer than this are as long; each once."""
    return list(dict.fromkeys(map(_at_most(most), values))) if isinstance(values, list) else values


def _cut_space(space: Any, most: int | None) -> Any:
    """What `chestfed tune` searches, up to this value: a grid, or a range; null (not searched) if nothing remains."""
    if most is None or not isinstance(space, list):
        return space
    cut, least = _cut(space, most), 3 if space[-1:] in (["log"], ["linear"]) else 2
    return cut if len(cut) >= min(least, len(space)) else None


def _ends(values: Any) -> Any:
    """The first and the last of a list."""
    return [values[0], values[-1]] if isinstance(values, list) and len(values) > 2 else values
