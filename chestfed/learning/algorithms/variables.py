"""The variables that every algorithm works on, and what passes between clients and server.

All are flat tensors. `primal` is v = (w, a, b): the trainable parameters of the network in one vector and, behind
them, the objective's own primal variables. `dual` is alpha, one entry per disease, empty for a minimization.
States and messages are dataclasses of tensors, so that a checkpoint can store them, an engine can count their
bytes, and a test can compare them bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from chestfed.core.errors import ConfigError


class Gradients(Protocol):
    """A client's oracle: gradients of its loss by primal and dual `[d + 2J]`, `[J]`.

    The returned tensors belong to the oracle and are overwritten by the next call. Every pass through the network and
    back counts as one gradient; images are counted when they are drawn.
    """

    def __call__(self, primal: Tensor, dual: Tensor, /) -> tuple[Tensor, Tensor]:
        """On the client's next batch."""

    def again(self, primal: Tensor, dual: Tensor, /) -> tuple[Tensor, Tensor]:
        """On the batch of the last call, with the same random numbers."""

    def over(self, primal: Tensor, dual: Tensor, batches: int, /) -> tuple[Tensor, Tensor]:
        """The mean over the next `batches` batches."""

    def full(self, primal: Tensor, dual: Tensor, /) -> tuple[Tensor, Tensor]:
        """The mean over all training images of the client, once each and without augmentation."""

    @property
    def loss(self) -> Tensor:
        """The loss of the last call, `[]`: of a full pass the mean over all images."""

    @property
    def rows(self) -> Tensor:
        """Row numbers of the last batch among the client's images, int64 `[n]`."""

    @property
    def logits(self) -> Tensor:
        """Logits of the last batch, `[n, J]`, without gradient."""

    @property
    def labels(self) -> Tensor:
        """Labels of the last batch, `[n, J]` in {0, 1, NaN}."""

    @property
    def remembered(self) -> Tensor:
        """Memory of the objective for the rows of the last batch, `[n, m]`; m = 0 unless it is `Sampled`."""

    def stream(self, purpose: str, /) -> torch.Generator:
        """Random numbers that depend on the seed, the client, the purpose and the batches drawn so far, on the CPU."""


class Record(Protocol):
    """A state or a message: a dataclass of tensors."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


class Move(Record, Protocol):
    """A message with the weights, or their change, in the field `primal`."""

    @property
    def primal(self) -> Tensor:
        """`[d + 2J]`."""


class Iterate(Move, Protocol):
    """A state with the current point."""

    @property
    def dual(self) -> Tensor:
        """`[J]`."""


Like = TypeVar("Like")
Server = TypeVar("Server", bound=Iterate)  #: what the server keeps
Message = TypeVar("Message", bound=Move)  #: what it sends, and what clients send back
Client = TypeVar("Client", bound=Record)  #: what one client keeps
Local = TypeVar("Local", bound=Iterate)  #: a message whose copy a client changes and sends back
Node = TypeVar("Node", bound=Iterate)  #: what a node of a graph keeps

_BLOCK: Final = 1 << 18  # numbers


@dataclass(frozen=True)
class Point:
    """A value of all variables: v = (w, a, b) `[d + 2J]` and alpha `[J]`."""

    primal: Tensor
    dual: Tensor


@dataclass(frozen=True)
class Stateless:
    """The state of a client that keeps nothing between rounds."""


def named_tensors(record: object, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a state or message, and of those in it, by dotted names: `primal`, `client.0.reference`."""
    if isinstance(record, Tensor):
        return {prefix: record}
    return {name: tensor for key, part in _parts(record, prefix) for name, tensor in named_tensors(part, key).items()}


def from_named_tensors(like: Like, tensors: Mapping[str, Tensor], prefix: str = "") -> Like:
    """The inverse of `named_tensors`; `like` is any record of these types and gives the devices, unless it is meta."""
    if isinstance(like, Tensor):
        return cast("Like", tensors[prefix] if like.is_meta else tensors[prefix].to(like.device))
    parts = {key: from_named_tensors(part, tensors, key) for key, part in _parts(like, prefix)}
    if isinstance(like, tuple):
        return cast("Like", tuple(parts.values()))
    return type(like)(**{key.rpartition(".")[2]: part for key, part in parts.items()})


def _parts(record: object, prefix: str) -> list[tuple[str, object]]:
    """The parts of a record or tuple in order, each with its dotted name.

    Raises `ConfigError` for what is none of these and no tensor; the class and the field are those of a plug-in.
    """
    if isinstance(record, tuple):
        return [(f"{prefix.removesuffix('s')}.{number}", part) for number, part in enumerate(record)]
    if not is_dataclass(record):
        raise _not_tensors(prefix or "a state or message", record)
    parts = {field.name: getattr(record, field.name) for field in fields(record)}
    for name, part in parts.items():
        if not isinstance(part, Tensor | tuple) and not is_dataclass(part):
            raise _not_tensors(f"{type(record).__name__}.{name}", part)
    return [(f"{prefix}.{name}" if prefix else name, part) for name, part in parts.items()]


