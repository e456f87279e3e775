"""The search: settings of each method are tried one after the other, and all trials are kept.

The folder of a search is named by the digest of what can change a validation AUC, and holds

    optuna.db           every trial; a search that was stopped goes on from it
    trials.csv          one row per trial and seed
    trials.json         the same, with the ranges and what was chosen
    tuned.yaml          the chosen settings, a pipeline for `chestfed study`

Which settings are tried next depends on the seed and on the finished trials alone, so a search that was stopped and
resumed tries the same ones as one that was not.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from pydantic import ValidationError

from chestfed.core.errors import ChestfedError, ConfigError, TrainingError
from chestfed.core.manifest import short_digest
from chestfed.core.randomness import numpy_stream, stream_seed
from chestfed.studies.experiment.methods import Method, PipelineFile
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.ranges import Grid, Space, select_ranges, set_values
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.identity import identify
from chestfed.studies.training.loop import History, retrain_if_damaged, train_federated
from chestfed.studies.training.pretrain import STATE, Pretrained
from chestfed.studies.training.reporting import Reporters, Trial, use
from chestfed.studies.training.run import shared_stage_1
from chestfed.studies.tuning.outcome import find_best, write_trials

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

#: Trials that are spread evenly over the ranges before the sampler learns from them, and trials after which a range may
#: be widened.
_SPREAD, _BEFORE_WIDENING = 4, 3
#: The training seeds of a search are these above the pipeline's, so that those of the study are other ones.
SEEDS_FROM = 1000


def apply_settings(pipeline: PipelineFile, name: str, values: Mapping[str, float]) -> PipelineFile:
    """The pipeline with these settings of one method.

    Raises `ConfigError` if a value is not valid, or does not go with the others.
    """
    settings = pipeline.resolve(name).federated
    try:
        methods = [
            Method.model_validate(set_values(method.model_dump(exclude_unset=True), settings, values))
            if method.name == name
            else method
            for method in pipeline.methods
        ]
    except ValidationError as error:
        raise ConfigError("; ".join(f"{detail['loc'][-1]}: {detail['msg']}" for detail in error.errors())) from None
    changed = pipeline.model_copy(update={"methods": methods})
    changed.check_method(next(method for method in methods if method.name == name))
    return changed


def collect_ranges(pipeline: PipelineFile) -> dict[str, dict[str, Space]]:
    """Ranges to search for each selected method.

    Raises `ConfigError` if the pipeline's `search` has a key that none of them has, a method has nothing to search, or
    the end of a range is not a valid value of its key.
    """
    names = [method.name for method in pipeline.selected_methods]
    ranges = {name: select_ranges(pipeline.resolve(name).federated, pipeline.search) for name in names}
    unknown = [
        key for key in pipeline.search if pipeline.search[key] and not any(key in spaces for spaces in ranges.values())
    ]
    if unknown:
        raise ConfigError(
            f"search: none of {', '.join(names)} has {', '.join(unknown)}; see `chestfed algorithms NAME`",
            kind="unknown setting",
            keys=tuple(unknown),
        )
    for name, spaces in ranges.items():
        if not spaces:
            raise ConfigError(f"search: nothing to search for {name}: give it a range, e.g. local_lr: [0.01, 1, log]")
        for place in range(max(len(space.extremes) for space in spaces.values())):
            values = {key: space.extremes[place % len(space.extremes)] for key, space in spaces.items()}
            try:
                apply_settings(pipeline, name, values).resolve(name)
            except ConfigError as error:
                text = f"search, {name}: invalid range: {error}"
                raise ConfigError(text, kind="invalid range", method=name) from None
    return ranges


@dataclass(frozen=True, eq=False)
class Search:
    """A search over the settings of the selected methods; `data` have validation images in place of the test set."""

    pipeline: PipelineFile
    name: str
    methods: tuple[str, ...]
    trials: int
    seeds: tuple[int, ...]
    data: Experiment
    out: Path
    reporters: Reporters
    report: Callable[[str, int, int], None]  #: `report(what, done, total)`: rounds of a trial
    say: Callable[[str], None]
    _trials: dict[str, list[Trial]] = field(default_factory=dict, init=False)
    _pretrained: dict[int, Pretrained] = field(default_factory=dict, init=False)

    @cached_property
    def folder(self) -> Path:
        this = identify(self.setup(self.pipeline.resolve()))
        text = json.dumps([this.digest, self.seeds, self.methods])
        return self.out / f"{self.data.origin.prefix}tune-{self.name}-{short_digest(text)}"

    def run(self) -> dict[str, list[Trial]]:
        """All trials of each method, those of earlier starts included."""
        labels = self.data.test.labels
        if not ((labels == 0).any(axis=0) & (labels == 1).any(axis=0)).any():
            raise ChestfedError("the validation images are of one class: set a larger validation_fraction at the site")
        declared = collect_ranges(self.pipeline)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with use(self.reporters), FileLock(self.folder / ".lock").acquire(timeout=0):
                trials_by_method = {name: _OneMethod(self, name, declared[name]).run() for name in self.methods}
        except Timeout:
            raise ChestfedError(
                f"{self.folder}: another process is running this search. Wait for it, or stop it."
            ) from None
        for name, trials in trials_by_method.items():
            if find_best(trials) is None:
                raise ChestfedError(
                    f"all {len(trials)} trials of {name} diverged: lower the range of local_lr (`search` in the YAML)"
                )
        return trials_by_method

    def pretrained(self, seed: int) -> Pretrained:
        """Stage 1 of a seed, shared by all methods and trials, and by studies that have it in common."""
        if seed not in self._pretrained:
            setup = self.setup(_with_seed(self.pipeline.resolve(), seed))

            def report(step: int, steps: int, loss: float) -> None:
                self.report(f"stage 1, seed {seed}", step, steps)

            self._pretrained[seed] = shared_stage_1(setup, self.out, report)
        return self._pretrained[seed]

    def setup(self, pipeline: Pipeline) -> Experiment:
        """A variant of the pipeline on the same images and machine."""
        return replace(self.data, pipeline=pipeline)

    def tell(self, trial: Trial, *, reused: bool) -> None:
        self.reporters.tell(lambda reporter: reporter.trial_done(trial, reused=reused))

    def keep(self, algorithm: str, trials: Sequence[Trial]) -> None:
        """Write the first `trials` trials to both files; an earlier start may have made more."""
        self._trials[algorithm] = list(trials[: self.trials])
        write_trials(self.folder, self._trials, self.seeds)


def list_grid(spaces: Mapping[str, Space], trials: int, seed: int) -> list[dict[str, float]]:
    """The points to try where all keys are grids: all in order, or `trials` of them drawn by `seed`; else none."""
    grids = {key: space for key, space in spaces.items() if isinstance(space, Grid)}
    if len(grids) < len(spaces):
        return []
    points = [
        dict(zip(grids, values, strict=True)) for values in itertools.product(*(g.values for g in grids.values()))
    ]
    if len(points) > trials:
        chosen = numpy_stream(seed, "grid").permutation(len(points))[:trials]
        points = [points[place] for place in chosen]
    return points


class _OneMethod:
    def __init__(self, search: Search, name: str, declared: Mapping[str, Space]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.search, self.name, self.declared = search, name, declared
        self.grid = list_grid(declared, search.trials, search.pipeline.seed)
        self.trials = len(self.grid) or search.trials
        base = _with_seed(search.pipeline.resolve(name), search.pipeline.seed)
        ranges = {key: space.plain() for key, space in declared.items()}
        drawn = [search.trials] if len(self.grid) == search.trials else []  # which points of a grid
        text = json.dumps([identify(search.setup(base)).digest, ranges, search.seeds, *drawn])
        self.digest = short_digest(text)
        storage = f"sqlite:///{(search.folder / 'optuna.db').resolve()}"
        self.study = optuna.create_study(
            storage=storage, study_name=f"{name} {self.digest}", direction="maximize", load_if_exists=True
        )

    def finished(self) -> list[Trial]:
        """The trials that came to an end, in their order."""
        trials = self.study.get_trials(deepcopy=False)
        return [self._trial(number, trial) for number, trial in enumerate(trials, start=1)]

    def run(self) -> list[Trial]:
        """Go on until there are as many trials as wanted."""
        search = self.search
        for trial in (done := self.finished()):
            search.tell(trial, reused=True)
        if done:
            search.keep(self.name, done)
            search.say(f"{self.name}: {len(done)} trials from the earlier run")
        while len(done) < self.trials:
            ranges = widen_ranges(self.declared, done)
            before = widen_ranges(self.declared, done[:-1])
            for key in ranges:
                if ranges[key] != before[key]:
                    search.say(f"{self.name}: the best {key} lies at the edge of its range, now {ranges[key].plain()}")
            self._next(len(done) + 1, ranges)
            done = self.finished()
            search.keep(self.name, done)
            self._tell(done)
        return done[: self.trials]

    def _next(self, number: int, ranges: Mapping[str, Space]) -> None:
        """One trial: draw its settings, train with every seed, keep the AUCs of the validation images."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution
        from optuna.trial import TrialState, create_trial

        distributions: dict[str, BaseDistribution] = {
            key: CategoricalDistribution(space.values)
            if isinstance(space, Grid)
            else FloatDistribution(space.low, space.high, log=space.log)
            for key, space in ranges.items()
        }
        drawn = self._draw(number, ranges, distributions)
        values = {key: ranges[key].as_written(value) for key, value in drawn.items()}
        aucs: dict[str, dict[str, float | None]] = {}
        started, diverged = time.monotonic(), ""
        for seed in self.search.seeds:
            start = self.search.pretrained(seed)
            try:
                aucs[str(seed)] = self._auc(number, values, seed, start)
            except TrainingError as error:
                diverged = f"seed {seed}: {error}"
                break
        attributes = {
            "values": values,
            "ranges": {key: space.plain() for key, space in ranges.items()},
            "aucs": aucs,
            "diverged": diverged,
            "seconds": round(time.monotonic() - started, 1),
        }
        state = TrialState.PRUNED if diverged else TrialState.COMPLETE  # pruned: the sampler takes it for the worst
        mean = None if diverged else float(np.mean([_mean(disease_aucs) for disease_aucs in aucs.values()]))
        self.study.add_trial(
            create_trial(state=state, value=mean, params=drawn, distributions=distributions, user_attrs=attributes)
        )
        shutil.rmtree(self._folder(number), ignore_errors=True)  # the state of training

    def _draw(
        self, number: int, ranges: Mapping[str, Space], distributions: dict[str, BaseDistribution]
    ) -> dict[str, float]:
        """The next settings, from seed, number and finished trials; every method begins with the same ones."""
        import optuna

        seed = self.search.pipeline.seed
        if self.grid:
            return self.grid[number - 1]
        if number <= _SPREAD:
            return {key: space.at(_spread(seed, key)[number - 1]) for key, space in ranges.items()}
        sampler = optuna.samplers.TPESampler(seed=stream_seed(seed, "tune", number) % 2**32, n_startup_trials=_SPREAD)
        asked = optuna.create_study(sampler=sampler, direction="maximize")
        asked.add_trials(self.study.get_trials(deepcopy=False)[: number - 1])
        return asked.ask(distributions).params

    def _auc(self, number: int, values: Mapping[str, float], seed: int, start: Pretrained) -> dict[str, float | None]:
        """Validation AUC per disease after the last round."""
        search = self.search
        chosen = apply_settings(search.pipeline, self.name, values)
        pipeline = _with_seed(chosen.resolve(self.name), seed)
        folder = self._folder(number) / f"{seed}-{short_digest(json.dumps(values))}"
        folder.mkdir(parents=True, exist_ok=True)
        what = f"{self.name}, trial {number} of {self.trials}, seed {seed}"

        def report(history: History) -> None:
            search.report(what, len(history), pipeline.federated.rounds)

        train = partial(train_federated, search.setup(pipeline), pipeline.k[-1], start, folder, report)
        trained = retrain_if_damaged(folder / STATE, train)
        return dict(trained.history[-1]["auc"])

    def _folder(self, number: int) -> Path:
        return self.search.folder / "training" / self._named(number)

    def _named(self, number: int) -> str:
        """A trial of these ranges: those of others, in the same folder, have the same numbers."""
        return f"{self.name.replace(':', '.')}-{self.digest}-{number}"

    def _tell(self, done: Sequence[Trial]) -> None:
        trial, best = done[-1], find_best(done)
        self.search.tell(trial, reused=False)
        settings = ", ".join(f"{key} {value:g}" for key, value in trial.values.items())
        result = "diverged" if trial.mean is None else f"AUC {trial.mean:.3f}"
        so_far = "" if best is None or best.mean is None else f" (best {best.mean:.3f}, trial {best.number})"
        self.search.say(f"{self.name} {trial.number}/{self.trials}: {settings}: {result}{so_far}")

    def _trial(self, number: int, frozen: optuna.trial.FrozenTrial) -> Trial:
        attributes: dict[str, Any] = frozen.user_attrs
        folder, seeds = (
            self.search.folder,
            {int(seed): _mean(disease_aucs) for seed, disease_aucs in attributes["aucs"].items()},
        )
        return Trial(
            folder / "trials" / self._named(number),
            self.search.name,
            self.name,
            number,
            dict(attributes["values"]),
            attributes["ranges"],
            seeds,
            frozen.value,
            attributes["diverged"],
            attributes["seconds"],
            self.search.data.origin,
        )


def _with_seed(pipeline: Pipeline, seed: int) -> Pipeline:
    """The study with this training seed, at the largest K."""
    return pipeline.model_copy(update={"seed": seed, "k": [max(pipeline.k)]})


def widen_ranges(declared: Mapping[str, Space], done: Sequence[Trial]) -> dict[str, Space]:
    """The ranges of the next trial: those declared, widened after each trial where the best so far was at an edge."""
    ranges: dict[str, Space] = dict(declared)
    for count in range(_BEFORE_WIDENING, len(done) + 1):
        best = find_best(done[:count])
        if best is not None:
            ranges = {key: space.widened(best.values[key]) for key, space in ranges.items()}
    return ranges


def _spread(seed: int, key: str) -> list[float]:
    """Where the first trials lie in a key's range, from 0 to 1: one in each of equal parts, in a random order."""
    rng = numpy_stream(seed, "tune", key)
    return list((rng.permutation(_SPREAD) + rng.random(_SPREAD)) / _SPREAD)


def _mean(aucs: Mapping[str, float | None]) -> float:
    """Over the diseases that have one, which are the same in every trial."""
    return float(np.mean([value for value in aucs.values() if value is not None]))
