"""What robust aggregation costs and saves: the test AUC with 0 to 2 of 5 clients that send false updates.

    python -m benchmarks.hostile_hospitals --save benchmarks/results/hostile_hospitals.json

Handwritten digits with five clients (`pipelines/digits_ih.yaml`, shorter), once with two classes of its own at each
client, once with all classes at each. A hostile client makes its local steps and sends its change backwards, as long as
it is or `SCALE` times as long; all that it sends is well-formed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import chestfed
from chestfed.algorithms.variables import from_named_tensors, named_tensors
from chestfed.core.errors import TrainingError
from chestfed.engines.host import Host
from chestfed.training import assemble

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


def auc(algorithm: str, partition: str, hostile: int, scale: float, rule: str, seed: int, out: Path) -> float | None:
    """The test AUC after the last round; None if training stopped with an error."""
    honest_host = assemble.host_of

    def host_of(setup: Any, cohort: Any, number: int, *rest: Any) -> Host:
        host = honest_host(setup, cohort, number, *rest)
        if number >= CLIENTS - hostile:
            honest = host._rule_of
            host._rule_of = lambda stage: Backwards(honest(stage), scale)
        return host

    settings = [*SETTINGS, f"collection.partition={partition}", *RULES[rule]]
    # A folder of its own: the name of a run says nothing of hostile clients.
    with patch.object(assemble, "host_of", host_of), tempfile.TemporaryDirectory(dir=out) as own:
        try:
            study = chestfed.run(
                "digits_ih", algorithm=algorithm, k=CLIENTS, seed=seed, out=own, overrides=settings, quiet=True
            )
        except TrainingError as error:
            print(error, flush=True)
            return None
        return float(study.rounds()["mean_auc"].iloc[-1])


def cases(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Algorithm, partition, number of hostile clients, attack and rule."""
    scales = [float(scale) for scale in given.scales.split(",")]
    attacks = [(0, 0.0), *product((1, 2), scales)]
    listed = product(given.algorithms.split(","), given.partitions.split(","), attacks, RULES)
    for algorithm, partition, (hostile, scale), rule in listed:
        yield {"algorithm": algorithm, "partition": partition, "hostile": hostile, "scale": scale, "rule": rule}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", default="fedavg,coda_plus")
    parser.add_argument("--partitions", default="random,classes")
    parser.add_argument("--scales", default=f"1,{SCALE:g}", help="how many times as long a change is sent backwards")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", type=Path, help="JSON with every seed of every case; what it has is not run again")
    given = parser.parse_args()
    done = json.loads(given.save.read_text())["rows"] if given.save and given.save.exists() else []
    with tempfile.TemporaryDirectory() as out:
        for case in cases(given):
            row = next((one for one in done if case.items() <= one.items()), None)
            if row is None:
                done.append(row := {**case, "auc": []})
            for seed in range(len(row["auc"]) + 1, given.seeds + 1):
                row["auc"].append(auc(**case, seed=seed, out=Path(out)))
                known = [one for one in row["auc"] if one is not None]
                row["median"] = statistics.median(known) if known else None
                if given.save:
                    given.save.write_text(json.dumps({"rows": done}, indent=1) + "\n")
            print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
