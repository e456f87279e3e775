"""One client in this process: its batches and the network are the oracle of an algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from chestfed.core.errors import TrainingError
from chestfed.core.randomness import stream_seed
from chestfed.learning.algorithms.variables import is_finite
from chestfed.learning.engines.host import NO_MEMORY
from chestfed.learning.engines.messages.requests import NOTHING
from chestfed.learning.engines.parts import Parts
from chestfed.learning.models import FlatModule, may_draw, observe_features, renew_statistics, seeded
from chestfed.learning.objectives.declaration import (
    DualEstimate,
    Objective,
    Oracle,
    Outputs,
    Passes,
    Sampled,
    Seeing,
    Seen,
    count_shared,
)


class Batch(Protocol):
    """Images float32 `[n, 3, h, w]`, normalized, and labels float32 `[n, J]` with NaN for missing.

    With `Parts` on several processes the images are those of the own parts.
    """

    @property
    def images(self) -> Tensor:
        """The images."""

    @property
    def labels(self) -> Tensor:
        """The labels."""

    @property
    def rows(self) -> Tensor:
        """Row numbers among the client's images, int64 `[n]`."""


class Batches(Protocol):
    """An endless, seekable sequence of training batches."""

    position: int

    def next(self) -> Batch:
        """The batch at `position`, which then moves on by one."""

    def seek(self, position: int) -> None:
        """Go to the batch with this number."""

    def whole(self) -> Iterator[Batch]:
        """Every training row once, without augmentation; `position` stays."""

    def close(self) -> None:
        """Release threads and files."""


