"""Names of models and places for people, made of the typed columns; nothing reads them back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from chestfed.results.tables.columns import CENTRALIZED, COMMON, FINE_TUNED, GATE, OWN_DATA, OWN_DATA_ALL, TARGET_IMAGES

#: Kinds of alternatives -> what tables call them.
ALTERNATIVE_TITLES: Final = {
    OWN_DATA: "own data alone",
    OWN_DATA_ALL: "own data and validation patients",
    FINE_TUNED: "fine-tuned",
    CENTRALIZED: "centralized",
    GATE: "gate",
}
#: Property that tells the models of a table apart.
Telling = Literal["k", "method", "method and window", "method and k"]


def find_telling(models: Iterable[tuple[str, int, int]]) -> Telling:
    """Find what tells models apart that are given by method, window and K: their K, if they are of one method."""
    keys = set(models)
    methods, settings = {method for method, _, _ in keys}, {key[:2] for key in keys}
    if len(settings) < 2:
        return "k"
    if len(settings) > len(methods):
        return "method and window"
    return "method" if len(keys) == len(methods) else "method and k"


def name_model(method: str, window: int, k: int, kind: str, telling: Telling) -> str:
    """The name of a model among those that `telling` tells apart."""
    if kind != COMMON:
        return ALTERNATIVE_TITLES[kind]
    names = {"k": f"K={k}", "method": method, "method and window": f"{method}, I={window}"}
    return names.get(telling, f"{method}, K={k}")


def describe_group(row: Mapping[str, Any]) -> str:
    """Words for the studies of a row: training images of the target, or a set of hospitals; empty of other designs."""
    if row["design"] == TARGET_IMAGES:
        return "all target images" if row["target_images"] is None else f"{row['target_images']} target images"
    return str(row["subset"])


def name_in_group(name: str, row: Mapping[str, Any]) -> str:
    """A model or a place with the words for its group, as `K=3 with 80 target images`."""
    words = describe_group(row)
    return f"{name} {'with' if row['design'] == TARGET_IMAGES else 'in'} {words}" if words else name


def name_place(row: Mapping[str, Any]) -> str:
    """The hospital of a row, with the words for its group."""
    return name_in_group(row["hospital"], row) if row["hospital"] else ""
