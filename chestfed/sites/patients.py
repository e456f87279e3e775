"""Patients' ids that a program has rewritten: one person under two spellings."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pandas as pd

_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")


def plain_id(name: str) -> str:
    """An id in small letters, without blanks, invisible characters, or the `.0` of a number."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(letter for letter in folded if unicodedata.category(letter) not in _INVISIBLE)
    return re.sub(r"(?<=\d)[.,]0+$", "", visible)


def similar_ids(frame: pd.DataFrame) -> dict[int, int]:
    """Rows whose patient is, but for the spelling of the id, in another split at an earlier row.

    Keys and values are places in the frame, which has the columns `patient` and `split`: one pair per person. Ids that
    are the same are not reported.
    """
    names = frame[["patient", "split"]].drop_duplicates()
    plain = names["patient"].astype(str).map(plain_id)
    places = pd.Series(np.arange(len(frame)), index=frame.index)[names.index]
    pairs: dict[int, int] = {}
    for _, group in names.assign(place=places).groupby(plain.to_numpy(), sort=False):
        if group["patient"].nunique() > 1 and group["split"].nunique() > 1:
            first = group.iloc[0]
            others = group[(group["split"] != first["split"]) & (group["patient"] != first["patient"])]
            if len(others):
                pairs[int(others["place"].iloc[0])] = int(first["place"])
    return pairs
