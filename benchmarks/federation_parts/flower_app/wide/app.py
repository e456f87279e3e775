"""FedAvg over nodes that take one step of gradient descent on two images, as in `benchmarks.federation`."""

from __future__ import annotations

import time

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

client = ClientApp()
server = ServerApp()


def make_network() -> nn.Module:
    """6,973,405 numbers."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 1700), nn.ReLU(), nn.Linear(1700, 5))


@client.train()
def train(message: Message, context: Context) -> Message:
    """One step on two images."""
    torch.set_num_threads(1)
    network = make_network()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    step = torch.optim.SGD(network.parameters(), lr=0.1)
    targets = torch.randint(0, 2, (2, 5)).float()
    loss = nn.functional.binary_cross_entropy_with_logits(network(torch.rand(2, 1, 64, 64)), targets)
    loss.backward()
    step.step()
    about = MetricRecord({"num-examples": 2, "loss": float(loss)})
    return Message(RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": about}), reply_to=message)


class Timed(FedAvg):
    """Prints when each round begins."""

    def configure_train(self, server_round, arrays, *arguments, **more):
        """See `FedAvg`."""
        print(f"ROUND {server_round} {time.time()}", flush=True)
        self.down = arrays.count_bytes()
        return super().configure_train(server_round, arrays, *arguments, **more)

    def aggregate_train(self, server_round, replies):
        """See `FedAvg`; prints the bytes of the arrays, down and up, of one node."""
        replies = list(replies)
        print(f"BYTES {self.down} {replies[0].content['arrays'].count_bytes()}", flush=True)
        return super().aggregate_train(server_round, replies)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """The rounds."""
    nodes, rounds = int(context.run_config["hospitals"]), int(context.run_config["rounds"])
    strategy = Timed(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(make_network().state_dict()), num_rounds=rounds)
    print(f"ROUND end {time.time()}", flush=True)