def _not_tensors(what: str, value: object) -> ConfigError:
    shown = "None" if value is None else f"a {type(value).__name__}"
    advice = f": write it as point.primal.new_tensor({value})" if isinstance(value, int | float) else ""
    text = f"{what} is {shown}, not a tensor or a dataclass of tensors{advice}. check_algorithm in chestfed.testing"
    return ConfigError(f"{text} checks a rule", kind="not tensors", part=what)


def byte_count(record: Record) -> int:
    """Bytes that a message occupies when its tensors are sent as they are."""
    return sum(tensor.numel() * tensor.element_size() for tensor in named_tensors(record).values())


def find_norm(record: Record) -> float:
    """Euclidean norm of all numbers of a message."""
    return float(sum(float(tensor.norm()) ** 2 for tensor in named_tensors(record).values()) ** 0.5)


def descend_(
    v: Tensor,
    step: float,
    gradient: Tensor,
    *,
    prox: float = 0.0,
    reference: Tensor | None = None,
    shift: Tensor | None = None,
) -> None:
    """One step: v -= step * (gradient + prox * (v - reference) + shift), in place; what is not given is left out.

    One pass over memory for each vector, without a copy of any.
    """
    for block in blocks(v):
        part = v[block]
        if prox and reference is not None:
            part.lerp_(reference[block], step * prox)
        part.sub_(gradient[block], alpha=step)
        if shift is not None:
            part.sub_(shift[block], alpha=step)


def weighted_mean(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Mean of equal-shaped tensors with weights that sum to 1.

    Summed in float64 in the given order and cast back, so that every engine gets the same bits; the mean of one
    tensor with weight 1 is that tensor exactly.
    """
    mean = torch.empty_like(tensors[0], memory_format=torch.contiguous_format)
    flat, parts = mean.view(-1), [tensor.reshape(-1) for tensor in tensors]
    for block in blocks(flat):
        total = torch.zeros_like(flat[block], dtype=torch.float64)
        for part, weight in zip(parts, weights, strict=True):
            total.add_(part[block], alpha=weight)
        flat[block] = total
    return mean


def is_finite(tensor: Tensor) -> bool:
    """Whether no number is NaN or infinite: their sum tells, in one pass over memory, but where it overflows."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def blocks(flat: Tensor) -> Iterator[slice]:
    """Cuts of a vector: a CPU keeps a block of each operand in its cache and reads memory once; a GPU takes all."""
    size = _BLOCK if flat.device.type == "cpu" else max(len(flat), 1)
    return (slice(first, first + size) for first in range(0, len(flat), size))


def select(vector: Tensor, cuts: Sequence[slice]) -> Tensor:
    """The numbers of a vector in these slices, one behind the other."""
    return torch.cat([vector[:0], *(vector[cut] for cut in cuts)])


def complement(cuts: Sequence[slice], size: int) -> tuple[slice, ...]:
    """The slices of a vector `[size]` that are between these, which are in order."""
    starts, stops = [0, *(cut.stop for cut in cuts)], [*(cut.start for cut in cuts), size]
    return tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop)


def with_parts(vector: Tensor, cuts: Sequence[slice], values: Tensor) -> Tensor:
    """A copy of a vector with `values` in these slices: the inverse of `select`."""
    copy, first = vector.clone(), 0
    for cut in cuts:
        last = first + cut.stop - cut.start
        copy[cut], first = values[first:last], last
    return copy


def mean_of(records: Sequence[Like], weights: Sequence[float]) -> Like:
    """The `weighted_mean` of states or messages of one type, field by field."""
    named = [named_tensors(record) for record in records]
    means = {name: weighted_mean([tensors[name] for tensors in named], weights) for name in named[0]}
    return type(records[0])(**means)


