"""A pipeline in words, for hospitals that are to approve it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from chestfed.leaves.federation.handshake import hospitals_in
from chestfed.studies.experiment.pipeline import Pipeline

#: What leaves of test images, by `leaves.results`.
LEAVES: Final = {
    "scores": "scores and labels, under keyed names",
    "aucs": "AUCs with intervals, and counts",
    "nothing": "nothing; it cannot be the target",
}


def describe(pipeline: Pipeline, name: str, results: str | None = None) -> list[str]:
    """A pipeline in words, for whoever approves it at the hospital `name`; `results`: what leaves of test images."""
    settings, stage_1, names = pipeline.federated, pipeline.pretrain, hospitals_in(pipeline)
    windows = ", ".join(f"{stage.rounds} rounds of {stage.window} steps" for stage in settings.schedule)
    role = "target: its test images evaluate every model, and stage 1 runs here" if names[0] == name else "client"
    plugins = {key: part for key, part in _named_code(pipeline.model_dump(mode="json")) if ":" in part}
    noise = "none"
    if settings.privacy is not None:
        noise = f"clipped to {settings.privacy.clip:g}, noise {settings.privacy.noise_multiplier:g} times that"
        noise += "" if settings.privacy.noise == "secret" else " (from the seed: it protects nothing)"
    return [
        f"title: {pipeline.title}",
        f"hospitals, in the order of addition: {', '.join(names)}; numbers that train together: {pipeline.k}",
        f"this hospital: {role}",
        f"diseases: {', '.join(pipeline.tasks)}",
        f"network: {pipeline.model.name}, images of {pipeline.preprocess.size} pixels",
        f"stage 1: {stage_1.epochs:g} epochs, batches of {stage_1.batch_size}",
        f"stage 2: {settings.spec.name}, for each number {windows}, batches of {settings.batch_size}",
        f"leaves each round: {settings.spec.formula(settings.algorithm)} numbers; d weights, J diseases",
        f"aggregation: {settings.aggregation}; noise: {noise}",
        f"leaves of test images: {LEAVES.get(results or '', 'as each hospital configures')}",
        f"code that is not part of chestfed: {', '.join(plugins.values()) or 'none'}",
    ]


def _named_code(values: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _named_code(value, f"{key}.{name}")
    elif isinstance(values, str) and key.endswith(".name"):
        yield key, values
