"""Which combinations of choices go together: every algorithm, each kind of objective it takes, nine choices of a round.

`python -m tests.studies.experiment.acceptance` writes what is accepted to `acceptance.json`: per algorithm and kind one
bit for each combination, in the order of `combinations`, 1 where it is accepted.
"""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.objectives import OBJECTIVES
from chestfed.studies.experiment.stage_2 import Federated

STORED: Final = Path(__file__).with_name("acceptance.json")

#: Values of each key; the first is the default, which is left out.
CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "clients_per_round": (None, 4),
    "absent": ("wait", "drop"),
    "local_steps": (None, {"stragglers": 0.5}),
    "weights": ("uniform", "images"),
    "server_optimizer": (None, {"kind": "adam"}),
    "compression": (None, {"kind": "top_k"}),
    "aggregation": ("mean", "norm_clipping", "median", "trimmed_mean"),
    "stage_output": ("last", "average", "algorithm", "random_round"),
    "privacy": (None, {"clip": 1.0, "noise_multiplier": 1.0}),
}


def combinations() -> Iterator[dict[str, Any]]:
    """The keys that are set, in every combination: 2,048."""
    for values in itertools.product(*CHOICES.values()):
        yield {key: value for key, value in zip(CHOICES, values, strict=True) if value != CHOICES[key][0]}


def list_pairs() -> Iterator[tuple[str, str]]:
    """Every algorithm with an objective of each kind that it takes, its own where it is of that kind."""
    for name, spec in ALGORITHMS.built_in.items():
        for kind in spec.takes:
            fitting = [key for key, objective in OBJECTIVES.built_in.items() if objective.kind == kind]
            yield name, spec.objective if spec.objective in fitting else fitting[0]


def is_accepted(algorithm: str, objective: str, chosen: dict[str, Any]) -> bool:
    """Whether these go together."""
    try:
        Federated.model_validate({"algorithm": algorithm, "objective": objective, **chosen}).check()
    except ValueError:
        return False
    return True


def list_accepted(algorithm: str, objective: str) -> str:
    """The bits of all combinations, packed: `unpack` gives them back."""
    bits = [is_accepted(algorithm, objective, chosen) for chosen in combinations()]
    whole = int("".join("01"[bit] for bit in bits), 2).to_bytes(len(bits) // 8, "big")
    return base64.b64encode(zlib.compress(whole, 9)).decode()


def unpack(packed: str) -> list[bool]:
    """One bit per combination."""
    whole = zlib.decompress(base64.b64decode(packed))
    return [bool(byte >> (7 - place) & 1) for byte in whole for place in range(8)]


if __name__ == "__main__":
    found = {f"{algorithm} {objective}": list_accepted(algorithm, objective) for algorithm, objective in list_pairs()}
    STORED.write_text(json.dumps(found, indent=1) + "\n")
    print(len(found), 2048 * len(found), sum(sum(unpack(packed)) for packed in found.values()))
