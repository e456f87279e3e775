"""`check_model`: the contract of a network."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from chestfed.core.checkpoint import load_checkpoint, save_checkpoint
from chestfed.learning.models import (
    MODELS,
    FlatModule,
    ModelOptions,
    ModelSpec,
    build_model,
    find_classifier,
    load_trained,
    seeded,
    try_network,
)
from chestfed.testing.contract import Contract, find_declaration, rule, watch_global_generators

#: Images of the batch that is looked at.
IMAGES = 4


def check_model(model: ModelSpec | str, *, size: int = 64, outputs: int = 5, **options: object) -> list[str]:
    """Check a network against the contract of `chestfed.learning.models.ModelSpec`.

    `model` is a declaration, or a name or reference as in a pipeline; `size` is the side of the images, `outputs` the
    number of diseases; `options` are options of the network.

    Returns
    -------
    list of str
        The rules that were checked, all of them kept.

    Raises
    ------
    ContractError
        With every rule that is broken.
    ConfigError
        If there is no such network, or an option is not one of its own.
    """
    return _Network(*find_declaration(MODELS, model, options), size, outputs).check()


class _Network(Contract):
    decisive = "images of [n, 3, size, size] become logits [n, outputs]"  # without it all others would say the same

    def __init__(self, spec: ModelSpec, options: ModelOptions, size: int, outputs: int) -> None:
        self.spec, self.options, self.size, self.outputs = spec, options, size, outputs
        self.what = f"network '{options.name}'"
        self.images = torch.randn(IMAGES, 3, size, size, generator=torch.Generator().manual_seed(0))

    @rule(decisive)
    def gives_logits(self) -> str | None:
        for outputs in dict.fromkeys((self.outputs, 1)):  # with one, squeeze() loses the axis of the outputs
            try_network(self.options, outputs, self.size, self.spec)
        return None

    @rule("its outputs are logits, not probabilities")
    def is_unbounded(self) -> str | None:
        model = self._built().eval()
        _, layer = find_classifier(model, self.options, self.outputs, self.spec)
        with torch.no_grad(), seeded(5):
            layer.weight.normal_(std=10.0)  # type: ignore[operator]
            outputs = model(self.images)
        inside = bool(((outputs >= 0) & (outputs <= 1)).all())
        return "all lie between 0 and 1, whatever its last layer: leave sigmoid or softmax out" if inside else None

    @rule("an option that it does not have is refused")
    def refuses_idle_options(self) -> str | None:
        return self.refuses_unknown(self.spec.options, self.options.name)

    @rule("its weights are a function of the seed")
    def follows_the_seed(self) -> str | None:
        first, again, other = (self._built(seed).state_dict() for seed in (1, 1, 2))
        unlike = [name for name in first if not torch.equal(first[name], again[name])]
        if unlike:
            return f"'{unlike[0]}' differs between two networks of one seed: draw it with torch.nn.init"
        if self.options.initial_weights is None and all(torch.equal(first[name], other[name]) for name in first):
            return "two seeds give the same weights"
        return None

    @rule("what it draws in training is a function of the seed")
    def trains_reproducibly(self) -> str | None:
        used: list[str] = []
        model = self._built().train()
        with watch_global_generators(used):
            passes: list[Tensor] = []
            for _ in range(2):
                with seeded(3):
                    passes.append(model(self.images))
        if not torch.equal(passes[0], passes[1]):
            return "two passes in training mode with one seed differ: draw from torch's generator"
        return f"draws from the global generators of {', '.join(used)}" if used else None

    @rule("gradients reach all trainable parameters")
    def passes_gradients(self) -> str | None:
        model = self._built().train()
        named = {name: part for name, part in model.named_parameters() if part.requires_grad}
        with seeded(3):
            loss = model(self.images).square().sum()
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        unused = [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]
        if unused:
            return f"no gradient reaches '{unused[0]}' ({len(unused)} of {len(named)}): freeze or remove it"
        return None

    @rule("in evaluation mode it draws nothing, and an image's logits do not depend on the others")
    def is_steady(self) -> str | None:
        used: list[str] = []
        model = self._built().eval()
        with torch.no_grad(), watch_global_generators(used):
            together, again = model(self.images), model(self.images)
            alone = torch.cat([model(self.images[place : place + 1]) for place in range(IMAGES)])
        if used or not torch.equal(together, again):
            return "two passes in evaluation mode differ, or draw random numbers"
        return None if _near(alone, together) else "an image alone has other logits than in a batch"

    @rule("its parameters can be views of one vector")
    def can_be_flat(self) -> str | None:
        network = FlatModule(self._built())
        vector = network.parameters()
        network.bind(vector)
        model = network.module.train()
        before = list(model.buffers())
        with seeded(3):
            network.differentiate(model(self.images).square().sum())
        if any(new is not old for new, old in zip(model.buffers(), before, strict=True)):
            return "it replaces a buffer in training; change it in place"
        if not network.grad.any():
            return "no gradient arrives in the one vector: it replaces its parameters or their gradients"
        stored = network.buffers()
        network.load_buffers(stored)
        model.eval()
        with torch.no_grad():
            vector.mul_(1.01)
            bound, called = model(self.images), network.call(vector.clone(), self.images)
            unmoved = network.call(vector / 1.01, self.images)
        if not _near(called, bound):
            return "called with the same parameters it gives other logits: it keeps copies of its parameters"
        return "its logits do not depend on its parameters" if torch.equal(bound, unmoved) else None

    @rule("its weights survive a file")
    def survives_a_file(self) -> str | None:
        model, other = self._built(1).eval(), self._built(2).eval()
        with TemporaryDirectory(prefix="chestfed-") as folder:
            file = Path(folder) / "model.safetensors"
            save_checkpoint(file, model.state_dict(), {})
            load_trained(other, load_checkpoint(file)[0], "its own weights", self.spec.renamed)
        with torch.no_grad():
            same = torch.equal(model(self.images), other(self.images))
        return None if same else "with the same state_dict it gives other logits: something it needs is not in it"

    @rule("its classifier can be drawn anew, and nothing else changes")
    def can_reset_classifier(self) -> str | None:
        model = self._built()
        place, layer = find_classifier(model, self.options, self.outputs, self.spec)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with seeded(7):
            layer.reset_parameters()  # type: ignore[operator]
        changed = [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])]
        beyond = [name for name in changed if not name.startswith(f"{place}.")]
        if beyond:
            return f"drawing '{place}' anew changes '{beyond[0]}' too"
        return None if changed else f"drawing '{place}' anew changes nothing"

    def _built(self, seed: int = 1) -> nn.Module:
        return build_model(self.options, self.outputs, seed, self.spec)


def _near(a: Tensor, b: Tensor) -> bool:
    scale = float(b.abs().max()) or 1.0
    return torch.allclose(a, b, rtol=1e-4, atol=1e-4 * scale)
