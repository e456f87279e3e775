"""A pipeline in words, for hospitals that are to approve it."""

from __future__ import annotations

import json
from typing import Final

import torch

from chestfed.learning.abilities import Can
from chestfed.learning.algorithms.declaration import Sizes, numbers_sent
from chestfed.learning.models import NetworkGroups
from chestfed.learning.objectives.declaration import Population, count_shared
from chestfed.leaves.federation.handshake import code_of, hospitals_in, network_sizes
from chestfed.leaves.federation.hospital.plan import planned_models, planned_rounds, role_of
from chestfed.leaves.federation.parcels import shown_in_line
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import shareable
from chestfed.studies.experiment.rules import build_objective
from chestfed.studies.training.client_summary import BINS, SAMPLED

#: Data of test images that leave the hospital, by `leaves.results`.
LEAVES: Final = {
    "scores": "scores and labels, under keyed names",
    "aucs": "AUCs with intervals, and counts",
    "nothing": "nothing; it cannot be the target",
}
_ROLES: Final = {
    "target": "target: its test images evaluate every model, and stage 1 runs here",
    "member": "member: it trains",
    "scored": "it does not train; models are scored on its held-out patients",
}


def describe(pipeline: Pipeline, name: str, results: str | None = None) -> list[str]:
    """A pipeline in words, for whoever approves it at the hospital `name`; `results`: what leaves of test images.

    The network is built once, for its sizes.
    """
    settings, stage_1, names = pipeline.federated, pipeline.pretrain, hospitals_in(pipeline)
    windows = ", ".join(f"{stage.rounds} rounds of {stage.window} steps" for stage in settings.schedule)
    code = [
        f"  {part}: SHA-256 {sha256}, {len(files)} files: {', '.join(map(str, files[:3]))}{' ...' * (len(files) > 3)}"
        for part, (sha256, files) in code_of(pipeline).items()
    ]
    return [
        f"title: {shown_in_line(pipeline.title)}",
        f"hospitals, in the order of addition: {', '.join(names)}; numbers that train together: {pipeline.k}",
        f"this hospital: {_ROLES[role_of(pipeline, names.index(name))]}",
        f"diseases: {', '.join(pipeline.tasks)}",
        f"network: {pipeline.model.name}, images of {pipeline.preprocess.size} pixels",
        f"options of the network: {json.dumps(shareable(pipeline)['model'])}",
        f"first weights: {pipeline.model.initial_weights or 'drawn from the seed'}",
        "weights that rounds of stage 2 begin with: the server's choice",
        f"stage 1: {stage_1.epochs:g} epochs, batches of {stage_1.batch_size}",
        f"stage 2: {settings.spec.name}, for each number {windows}, batches of {settings.batch_size}",
        f"before the server's step: {settings.exchange().describe()}",
        "leaves this hospital:",
        *(f"  {line}" for line in list_leaving(pipeline, name, results)),
        f"code that is not part of chestfed: {'' if code else 'none'}".rstrip(),
        *code,
    ]


def list_leaving(pipeline: Pipeline, name: str, results: str | None) -> list[str]:
    """List what leaves the hospital `name`, with bytes of the numbers; JSON and envelopes come on top of them."""
    settings, place, j = pipeline.federated, hospitals_in(pipeline).index(name), len(pipeline.tasks)
    role, (d, b) = role_of(pipeline, place), network_sizes(pipeline)
    lines = [
        "once: versions, kind of device; numbers of training rows and unreadable images; digests of content and key",
        f"once: per disease positives, negatives, missing, and two shares: {16 * j} bytes and text; a histogram of "
        f"{BINS} gray levels of {SAMPLED} images",
        f"once, of test images or held-out patients: {LEAVES.get(results or '', 'as each hospital configures')}; with "
        f"scores the labels, {4 * j + 8} bytes each",
    ]
    if role == "target":
        lines.append(f"once: the network of stage 1, weights and buffers: {_bytes(4 * (d + b))}; mean losses")
    if role != "scored":
        groups = NetworkGroups(pipeline.model, j)
        ratios = torch.full((len(hospitals_in(pipeline)), j), 0.5)
        shared = count_shared(build_objective(settings, Population(ratios[0], ratios)))
        formula = settings.spec.formula(settings.algorithm)
        update = numbers_sent(formula, Sizes.of(d, j, groups, shared=shared))
        each = 4 * (update + b + d + 2 * j)
        rounds = planned_rounds(pipeline, place)
        parts = f"{formula} numbers of the update; {b:,} buffers; the mean gradient; mean loss"
        lines.append(f"each round: {parts}: {_bytes(each)}; {rounds:,} rounds: {_bytes(rounds * each)}")
        if not settings.spec.has_server:
            lines.append("each round: the update once per neighbor, and the point after the exchange")
        if Can.OWN_POINTS in settings.spec.can:
            lines.append(f"each evaluation: this hospital's own weights: {_bytes(4 * (d + 3 * j))}")
        codes = [step.describe() for step in settings.exchange().steps if step.place == "code"]
        lines += [f"encoded: {code}; other bytes than these are sent" for code in codes]
    if results != "nothing":
        scores = f"probabilities, {8 * j} bytes an image" if results != "aucs" else "AUCs, intervals and counts"
        lines.append(
            f"each model that is scored, {planned_models(pipeline)} at most: {scores}; buffers: {_bytes(4 * b)}"
        )
    return lines


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
