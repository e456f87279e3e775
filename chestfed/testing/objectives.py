"""`check_objective`: the contract of an objective."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from chestfed.core.plugins import Options
from chestfed.learning.objectives import OBJECTIVES, ObjectiveSpec
from chestfed.learning.objectives.declaration import (
    Objective,
    Outputs,
    Population,
    Sampled,
    Seeing,
    Seen,
    ServerEstimate,
    count_shared,
)
from chestfed.testing.contract import Contract, find_declaration, rule, watch_global_generators

#: Images and diseases of the batch that is looked at.
IMAGES, DISEASES = 12, 3
#: Steps of Adam on scores that are free, and their size: random scores are then in order.
STEPS, STEP = 200, 0.1
#: A logit whose sigmoid is 0 or 1 in float32.
LARGE = 120.0
SCALAR = "the loss is one finite number that depends on the logits"
SEES = "what it sees of the network has finite gradients"
SAMPLED = "with an empty memory it is the loss of the batch"


def check_objective(objective: ObjectiveSpec | str, **options: object) -> list[str]:
    """Check an objective against the contract of `chestfed.learning.objectives.declaration`.

    `objective` is a declaration, or a name or reference as in a pipeline; `options` are options of the objective.

    Returns
    -------
    list of str
        The rules that were checked, all of them kept.

    Raises
    ------
    ContractError
        With every rule that is broken.
    """
    return _Batch(*find_declaration(OBJECTIVES, objective, options)).check()


class _Batch(Contract):
    """Logits, labels and variables in float64, from a generator of their own."""

    decisive = SCALAR  # without a loss all later rules would say the same

    def __init__(self, spec: ObjectiveSpec, options: Options) -> None:
        draw = torch.Generator().manual_seed(0)
        ratio = torch.tensor([0.2, 0.5, 0.05], dtype=torch.float64)
        self.spec, self.what = spec, f"objective '{spec.name}'"
        ratios = torch.stack([ratio, ratio.flip(0)])
        self.loss_of: Objective = spec.build(options, Population(ratio, ratios))
        self.loss_in_float32: Objective = spec.build(options, Population(ratio.float(), ratios.float()))
        self.unclaimed = frozenset(
            name
            for name, protocol in {SAMPLED: Sampled, SEES: Seeing}.items()
            if not isinstance(self.loss_of, protocol)
        )
        self.logits = torch.randn(IMAGES, DISEASES, generator=draw, dtype=torch.float64)
        self.labels = (torch.rand(IMAGES, DISEASES, generator=draw, dtype=torch.float64) < 0.4).double()
        self.labels[0], self.labels[1] = 0.0, 1.0  # both classes of every disease
        share = self.labels.mean(dim=0)
        self.loss_of_all: Objective = spec.build(options, Population(share, torch.stack([share, share])))
        self.extra = torch.randn(self.loss_of.extra_size, generator=draw, dtype=torch.float64)
        self.dual = torch.randn(self.loss_of.dual_size, generator=draw, dtype=torch.float64).abs()
        size = count_shared(self.loss_of)
        #: Numbers that the server sends for the loss, as a further argument.
        self.shared = (torch.randn(size, generator=draw, dtype=torch.float64).abs(),) if size else ()

    def loss(self, logits: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        logits = self.logits if logits is None else logits
        return self.loss_of.loss(logits, self.labels if labels is None else labels, self.extra, self.dual, *self.shared)

    @rule("its variables are those of its kind")
    def sizes_fit(self) -> str | None:
        extra, dual, shared = self.loss_of.extra_size, self.loss_of.dual_size, count_shared(self.loss_of)
        if self.spec.kind == "minimization" and (extra or dual):
            return f"a minimization has no variables of its own; it has {extra} primal and {dual} dual ones"
        if self.spec.kind == "minimization" and shared:
            return f"nobody sends what is shared with a minimization; its shared_shape has {shared} numbers"
        if self.spec.kind == "min-max" and not dual:
            return "a min-max objective needs dual variables; dual_size is 0"
        if self.spec.kind == "server-weighted" and not isinstance(self.loss_of, ServerEstimate):
            return "the server estimates what is shared: write `estimate_shared(logits, features, labels)`"
        if isinstance(self.loss_of, ServerEstimate):
            features = torch.ones(IMAGES, 4, dtype=torch.float64)
            estimate = self.loss_of.estimate_shared(self.logits, features, self.labels)
            if estimate.shape != (shared,):
                return f"`estimate_shared` gives {list(estimate.shape)} numbers; shared_shape has {shared}"
        if dual and shared:
            return f"what the server sends is `shared`; dual_size is {dual}, and no client ascends"
        return None

    @rule(SCALAR)
    def is_scalar(self) -> str | None:
        loss: object = self.loss(self.logits.clone().requires_grad_())
        if not isinstance(loss, Tensor):
            kind = "None: does it end with `return`?" if loss is None else f"a {type(loss).__name__}, not a tensor"
            return f"`loss` returned {kind}"
        if loss.shape != ():
            return f"`loss` returned a tensor of shape {list(loss.shape)}: reduce it to one number"
        if not bool(torch.isfinite(loss)):
            return f"`loss` returned {loss.item()}"
        return None if loss.requires_grad else "no gradient reaches the logits: is something in `loss` detached?"

    @rule("its gradients are those of finite differences")
    def gradients_hold(self) -> str | None:
        def loss(logits: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
            return self.loss_of.loss(logits, self.labels, extra, dual, *self.shared)

        parts = (
            self.logits.clone().requires_grad_(),
            self.extra.clone().requires_grad_(),
            self.dual.clone().requires_grad_(),
        )
        try:
            torch.autograd.gradcheck(loss, parts)
        except GradcheckError as error:  # its message goes on with both Jacobians, a line for each number
            return f"input 0 is the logits, 1 the extra variables, 2 the dual ones: {str(error).splitlines()[0]}"
        return None

    @rule("descent on it ranks positive images above negative ones")
    def ranks(self) -> str | None:
        scores, extra, dual = (
            tensor.requires_grad_()
            for tensor in (self.logits.clone(), torch.zeros_like(self.extra), torch.zeros_like(self.dual))
        )
        steps = torch.optim.Adam([scores, extra], STEP), torch.optim.Adam([dual], STEP, maximize=True)
        for _ in range(STEPS):
            for step in steps:
                step.zero_grad()
            self.loss_of_all.loss(scores, self.labels, extra, dual, *self.shared).backward()
            for step in steps:
                step.step()
        ranked: Iterable[tuple[Tensor, Tensor]] = zip(scores.detach().T, self.labels.T, strict=True)
        wrong = [
            f"disease {j}"
            for j, (column, labels) in enumerate(ranked)
            if column[labels == 1].min() <= column[labels == 0].max()
        ]
        return (
            f"not so after {STEPS} steps on the scores alone: {', '.join(wrong)}; is a sign wrong?" if wrong else None
        )

    @rule("a missing label counts for nothing")
    def masks_missing(self) -> str | None:
        labels = self.labels.clone()
        labels[3:6, 1] = torch.nan
        shifted = self.logits.clone()
        shifted[3:6, 1] += 5.0
        before, after = self.loss(labels=labels), self.loss(shifted, labels)
        if not bool(torch.isfinite(before)):
            return f"a missing label is NaN in `labels`; with three of them the loss is {before.item()}: mask them"
        return None if torch.equal(before, after) else f"an unlabeled image's score changes {before:.6f} to {after:.6f}"

    @rule("a disease without labels in the batch is legal")
    def survives_no_labels(self) -> str | None:
        labels = self.labels.clone()
        labels[:, 2] = torch.nan
        logits = self.logits.clone().requires_grad_()
        loss = self.loss(logits, labels)
        loss.backward()
        assert logits.grad is not None
        if not bool(torch.isfinite(loss)) or not bool(torch.isfinite(logits.grad).all()):
            return "loss or gradient is not finite"
        return "its scores have a gradient" if bool(logits.grad[:, 2].any()) else None

    @rule("a batch without any label is legal")
    def survives_an_empty_batch(self) -> str | None:
        logits = self.logits.clone().requires_grad_()
        loss = self.loss(logits, torch.full_like(self.labels, torch.nan))
        if not bool(torch.isfinite(loss)):
            return f"the loss is {loss.item()}: is it 0/0? Divide by the count of labels, at least 1: `.clamp(min=1)`"
        return self._describe_gradient(loss, logits)

    @rule("logits of 120 in float32, the type of training, are legal")
    def survives_large_logits(self) -> str | None:
        further = [tensor.float() for tensor in (self.extra, self.dual, *self.shared)]
        for sign, about in ((1.0, "right"), (-1.0, "wrong")):
            logits = (sign * LARGE * (2 * self.labels - 1)).float().requires_grad_()
            loss = self.loss_in_float32.loss(logits, self.labels.float(), *further)
            problem = self._describe_gradient(loss, logits)
            if not bool(torch.isfinite(loss)) or problem:
                return (
                    f"of images that are scored {about}, {problem or f'the loss is {loss.item()}'}. In place of "
                    "log(sigmoid(x)) take torch.nn.functional.logsigmoid(x), and logsigmoid(-x) of 1 - sigmoid(x)"
                )
        return None

    def _describe_gradient(self, loss: Tensor, logits: Tensor) -> str | None:
        """Say that the loss' gradient by the logits, where there is one, is not finite; None if it is."""
        (gradient,) = torch.autograd.grad(loss, logits, allow_unused=True)
        return None if gradient is None or bool(torch.isfinite(gradient).all()) else "the gradient is not finite"

    @rule("a batch of one class is legal")
    def survives_one_class(self) -> str | None:
        for value in (0.0, 1.0):
            if not bool(torch.isfinite(self.loss(labels=torch.full_like(self.labels, value)))):
                return f"the loss of labels that are all {value:.0f} is not finite"
        return None

    @rule("the order of the images does not matter")
    def ignores_order(self) -> str | None:
        order = torch.arange(IMAGES - 1, -1, -1)
        before, after = self.loss(), self.loss(self.logits[order], self.labels[order])
        return None if torch.allclose(before, after, rtol=1e-12) else f"{before:.9f} becomes {after:.9f} in reverse"

    @rule(SAMPLED)
    def agrees_without_memory(self) -> str | None:
        objective = self.loss_of
        assert isinstance(objective, Sampled)
        blank = self.logits.new_zeros(IMAGES, objective.memory_size)
        ends = []
        for sampled in (False, True):
            logits = self.logits.clone().requires_grad_()
            about = (logits, self.labels, self.extra, self.dual)
            loss = objective.sampled_loss(*about, blank, *self.shared)[0] if sampled else self.loss(logits)
            loss.backward()
            assert logits.grad is not None
            ends += [loss.detach(), logits.grad]
        if not (torch.allclose(ends[0], ends[2]) and torch.allclose(ends[1], ends[3])):
            return "with an empty memory `sampled_loss` has another value or gradient than `loss`"
        filled = objective.sampled_loss(self.logits, self.labels, self.extra, self.dual, blank, *self.shared)[1]
        if filled.shape != blank.shape or filled.requires_grad or not bool(filled.any()):
            return f"the new memory is {list(filled.shape)} of {list(blank.shape)}, all zero, or part of a graph"
        return None

    @rule(SEES)
    def sees_features(self) -> str | None:
        objective = self.loss_of
        assert isinstance(objective, Seeing)
        if unknown := set(objective.models) - {"start", "previous"}:
            return f"there is no model {', '.join(sorted(unknown))} to see; there are start and previous"
        draw = torch.Generator().manual_seed(1)
        features = torch.randn(len(objective.models) + 1, IMAGES, 4, generator=draw, dtype=torch.float64)
        others = {name: Outputs(self.logits, part) for name, part in zip(objective.models, features[1:], strict=True)}

        def loss(logits: Tensor, own: Tensor) -> Tensor:
            return objective.seen_loss(logits, self.labels, self.extra, self.dual, Seen(own, others))

        own = features[0].clone().requires_grad_()
        try:
            torch.autograd.gradcheck(loss, (self.logits.clone().requires_grad_(), own))
        except GradcheckError as error:
            return f"input 0 is the logits, 1 the features: {str(error).splitlines()[0]}"
        loss(self.logits, own).backward()
        assert own.grad is not None
        return None if bool(own.grad.any()) else "the features make no difference"

    @rule("no global generator is used")
    def uses_no_generator(self) -> str | None:
        used: list[str] = []
        with watch_global_generators(used):
            self.loss()
        return f"uses the global generator of {', '.join(used)}" if used else None
