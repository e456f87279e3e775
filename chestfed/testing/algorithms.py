"""`check_algorithm`: the contract of an algorithm, on small problems whose optimum is known."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from chestfed.algorithms import ALGORITHMS, AlgorithmSpec
from chestfed.algorithms.declaration import Setting, numbers_sent
from chestfed.algorithms.variables import Point
from chestfed.core.plugins import Options
from chestfed.engines.engine import Engine
from chestfed.engines.in_process import InProcessEngine
from chestfed.engines.peers import PeerEngine
from chestfed.engines.topology import Graph, build_graph
from chestfed.testing.contract import Contract, global_generators_untouched
from chestfed.testing.quadratics import CLIENTS, DISEASES, PRIMAL, WEIGHTS, QuadraticClient, optimum, problems

#: Step size with which the quadratics are solved; at most so many stages of so many rounds; the error that counts as
#: solved, after two looks in a row.
STEP, STAGES, ROUNDS, TOLERANCE, LOOK_EVERY = 0.1, 8, 500, 1e-6, 25


def check_algorithm(algorithm: AlgorithmSpec | str, **options: Any) -> list[str]:
    """Check an algorithm against the contract of `chestfed.algorithms.variables` and its own declaration.

    Parameters
    ----------
    algorithm
        A declaration, or a name or reference as in a pipeline.
    options
        Options of the algorithm; the claims are checked under these.

    Returns
    -------
    list of str
        The rules that were checked, all of them kept.

    Raises
    ------
    ContractError
        With every rule that is broken.
    """
    spec = ALGORITHMS.find(algorithm) if isinstance(algorithm, str) else algorithm
    chosen = spec.options.model_validate({"name": spec.name, **options})
    contract = Contract(f"algorithm '{spec.name}'")
    contract.check("unknown options are refused", lambda: _refuses_unknown(spec))
    contract.check("states and messages are dataclasses of tensors", lambda: _states_are_tensors(spec, chosen))
    contract.check("a round changes no tensor that it was given", lambda: _is_pure(spec, chosen))
    contract.check("a round takes `window` gradients", lambda: _keeps_to_the_window(spec, chosen))
    contract.check("the bytes sent are those of the formula", lambda: _bytes_match(spec, chosen))
    contract.check("a saved state resumes bit by bit", lambda: _resumes(spec, chosen))
    contract.check("no global generator is used", lambda: _no_global_randomness(spec, chosen))
    windows = {"any window": (1, 8), "window 1": (1,), "no": ()}[spec.exact]
    for window in windows if "compositional" not in spec.takes else ():
        contract.check(f"window {window}: it ends at the optimum", lambda w=window: _solves(spec, chosen, w))  # type: ignore[misc]
    return contract.finish()


def _sizes(spec: AlgorithmSpec) -> tuple[int, int]:
    """Primal and dual variables of the problem that the algorithm is checked on."""
    return (WEIGHTS, 0) if set(spec.takes) <= {"minimization", "server-weighted"} else (PRIMAL, DISEASES)


def _engine(spec: AlgorithmSpec, options: Options, window: int = 3) -> Engine:
    parts = problems(*_sizes(spec), clients=1 if spec.pooled else CLIENTS)
    composed = "compositional" in spec.takes
    clients = [QuadraticClient(f"client {k}", part, composed=composed) for k, part in enumerate(parts)]
    graph: Graph | None = build_graph("ring", len(parts)) if spec.decentralized else None
    setting = Setting(
        window=window if spec.pace == "window" else 1,
        local_lr=STEP,
        clients=len(parts),
        positive_ratio=torch.full((DISEASES,), 0.3, dtype=torch.float64),
        degree=2 if graph else 0,
        returns_average=False,
    )
    rule = spec.build(options, setting)
    if graph is not None:
        return PeerEngine(rule, clients, graph, "synchronous", seed=0)
    return InProcessEngine(rule, clients, [1 / len(parts)] * len(parts))


def _start(spec: AlgorithmSpec, engine: Engine) -> Any:
    primal, dual = _sizes(spec)
    point = Point(torch.zeros(primal, dtype=torch.float64), torch.zeros(dual, dtype=torch.float64))
    return engine.start_stage(point, torch.zeros(0, dtype=torch.float64))


def _records(engine: Engine, state: Any) -> dict[str, Any]:
    """Every state and message of a round, by what it is."""
    rule: Any = engine.algorithm
    if isinstance(engine, PeerEngine):
        node = rule.local_round(state.nodes[0], engine.clients[0].oracle)
        return {"node": state.nodes[0], "node after its steps": node, "message": rule.message(node, 0)}
    message = rule.message(state.server)
    update, client = rule.local_round(message, state.clients[0], engine.clients[0].oracle)
    return {"server": state.server, "client": client, "message": message, "update": update}


def _tensors(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _refuses_unknown(spec: AlgorithmSpec) -> str | None:
    try:
        spec.options.model_validate({"name": spec.name, "an_option_that_nobody_has": 1})
    except ValueError:
        return None
    return "its Options accept any key; derive them from chestfed.core.plugins.Options"


def _states_are_tensors(spec: AlgorithmSpec, options: Options) -> str | None:
    engine = _engine(spec, options)
    state = _start(spec, engine)
    with _round(engine):
        records = _records(engine, state)
    for what, record in records.items():
        if not is_dataclass(record):
            return f"{what} is a {type(record).__name__}, not a dataclass"
        for name, value in _tensors(record).items():
            if not isinstance(value, Tensor):
                return f"{what}.{name} is a {type(value).__name__}, not a tensor"
    return None


def _is_pure(spec: AlgorithmSpec, options: Options) -> str | None:
    engine = _engine(spec, options)
    state, _ = engine.run_round(_start(spec, engine))
    before = {name: tensor.clone() for name, tensor in engine.tensors(state).items()}
    engine.run_round(state)
    changed = [name for name, tensor in engine.tensors(state).items() if not torch.equal(tensor, before[name])]
    return f"changed in place: {', '.join(changed)}" if changed else None


def _keeps_to_the_window(spec: AlgorithmSpec, options: Options) -> str | None:
    for window in (1, 4):
        engine = _engine(spec, options, window)
        state, _ = engine.run_round(_start(spec, engine))
        before = engine.clients[0].images_seen
        engine.run_round(state)
        taken, wanted = engine.clients[0].images_seen - before, window if spec.pace == "window" else 1
        if taken != wanted:
            return f"a second round with a window of {wanted} took {taken} gradients"
    return None


def _bytes_match(spec: AlgorithmSpec, options: Options) -> str | None:
    engine = _engine(spec, options)
    _, record = engine.run_round(_start(spec, engine))
    diseases = DISEASES if _sizes(spec)[1] else 0
    numbers = 0 if spec.pooled else numbers_sent(spec.formula(options), WEIGHTS, diseases)
    edges = 2 if spec.decentralized else 1  # every node of the ring has two
    wanted = 8 * numbers * edges * len(engine.clients)
    if spec.pooled or record.bytes_up == wanted == record.bytes_down:
        return None
    formula = spec.formula(options)
    return f"'{formula}' comes to {wanted} bytes; {record.bytes_up} went up and {record.bytes_down} down"


def _resumes(spec: AlgorithmSpec, options: Options) -> str | None:
    engine = _engine(spec, options)
    state = _start(spec, engine)
    for _ in range(3):
        state, _ = engine.run_round(state)
    saved = {name: tensor.clone() for name, tensor in engine.tensors(state).items()}
    straight, _ = engine.run_round(state)
    other = _engine(spec, options)
    resumed, _ = other.run_round(other.restored(saved, _start(spec, other)))
    here, there = engine.tensors(straight), other.tensors(resumed)
    unequal = [name for name in here if not torch.equal(here[name], there[name])]
    return f"differs after a resume: {', '.join(unequal)}" if unequal else None


def _no_global_randomness(spec: AlgorithmSpec, options: Options) -> str | None:
    used: list[str] = []
    with global_generators_untouched(used):
        engine = _engine(spec, options)
        engine.run_round(_start(spec, engine))
    return f"uses the global generator of {', '.join(used)}" if used else None


def _solves(spec: AlgorithmSpec, options: Options, window: int) -> str | None:
    engine = _engine(spec, options, window)
    parts = problems(*_sizes(spec), clients=len(engine.clients))
    wanted, state, near, error = optimum(parts), _start(spec, engine), 0, float("inf")
    for number in range(1, STAGES * ROUNDS + 1):
        state, _ = engine.run_round(state)
        if number % LOOK_EVERY == 0:
            found = engine.current(state)
            error = float(torch.cat([found.primal - wanted.primal, found.dual - wanted.dual]).abs().max())
            near = near + 1 if error < TOLERANCE else 0
        if near == 2:
            return None
        if number % ROUNDS == 0 and not spec.decentralized:
            point = engine.finish_stage(state).point
            state = engine.start_stage(engine.restart(point, state.buffers).point, state.buffers)
    return f"it ends {error:.1e} away from it, with a step of {STEP}"


def _round(engine: Engine) -> Any:
    return engine.clients[0].training(torch.zeros(0, dtype=torch.float64))
