"""The algorithms by name: where they come from, what they send, what they minimise. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Family = Literal["min-max AUC", "compositional", "minimisation", "without a server", "reference"]

#: What a client or node can be asked to train on; see `chestfed.objectives`.
OBJECTIVES = {
    "auc": "min-max AUC square loss (objectives/auc_margin.py)",
    "compositional_auc": "AUC of a network after a step along its cross-entropy (objectives/compositional.py)",
    "cross_entropy": "binary cross-entropy (objectives/cross_entropy.py)",
    "ratio_loss": "cross-entropy weighted by the classes' scarcity (objectives/ratio_loss.py)",
}


@dataclass(frozen=True)
class Entry:
    """One algorithm.

    `sends` is what a client sends per round, d numbers being the weights and J the diseases, and as much comes down,
    with the Ratio Loss 2J ratios more; `objectives` are those it takes, the first by default; `optimum` says where it
    ends up with unlike clients and a constant step.
    """

    name: str
    title: str
    family: Family
    paper: str
    where: str
    file: str
    sends: str
    objectives: tuple[str, ...]
    optimum: str


_ICML21 = "Yuan et al., ICML 2021"
_NEURIPS23 = "Zhang et al., NeurIPS 2023"
_EITHER = ("cross_entropy", "ratio_loss")

CATALOGUE: tuple[Entry, ...] = (
    Entry(
        "codasca", "CODASCA", "min-max AUC", _ICML21, "Algorithms 3, 4; eq. 2, 6, 7", "codasca.py",
        "v, alpha, c_v, c_alpha: 2(d + 3J); communication: minimal: d + 3J", ("auc",), "the optimum, at any window",
    ),
    Entry(
        "coda_plus", "CODA+", "min-max AUC", _ICML21, "Algorithms 1, 2; eq. 2, 3", "coda_plus.py",
        "v, alpha: d + 3J, and their averages once a stage", ("auc",), "off it when the window is above 1",
    ),
    Entry(
        "coda", "CODA", "min-max AUC", "Guo et al., ICML 2020", "Algorithms 1, 2", "coda.py",
        "as CODA+: d + 3J, and the best alpha between two stages: J", ("auc",), "off it when the window is above 1",
    ),
    Entry(
        "npa", "NPA, small batch", "min-max AUC", _ICML21, "section 6; Algorithm 2 with I = 1", "coda_plus.py",
        "v, alpha after every step: d + 3J", ("auc",), "the optimum",
    ),
    Entry(
        "npa_large_batch", "NPA, large batch", "min-max AUC", _ICML21, "section 6; Algorithm 2 with I = 1",
        "coda_plus.py", "v, alpha after every step on `window` batches at once: d + 3J", ("auc",), "the optimum",
    ),
    Entry(
        "local_scgdam", "LocalSCGDAM", "compositional", _NEURIPS23, "Algorithm 1, exact J'q", "local_scgdam.py",
        "x, y, h and two gradient averages: 3d + 8J", ("compositional_auc",),
        "off it when the window is above 1 or the inner functions differ",
    ),
    Entry(
        "local_sgdam", "LocalSGDAM", "compositional", _NEURIPS23, "baseline: Algorithm 1 without g", "local_sgdam.py",
        "x, y and two gradient averages: 2(d + 3J)", ("auc",), "off it when the window is above 1",
    ),
    Entry(
        "local_sgda", "CoDA as Zhang et al. run it", "compositional", _NEURIPS23, "baseline: local SGDA",
        "coda_plus.py", "x, y: d + 3J", ("auc",), "off it when the window is above 1",
    ),
    Entry(
        "local_sgdm", "LocalSGDM", "minimisation", "Yu, Jin, Yang, ICML 2019", "Algorithm 1", "local_sgdm.py",
        "w and the momentum: 2d", ("cross_entropy",), "off it when the window is above 1",
    ),
    Entry(
        "local_sgdm_ratio", "LocalSGDM with the Ratio Loss", "minimisation", "Wang et al., AAAI 2021; " + _NEURIPS23,
        "weights alpha + beta R", "local_sgdm.py", "w and the momentum: 2d; down also 2J ratios", ("ratio_loss",),
        "off it when the window is above 1",
    ),
    Entry(
        "scaffold", "SCAFFOLD", "minimisation", "Karimireddy et al., ICML 2020", "Algorithm 1, option II",
        "scaffold.py", "the changes of w and c: 2d", _EITHER, "the optimum, at any window",
    ),
    Entry(
        "fedprox", "FedProx", "minimisation", "Li et al., MLSys 2020", "Algorithm 2", "fedprox.py", "w: d", _EITHER,
        "off it when the window is above 1",
    ),
    Entry(
        "fedavg", "FedAvg", "minimisation", "McMahan et al., AISTATS 2017", "Algorithm 1", "fedprox.py", "w: d",
        _EITHER, "off it when the window is above 1",
    ),
    Entry(
        "pdmm", "PDMM-SGD", "without a server", "Niwa et al., KDD 2020", "the U and X steps, PDMM", "edge_consensus.py",
        "along each edge y, with rho also w: d or 2d", ("cross_entropy",), "the optimum, at any window",
    ),
    Entry(
        "admm", "ADMM-SGD", "without a server", "Niwa et al., KDD 2020", "the U and X steps, ADMM", "edge_consensus.py",
        "along each edge y, with rho also w: d or 2d", ("cross_entropy",), "the optimum, at any window",
    ),
    Entry(
        "gossip", "gossip SGD", "without a server", "Xiao, Boyd, Lall, IPSN 2005; Boyd et al., IEEE TIT 2006",
        "Metropolis weights; pairwise averaging", "gossip.py", "along each edge w: d", ("cross_entropy",),
        "off it, in proportion to step and window",
    ),
    Entry(
        "centralised", "centralised", "reference", "-", "one place that holds all images", "fedprox.py, coda_plus.py",
        "nothing: the images were moved", ("cross_entropy", "ratio_loss", "auc"), "the optimum",
    ),
)  # fmt: skip

BY_NAME = {entry.name: entry for entry in CATALOGUE}


def names_of(*families: Family) -> tuple[str, ...]:
    """The algorithms of some families."""
    return tuple(entry.name for entry in CATALOGUE if entry.family in families)


def algorithms_for(objective: str) -> Sequence[str]:
    """The algorithms that take an objective."""
    return [entry.name for entry in CATALOGUE if objective in entry.objectives]
