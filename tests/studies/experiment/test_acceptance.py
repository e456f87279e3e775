"""What goes together is what went together when the rules were written pair by pair."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from chestfed.studies.experiment.stage_2 import Federated
from tests.studies.experiment.acceptance import STORED, combinations, is_accepted, list_pairs, unpack

ACCEPTED = json.loads(STORED.read_text())


def test_all_algorithms_are_stored() -> None:
    assert {" ".join(pair) for pair in list_pairs()} == ACCEPTED.keys()
    assert sum(len(unpack(packed)) for packed in ACCEPTED.values()) == 79_872
    assert sum(sum(unpack(packed)) for packed in ACCEPTED.values()) == 7_448


@pytest.mark.slow_but(
    "codasca auc",
    "fedavg ratio_loss",
    "mime cross_entropy",
    "local_scgdam compositional_auc",
    "fedxl2 pool_partial_auc",
    "pdmm cross_entropy",
    "ditto cross_entropy",
    "centralized_auc auc",
)
@pytest.mark.parametrize("pair", ACCEPTED)
def test_accepted_combinations_are_as_stored(pair: str) -> None:
    algorithm, objective = pair.split()
    stored = unpack(ACCEPTED[pair])
    others = [
        chosen
        for chosen, accepted in zip(combinations(), stored, strict=True)
        if is_accepted(algorithm, objective, chosen) != accepted
    ]
    assert not others, f"{len(others)} of {len(stored)}, such as {others[0]}"


def test_removed_sums_are_refused_by_name() -> None:
    with pytest.raises(ValidationError) as refused:
        Federated.model_validate({"algorithm": "fedavg", "aggregation": "secure_sum"})
    (error,) = refused.value.errors()
    assert (error["loc"], error["type"]) == (("aggregation",), "value_error")  # removed, not unknown: with its reason
