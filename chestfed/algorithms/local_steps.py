"""The base of algorithms that repeat one local step, and whose server averages: FedAvg, FedProx, SCAFFOLD.

Such an algorithm is a `client_step`, and whatever else differs from plain averaging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, cast

from chestfed.algorithms.variables import (
    Algorithm,
    Client,
    Gradients,
    Iterate,
    Server,
    from_named_tensors,
    mean_of,
    named_tensors,
)

Local = TypeVar("Local", bound=Iterate)  #: what the server sends, a client changes, and sends back


class LocalStepAlgorithm(Algorithm[Server, Local, Client]):
    """`window` times `client_step` on a copy of the message, then `client_final`.

    As it stands this is for a minimization: the dual variables are the server's, and none go up.
    """

    def local_round(self, message: Local, client: Client, gradients: Gradients) -> tuple[Local, Client]:
        """The client's local steps: what it sends back, and its new state."""
        local = self.client_init(message, client, gradients)
        for _ in range(self.window):
            self.client_step(local, message, client, gradients)
        return self.client_final(local, message, client)

    def client_init(self, message: Local, client: Client, gradients: Gradients) -> Local:
        """The client's variables before its first step: a copy of what the server sent."""
        return from_named_tensors(message, {name: part.clone() for name, part in named_tensors(message).items()})

    def client_step(self, local: Local, message: Local, client: Client, gradients: Gradients) -> None:
        """Change the tensors of `local` in place, by one step with one gradient."""
        raise NotImplementedError

    def client_final(self, local: Local, message: Local, client: Client) -> tuple[Local, Client]:
        """What the client sends, here all that its steps changed, and its new state."""
        return replace(local, dual=message.dual[:0]), client

    def server_round(self, server: Server, updates: Sequence[Local], weights: Sequence[float]) -> Server:
        """The weighted mean of what the clients sent."""
        return cast("Server", replace(mean_of(updates, weights), dual=server.dual))