class CompositionalGradients(Protocol):
    """The parts of the gradient of f(g(x), y) on a client's batches."""

    def inner(self, x: Tensor) -> Tensor:
        """g(x; xi) on the next batch xi, of the size of x."""

    def outer(self, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of f(h, y; zeta) by h and by y on the next batch zeta."""

    def pull_back(self, q: Tensor) -> Tensor:
        """J'q, with J the Jacobian of g(.; xi) at the x and xi of the last call of `inner`."""


class Algorithm(Protocol[Server, Message, Client]):
    """A federated algorithm with a server: pure steps on states.

    A stage is a whole number of rounds with constant hyper-parameters; it returns `current`, unless the algorithm is
    `Finishing`. What has a body here is what a subclass does unless it says otherwise: the server keeps a point and
    sends all that it keeps, and clients keep nothing.
    """

    window: int  #: I: local steps, and so gradients, per client and round

    def start_stage(self, point: Point) -> Server:
        """Server state at the start of a stage."""
        return cast("Server", point)

    def start_client(self, point: Point) -> Client:
        """State that one client keeps between the rounds of a stage."""
        return cast("Client", Stateless())

    def message(self, server: Server) -> Message:
        """Message of the server to every client at the start of a round."""
        return cast("Message", server)

    def local_round(self, message: Message, client: Client, gradients: Gradients, /) -> tuple[Message, Client]:
        """The client's local steps: what it sends back, and its new state.

        Where the objective has gradients of its own, the oracle is theirs.
        """

    def server_round(self, server: Server, updates: Sequence[Message], weights: Sequence[float]) -> Server:
        """The server's step on the clients' updates; weights sum to 1."""

    def current(self, server: Server) -> Point:
        """The server's point after a round, the one to evaluate."""
        return Point(server.primal, server.dual)


class LocalStepAlgorithm(Algorithm[Server, Local, Client]):
    """`window` times `client_step` on a copy of the message, then `client_final`: FedAvg, FedProx, SCAFFOLD.

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
        name = type(self).__name__
        raise ConfigError(
            f"{name} has neither client_step(self, local, message, client, gradients) nor a local_round of its own: "
            "write one of them",
            kind="method missing",
            rule=name,
        )

    def client_final(self, local: Local, message: Local, client: Client) -> tuple[Local, Client]:
        """Message of the client, here all that its steps changed, and its new state."""
        return replace(local, dual=message.dual[:0]), client

    def server_round(self, server: Server, updates: Sequence[Local], weights: Sequence[float]) -> Server:
        """The weighted mean of what the clients sent."""
        return cast("Server", replace(mean_of(updates, weights), dual=server.dual))


@runtime_checkable
class Partial(Algorithm[Server, Message, Client], Protocol):
    """An algorithm whose server keeps a mean over all clients: a round without some of them has a step of its own."""

    def partial_round(
        self, server: Server, updates: Sequence[Message], weights: Sequence[float], share: float
    ) -> Server:
        """The server's step on the updates of some; their weights sum to 1, and to `share` among those of all."""


@runtime_checkable
class Sharing(Protocol):
    """An algorithm whose server makes what the objective has `shared` from what the clients send."""

    def share(self, server: Any, updates: Sequence[Any], weights: Sequence[float]) -> Tensor:
        """Make the objective's `shared` numbers of the next round, a vector; `server` is the state before this step."""


@runtime_checkable
class Preparing(Protocol[Server, Message]):
    """An algorithm whose clients send something at the server's point before the local steps of every round."""

    def prepare(self, point: Point, gradients: Gradients, /) -> Message:
        """Message of a client; no batch may be drawn, but `gradients.full` may be called."""

    def prepared(self, server: Server, parts: Sequence[Message], weights: Sequence[float]) -> Server:
        """The server's state after what the clients sent, whose message goes down then; weights sum to 1."""


@runtime_checkable
class Finishing(Algorithm[Server, Message, Client], Protocol):
    """An algorithm whose stage returns another point than `current`; its clients may send something for it."""

    def final_message(self, client: Client) -> Message | None:
        """Message of a client, once at the end of a stage, or None."""

    def stage_output(self, server: Server, finals: Sequence[Message | None], weights: Sequence[float]) -> Point:
        """The point that the stage returns: the next stage starts there."""


@runtime_checkable
class Restarting(Protocol):
    """An algorithm that has its clients estimate the best dual variables, on `dual_batches` batches, between stages."""

    @property
    def dual_batches(self) -> int:
        """Batches that a client takes together for its estimate."""

    def restart(self, point: Point, duals: Sequence[Tensor], weights: Sequence[float]) -> Point:
        """The point from which the next stage starts."""


@runtime_checkable
class Personal(Algorithm[Server, Message, Client], Protocol):
    """An algorithm with a point per client: the client is scored with it, and begins the next stage at it."""

    def local_point(self, point: Point, client: Client) -> Point:
        """The client's point, given the server's current one and the client's state."""


class PeerAlgorithm(Protocol[Node, Message]):
    """An algorithm on a graph, without a server: pure steps on the states of nodes."""

    window: int  #: local steps, and so gradients, per node and round

    def start_node(self, point: Point, signs: Tensor, degrees: Tensor) -> Node:
        """State of a node; per neighbor +1 if it has the larger number, else -1, and the neighbor's degree, `[E]`."""

    def local_round(self, node: Node, gradients: Gradients) -> Node:
        """The node's local steps."""

    def message(self, node: Node, edge: int) -> Message:
        """Message of the node to its neighbor number `edge`."""

    def exchange(self, node: Node, received: Mapping[int, Message]) -> Node:
        """The node after messages from some of its neighbors, by their number."""

    def current(self, node: Node) -> Point:
        """The node's point."""
        return Point(node.primal, node.dual)


#: Rule that a declaration builds, of whatever states.
Rule = Algorithm[Any, Any, Any] | PeerAlgorithm[Any, Any]
