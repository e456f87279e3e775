"""`check_algorithm`: the contract of an algorithm, on small problems whose optimum is known."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Options
from chestfed.learning.abilities import Can
from chestfed.learning.algorithms import ALGORITHMS, AlgorithmSpec
from chestfed.learning.algorithms.declaration import Exact, Pace, Setting, Sizes, evaluate, numbers_sent
from chestfed.learning.algorithms.variables import (
    Algorithm,
    Iterate,
    Move,
    Personal,
    Point,
    Record,
    from_named_tensors,
    mean_of,
    named_tensors,
)
from chestfed.learning.engines.engine import Engine, EngineState
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.messages.requests import Work
from chestfed.learning.engines.server import ServerEngine
from chestfed.learning.exchange.exchange import Exchange
from chestfed.learning.exchange.step import Arrived, Package
from chestfed.learning.objectives import OBJECTIVES
from chestfed.learning.objectives.declaration import Objective, count_remembered, shape_shared
from chestfed.studies.experiment.ranges import declared_range
from chestfed.testing.contract import Contract, describe_error, find_declaration, rule, watch_global_generators
from chestfed.testing.quadratics import (
    CLIENTS,
    DISEASES,
    FULL_PASS,
    PRIMAL,
    WEIGHTS,
    QuadraticClient,
    build_objective,
    optimum,
    problems,
)
from chestfed.testing.steps import find_differences, list_problem, watch_steps

#: Step size with which the quadratics are solved; at most so many stages of so many rounds; the error that counts as
#: solved, after two looks in a row.
STEP, STAGES, ROUNDS, TOLERANCE, LOOK_EVERY = 0.1, 8, 500, 1e-6, 25

WINDOW_1, WINDOW_8 = "window 1: it ends at the optimum", "window 8: it ends at the optimum"
NEARER = "window 1: it ends nearer to the optimum than it begins"
_ENDS = {"any window": (WINDOW_1, WINDOW_8), "window 1": (WINDOW_1,), "no": (NEARER,)}
MEAN = "`ROBUST`: the server's step takes the weighted mean of the updates and nothing else"
COUNTS = "the server's step counts every client by its weight, in any order"
TRAINED = "every weight that is scored is trained"
BETTER = "the clients' own points are better for them than the start"
TENSORS = "states and messages are dataclasses of tensors"


def check_algorithm(algorithm: AlgorithmSpec | str, **options: object) -> list[str]:
    """Check an algorithm against the contract of `chestfed.learning.algorithms.variables` and its own declaration.

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
    return _Trial(*find_declaration(ALGORITHMS, algorithm, options)).check()


#: Groups of the weights of the quadratics.
GROUPS = {"features": (slice(0, 1), slice(2, 3)), "normalization": (slice(1, 2),), "classifier": (slice(3, WEIGHTS),)}

_NOTHING = torch.zeros(0, dtype=torch.float64)
#: Rounds in which every weight is trained; the second is for steps that send a part of an update, and the rest later.
_TRAINING_ROUNDS = (2, 20)


