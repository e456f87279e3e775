"""CODASCA with half the communication: v and alpha up, v and alpha down, and the same iterates.

With full participation and the same window everywhere, the server's control variate is a function of two
consecutive broadcasts: by equation 6 the mean of the new c_v^k is (v_{r-1} - mean v_I^k) / (I eta_l), and the
server's step is v_r - v_{r-1} = eta_g (mean v_I^k - v_{r-1}), so that c_v = (v_{r-1} - v_r) / (I eta_l eta_g), and
likewise c_alpha. Clients compute it themselves; it is not sent. Equal to `codasca.py` up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from chestfed.learning.algorithms import codasca
from chestfed.learning.algorithms.declaration import Setting
from chestfed.learning.algorithms.variables import Algorithm, Gradients, Point


@dataclass(frozen=True)
class Client:
    """c_v^k, c_alpha^k, v_ref, the last broadcast v and alpha, and the number of finished rounds."""

    c_primal: Tensor
    c_dual: Tensor
    reference: Tensor
    last_primal: Tensor
    last_dual: Tensor
    rounds: Tensor


@dataclass(frozen=True)
class CodascaMinimal(Algorithm[Point, Point, Client]):
    """`rule` is the published algorithm with its hyper-parameters; only what is sent differs."""

    rule: codasca.Codasca

    @property
    def window(self) -> int:  # type: ignore[override]
        """I."""
        return self.rule.window

    def start_client(self, point: Point) -> Client:
        """Control variates of zero."""
        zero, zero_dual = torch.zeros_like(point.primal), torch.zeros_like(point.dual)
        return Client(zero, zero_dual, point.primal, point.primal, point.dual, torch.zeros((), dtype=torch.int64))

    def local_round(self, message: Point, client: Client, gradients: Gradients) -> tuple[Point, Client]:
        """Derive c from this broadcast and the last one, then Algorithm 4's local round."""
        rule, c_primal, c_dual = self.rule, torch.zeros_like(message.primal), torch.zeros_like(message.dual)
        if client.rounds > 0:
            c_primal = (client.last_primal - message.primal) / (rule.window * rule.local_lr * rule.server_lr)
            c_dual = (message.dual - client.last_dual) / (rule.window * rule.dual_lr * rule.server_lr)
        update, new = rule.local_round(
            codasca.State(message.primal, message.dual, c_primal, c_dual),
            codasca.Client(client.c_primal, client.c_dual, client.reference),
            gradients,
        )
        state = Client(new.c_primal, new.c_dual, client.reference, message.primal, message.dual, client.rounds + 1)
        return Point(update.primal, update.dual), state

    def server_round(self, server: Point, updates: Sequence[Point], weights: Sequence[float]) -> Point:
        """Average and step by eta_g: Algorithm 4's, without control variates."""
        zero, zero_dual = torch.zeros_like(server.primal), torch.zeros_like(server.dual)
        full, *parts = (codasca.State(part.primal, part.dual, zero, zero_dual) for part in (server, *updates))
        return self.rule.current(self.rule.server_round(full, parts, weights))


def build(options: codasca.Options, setting: Setting) -> CodascaMinimal:
    """The rule of one stage."""
    return CodascaMinimal(codasca.build(options, setting))


CODASCA_MINIMAL = replace(
    codasca.CODASCA,
    name="codasca_minimal",
    title="CODASCA, half the bytes",
    paper="none; derived from CODASCA",
    where="as CODASCA; the control variates are derived, not sent",
    sends="d + 3J",
    sent="v and alpha",
    build=build,
    rule=CodascaMinimal,
    note="CODASCA's iterates up to rounding",
    can=frozenset(),  # c is derived from what all clients sent
)
