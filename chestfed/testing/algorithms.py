"""`check_algorithm`: the contract of an algorithm, on small problems whose optimum is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any, get_args
from unittest.mock import patch

import torch
from torch import Tensor

from chestfed.algorithms import ALGORITHMS, AlgorithmSpec
from chestfed.algorithms.declaration import Exact, Pace, Setting, numbers_sent
from chestfed.algorithms.variables import (
    Algorithm,
    Finishing,
    Partial,
    PeerAlgorithm,
    Point,
    Restarting,
    from_named_tensors,
    mean_of,
    named_tensors,
)
from chestfed.core.plugins import Options
from chestfed.engines.engine import Engine
from chestfed.engines.fleet import LocalFleet
from chestfed.engines.host import Host
from chestfed.engines.peers import PeerEngine
from chestfed.engines.requests import Work
from chestfed.engines.server import ServerEngine
from chestfed.engines.topology import build_graph
from chestfed.experiment.ranges import declared_range
from chestfed.objectives import OBJECTIVES
from chestfed.testing.contract import Contract, declared, global_generators_untouched, rule
from chestfed.testing.quadratics import CLIENTS, DISEASES, PRIMAL, WEIGHTS, QuadraticClient, optimum, problems

#: Step size with which the quadratics are solved; at most so many stages of so many rounds; the error that counts as
#: solved, after two looks in a row.
STEP, STAGES, ROUNDS, TOLERANCE, LOOK_EVERY = 0.1, 8, 500, 1e-6, 25

WINDOW_1, WINDOW_8 = "window 1: it ends at the optimum", "window 8: it ends at the optimum"
NEARER = "window 1: it ends nearer to the optimum than it begins"
_STEPS = (Algorithm, PeerAlgorithm, Partial, Finishing, Restarting)
_ENDS = {"any window": (WINDOW_1, WINDOW_8), "window 1": (WINDOW_1,), "no": (NEARER,)}
MEAN = "`averages`: the server's step takes the weighted mean of the updates and nothing else"
COUNTS = "the server's step counts every client by its weight, in any order"
TENSORS = "states and messages are dataclasses of tensors"


def check_algorithm(algorithm: AlgorithmSpec | str, **options: Any) -> list[str]:
    """Check an algorithm against the contract of `chestfed.algorithms.variables` and its own declaration.

    `algorithm` is a declaration, or a name or reference as in a pipeline; its claims are checked under these `options`.

    Returns
    -------
    list of str
        The rules that were checked, all of them kept.

    Raises
    ------
    ContractError
        With every rule that is broken.
    """
    return _Trial(*declared(ALGORITHMS, algorithm, options)).check()


_NOTHING = torch.zeros(0, dtype=torch.float64)


class _Trial(Contract):
    """An algorithm on small heterogeneous quadratics."""

    decisive = TENSORS

    def __init__(self, spec: AlgorithmSpec, options: Options) -> None:
        self.spec, self.options, self.what = spec, options, f"algorithm '{spec.name}'"
        self.composed = "compositional" in spec.takes
        minimizes = set(spec.takes) <= {"minimization", "server-weighted"}
        #: Primal and dual variables of the problem.
        self.sizes = (WEIGHTS, 0) if minimizes else (PRIMAL, DISEASES)
        claimed = () if self.composed else _ENDS.get(spec.exact, ())
        unclaimed = {WINDOW_1, WINDOW_8, NEARER}.difference(claimed)
        unclaimed |= set() if spec.averages else {MEAN}
        self.unclaimed = frozenset(unclaimed | ({COUNTS} if spec.decentralized or spec.pooled else set()))

    def engine(
        self, window: int = 3, step: float = STEP, options: Options | None = None, *, overwrites: bool = True
    ) -> Engine:
        spec = self.spec
        parts = problems(*self.sizes, clients=1 if spec.pooled else CLIENTS)
        clients = [
            QuadraticClient(f"client {k}", part, composed=self.composed, overwrites=overwrites)
            for k, part in enumerate(parts)
        ]
        graph = build_graph("ring", len(parts)) if spec.decentralized else None
        setting = Setting(
            window=window if spec.pace == "window" else 1,
            local_lr=step,
            clients=len(parts),
            positive_ratio=torch.full((DISEASES,), 0.3, dtype=torch.float64),
            degree=2 if graph else 0,
            returns_average=False,
        )
        built = spec.build(options or self.options, setting)
        self.fleet = LocalFleet.of(clients, built, graph)
        if graph is not None:
            return PeerEngine(built, self.fleet, graph, "synchronous", seed=0)
        return ServerEngine(built, self.fleet, _weights(len(parts)))

    def origin(self) -> Point:
        return Point(*(torch.linspace(-1, 1, size, dtype=torch.float64) for size in self.sizes))

    def start(self, engine: Engine) -> Any:
        return engine.start_stage(self.origin(), _NOTHING)

    def after(self, engine: Engine, rounds: int) -> Any:
        state = self.start(engine)
        for _ in range(rounds):
            state, _ = engine.run_round(state)
        return state

    def collected(self) -> tuple[Engine, Any, list[Any]]:
        """An engine, the server's state after a round, and what the clients send in the next one."""
        engine = self.engine()
        state = self.after(engine, 1)
        message = engine.algorithm.message(state.server)
        work = engine.fleet.ask_all(lambda number: Work(int(state.turns[number]), message, state.buffers))
        return engine, state.server, [its.update for its in work.values()]

    @rule("the declaration has known values, and its objective is of a kind that it takes")
    def is_declared(self) -> str | None:
        spec = self.spec
        for key, value, known in (("exact", spec.exact, get_args(Exact)), ("pace", spec.pace, get_args(Pace))):
            if value not in known:
                return f"{key}: '{value}' is not one of {', '.join(known)}"
        kind = OBJECTIVES.find(spec.objective).kind
        return None if kind in spec.takes else f"{spec.objective} is {kind}; `takes` has {', '.join(spec.takes)}"

    @rule("unknown options are refused")
    def refuses_unknown_options(self) -> str | None:
        return self.refuses_unknown(self.spec.options, self.spec.name)

    @rule(TENSORS)
    def states_are_tensors(self) -> str | None:
        engine = self.engine()
        state = self.start(engine)
        host = self.fleet.hosts[0]
        with host.client.training(_NOTHING):
            records = _records(engine, state, host)
        for what, record in records.items():
            if not is_dataclass(record):
                return f"{what} is a {type(record).__name__}, not a dataclass"
            for field in fields(record):
                value = getattr(record, field.name)
                if not isinstance(value, Tensor):
                    return f"{what}.{field.name} is a {type(value).__name__}, not a tensor"
        if "update" in records and not hasattr(records["update"], "primal"):
            return (
                "update has no field `primal`: name what the client sends for the weights so; the drift is its spread"
            )
        return None

    @rule("a round changes no tensor that it was given")
    def is_pure(self) -> str | None:
        engine, changed = self.engine(), list[str]()
        with _watched(type(engine.algorithm), changed):
            engine.finish_stage(self.after(engine, 2))
        return f"changed in place: {', '.join(dict.fromkeys(changed))}; clone first" if changed else None

    @rule("a gradient that is kept is cloned: the next one overwrites it")
    def clones_gradients(self) -> str | None:
        ends = [engine.tensors(self.after(engine, 2)) for engine in (self.engine(), self.engine(overwrites=False))]
        unequal = [name for name, tensor in ends[0].items() if not torch.equal(tensor, ends[1][name])]
        return f"with gradients that are not overwritten other values: {', '.join(unequal)}" if unequal else None

    @rule("a round takes `window` gradients")
    def keeps_to_the_window(self) -> str | None:
        for window in (1, 4):
            engine = self.engine(window)
            state, client = self.after(engine, 1), self.fleet.hosts[0].client
            before = client.images_seen
            engine.run_round(state)
            taken, wanted = client.images_seen - before, window if self.spec.pace == "window" else 1
            if taken != wanted:
                return f"a second round with a window of {wanted} took {taken} gradients; others take {wanted}"
        return None

    @rule("the bytes sent are those of the formula")
    def bytes_match(self) -> str | None:
        engine, spec = self.engine(), self.spec
        _, record = engine.run_round(self.start(engine))
        if spec.pooled:
            return None
        formula = spec.formula(self.options)
        edges = 2 if spec.decentralized else 1  # every node of the ring has two
        wanted = 8 * numbers_sent(formula, WEIGHTS, self.sizes[1]) * edges * len(engine.fleet.names)
        if record.bytes_up == wanted:
            return None
        return (
            f"'{formula}' comes to {wanted} bytes of float64, the type of the weights here; {record.bytes_up} went up"
        )

    @rule(COUNTS)
    def counts_all_clients(self) -> str | None:
        engine, server, updates = self.collected()
        weights = _weights(len(updates))

        def stepped(updates: list[Any], weights: list[float]) -> dict[str, Tensor]:
            return named_tensors(engine.algorithm.server_round(server, updates, weights))

        step, turned = stepped(updates, weights), stepped(updates[::-1], weights[::-1])
        if unequal := [name for name, tensor in step.items() if not torch.allclose(tensor, turned[name])]:
            return f"depends on the order of the clients: {', '.join(unequal)}"
        other = stepped(updates, weights[::-1])
        if all(torch.equal(tensor, other[name]) for name, tensor in step.items()):
            return "other weights give the same step, so `federated.weights` would have no effect; see `weighted_mean`"
        return None

    @rule(MEAN)
    def takes_the_mean(self) -> str | None:
        engine, server, updates = self.collected()
        weights = _weights(len(updates))
        each = engine.algorithm.server_round(server, updates, weights)
        mean = engine.algorithm.server_round(server, [mean_of(updates, weights)], [1.0])
        there = named_tensors(mean)
        unequal = [name for name, tensor in named_tensors(each).items() if not torch.allclose(tensor, there[name])]
        if unequal:
            return f"differs from the step on the mean: {', '.join(unequal)}"
        return self.moves_unmoved(engine)

    def moves_unmoved(self, engine: Engine) -> str | None:
        """What is wrong if clients that change nothing move the server: what they send are then not the new values."""
        server = engine.algorithm.start_stage(self.origin())
        sent = named_tensors(engine.algorithm.message(server))
        _, _, (update, *_) = self.collected()
        unmoved = {
            name: sent[name] if name in sent and sent[name].shape == one.shape else torch.zeros_like(one)
            for name, one in named_tensors(update).items()
        }
        after = engine.algorithm.server_round(server, [from_named_tensors(update, unmoved)], [1.0])
        if torch.allclose(engine.algorithm.current(after).primal, self.origin().primal):
            return None
        return "an update equal to the message moves the server: with `averages` clients send new values, not changes"

    @rule("a saved state resumes bit by bit")
    def resumes(self) -> str | None:
        engine, other = self.engine(), self.engine()
        state = self.after(engine, 3)
        saved = {name: tensor.clone() for name, tensor in engine.tensors(state).items()}
        again = other.tensors(self.after(other, 3))
        if unequal := [name for name in saved if not torch.equal(saved[name], again[name])]:
            return f"differs between two runs: {', '.join(unequal)}"
        straight, _ = engine.run_round(state)
        other = self.engine()
        resumed, _ = other.run_round(other.restored(saved, self.start(other)))
        here, there = engine.tensors(straight), other.tensors(resumed)
        unequal = [name for name in here if not torch.equal(here[name], there[name])]
        return f"differs after a resume: {', '.join(unequal)}" if unequal else None

    @rule("no global generator is used")
    def uses_no_generator(self) -> str | None:
        used: list[str] = []
        with global_generators_untouched(used):
            engine = self.engine()
            engine.restart(engine.finish_stage(self.after(engine, 1)))
        return f"uses the global generator of {', '.join(used)}" if used else None

    @rule("the step size, and every option with a range to search, has an effect")
    def uses_its_options(self) -> str | None:
        def end(**changed: Any) -> Point:
            engine = self.engine(**changed)
            return engine.finish_stage(self.after(engine, 3)).point

        pairs: dict[str, Any] = {"federated.local_lr": ({"step": STEP}, {"step": STEP / 2})}
        for name, field in type(self.options).model_fields.items():
            value, found = getattr(self.options, name), declared_range(field)
            if found is not None and isinstance(value, int | float):
                low, high = (self.options.model_copy(update={name: at}) for at in (found.low, found.high))
                pairs[name] = {"options": low}, {"options": high}
        ends = {name: (end(**one), end(**other)) for name, (one, other) in pairs.items()}
        idle = [
            name for name, (a, b) in ends.items() if torch.equal(a.primal, b.primal) and torch.equal(a.dual, b.dual)
        ]
        return f"no effect within three rounds: {', '.join(idle)}; does `build` pass it on?" if idle else None

    @rule(WINDOW_1)
    def solves_with_window_1(self) -> str | None:
        return self.solves(1)

    @rule(WINDOW_8)
    def solves_with_window_8(self) -> str | None:
        return self.solves(8)

    @rule(NEARER)
    def comes_nearer(self) -> str | None:
        engine = self.engine(1)
        begins, ends = (self.error(engine, self.after(engine, rounds)) for rounds in (0, ROUNDS))
        return None if ends < begins else f"it begins {begins:.1e} away from it and ends {ends:.1e} away"

    def error(self, engine: Engine, state: Any) -> float:
        """The largest distance of a variable from the optimum."""
        parts = problems(*self.sizes, clients=len(engine.fleet.names))
        equal = [1 / len(parts)] * len(parts)
        wanted = optimum(parts, engine.weights if isinstance(engine, ServerEngine) else equal)
        found = engine.current(state)
        return float(torch.cat([found.primal - wanted.primal, found.dual - wanted.dual]).abs().max())

    def solves(self, window: int) -> str | None:
        engine = self.engine(window)
        state, near, error = self.start(engine), 0, float("inf")
        for number in range(1, STAGES * ROUNDS + 1):
            state, _ = engine.run_round(state)
            if number % LOOK_EVERY == 0:
                error = self.error(engine, state)
                near = near + 1 if error < TOLERANCE else 0
            if near == 2:
                return None
            if number % ROUNDS == 0 and not self.spec.decentralized:
                begun = engine.restart(engine.finish_stage(state))
                state = engine.start_stage(begun.point, begun.buffers, begun.turns)
        return f"it ends {error:.1e} away from it, with a step of {STEP}"