class _Trial(Contract):
    """An algorithm on small heterogeneous quadratics."""

    decisive = TENSORS

    def __init__(self, spec: AlgorithmSpec, options: Options) -> None:
        self.spec, self.options, self.what = spec, options, f"algorithm '{spec.name}'"
        objective: Objective | None = None
        has_oracle = False
        with suppress(ConfigError):  # a rule says so: its objective is unknown, or needs options
            objective, has_oracle = build_objective(spec.objective), OBJECTIVES.find(spec.objective).oracle is not None
        self.remembered, self.shared = count_remembered(objective), shape_shared(objective)
        #: Primal and dual variables of the problem.
        ascends = "min-max" in spec.takes or (objective is not None and objective.dual_size > 0)
        self.sizes = (PRIMAL, DISEASES) if ascends else (WEIGHTS, 0)
        self.origin = Point(*(torch.linspace(-1, 1, size, dtype=torch.float64) for size in self.sizes))
        claimed = () if has_oracle or Can.OWN_POINTS in spec.can else _ENDS.get(spec.exact, ())
        unclaimed = {WINDOW_1, WINDOW_8, NEARER}.difference(claimed)
        unclaimed |= (set() if Can.ROBUST in spec.can else {MEAN}) | (set() if Can.OWN_POINTS in spec.can else {BETTER})
        self.unclaimed = frozenset(unclaimed | (set() if spec.has_server and not spec.pooled else {COUNTS}))

    def engine(
        self, window: int = 3, step: float = STEP, options: Options | None = None, *, overwrites: bool = True
    ) -> Engine[Any]:
        spec = self.spec
        parts = problems(*self.sizes, clients=1 if spec.pooled else CLIENTS)
        clients = [
            QuadraticClient(f"client {k}", part, overwrites=overwrites, remembered=self.remembered)
            for k, part in enumerate(parts)
        ]
        layout = spec.layout and spec.layout(self.options, len(parts))
        setting = Setting(
            window=window if spec.pace == "window" else 1,
            local_lr=step,
            clients=len(parts),
            positive_ratio=torch.full((DISEASES,), 0.3, dtype=torch.float64),
            degree=layout.degree if layout else 0,
            returns_average=False,
            groups=GROUPS,
            shared=self.shared,
        )
        rule: Any = spec.build(options or self.options, setting)
        exchange = Exchange(tuple(spec.steps(options or self.options)))
        self.fleet = LocalFleet.of(clients, rule, layout, exchange)
        if layout is not None:
            engine: Engine[Any] = layout.engine(rule, self.fleet, seed=0)
            return engine
        return ServerEngine(rule, self.fleet, _weights(len(parts)), exchange=exchange)

    def start(self, engine: Engine[Any]) -> EngineState:
        shared = torch.linspace(-1, 1, math.prod(self.shared), dtype=torch.float64)
        state: EngineState = engine.start_stage(self.origin, _NOTHING, shared=shared)
        return state

    def run(self, engine: Engine[Any], rounds: int) -> EngineState:
        """The engine's state after so many rounds."""
        state = self.start(engine)
        for _ in range(rounds):
            state, _ = engine.run_round(state)
        return state

    def collect(self) -> tuple[ServerEngine[Iterate, Move, Record], Iterate, list[Move]]:
        """An engine, the server's state after a round, and the updates of the next one as `server_round` takes them."""
        engine: Any = self.engine()
        state = self.run(engine, 1)
        server: Iterate = state.server  # type: ignore[attr-defined]  # of an engine with a server
        message: Move = engine.algorithm.message(server)
        turns: list[int] = state.turns.tolist()
        work = self.fleet.ask_all(lambda number: Work(turns[number], message, state.buffers, shared=state.shared))
        parts = [Package(answer.update, answer.buffers) for answer in work.values()]
        arrived = Arrived(parts, _weights(len(parts)), Package(message, state.buffers))
        return engine, server, [part.update for part in engine.exchange.at_server(arrived).parts]

    @rule("the declaration has known values, and its objective is of a kind that it takes")
    def is_declared(self) -> str | None:
        spec = self.spec
        for key, value, known in (("exact", spec.exact, get_args(Exact)), ("pace", spec.pace, get_args(Pace))):
            if value not in known:
                return f"{key}: '{value}' is not one of {', '.join(known)}"
        kind = find_declaration(OBJECTIVES, spec.objective, {})[0].kind
        return None if kind in spec.takes else f"{spec.objective} is {kind}; `takes` has {', '.join(spec.takes)}"

    @rule("unknown options are refused")
    def refuses_unknown_options(self) -> str | None:
        return self.refuses_unknown(self.spec.options, self.spec.name)

    @rule(TENSORS)
    def states_are_tensors(self) -> str | None:
        records = self._records()
        for what, record in records.items():
            if not is_dataclass(record):
                return f"{what} is a {type(record).__name__}, not a dataclass"
            for field in fields(record):
                value: object = getattr(record, field.name)
                if not isinstance(value, Tensor):
                    return f"{what}.{field.name} is a {type(value).__name__}, not a tensor"
        if "update" in records and not hasattr(records["update"], "primal"):
            return (
                "update has no field `primal`: name what the client sends for the weights so; the drift is its spread"
            )
        try:
            self.run(self.engine(), 1)
        except RuntimeError as error:  # of torch, such as shapes that do not fit; the state is from `start_stage`
            tensors = named_tensors(next(iter(records.values()))).items()
            shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors)
            return f"{describe_error(error)}\n    in the first round, with the state of `start_stage`: {shapes}"
        return None

    def _records(self) -> dict[str, object]:
        """Every state and message of a round, by its name."""
        engine: Any = self.engine()
        state: Any = self.start(engine)
        rule, host = engine.algorithm, self.fleet.hosts[0]
        start, oracle = host.snapshots[1].state, host.client.oracle
        with host.client.training(_NOTHING, _NOTHING):
            if not self.spec.has_server:
                node = rule.local_round(start, oracle)
                return {"node": start, "node after its steps": node, "message": rule.message(node, 0)}
            message = rule.message(state.server)
            update, client = engine.exchange.local_round(rule, message, start, oracle)
        kept = {f"client of step '{key}'": value for key, value in engine.exchange.kept_by(client).items()}
        own = engine.exchange.own_state(client)
        return {"server": state.server, "client": own, **kept, "message": message, "update": update}

    @rule("a round changes no tensor that it was given")
    def is_pure(self) -> str | None:
        engine, changed = self.engine(), list[str]()
        with watch_steps(type(self.fleet.hosts[0].rule), changed):
            engine.finish_stage(self.run(engine, 2))
        return list_problem("changed in place (clone first)", list(dict.fromkeys(changed)))

    @rule("a gradient that is kept is cloned: the next one overwrites it")
    def clones_gradients(self) -> str | None:
        ends = [engine.tensors(self.run(engine, 2)) for engine in (self.engine(), self.engine(overwrites=False))]
        return list_problem("with gradients that are not overwritten other values", find_differences(ends[0], ends[1]))

    @rule("a round takes the gradients of the formula")
    def keeps_to_the_window(self) -> str | None:
        formula = self.spec.describe_gradients(self.options)
        for window in (1, 4):
            engine = self.engine(window)
            state, client = self.run(engine, 1), self.fleet.hosts[0].client
            before = client.gradients_computed
            engine.run_round(state)
            steps = window if self.spec.pace == "window" else 1
            taken, expected = client.gradients_computed - before, evaluate(formula, {"I": steps, "F": FULL_PASS})
            if taken != expected:
                return (
                    f"a second round of {steps} steps took {taken} gradients; '{formula}' comes to {expected} with a "
                    f"full pass of {FULL_PASS}"
                )
        return None

    @rule(TRAINED)
    def trains_what_is_scored(self) -> str | None:
        engine = self.engine()
        is_personal = isinstance(engine, ServerEngine) and isinstance(engine.algorithm, Personal)
        if is_personal != (Can.OWN_POINTS in self.spec.can):
            return "`OWN_POINTS` is declared and the rule has no `local_point`, or the other way round"
        problem = None
        for rounds in _TRAINING_ROUNDS:
            if (problem := self._find_still(rounds)) is None:
                break
        return problem

    def _find_still(self, rounds: int) -> str | None:
        """The weights of a point that is scored which so many rounds do not change, as a problem."""
        engine = self.engine()
        for name, point in self.points(engine, self.run(engine, rounds)).items():
            still = (point.primal == self.origin.primal).nonzero().flatten().tolist()
            if still:
                return f"{name}: after {rounds} rounds the weights {still} of {len(point.primal)} are where they began"
        return None

    @rule(BETTER)
    def personal_points_are_better(self) -> str | None:
        engine, parts = self.engine(), problems(*self.sizes)
        points = engine.local_points(state := self.run(engine, ROUNDS // 10), engine.current(state))
        pairs = zip(points.values(), parts, strict=True)
        change = sum(float(part.loss(point.primal) - part.loss(self.origin.primal)) for point, part in pairs)
        return None if change < 0 else f"their loss changes by {change:+.2e} in {ROUNDS // 10} rounds"

    def points(self, engine: Engine[Any], state: EngineState) -> dict[str, Point]:
        """Points that are scored, by the client, or by `the server`."""
        common = engine.current(state)
        local = engine.local_points(state, common)
        return (
            local
            if Can.OWN_POINTS in self.spec.can and Can.SERVER_POINT not in self.spec.can
            else local | {"the server": common}
        )

    @rule("the bytes sent are those of the formula")
    def bytes_match(self) -> str | None:
        engine, spec = self.engine(), self.spec
        _, record = engine.run_round(state := self.start(engine))
        formula = spec.formula(self.options)
        sizes = Sizes.of(WEIGHTS, DISEASES, GROUPS, itemsize=8, shared=math.prod(self.shared))
        each = 8 * numbers_sent(formula, sizes)
        if spec.bytes_sent is not None:
            formula, each = "bytes_sent", spec.bytes_sent(self.options, sizes)
        clients = len(engine.fleet.names)
        expected = each * (clients if spec.layout is None else spec.layout(self.options, clients).messages)
        if spec.pooled or record.bytes_up == expected:
            return None
        text = f"'{formula}' comes to {expected} bytes of float64, the type of the weights here; {record.bytes_up} went"
        return f"{text} up{_describe_whole_state(engine, state)}"

    @rule("scores of images are read only where `SCORES` is declared")
    def declares_scores(self) -> str | None:
        self.run(self.engine(), 1)
        reads = any(host.client.reads for host in self.fleet.hosts)  # type: ignore[attr-defined]
        if reads == (Can.SCORES in self.spec.can):
            return None
        return "`logits`, `labels` or `remembered` are read" if reads else "declared, and nothing is read"

    @rule(COUNTS)
    def counts_all_clients(self) -> str | None:
        engine, server, updates = self.collect()
        weights = _weights(len(updates))

        def step(updates: list[Move], weights: list[float]) -> dict[str, Tensor]:
            return named_tensors(engine.algorithm.server_round(server, updates, weights))

        after = step(updates, weights)
        if unequal := find_differences(after, step(updates[::-1], weights[::-1]), torch.allclose):
            return list_problem("depends on the order of the clients", unequal)
        if not find_differences(after, step(updates, weights[::-1])):
            return "other weights give the same step, so `federated.weights` would have no effect; see `weighted_mean`"
        return None

    @rule(MEAN)
    def takes_the_mean(self) -> str | None:
        engine, server, updates = self.collect()
        weights, rule = _weights(len(updates)), engine.algorithm
        mean = rule.server_round(server, [mean_of(updates, weights)], [1.0])
        after = rule.server_round(server, updates, weights)
        if unequal := find_differences(named_tensors(after), named_tensors(mean), torch.allclose):
            return list_problem("differs from the step on the mean", unequal)
        start, update = rule.start_stage(self.origin), updates[0]
        sent = named_tensors(rule.message(start))
        unmoved = {
            name: sent[name] if name in sent and sent[name].shape == tensor.shape else torch.zeros_like(tensor)
            for name, tensor in named_tensors(update).items()
        }
        after = rule.server_round(start, [from_named_tensors(update, unmoved)], [1.0])
        if torch.allclose(rule.current(after).primal, self.origin.primal):
            return None
        return "an update equal to the message moves the server: with `ROBUST` clients send new values, not changes"

    @rule("a saved state resumes bit by bit")
    def resumes(self) -> str | None:
        engine, other = self.engine(), self.engine()
        state = self.run(engine, 3)
        saved = {name: tensor.clone() for name, tensor in engine.tensors(state).items()}
        if unequal := find_differences(saved, other.tensors(self.run(other, 3))):
            return list_problem("differs between two runs", unequal)
        straight, _ = engine.run_round(state)
        other = self.engine()
        resumed, _ = other.run_round(other.restored(saved, self.start(other)))
        return list_problem(
            "differs after a resume", find_differences(engine.tensors(straight), other.tensors(resumed))
        )

    @rule("no global generator is used")
    def uses_no_generator(self) -> str | None:
        used: list[str] = []
        with watch_global_generators(used):
            engine = self.engine()
            engine.restart(engine.finish_stage(self.run(engine, 1)))
        return list_problem("uses the global generator of", used)

    @rule("the step size, and every option with a range to search, has an effect")
    def uses_its_options(self) -> str | None:
        def end(step: float = STEP, options: Options | None = None) -> dict[str, Tensor]:
            engine = self.engine(step=step, options=options)
            state = self.run(engine, 3)
            if Can.OWN_POINTS in self.spec.can:
                return {name: point.primal for name, point in self.points(engine, state).items()}
            return named_tensors(engine.finish_stage(state).point)

        idle = [] if find_differences(end(), end(STEP / 2)) else ["federated.local_lr"]
        for name, field in type(self.options).model_fields.items():
            value, scale = getattr(self.options, name), declared_range(field)
            if scale is not None and isinstance(value, int | float):
                low, high = (self.options.model_copy(update={name: at}) for at in (scale.low, scale.high))
                idle += [] if find_differences(end(options=low), end(options=high)) else [name]
        return list_problem("no effect within three rounds (does `build` pass it on?)", idle)

    @rule(WINDOW_1)
    def solves_with_window_1(self) -> str | None:
        return self.solves(1)

    @rule(WINDOW_8)
    def solves_with_window_8(self) -> str | None:
        return self.solves(8)

    @rule(NEARER)
    def comes_nearer(self) -> str | None:
        engine = self.engine(1)
        before, after = (self.error(engine, self.run(engine, rounds)) for rounds in (0, ROUNDS))
        return None if after < before else f"it begins {before:.1e} away from it and ends {after:.1e} away"

    def error(self, engine: Engine[Any], state: EngineState) -> float:
        """The largest distance of a variable from the optimum."""
        parts = problems(*self.sizes, clients=len(engine.fleet.names))
        equal = [1 / len(parts)] * len(parts)
        weights = engine.weights if isinstance(engine, ServerEngine) else equal
        point = engine.current(state)
        best = optimum(parts, weights)
        return float(torch.cat([point.primal - best.primal, point.dual - best.dual]).abs().max())

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
            if number % ROUNDS == 0 and self.spec.has_server:
                end = engine.restart(engine.finish_stage(state))
                state = engine.start_stage(end.point, end.buffers, end.turns, end.shared)
        return f"it ends {error:.1e} away from it, with a step of {STEP}; `exact` is of the last iterate, else 'no'"


def _describe_whole_state(engine: Any, state: Any) -> str:
    """A sentence on the state that is sent beside the point because the rule has no `message`; empty if none is."""
    if getattr(type(getattr(engine, "algorithm", None)), "message", None) is not Algorithm.message:
        return ""
    further = [name for name in named_tensors(state.server) if name not in ("primal", "dual")]
    advice = "write `def message(self, server): return Point(server.primal, server.dual)`"
    names = ", ".join(further)
    return f". Without a method `message` all of the server's state is sent, also {names}: {advice}" if further else ""


def _weights(clients: int) -> list[float]:
    """Weights that differ."""
    return [2 * (1 + k) / clients / (1 + clients) for k in range(clients)]
