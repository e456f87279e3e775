"""Every K of one method with each split and seed, or methods and windows at the largest K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from pathlib import Path

from chestfed.core.errors import ConfigError
from chestfed.results.tables.answer import answer_study, list_metrics
from chestfed.results.tables.collect import collect, write_comparison
from chestfed.results.tables.frames import Results
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.designs.design import Design, DesignSpec, Done, Finished, Takes, Variant
from chestfed.studies.experiment.methods import PipelineFile
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.stage_2 import whole_rounds
from chestfed.studies.training.reporting import Summary


class Comparison(Design):
    """The studies of every method, window, split and seed."""

    @cached_property
    def variants(self) -> list[Variant]:
        """Raises `ConfigError` also if two methods are the same."""
        file = self.file
        methods = {method.name: file.resolve(method.name) for method in file.selected_methods}
        _refuse_equal_methods(methods)
        algorithms = [pipeline.federated.algorithm.name for pipeline in methods.values()]
        if file.windows and len(set(algorithms)) < len(algorithms):
            raise ConfigError(
                f"windows: two methods of {', '.join(algorithms)} have one algorithm; select one, or set window in "
                "each method and remove windows",
                kind="windows of one algorithm",
            )
        return [
            _make_variant(file, pipeline, draw, window)
            for pipeline in methods.values()
            for window in (file.windows or (None,))
            for draw in file.draws
        ]

    def finish(self, done: Sequence[Done], out: Path) -> Finished:
        """The tables of one study are its own; of several they are in the folder of their comparison."""
        if len(done) == 1 and not self.file.windows:
            result = done[0].result
            return Finished(result.folder, str(answer_study(result.results)), (result,), result.results)
        runs = [RunFolder(one.result.folder) for one in done]
        return write_together(self, done, collect(runs, self.pipeline.title), out)


COMPARISON = DesignSpec("comparison", Comparison, takes=frozenset(Takes), in_schema=True)


def write_together(design: Design, done: Sequence[Done], together: Results, out: Path) -> Finished:
    """Write what several studies come to into the folder of their comparison."""
    answer = str(answer_study(together))
    folder = write_comparison(together, out, answer)
    runs = {str(number): one.result.folder.name for number, one in enumerate(done, start=1)}
    name = f"{design.path.stem}, {len(done)} studies together"
    summary = Summary(name, together.origin, folder, list_metrics(together), runs, results=together)
    return Finished(folder, answer, tuple(one.result for one in done), together, summary=summary)


def label_study(pipeline: Pipeline) -> str:
    """Method, window, seed, split and K of a study, and the steps that rounding to whole rounds changes."""
    settings = pipeline.federated
    ks = ", ".join(map(str, pipeline.k))
    return f"{pipeline.method}, window {settings.window}, {name_draw(pipeline)}, K={ks}{whole_rounds(settings)}"


def name_draw(pipeline: Pipeline) -> str:
    """Seed of a study, and its split, if it is not the first."""
    return f"seed {pipeline.seed}{f', split {pipeline.split}' if pipeline.split else ''}"


def _refuse_equal_methods(methods: Mapping[str, Pipeline]) -> None:
    """Refuse two methods with the same settings: they would be one run with two names."""
    for (name, pipeline), (other, second) in combinations(methods.items(), 2):
        if pipeline.model_copy(update={"method": other}) == second:
            raise ConfigError(
                f"methods: {name} and {other} have the same settings; change one, or remove it", kind="equal methods"
            )


def _make_variant(file: PipelineFile, pipeline: Pipeline, draw: Mapping[str, int], window: int | None) -> Variant:
    changes: dict[str, object] = {**draw}
    if window is not None:
        changes["federated"] = pipeline.federated.model_copy(update={"window": window})
        changes["tuning"] = pipeline.tuning if window == pipeline.federated.window else None
    if file.is_comparison:
        changes["k"] = [max(pipeline.k)]
    study = pipeline.model_copy(update=changes)
    return Variant(study, label_study(study))