class NetworkClient:
    """A client whose gradients come from a network on its own images: `Gradients`, and what a host needs.

    Clients that run one after the other share one `FlatModule`: each round binds it to the client's vector and
    loads the broadcast buffers first, so nothing is carried from one client to the next.

    Parameters
    ----------
    autocast
        Run the network in bfloat16 (`torch.autocast`); the loss is computed in the type of its weights.
    oracle
        Gradients of the objective's own, as `ObjectiveSpec.oracle` says; None: those of its loss.
    further
        Its further sequences of batches.
    seed
        Of the random numbers that the network draws while it trains (dropout, stochastic depth). They depend on this,
        the client's name and the number of the batch only, so that training resumes bit-identically.
    weight_decay
        Coefficient of |w|^2 / 2, which is added to the loss; of the weights, not of the objective's own variables.
    samples
        Rows of the client's data set, for an objective that remembers something of each.
    loss_draws
        Whether the loss may draw random numbers, as `ObjectiveSpec.draws` says.
    parts
        Those that the network computes of every batch, for an objective of logits alone and a network in which no
        image sees another.
    """

    def __init__(
        self,
        name: str,
        batches: Batches,
        network: FlatModule,
        objective: Objective,
        *,
        device: torch.device,
        autocast: bool = False,
        oracle: Oracle | None = None,
        further: Sequence[Batches] = (),
        seed: int = 0,
        weight_decay: float = 0.0,
        samples: int = 0,
        loss_draws: bool = True,
        parts: Parts | None = None,
    ) -> None:
        self.name = name
        self.batches = batches
        self._own, self._further = oracle, tuple(further)
        self._parts = parts or Parts()
        self.gradients_computed = 0
        self.images_seen = 0
        self._network = network
        self._objective = objective
        self._device = device
        self._autocast = autocast
        self._seed, self._weight_decay = seed, weight_decay
        self._draws = loss_draws or may_draw(network.module)  # else saving and restoring generators changes nothing
        self._loss_sum = network.grad.new_zeros(())
        self._gradient_sum = torch.zeros(network.size + objective.extra_size).to(network.grad)
        self._steps = 0
        self._last: tuple[Tensor, Tensor] | None = None
        self._shared: tuple[Tensor, ...] = ()
        self.loss = network.grad.new_zeros(())
        size = objective.memory_size if isinstance(objective, Sampled) else 0
        #: `[rows, memory_size]` of a `Sampled` objective: what it remembers of each row. Of one that sees the previous
        #: model, `[1, d]`: its weights, 0 before the first round's end.
        self.memory = network.grad.new_zeros(samples, size) if size else NO_MEMORY.to(device)
        self._seeing = objective if isinstance(objective, Seeing) else None
        self._keeps_previous = self._seeing is not None and "previous" in self._seeing.models
        if self._keeps_previous:
            self.memory = network.grad.new_zeros(1, network.size)
        self._start: Tensor | None = None  #: the weights of the round's first gradient
        self.rows = torch.zeros(0, dtype=torch.int64)
        self._places = self.rows  # on the device
        self.logits = self.labels = self.remembered = torch.zeros(0, 0)

    @property
    def oracle(self) -> Any:
        """`Gradients` of the objective's loss, or what it has of its own."""
        if self._own is None:
            return self
        passes = Passes(
            self._network,
            self._objective,
            [partial(self._next_batch, batches) for batches in self._sequences()],
            self._note,
            autocast=self._autocast,
            randomness=self._randomness,
            weight_decay=self._weight_decay,
        )
        return self._own.make(passes)

    @contextmanager
    def training(self, buffers: Tensor, shared: Tensor = NOTHING) -> Iterator[None]:
        """A round of this client: the network in training mode with the given buffers, the objective with `shared`."""
        self._shared = (shared,) if count_shared(self._objective) else ()
        self._network.load_buffers(buffers)
        self._network.module.train()
        self._loss_sum.zero_()
        self._gradient_sum.zero_()
        self._steps, self._start = 0, None
        with self._parts.synchronize(self._network.module):
            yield
        self._last = None
        if self._keeps_previous:
            self.memory = self._network.parameters()[None]  # bound to the vector that the local steps have moved

    def buffers(self) -> Tensor:
        """The network's buffers after the local steps."""
        return self._network.buffers()

    def mean_loss(self) -> float:
        """Mean of the loss over the round's steps."""
        return float(self._loss_sum) / max(self._steps, 1)

    def mean_gradient(self) -> Tensor:
        """Mean of the gradient by the primal variables over the round's steps, `[d + extra]`."""
        return self._gradient_sum / max(self._steps, 1)

    def gather_statistics(self, primal: Tensor, batches: int) -> None:
        """Take the running statistics of batch normalization anew, with the weights in `primal`.

        They are the plain mean over the next `batches` batches, without consuming them. To be called within `training`.
        """
        position = self.batches.position
        self._network.bind(primal)
        with renew_statistics(self._network.module):
            for _ in range(batches):
                images, _ = self._next_batch()
                with self._randomness():
                    self._logits(images)
        self.batches.seek(position)

    def best_dual(self, primal: Tensor, dual: Tensor, batches: int) -> Tensor:
        """The dual variables `[J]` that maximize the objective at `primal`, from the next `batches` batches."""
        if not isinstance(self._objective, DualEstimate):
            raise TypeError(f"{type(self._objective).__name__} has no dual variables to estimate")
        self._network.bind(primal)
        scores, labels = [], []
        with torch.no_grad():
            for _ in range(batches):
                images, truth = self._next_batch()
                outputs = self._run_parts(images, truth)
                scores.append(torch.sigmoid(self._parts.join(outputs, len(truth))))
                labels.append(truth)
        return self._objective.best_dual(torch.cat(scores), torch.cat(labels), dual)

    def positions(self) -> list[int]:
        """Position in each sequence of batches: what a checkpoint stores."""
        return [batches.position for batches in self._sequences()]

    def seek(self, positions: Sequence[int]) -> None:
        """The inverse of `positions`."""
        for batches, position in zip(self._sequences(), positions, strict=True):
            batches.seek(position)

    def close(self) -> None:
        """Release the batches' threads and files."""
        for batches in self._sequences():
            batches.close()

    def _sequences(self) -> list[Batches]:
        return [self.batches, *self._further]

    def _next_batch(self, batches: Batches | None = None) -> tuple[Tensor, Tensor]:
        batch = (batches or self.batches).next()
        self.rows = batch.rows
        return self._take(batch)

    def _take(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The batch on the device; its images are counted."""
        self.images_seen += batch.labels.shape[0]
        images = batch.images.to(self._device, non_blocking=True)
        return images, batch.labels.to(self._device, self._network.grad.dtype, non_blocking=True)

    def _note(self, loss: Tensor | None, gradient: Tensor | None) -> None:
        self.gradients_computed += 1
        if loss is not None:
            self._loss_sum += loss
        if gradient is not None:
            self._gradient_sum += gradient
            self._steps += 1

    def _randomness(self, *part: int) -> AbstractContextManager[None]:
        """Random numbers for a pass through the network on the batch drawn last, or on a part of a full pass."""
        if not self._draws:
            return nullcontext()
        return seeded(stream_seed(self._seed, "forward", self.name, *self.positions(), *part), self._device)

    def _logits(self, images: Tensor) -> Tensor:
        network = self._network.trained if torch.is_grad_enabled() else self._network.module
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            try:
                return network(images).to(self._network.grad.dtype)
            except ValueError as error:
                if "more than 1 value per channel" not in str(error):
                    raise
                raise TrainingError(
                    "batch normalization needs batches of at least two images where a network ends in one pixel: "
                    "raise batch_size, or set model.norm to group",
                    kind="batches too small",
                ) from error

    def __call__(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the objective at (primal, dual) on the next batch.

        `primal` `[d + extra]` holds the weights and then the objective's own variables. The returned tensors are
        overwritten by the next call.
        """
        self._last = None  # its memory is free for the next
        self._last = self._next_batch()
        gradient, dual_gradient = self._differentiate(primal, dual, self._last, remembers=True)
        self._note(self.loss, gradient)
        return gradient, dual_gradient

    def again(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """On the batch of the last call, with the same random numbers; running statistics have seen it already.

        Raises
        ------
        TypeError
            If the algorithm has drawn no batch in this round.
        """
        if self._last is None:
            raise TypeError("gradients.again: no batch was drawn in this round yet; call gradients(primal, dual) first")
        with self._buffers_restored():
            gradient, dual_gradient = self._differentiate(primal, dual, self._last)
        self._note(None, None)
        return gradient, dual_gradient

    def over(self, primal: Tensor, dual: Tensor, batches: int) -> tuple[Tensor, Tensor]:
        """The mean over the next `batches` batches."""
        sums, loss = (torch.zeros_like(primal), torch.zeros_like(dual)), torch.zeros_like(self.loss)
        for _ in range(batches):
            for total, part in zip(sums, self(primal, dual), strict=True):
                total += part
            loss += self.loss
        self.loss = loss / batches
        return sums[0] / batches, sums[1] / batches

    def full(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """The mean over all training rows, once each and without augmentation; running statistics stay."""
        sums, count = (torch.zeros_like(primal), torch.zeros_like(dual)), 0
        loss = torch.zeros_like(self.loss)
        with self._buffers_restored():
            for number, batch in enumerate(self.batches.whole()):
                self.rows = batch.rows
                gradients = self._differentiate(primal, dual, self._take(batch), number)
                loss += self.loss * len(batch.labels)
                for total, part in zip(sums, gradients, strict=True):
                    total.add_(part, alpha=len(batch.labels))
                count += len(batch.labels)
                self._note(None, None)
        self.loss = loss / count
        return sums[0] / count, sums[1] / count

    def stream(self, purpose: str) -> torch.Generator:
        """See `Gradients.stream`."""
        number = stream_seed(self._seed, "algorithm", self.name, purpose, *self.positions())
        return torch.Generator().manual_seed(number)

    @contextmanager
    def _buffers_restored(self) -> Iterator[None]:
        before = self._network.buffers()
        yield
        if before.numel():
            self._network.load_buffers(before)

    def _loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """The loss of the batch of `rows`; what is then `remembered` of them is noted."""
        self.logits, self.labels, self.remembered = logits.detach(), labels, logits.detach()[:, :0]
        if not isinstance(self._objective, Sampled):
            return self._objective.loss(logits, labels, extra, dual, *self._shared)
        self._places = self.rows.to(self._device, non_blocking=True)
        memory = self.memory[self._places]
        loss, self.remembered = self._objective.sampled_loss(logits, labels, extra, dual, memory, *self._shared)
        return loss

    def _refuse_no_loss(self, loss: object) -> None:
        """Refuse what the objective returned if it is not one number with a gradient."""
        if isinstance(loss, Tensor) and not loss.ndim and loss.requires_grad:
            return
        shown = f"a {type(loss).__name__}"
        if isinstance(loss, Tensor):
            shown = f"{loss.dtype} {list(loss.shape)}" + ("" if loss.requires_grad else " without a gradient")
        raise TrainingError(
            f"the loss of objective {type(self._objective).__name__} is {shown}: it must be one number, a tensor of "
            "the shape [] that depends on the logits. check_objective in chestfed.testing checks an objective",
            kind="not a loss",
            objective=type(self._objective).__name__,
        )

    def find_not_finite(self, primal: Tensor, dual: Tensor) -> str:
        """Name of the first that is not finite at a point on the next batch; empty if all are finite, or unknown.

        Images, logits, loss or gradient.
        """
        if self._own is not None or self._parts.count > 1 or len(primal) != len(self._gradient_sum):
            return ""
        images, labels = self._next_batch()
        if not is_finite(images):
            return "images"
        gradient, dual_gradient = self._differentiate(primal, dual, (images, labels))
        values = {"logits": (self.logits,), "loss": (self.loss,), "gradient": (gradient, dual_gradient)}
        return next((name for name, tensors in values.items() if not all(map(is_finite, tensors))), "")

    def _see(
        self, objective: Seeing, primal: Tensor, images: Tensor, labels: Tensor, extra: Tensor, dual: Tensor
    ) -> Tensor:
        """The loss of a batch for an objective that sees more than logits."""
        if self._start is None:
            self._start = primal[: self._network.size].detach().clone()
        previous = self.memory[0] if self.memory.any() else self._start
        models = {"start": self._start, "previous": previous}
        others = {name: self._run_other(models[name], images) for name in objective.models}
        with observe_features(self._network.module) as features:
            logits = self._logits(images)
        self.logits, self.labels, self.remembered = logits.detach(), labels, logits.detach()[:, :0]
        return objective.seen_loss(logits, labels, extra, dual, Seen(features[0].to(logits), others))

    def _run_other(self, weights: Tensor, images: Tensor) -> Outputs:
        """Outputs of the network with other weights, in evaluation mode."""
        module = self._network.module
        module.eval()
        try:
            with (
                torch.no_grad(),
                torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast),
                observe_features(module) as features,
            ):
                logits = self._network.call(weights, images)
        finally:
            module.train()
        return Outputs(logits.to(weights), features[0].to(weights))

    def _differentiate(
        self,
        primal: Tensor,
        dual: Tensor,
        batch: tuple[Tensor, Tensor],
        *part: int,
        remembers: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Gradients by primal and dual on a batch; the loss is noted, and what the objective `remembers` of rows."""
        images, labels = batch
        size = self._network.size
        self._network.bind(primal, bf16=self._autocast)
        extra = primal[size:].detach().requires_grad_()
        alpha = dual.detach().requires_grad_()

        if self._parts.count > 1:
            loss, gradient, dual_gradient = self._differentiate_parts(images, labels, extra, alpha, *part)
        else:
            with self._randomness(*part):
                if self._seeing is not None:
                    loss = self._see(self._seeing, primal, images, labels, extra, alpha)
                else:
                    loss = self._loss(self._logits(images), labels, extra, alpha)
                self._refuse_no_loss(loss)
                gradient, dual_gradient = self._network.differentiate(loss, extra, alpha)
        self.loss = loss.detach()
        if remembers and self.memory.numel() and self._seeing is None:
            self.memory[self._places] = self.remembered

        if self._weight_decay:
            gradient[:size].add_(primal[:size], alpha=self._weight_decay)
        return gradient, dual_gradient

    def _run_parts(self, images: Tensor, labels: Tensor, *part: int) -> list[Tensor]:
        """Logits of each of the own parts of a batch with these labels; each draws random numbers of its own."""
        outputs, parts = [], self._parts
        for number, piece in zip(parts.own, images.split(parts.lengths(len(labels))), strict=True):
            passes = len(piece) or parts.synchronized
            with self._randomness(*part, *([number] if parts.count > 1 else [])):
                outputs.append(self._logits(piece) if passes else self._network.grad.new_zeros(labels[:0].shape))
        return outputs

    def _differentiate_parts(
        self, images: Tensor, labels: Tensor, extra: Tensor, dual: Tensor, *part: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of the whole batch and its gradients, which pass through the network part by part."""
        outputs = self._run_parts(images, labels, *part)
        logits = self._parts.join(outputs, len(labels)).requires_grad_()
        with self._randomness(*part):
            loss = self._loss(logits, labels, extra, dual)
        self._refuse_no_loss(loss)
        of_logits, of_extra, of_dual = torch.autograd.grad(
            loss, [logits, extra, dual], allow_unused=True, materialize_grads=True
        )
        size = self._network.size + extra.numel()
        mine = of_logits[torch.from_numpy(self._parts.select(len(labels))).to(self._device)]
        slopes = mine.split(self._parts.lengths(len(labels)))
        gradient = self._parts.add(
            self._network.differentiate(output, extra, slope=slope)[0]
            if len(slope) or self._parts.synchronized
            else self._gradient_sum.new_zeros(size)
            for output, slope in zip(outputs, slopes, strict=True)
        )
        gradient[self._network.size :] = of_extra
        return loss, gradient, of_dual