def _weights(clients: int) -> list[float]:
    """Weights that differ."""
    return [2 * (1 + k) / clients / (1 + clients) for k in range(clients)]


@contextmanager
def _watched(kind: type, changed: list[str]) -> Iterator[None]:
    """Adds to `changed` what the steps of this class of rules change of what they are given."""

    def watched(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        keys = list(signature(step).parameters)

        def call(*given: Any) -> Any:
            before = {place: tensor.clone() for place, tensor in _tensors(keys, given).items()}
            result = step(*given)
            after = _tensors(keys, given)
            changed.extend(f"{place} by {name}" for place in before if not torch.equal(before[place], after[place]))
            return result

        return call

    with ExitStack() as patches:
        for name in {name for kind in _STEPS for name in vars(kind) if not name.startswith("_")}:
            if callable(step := getattr(kind, name, None)):
                patches.enter_context(patch.object(kind, name, watched(name, step)))
        yield


def _tensors(keys: Sequence[str], given: Sequence[Any]) -> dict[str, Tensor]:
    """The tensors among the arguments of a step, by their place."""
    found: dict[str, Tensor] = {}
    for key, value in zip(keys, given, strict=False):
        if key != "self" and (isinstance(value, Tensor) or is_dataclass(value)):
            found |= {place: one for place, one in named_tensors(value, key).items() if not one.is_meta}
        elif isinstance(value, Mapping | list | tuple):
            parts = value if isinstance(value, Mapping) else dict(enumerate(value))
            found |= _tensors([f"{key}.{number}" for number in parts], list(parts.values()))
    return found


def _records(engine: Engine, state: Any, host: Host) -> dict[str, Any]:
    """Every state and message of a round, by what it is."""
    rule: Any = engine.algorithm
    kept, oracle = host.kept[1].state, host.client.oracle
    if isinstance(engine, PeerEngine):
        node = rule.local_round(kept, oracle)
        return {"node": kept, "node after its steps": node, "message": rule.message(node, 0)}
    message = rule.message(state.server)
    update, client = rule.local_round(message, kept, oracle)
    return {"server": state.server, "client": client, "message": message, "update": update}
