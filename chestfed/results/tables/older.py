"""Tables of version 1, whose rows said in display texts alone what they are about; read nowhere else.

model, reference   `K=3`, `codasca`, `codasca, I=8`, `own data alone`; of studies that differ in the target's images
or in sets of hospitals followed by ` with 80 target images` or ` in a + b`
hospital           at hospitals, such words followed this name instead
"""

from __future__ import annotations

import re
from typing import Any, Final

import pandas as pd

from chestfed.results.tables.columns import COMMON, COMPARED, HELD_OUT, SUBSETS, TARGET_IMAGES
from chestfed.results.tables.titles import ALTERNATIVE_TITLES

_GROUP: Final = re.compile(r"(?P<name>.+?)(?: with (?P<images>all|\d+) target images| in (?P<subset>.+ \+ .+))")
_KINDS: Final = {title: kind for kind, title in ALTERNATIVE_TITLES.items()}


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a file of version 1 with the columns of today that their texts hold."""
    held_out = "algorithm" in frame and (frame["algorithm"] == "").all()  # of the view held_out alone
    rows = [_complete(row, held_out=bool(held_out)) for row in frame.to_dict("records")]
    return pd.DataFrame(rows, columns=None if rows else frame.columns)


def _complete(row: dict[Any, Any], *, held_out: bool) -> dict[Any, Any]:
    if held_out:
        return {**row, "design": HELD_OUT, "site_out": row["model"], "kind": COMMON}
    (model, group), (reference, _), (hospital, of_place) = (
        _split(row.get(column, "")) for column in ("model", "reference", "hospital")
    )
    about = _read_model(model, row) | {f"reference_{name}": value for name, value in _read_model(reference, {}).items()}
    return {**row, **about, "design": COMPARED, "hospital": hospital, **group, **of_place}


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """A name, and the words that follow it as columns."""
    found = _GROUP.fullmatch(text)
    if found is None:
        return text, {}
    if images := found["images"]:
        return found["name"], {"design": TARGET_IMAGES, "target_images": None if images == "all" else int(images)}
    return found["name"], {"design": SUBSETS, "subset": found["subset"]}


def _read_model(name: str, row: dict[Any, Any]) -> dict[str, Any]:
    """Method, window, K and kind, of which an estimate has window and K in columns."""
    if name in _KINDS:
        return {"method": row.get("algorithm", ""), "kind": _KINDS[name]}
    if found := re.fullmatch(r"K=(\d+)", name):
        return {"method": row.get("algorithm", ""), "k": int(found[1]), "kind": COMMON}
    method, _, window = name.partition(", I=")
    return {"method": method, "kind": COMMON} | ({"window": int(window)} if window.isdigit() else {})
