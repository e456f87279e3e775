"""What robust aggregation costs and saves: the test AUC with 0 to 2 of 5 clients that send false updates.

Handwritten digits with five clients (`pipelines/digits_ih.yaml`, shorter), once with two classes of its own at each
client, once with all classes at each. A hostile client makes its local steps and sends its change backwards, at its own
length or `SCALE` times as long; all that it sends is well-formed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chestfed
from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.variables import from_named_tensors, named_tensors
from chestfed.learning.engines.host import Host
from chestfed.studies.training import assemble

pytestmark = pytest.mark.campaign
CLIENTS, SCALE = 5, 10.0
RULES = {
    "mean": (),
    "norm_clipping": ("federated.aggregation=norm_clipping",),
    "trimmed_mean, trim 1": ("federated.aggregation=trimmed_mean",),
    "trimmed_mean, trim 2 (median)": ("federated.aggregation=median",),
}
SETTINGS = (
    *("collection.imratio=null", "model.blocks=[1,1]"),
    *("federated.stages=1", "federated.stage_steps=240", "federated.window=8", "federated.batch_size=8"),
    *("evaluation.every=1000", "evaluation.resamples=0"),
)


class Backwards:
    """A rule whose client sends `-scale` times its change."""

    def __init__(self, rule: Any, scale: float) -> None:
        self._rule, self._scale = rule, scale

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rule, name)

    def local_round(self, message: Any, client: Any, oracle: Any) -> tuple[Any, Any]:
        """The rule's, with every tensor turned around what the server sent."""
        update, client = self._rule.local_round(message, client, oracle)
        sent = named_tensors(message)
        turned = {
            name: sent[name] - self._scale * (tensor - sent[name]) if tensor.numel() else tensor
            for name, tensor in named_tensors(update).items()
        }
        return from_named_tensors(update, turned), client


def train(partition: str, hostile: int, scale: float, rule: str, out: Path, patch: pytest.MonkeyPatch) -> float | None:
    """The test AUC of FedAvg after the last round; None if training stopped with an error."""
    make_honest = assemble.make_member_host

    def make_host(setup: Any, cohort: Any, number: int, *rest: Any) -> Host:
        host = make_honest(setup, cohort, number, *rest)
        if number >= CLIENTS - hostile:
            honest = host._rule_of
            host._rule_of = lambda stage: Backwards(honest(stage), scale)
        return host

    patch.setattr(assemble, "make_member_host", make_host)
    settings = [*SETTINGS, f"collection.partition={partition}", *RULES[rule]]
    try:
        study = chestfed.run("digits_ih", algorithm="fedavg", k=CLIENTS, out=out, overrides=settings, quiet=True)
    except TrainingError:
        return None
    return float(study.rounds()["mean_auc"].iloc[-1])


@pytest.mark.parametrize("partition", ["random", "classes"])
@pytest.mark.parametrize(("hostile", "scale"), [(0, 0.0), (1, 1.0), (1, SCALE), (2, 1.0), (2, SCALE)])
def test_robust_rules_with_hostile_hospitals(
    partition: str,
    hostile: int,
    scale: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    save_figures: Callable[[str, Any], None],
) -> None:
    """A folder for each rule: the name of a run does not depend on hostile clients."""
    aucs = {rule: train(partition, hostile, scale, rule, tmp_path / rule, monkeypatch) for rule in RULES}
    save_figures(f"hostile_hospitals, {partition}, {hostile} of {CLIENTS}, {scale:g} times", aucs)
    if (hostile, scale) == (1, SCALE):
        assert aucs["mean"] is None or aucs["mean"] < 0.6
        assert all(auc is not None and auc > 0.6 for rule, auc in aucs.items() if rule != "mean")
