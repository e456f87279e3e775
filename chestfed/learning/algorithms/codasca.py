"""CODASCA: stochastic controlled averaging for federated deep AUC maximization.

Yuan, Guo, Xu, Ying, Yang: "Federated Deep AUC Maximization for Heterogeneous Data with a Constant Communication
Complexity", ICML 2021, Algorithms 3 (stages) and 4 (one stage). Line numbers below are those of Algorithm 4's
round.

Where the published script departs from the paper, the paper is followed: the reference point is the start of
the stage (not noise, not the clients' own averages), the control variates include the proximal term, nothing
is clipped, alpha steps along its gradient, a round has I local steps, and a stage is a whole number of rounds.

Equation 3 prints the proximal term as 1/(2 gamma) ||v - v_ref||^2, equation 5 as gamma/2: `prox` is its
coefficient lambda in lambda/2 ||v - v_ref||^2, whichever way gamma is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from chestfed.learning.abilities import Can
from chestfed.learning.algorithms.declaration import AlgorithmSpec, ProximalOptions, ServerStepOptions, Setting
from chestfed.learning.algorithms.variables import Algorithm, Gradients, Point, descend_, mean_of


@dataclass(frozen=True)
class State:
    """v, alpha and the control variates c_v, c_alpha (means of the clients' own): 2(d + 3J) numbers each way.

    A client sends up the same of its own: v_I^k, alpha_I^k and its new control variates.
    """

    primal: Tensor
    dual: Tensor
    c_primal: Tensor
    c_dual: Tensor


@dataclass(frozen=True)
class Client:
    """The client's control variates c_v^k, c_alpha^k, and v_ref, known to it from the first message of the stage."""

    c_primal: Tensor
    c_dual: Tensor
    reference: Tensor


@dataclass(frozen=True)
class Codasca(Algorithm[State, State, Client]):
    """Hyper-parameters of one stage of CODASCA."""

    window: int  #: I, local steps between two communications
    local_lr: float  #: eta_l, step size of v at the clients
    dual_lr: float | Tensor  #: step size of alpha: a number, or one per disease `[J]`; the paper uses eta_l for both
    server_lr: float = 1.0  #: eta_g, the server's step along the mean of the clients' changes
    prox: float = 0.0  #: lambda, coefficient of the proximal term

    def start_stage(self, point: Point) -> State:
        """Start at `point` with control variates of zero."""
        return State(point.primal, point.dual, torch.zeros_like(point.primal), torch.zeros_like(point.dual))

    def start_client(self, point: Point) -> Client:
        """Start with control variates of zero and v_ref at the start of the stage."""
        return Client(torch.zeros_like(point.primal), torch.zeros_like(point.dual), point.primal)

    def local_round(self, message: State, client: Client, gradients: Gradients) -> tuple[State, Client]:
        """I local steps from the server's point (lines 4-8), then the new control variates (lines 9-10)."""
        v, alpha = message.primal.clone(), message.dual.clone()
        # The correction is constant within a round; written as (c - c^k) it vanishes exactly for a lone client.
        shift, shift_dual = message.c_primal - client.c_primal, message.c_dual - client.c_dual

        for _ in range(self.window):
            grad_v, grad_alpha = gradients(v, alpha)
            descend_(v, self.local_lr, grad_v, prox=self.prox, reference=client.reference, shift=shift)
            alpha += self.dual_lr * (grad_alpha + shift_dual)

        # Equation 6, with the old c^k and c; it equals the mean of the gradients used above (equation 7).
        c_primal = (message.primal - v) / (self.window * self.local_lr) - shift
        c_dual = (alpha - message.dual) / (self.window * self.dual_lr) - shift_dual
        return State(v, alpha, c_primal, c_dual), Client(c_primal, c_dual, client.reference)

    def server_round(self, server: State, updates: Sequence[State], weights: Sequence[float]) -> State:
        """Average and step by eta_g (lines 12-15). The paper's mean is the equal-weight case."""
        mean = mean_of(updates, weights)
        beyond = self.server_lr - 1  # v + eta_g (mean - v), written so that eta_g = 1 gives the mean exactly
        return State(
            primal=mean.primal + beyond * (mean.primal - server.primal),
            dual=mean.dual + beyond * (mean.dual - server.dual),
            c_primal=mean.c_primal,
            c_dual=mean.c_dual,
        )

    def partial_round(self, server: State, updates: Sequence[State], weights: Sequence[float], share: float) -> State:
        """Average those who answered; c moves by their changes, so that it stays the mean over all clients.

        The paper has no such round. By equation 6 a client's change c_new^k - c^k is (v - v_I^k) / (I eta_l) - c: the
        server knows it. A client that is left out keeps its c^k, whatever it computed meanwhile.
        """
        moved, steps = self.server_round(server, updates, weights), self.window
        theirs = mean_of(updates, weights)
        change = (server.primal - theirs.primal) / (steps * self.local_lr) - server.c_primal
        change_dual = (theirs.dual - server.dual) / (steps * self.dual_lr) - server.c_dual
        return replace(moved, c_primal=server.c_primal + share * change, c_dual=server.c_dual + share * change_dual)


class Options(ProximalOptions, ServerStepOptions):
    """Options of CODASCA."""


def build(options: Options, setting: Setting) -> Codasca:
    """The rule of one stage."""
    return Codasca(
        window=setting.window,
        local_lr=setting.local_lr,
        dual_lr=options.dual_step_size(setting),
        server_lr=options.server_step_size(setting),
        prox=options.prox,
    )


CODASCA = AlgorithmSpec(
    name="codasca",
    title="CODASCA",
    family="min-max AUC",
    paper="Yuan et al., ICML 2021",
    where="Algorithms 3, 4; eq. 2, 6, 7",
    takes=("min-max",),
    objective="auc",
    sends="2(d + 3J)",
    sent="v, alpha and their control variates",
    exact="any window",
    options=Options,
    build=build,
    rule=Codasca,
    can=frozenset({Can.SOME_CLIENTS, Can.UNEQUAL_STEPS}),
)
