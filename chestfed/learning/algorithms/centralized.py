"""The reference: one place that holds all images, with the batches of all clients together.

Nothing is averaged and nothing is sent. It minimizes as FedAvg with a single client, or steps on the AUC loss as CODA+
does with a single client.
"""

from __future__ import annotations

from dataclasses import replace

from chestfed.core.plugins import Options
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.declaration import AlgorithmSpec, ProximalOptions, Setting
from chestfed.learning.algorithms.minimization.fedprox import FedProx


def build(options: Options, setting: Setting) -> FedProx:
    """Plain gradient descent."""
    return FedProx(window=setting.window, local_lr=setting.local_lr)


def build_min_max(options: ProximalOptions, setting: Setting) -> CodaPlus:
    """Descent ascent, the last iterate."""
    return CodaPlus(setting.window, setting.local_lr, options.dual_step_size(setting), options.prox, "last")


CENTRALIZED = AlgorithmSpec(
    name="centralized",
    title="centralized",
    variant="fedavg, one client",
    family="reference",
    paper="-",
    where="one place that holds all images",
    takes=("minimization", "server-weighted"),
    sends="0",
    sent="nothing: the images were moved",
    exact="any window",
    build=build,
    pooled=True,
)

CENTRALIZED_AUC = replace(
    CENTRALIZED,
    name="centralized_auc",
    title="centralized, AUC loss",
    variant="coda_plus, one client, last iterate",
    takes=("min-max",),
    objective="auc",
    options=ProximalOptions,
    build=build_min_max,
)
