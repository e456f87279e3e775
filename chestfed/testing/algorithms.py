"""`check_algorithm`: the contract of an algorithm, on small problems whose optimum is known."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from chestfed.algorithms import ALGORITHMS, AlgorithmSpec
from chestfed.algorithms.declaration import Exact, Pace, Setting, numbers_sent
from chestfed.algorithms.variables import Point, mean_of, named_tensors
from chestfed.core.plugins import Options
from chestfed.engines.engine import Engine
from chestfed.engines.fleet import LocalFleet
from chestfed.engines.host import Host
from chestfed.engines.peers import PeerEngine
from chestfed.engines.requests import Work
from chestfed.engines.server import ServerEngine
from chestfed.engines.topology import build_graph
from chestfed.objectives import OBJECTIVES
from chestfed.testing.contract import Contract, declared, global_generators_untouched, rule
from chestfed.testing.quadratics import CLIENTS, DISEASES, PRIMAL, WEIGHTS, QuadraticClient, optimum, problems

#: Step size with which the quadratics are solved; at most so many stages of so many rounds; the error that counts as
#: solved, after two looks in a row.
STEP, STAGES, ROUNDS, TOLERANCE, LOOK_EVERY = 0.1, 8, 500, 1e-6, 25

WINDOW_1, WINDOW_8 = "window 1: it ends at the optimum", "window 8: it ends at the optimum"
_ENDS = {"any window": (WINDOW_1, WINDOW_8), "window 1": (WINDOW_1,), "no": ()}


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

    def __init__(self, spec: AlgorithmSpec, options: Options) -> None:
        self.spec, self.options, self.what = spec, options, f"algorithm '{spec.name}'"
        self.composed = "compositional" in spec.takes
        minimizes = set(spec.takes) <= {"minimization", "server-weighted"}
        #: Primal and dual variables of the problem.
        self.sizes = (WEIGHTS, 0) if minimizes else (PRIMAL, DISEASES)
        claimed = () if self.composed else _ENDS.get(spec.exact, ())
        self.unclaimed = frozenset({WINDOW_1, WINDOW_8}.difference(claimed))

    def engine(self, window: int = 3) -> Engine:
        spec = self.spec
        parts = problems(*self.sizes, clients=1 if spec.pooled else CLIENTS)
        clients = [QuadraticClient(f"client {k}", part, composed=self.composed) for k, part in enumerate(parts)]
        graph = build_graph("ring", len(parts)) if spec.decentralized else None
        setting = Setting(
            window=window if spec.pace == "window" else 1,
            local_lr=STEP,
            clients=len(parts),
            positive_ratio=torch.full((DISEASES,), 0.3, dtype=torch.float64),
            degree=2 if graph else 0,
            returns_average=False,
        )
        built = spec.build(self.options, setting)
        self.fleet = LocalFleet.of(clients, built, graph)
        if graph is not None:
            return PeerEngine(built, self.fleet, graph, "synchronous", seed=0)
        return ServerEngine(built, self.fleet, [1 / len(parts)] * len(parts))

    def start(self, engine: Engine) -> Any:
        primal, dual = (torch.zeros(size, dtype=torch.float64) for size in self.sizes)
        return engine.start_stage(Point(primal, dual), _NOTHING)

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

    @rule("states and messages are dataclasses of tensors")
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
        return None

    @rule("a round changes no tensor that it was given")
    def is_pure(self) -> str | None:
        engine = self.engine()
        state, _ = engine.run_round(self.start(engine))
        before = {name: tensor.clone() for name, tensor in engine.tensors(state).items()}
        engine.run_round(state)
        changed = [name for name, tensor in engine.tensors(state).items() if not torch.equal(tensor, before[name])]
        return f"changed in place: {', '.join(changed)}" if changed else None

    @rule("a round takes `window` gradients")
    def keeps_to_the_window(self) -> str | None:
        for window in (1, 4):
            engine = self.engine(window)
            state, _ = engine.run_round(self.start(engine))
            client = self.fleet.hosts[0].client
            before = client.images_seen
            engine.run_round(state)
            taken, wanted = client.images_seen - before, window if self.spec.pace == "window" else 1
            if taken != wanted:
                return f"a second round with a window of {wanted} took {taken} gradients"
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
        if (record.bytes_up, record.bytes_down) == (wanted, 0 if spec.decentralized else wanted):
            return None
        return f"'{formula}' comes to {wanted} bytes; {record.bytes_up} went up and {record.bytes_down} down"

    @rule("`takes_mean`, `averages`: the server's step takes the weighted mean of the updates and nothing else")
    def takes_the_mean(self) -> str | None:
        if not (self.spec.takes_mean or self.spec.averages):
            return None
        engine = self.engine()
        state, _ = engine.run_round(self.start(engine))
        server, message = state.server, engine.algorithm.message(state.server)
        work = engine.fleet.ask_all(lambda number: Work(int(state.turns[number]), message, state.buffers))
        updates = [its.update for its in work.values()]
        weights = [2 * (1 + k) / len(updates) / (1 + len(updates)) for k in range(len(updates))]
        each = engine.algorithm.server_round(server, updates, weights)
        mean = engine.algorithm.server_round(server, [mean_of(updates, weights)], [1.0])
        there = named_tensors(mean)
        unequal = [name for name, tensor in named_tensors(each).items() if not torch.allclose(tensor, there[name])]
        return f"differs from the step on the mean: {', '.join(unequal)}" if unequal else None

    @rule("a saved state resumes bit by bit")
    def resumes(self) -> str | None:
        engine = self.engine()
        state = self.start(engine)
        for _ in range(3):
            state, _ = engine.run_round(state)
        saved = {name: tensor.clone() for name, tensor in engine.tensors(state).items()}
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
            engine.run_round(self.start(engine))
        return f"uses the global generator of {', '.join(used)}" if used else None

    @rule(WINDOW_1)
    def solves_with_window_1(self) -> str | None:
        return self.solves(1)

    @rule(WINDOW_8)
    def solves_with_window_8(self) -> str | None:
        return self.solves(8)

    def solves(self, window: int) -> str | None:
        engine = self.engine(window)
        parts = problems(*self.sizes, clients=len(engine.fleet.names))
        wanted, state, near, error = optimum(parts), self.start(engine), 0, float("inf")
        for number in range(1, STAGES * ROUNDS + 1):
            state, _ = engine.run_round(state)
            if number % LOOK_EVERY == 0:
                found = engine.current(state)
                error = float(torch.cat([found.primal - wanted.primal, found.dual - wanted.dual]).abs().max())
                near = near + 1 if error < TOLERANCE else 0
            if near == 2:
                return None
            if number % ROUNDS == 0 and not self.spec.decentralized:
                begun = engine.restart(engine.finish_stage(state))
                state = engine.start_stage(begun.point, begun.buffers, begun.turns)
        return f"it ends {error:.1e} away from it, with a step of {STEP}"


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
