"""From the parts that a pipeline names to a client's objective and a stage's rule; whether all of them can be built.

Every run is checked before any data are read, so that none is refused after another has run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

from chestfed.core.errors import ConfigError
from chestfed.core.plugins import list_arguments, list_mistakes
from chestfed.core.randomness import numpy_stream
from chestfed.learning.abilities import Can
from chestfed.learning.algorithms.variables import (
    Algorithm,
    Finishing,
    LocalStepAlgorithm,
    Partial,
    PeerAlgorithm,
    Personal,
    Preparing,
    Restarting,
    Sharing,
)
from chestfed.learning.engines.declaration import engine_for
from chestfed.learning.engines.layout import Layout, refuse_running_statistics
from chestfed.learning.models import (
    MODELS,
    NetworkGroups,
    find_own_norms,
    network_options,
    try_network,
    without_absent_weights,
)
from chestfed.learning.objectives import Objective
from chestfed.learning.objectives.declaration import Population, Sampled, Seeing, count_shared, shape_shared
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.stage_2 import Federated

#: The protocols of rules with a server.
SERVER_RULES = (Algorithm, LocalStepAlgorithm, Partial, Sharing, Preparing, Finishing, Restarting, Personal)


def build_objective(settings: Federated, population: Population) -> Objective:
    """The objective of the client that `population.site` numbers."""
    return settings.objective_spec.build(settings.objective, population)


def ratio_of_duals(objective: Objective, population: Population) -> Tensor:
    """The share of positives that a dual variable is about: per disease `[J]`, or per site and disease `[K, J]`."""
    common = population.positive_ratio
    return common if objective.dual_size <= common.numel() else population.site_ratios


def build_layout(settings: Federated, clients: int) -> Layout | None:
    """Who sends to whom without a server; None with one."""
    return None if settings.spec.layout is None else settings.spec.layout(settings.algorithm, clients)


def returned_round(settings: Federated, seed: int, number: int) -> int | None:
    """The round of a stage, counted from 1, that gives the stage's point; None: the algorithm decides."""
    if settings.stage_output != "random_round":
        return None
    return int(numpy_stream(seed, "returned round", number).integers(1, settings.schedule[number].rounds + 1))


def make_participant_sampler(
    settings: Federated, seed: int, stage: int, clients: int
) -> Callable[[int], Sequence[int]] | None:
    """Which clients take part in a round of a stage, both counted from 0; None: all in every round."""
    count = settings.taking_part(clients)
    if count == clients:
        return None
    if settings.participation == "cyclic":
        before = sum(part.rounds for part in settings.schedule[:stage])
        return lambda number: [(before + number) * count % clients + place for place in range(count)]
    return lambda number: sorted(
        numpy_stream(seed, "participants", stage, number).choice(clients, count, replace=False).tolist()
    )


def make_step_counts(
    settings: Federated, seed: int, stage: int, rows: Sequence[int], places: Sequence[int]
) -> Callable[[int, int], int] | None:
    """`steps(round, client)`: local steps of a client with so many training rows; None: the window everywhere.

    `places` are those of the clients in the order of addition, in which others may have left.
    """
    chosen, window = settings.local_steps, settings.schedule[stage].window
    if chosen is None:
        return None

    def steps(number: int, client: int) -> int:
        whole: float = window
        if chosen.per_client is not None:
            whole = chosen.per_client[places[client]]
        elif chosen.epochs is not None:
            whole = chosen.epochs * rows[client] / settings.images_per_step
        late, share = numpy_stream(seed, "stragglers", stage, number, client).random(2)
        if late < chosen.stragglers:
            whole *= chosen.least + (1 - chosen.least) * share
        return max(1, round(whole))

    return steps


def check_runs(runs: Sequence[Pipeline]) -> None:
    """Build and try the network, and for every run and K the layout, objective, and algorithm of each stage.

    Raises `ConfigError`: one message with every problem: which runs, which key, why, and what to do.
    """
    problems: dict[str, list[str]] = {}
    number_of_buffers = cache(_number_of_buffers)
    for run in runs:
        buffers = number_of_buffers(run.model.model_dump_json(), len(run.tasks), run.preprocess.size)
        for k in run.k:
            where = f"{run.federated.spec.name}, window {run.federated.window}, K={k}"
            for problem in _problems(run, k, buffers):
                if where not in problems.setdefault(problem, []):
                    problems[problem].append(where)
    if problems:
        lines = [f"{'; '.join(where)}: {problem}" for problem, where in problems.items()]
        text = "\n".join(["invalid configuration; nothing was started:", *lines])
        raise ConfigError(text, kind="invalid configuration", keys=[problem.partition(":")[0] for problem in problems])


