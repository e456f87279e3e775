"""Nodes on the ranks of torch.distributed: their messages go from rank to rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chestfed.learning.engines.torchrun import Options
from chestfed.leaves.decentralized.peers import PeerEngine, Peers
from chestfed.studies.training.assemble import Deployment
from chestfed.studies.training.data.collection import load_collection
from chestfed.studies.training.deployments.ranks import Ranks
from tests.learning.engines.forked_ranks import fork_ranks
from tests.studies.training.test_resume_algorithms import make_pipeline
from tests.studies.training.test_together import MACHINE, train


@pytest.mark.parametrize(("clients", "parts"), [(5, 1), (3, 2)])
def test_neighbors_messages_do_not_pass_rank_0(
    clients: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits of one process on a ring, with four ranks: one has two clients, or one client has two."""
    more = ["model.norm=group", "pretrain.epochs=0.02", "evaluation.batch_size=64", f"runtime.batch_parts={parts}"]
    pipeline = make_pipeline("gossip", *more, f"collection.clients={clients}", f"k=[{clients}]")
    setup, passed = load_collection(pipeline, None, MACHINE), list[int]()
    run_round = PeerEngine.run_round

    def work() -> tuple[list[bytes], list[int]]:
        with Ranks(Options(name="torchrun", timeout=120), MACHINE) as ranks:
            if not ranks.leads:
                ranks.serve(lambda: [setup])
                return [], []

            def measure_round(engine: PeerEngine[Any, Any], state: Peers) -> Any:
                before = ranks.link.sent + ranks.link.received
                ended = run_round(engine, state)
                passed.append(ranks.link.sent + ranks.link.received - before)
                return ended

            monkeypatch.setattr(PeerEngine, "run_round", measure_round)
            ranks.begin([setup])
            return train(tmp_path / "ranks", ranks, setup, clients), passed

    expected = train(tmp_path / "alone", Deployment(), setup, clients)
    ((found, sizes), *_) = fork_ranks(tmp_path, 4, work)
    assert found == expected
    vectors = 2 * (clients - 1) + 4  # point and mean gradient of the others; what its own node sends and takes
    assert max(sizes) < 1.1 * vectors * len(expected[2])
