"""Mutants of CODASCA's source: what a slip of the pen would look like, and the published script's departures."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

#: name -> (text in the source, its replacement). Each text must stand in the source exactly once.
CODASCA_MUTANTS: dict[str, tuple[str, str]] = {
    "dual descends": ("alpha += self.dual_lr * (grad_alpha", "alpha -= self.dual_lr * (grad_alpha"),
    "correction has the wrong sign": ("shift=shift)", "shift=-shift)"),
    "correction is forgotten": (", shift=shift)", ")"),
    "dual correction has the wrong sign": ("(grad_alpha + shift_dual)", "(grad_alpha - shift_dual)"),
    "dual correction is forgotten": ("(grad_alpha + shift_dual)", "grad_alpha"),
    "proximal term is forgotten": ("prox=self.prox", "prox=0.0"),
    "proximal term has the wrong sign": ("prox=self.prox", "prox=-self.prox"),
    "proximal term is doubled": ("prox=self.prox", "prox=2 * self.prox"),
    "new control variates use the new c^k": (
        "(self.window * self.local_lr) - shift\n",
        "(self.window * self.local_lr)\n",
    ),
    "new control variates add the correction": (
        "(self.window * self.local_lr) - shift\n",
        "(self.window * self.local_lr) + shift\n",
    ),
    "new dual control variates add the correction": (
        "(self.window * self.dual_lr) - shift_dual",
        "(self.window * self.dual_lr) + shift_dual",
    ),
    "divisor is off by one": (
        "(message.primal - v) / (self.window",
        "(message.primal - v) / ((self.window + 1)",
    ),
    "dual divisor is off by one": (
        "(alpha - message.dual) / (self.window",
        "(alpha - message.dual) / ((self.window - 1 or 2)",
    ),
    "divisor uses the dual step size": ("(self.window * self.local_lr)", "(self.window * self.dual_lr)"),
    "control variate has the wrong sign": ("(message.primal - v) /", "(v - message.primal) /"),
    "reference point is noise": (
        "torch.zeros_like(point.dual), point.primal)",
        "torch.zeros_like(point.dual), 0.1 * torch.randn_like(point.primal))",
    ),
    "reference point is the round's start": ("reference=client.reference", "reference=message.primal"),
    "gradients are clipped": (
        "grad_v, grad_alpha = gradients(v, alpha)",
        "grad_v, grad_alpha = (g.clamp(-1, 1) for g in gradients(v, alpha))",
    ),
    "server step is ignored": ("beyond = self.server_lr - 1", "beyond = 0.0"),
    "server step is counted from the mean": ("beyond = self.server_lr - 1", "beyond = self.server_lr"),
    "server ignores the weights of c": (
        "c_primal=mean.c_primal",
        "c_primal=mean_of(updates, [1 / len(weights)] * len(weights)).c_primal",
    ),
    "server ignores the weights of v": (
        "mean = mean_of(updates, weights)",
        "mean = mean_of(updates, [1 / len(weights)] * len(weights))",
    ),
    "server keeps its control variates": (
        "c_primal=mean.c_primal",
        "c_primal=server.c_primal",
    ),
    "one local step too many": ("range(self.window)", "range(self.window + 1)"),
    "one client's point is taken for the mean": (
        "primal=mean.primal + beyond",
        "primal=updates[0].primal + beyond",
    ),
}


def build_mutant(module_name: str, old: str, new: str) -> ModuleType:
    """The module with one piece of its source replaced; the module itself is untouched."""
    original = importlib.import_module(module_name)
    assert original.__file__ is not None
    source = Path(original.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"the mutated text stands {source.count(old)} times in {module_name}: {old!r}"
    name = f"{module_name}_mutant"
    mutant = ModuleType(name)
    sys.modules[name] = mutant  # dataclasses look their module up
    try:
        exec(compile(source.replace(old, new), f"<{name}>", "exec"), mutant.__dict__)
    finally:
        del sys.modules[name]
    return mutant
