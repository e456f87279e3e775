"""A study over the sample hospitals as virtual nodes of Flower's simulation: each is a participant in Flower's workers.

    python -m benchmarks.federation_simulation PIPELINE --out DIR --set KEY=VALUE ...

Used by `benchmarks.engines`; needs `flwr[simulation]`. The messages are those of a deployment; what carries them is
Flower's in-memory grid. A worker keeps the participants that it has answered for, as a hospital's process does, so
there is one worker. The hospitals' folders and their images are in the working folder.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from chestfed.core.errors import ChestfedError
from chestfed.experiment.loading import load_pipeline
from chestfed.federation.flower.line import _parcel_of
from chestfed.federation.flower.records import from_record, to_record
from chestfed.federation.founding import sample_sites
from chestfed.federation.parcels import Parcel
from chestfed.federation.participant import Participant
from chestfed.federation.settings import Federation, FederationFile, Member
from chestfed.federation.study import run_over_hospitals
from chestfed.training.reporting import Reporters
from tests.federation.straight_line import sample_hospital

NAMES = list(sample_sites())
_HOME = "CHESTFED_SIMULATION"
_participants: dict[str, Participant] = {}

hospital = ClientApp()


def _name(context: Context) -> str:
    return NAMES[int(context.node_config["partition-id"])]


@hospital.query()
def who(message: Message, context: Context) -> Message:
    """The hospital that a node is."""
    return Message(RecordDict({"name": ConfigRecord({"name": _name(context)})}), reply_to=message)


@hospital.train()
def answer(message: Message, context: Context) -> Message:
    """A hospital's answer."""
    name = _name(context)
    if name not in _participants:
        home = Path(os.environ[_HOME])
        own = sample_hospital(name, home / "simulated", home / "synthetic_hospitals")
        _participants[name] = Participant(own, lambda text: None)
    question = from_record(message.content, "the server")
    return Message(to_record(_participants[name](question)), reply_to=message)


class GridLine:
    """Carries parcels over Flower's grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        asked = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
        replies = list(grid.send_and_receive(asked))
        self._nodes = {str(reply.content["name"]["name"]): reply.metadata.src_node_id for reply in replies}

    def online(self) -> dict[str, str]:
        return dict.fromkeys(self._nodes, "here")

    def send(self, name: str, parcel: Parcel, seconds: float) -> str:
        (ticket,) = self._grid.push_messages([Message(to_record(parcel), self._nodes[name], "train")])
        return str(ticket)

    def receive(self, tickets: list[str]) -> dict[str, Parcel | ChestfedError]:
        replies = self._grid.pull_messages(tickets)
        return {str(reply.metadata.reply_to_message_id): _parcel_of(reply) for reply in replies}

    def reconnect(self) -> None:
        pass

    def close(self) -> None:
        pass


def main() -> None:
    """Run one study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    os.environ[_HOME] = str(Path.cwd())
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    members = [Member(name=name, key=f"{name}.pub") for name in NAMES]
    file = FederationFile(federation="simulation", address="localhost:9443", hospitals=members)
    study, failures = ServerApp(), list[BaseException]()

    @study.main()
    def lead(grid: Grid, context: Context) -> None:
        try:
            pipeline = load_pipeline(given.pipeline, given.set).resolve()
            federation = Federation(given.out, file)
            run_over_hospitals(pipeline, given.pipeline.stem, federation, GridLine(grid), given.out, Reporters(), print)
        except BaseException as error:
            failures.append(error)
            raise

    one_worker = {"num_cpus": os.cpu_count() or 1, "num_gpus": 0.0}
    run_simulation(study, hospital, len(NAMES), backend_config={"client_resources": one_worker})  # type: ignore[dict-item]
    if failures:
        raise SystemExit(str(failures[0]))


if __name__ == "__main__":
    # Of the module: what belongs to `__main__` is sent to workers as a copy, each time anew.
    from benchmarks import federation_simulation

    federation_simulation.main()