def _problems(run: Pipeline, k: int, buffers: int) -> Iterator[str]:
    settings = run.federated
    ratios = torch.full((k, len(run.tasks)), 0.5)
    population = Population(ratios[0], ratios)
    objective = build_objective(settings, population)
    if settings.spec.pooled and getattr(settings.objective, "pairs", "pooled") != "pooled":
        yield (f"objective.pairs: {settings.spec.name} has all images in one place, as one site; remove this option")
    if Can.OWN_POINTS in settings.spec.can and run.alternatives is not None:
        yield f"alternatives: {settings.spec.name} has a model per hospital, and no common one to compare; remove this"
    if not settings.spec.has_server:
        try:
            refuse_running_statistics(buffers)
        except ConfigError as error:
            yield str(error)
        if objective.dual_size:
            yield f"objective: nodes cannot update the dual variables of {settings.objective_spec.name}"
    if not settings.objective_spec.oracle:
        arguments = list_arguments(Objective, Sampled, Seeing)
        for name in ("loss", "sampled_loss") if count_shared(objective) else ():
            arguments[name].append("shared")
        for mistake in list_mistakes(objective, arguments):
            yield f"objective: {mistake}"
    if isinstance(objective, Seeing) and run.runtime.compile:
        yield f"runtime.compile: objective {settings.objective_spec.name} sees features; remove this option"
    yield from engine_for(run.engine).problems(run)
    yield from _problems_of_runtime(run)
    yield from _list_problems_of_parts(run, objective, buffers)
    steps = settings.local_steps
    if steps is not None and steps.per_client is not None and len(steps.per_client) < k:
        yield f"federated.local_steps.per_client: {len(steps.per_client)} numbers for {k} clients; give one for each"
    if settings.participation == "cyclic" and k % settings.taking_part(k):
        yield (
            f"federated.participation: cyclic: {k} clients are not whole groups of {settings.clients_per_round}; "
            "change clients_per_round or k"
        )
    yield from settings.exchange().problems(settings.taking_part(k), buffers)
    for number in range(len(settings.schedule)):
        try:
            ratios, groups = ratio_of_duals(objective, population), NetworkGroups(run.model, len(run.tasks))
            more = {"groups": groups, "shared": shape_shared(objective)}
            rule = settings.build_rule(number, ratios, k, build_layout(settings, k), **more)
        except ConfigError as error:
            yield f"algorithm.{error}"
        else:
            yield from _list_rule_problems(settings, rule)


def _list_rule_problems(settings: Federated, rule: object) -> Iterator[str]:
    has_server = settings.spec.has_server
    needed = ["local_round", "message", "current", "server_round" if has_server else "exchange"]
    if missing := [name for name in needed if not callable(getattr(rule, name, None))]:
        yield f"algorithm: build made a {type(rule).__name__}, a rule without {', '.join(missing)}"
    for mistake in list_mistakes(rule, list_arguments(*(SERVER_RULES if has_server else [PeerAlgorithm]))):
        yield f"algorithm: {mistake}"


def _problems_of_runtime(run: Pipeline) -> Iterator[str]:
    if run.runtime.recompute and not MODELS.find(run.model.name).recomputed:
        yield (
            f"runtime.recompute: network '{run.model.name}' does not say which parts are computed again "
            "(ModelSpec.recomputed); remove this option"
        )
    chosen = [key for key in ("compile", "recompute") if getattr(run.runtime, key)]
    if chosen and run.federated.objective_spec.oracle:
        name = run.federated.objective_spec.name
        why = f"objective {name} calls the network with other weights, or differentiates it twice"
        yield f"runtime.{chosen[0]}: {why}; remove this option"
    if len(chosen) == 2:
        yield "runtime.recompute: torch.compile decides itself what to compute again; choose compile or recompute"


def _list_problems_of_parts(run: Pipeline, objective: object, buffers: int) -> Iterator[str]:
    key, parts, settings = "runtime.batch_parts", run.runtime.batch_parts, run.federated
    if run.runtime.sync_batch_norm:
        if parts == 1 or not buffers:
            missing = "batch_parts is 1" if parts == 1 else "the network has no batch normalization"
            yield f"runtime.sync_batch_norm: {missing}; remove this option"
        for layer in _list_own_norms(run.model.model_dump_json(), len(run.tasks), run.preprocess.size):
            yield f"runtime.sync_batch_norm: layer {layer} is not a BatchNorm of torch.nn; remove this option"
    if parts == 1:
        return
    if buffers and not run.runtime.sync_batch_norm:
        yield (
            f"{key}: batch normalization sees all images of a batch; set runtime.sync_batch_norm: true, or model.norm: "
            "group, or remove this option"
        )
    if settings.objective_spec.oracle or isinstance(objective, Seeing):
        yield f"{key}: objective {settings.objective_spec.name} sees more than logits; remove this option"
    if run.runtime.compile:
        yield f"{key}: torch.compile expects one pass per step; choose compile or batch_parts"
    if parts > (least := min(run.pretrain.batch_size, settings.images_per_step)):
        yield f"{key}: {parts} parts of a batch of {least} images; at most one for each image"


@cache
def _list_own_norms(model: str, tasks: int, size: int) -> list[str]:
    """Layers of the network with these options that keep running statistics in a way of their own."""
    network = try_network(without_absent_weights(network_options(**json.loads(model))), tasks, size)
    return find_own_norms(network.module)


def _number_of_buffers(model: str, tasks: int, size: int) -> int:
    """Running statistics of the network with these options (JSON), which is tried on images of this size."""
    return try_network(without_absent_weights(network_options(**json.loads(model))), tasks, size).buffers().numel()
