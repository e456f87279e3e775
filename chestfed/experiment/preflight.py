"""Checks of every run before any data are read, so that none is refused after another has run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache

import torch

from chestfed.core.errors import ConfigError
from chestfed.engines.peers import refuse_running_statistics
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.rules import graph_of, objective_of, rule_of_stage
from chestfed.models import network_options, try_network


def check_runs(runs: Sequence[Pipeline]) -> None:
    """Build and try the network, and for every run and K the graph, objective, and algorithm of each stage.

    Raises
    ------
    ConfigError
        One message with every problem: which runs, which key, why, and what to do.
    """
    found: dict[str, list[str]] = {}
    number_of_buffers = cache(_number_of_buffers)
    for run in runs:
        buffers = number_of_buffers(run.model.model_dump_json(), len(run.tasks), run.preprocess.size)
        for k in run.k:
            where = f"{run.federated.spec.name}, window {run.federated.window}, K={k}"
            for problem in _problems(run, k, buffers):
                if where not in found.setdefault(problem, []):
                    found[problem].append(where)
    if found:
        lines = [f"{'; '.join(where)}: {problem}" for problem, where in found.items()]
        raise ConfigError("\n".join(["invalid configuration; nothing was started:", *lines]))


def _problems(run: Pipeline, k: int, buffers: int) -> Iterator[str]:
    settings = run.federated
    ratios = torch.full((len(run.tasks),), 0.5)
    objective = objective_of(settings, ratios)
    if settings.spec.decentralized:
        try:
            refuse_running_statistics(buffers)
        except ConfigError as error:
            yield str(error)
        if objective.dual_size:
            yield f"federated.objective: nodes have no step for the dual variables of {settings.objective_spec.name}"
    for number in range(len(settings.schedule)):
        try:
            rule_of_stage(settings, number, ratios, k, graph_of(settings, k))
        except ConfigError as error:
            yield f"federated.algorithm.{error}"


def _number_of_buffers(model: str, tasks: int, size: int) -> int:
    """Running statistics of the network with these options (JSON), which is tried on images of this size."""
    return try_network(network_options(**json.loads(model)), tasks, size).buffers().numel()
