"""The search: settings of each subject are tried one after the other, and all trials are kept.

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
from chestfed.studies.experiment.ranges import (
    Grid,
    Range,
    Space,
    parse_space,
    select_ranges,
    set_values,
    with_values,
)
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.identity import identify
from chestfed.studies.training.loop import History, retrain_if_damaged, train_federated
from chestfed.studies.training.pretrain import STATE, Pretrained
from chestfed.studies.training.reporting import Reporters, Trial, use
from chestfed.studies.training.run import shared_stage_1
from chestfed.studies.tuning.outcome import LEAST_FOR_EDGES, choose, find_best, rank, widen_ranges, write_trials
from chestfed.studies.tuning.subjects import Subject

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

#: Trials that are spread evenly over the ranges before the sampler learns from them.
_SPREAD = 4
#: The training seeds of a search are these above the pipeline's, so that those of the study are other ones.
SEEDS_FROM = 1000
#: Best settings that are confirmed on further seeds, and trials beside the best per key that is searched.
FINALISTS, EDGES = 3, 6
#: Raised when the same search tries other settings than before.
_VERSION = 2


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
    """A search over the settings of subjects; `data` have validation images in place of the test set.

    A subject gets `trials` trials per key that is searched, each with `seeds`, and one more beside its best value
    wherever no tried one is near on that side. The `FINALISTS` best are trained with the seeds `further` too, and the
    best of these over all seeds is chosen; where it lies at an edge, it gets such trials as well.
    """

    pipeline: PipelineFile
    name: str
    subjects: tuple[Subject, ...]
    trials: int
    seeds: tuple[int, ...]
    further: tuple[int, ...]
    data: Experiment
    out: Path
    reporters: Reporters
    report: Callable[[str, int, int], None]  #: `report(what, done, total)`: rounds of a trial
    say: Callable[[str], None]
    _trials: dict[str, list[Trial]] = field(default_factory=dict, init=False)
    _pretrained: dict[tuple[str, int], Pretrained] = field(default_factory=dict, init=False)

    @cached_property
    def folder(self) -> Path:
        """Named by all that the search depends on; more `trials` continue it."""
        subjects: list[list[object]] = []
        for subject in self.subjects:
            pipeline = self.pipeline.resolve(subject.method)
            settings = subject.settings(pipeline)  # of centralized training: its own, which no identity has
            spaces = select_ranges(settings, self.pipeline.search)
            ranges = {key: space.plain() for key, space in spaces.items()}
            digest = identify(self.setup(pipeline)).digest
            subjects.append([subject.name, digest, settings.model_dump(mode="json"), ranges])
        text = json.dumps([self.seeds, self.further, subjects], sort_keys=True)
        return self.out / f"{self.data.origin.prefix}tune-{self.name}-{short_digest(text)}"

    def run(self) -> dict[str, list[Trial]]:
        """All trials of each subject, those of earlier starts included."""
        labels = self.data.test.labels
        if not ((labels == 0).any(axis=0) & (labels == 1).any(axis=0)).any():
            raise ChestfedError("the validation images are of one class: set a larger validation_fraction at the site")
        collect_ranges(self.pipeline)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with use(self.reporters), FileLock(self.folder / ".lock").acquire(timeout=0):
                trials = {subject.name: _OneSearch(self, subject).run() for subject in self.subjects}
        except Timeout:
            raise ChestfedError(
                f"{self.folder}: another process is running this search. Wait for it, or stop it."
            ) from None
        return trials

    def pretrained(self, experiment: Experiment, seed: int) -> Pretrained:
        """Stage 1 of a seed, shared by all trials of a first client, and by studies that have it in common."""
        client = experiment.clients[0].name
        if (client, seed) not in self._pretrained:

            def report(step: int, steps: int, loss: float) -> None:
                self.report(f"stage 1, seed {seed}", step, steps)

            self._pretrained[client, seed] = shared_stage_1(experiment, self.out, report)
        return self._pretrained[client, seed]

    def setup(self, pipeline: Pipeline) -> Experiment:
        """A variant of the pipeline on the same images and machine."""
        return replace(self.data, pipeline=pipeline)

    def tell(self, trial: Trial, *, reused: bool) -> None:
        self.reporters.tell(lambda reporter: reporter.trial_done(trial, reused=reused))

    def keep(self, subject: str, trials: Sequence[Trial]) -> None:
        """Write the trials to both files."""
        self._trials[subject] = list(trials)
        write_trials(self.folder, self._trials)


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


class _OneSearch:
    """The search of one subject. Optuna's storage has a trial for each setting, and one for each confirmation."""

    def __init__(self, search: Search, subject: Subject) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.search, self.subject = search, subject
        pipeline = search.pipeline.resolve(subject.method)
        self.settings = subject.settings(pipeline)
        self.base = _with_seed(pipeline, search.pipeline.seed)
        self.experiment = subject.experiment(search.data, self.base, self.settings)
        self.declared = subject.scale(select_ranges(self.settings, search.pipeline.search), self.experiment)
        self.grid = list_grid(self.declared, search.trials * len(self.declared), search.pipeline.seed)
        self.trials = len(self.grid) or search.trials * len(self.declared)
        ranges = {key: space.plain() for key, space in self.declared.items()}
        drawn = [self.trials] if len(self.grid) == search.trials * len(self.declared) else []  # which points of a grid
        text = json.dumps([_VERSION, identify(self.experiment).digest, ranges, search.seeds, *drawn])
        self.digest = short_digest(text)
        storage = f"sqlite:///{(search.folder / 'optuna.db').resolve()}"
        self.study = optuna.create_study(
            storage=storage, study_name=f"{subject.name} {self.digest}", direction="maximize", load_if_exists=True
        )
        self.stored = self.study.get_trials(deepcopy=False)

    def run(self) -> list[Trial]:
        """Go on until there are as many trials as wanted, the edges are closed and the best are confirmed.

        Raises `ChestfedError` if all diverge.
        """
        search, done = self.search, list[Trial]()
        while len(done) < self.trials:
            number = len(done) + 1
            ranges, before = widen_ranges(self.declared, done), widen_ranges(self.declared, done[:-1])
            if (frozen := self._find("search", number)) is None:
                for key in ranges:
                    if ranges[key] != before[key]:
                        text = f"the best {key} lies at the edge of its range, now {ranges[key].plain()}"
                        search.say(f"{self.subject.name}: {text}")
                frozen = self._next(number, ranges)
            self._add(done, frozen)
        while self._close_end(done, find_best(done)):
            pass
        if find_best(done) is None:
            lower = "lower the range of local_lr (`search` in the YAML)"
            raise ChestfedError(f"all {len(done)} trials of {self.subject.name} diverged: {lower}")
        done = self._confirm(done)
        while search.further and self._close_end(done, choose(done)):  # the confirmation may choose another
            done = self._confirm(done)
        return done

    def _close_end(self, done: list[Trial], best: Trial | None) -> bool:
        """Train one trial beside `best` where none is near; False if there is nothing to do."""
        step = None
        if self.trials >= LEAST_FOR_EDGES:
            step = find_open_end(done, widen_ranges(self.declared, done), self.declared, best)
        if step is None:
            return False
        values, ranges = step
        frozen = self._find("edge", len(done) + 1, values) or self._train("edge", len(done) + 1, values, ranges)
        self._add(done, frozen)
        return True

    def _add(self, done: list[Trial], frozen: optuna.trial.FrozenTrial) -> None:
        """Append a finished trial, write all, and report it."""
        reused = frozen in self.stored
        done.append(self._make_trial(len(done) + 1, frozen))
        self.search.keep(self.subject.name, done)
        self.search.tell(done[-1], reused=reused)
        if not reused:
            self._say(done)
        elif frozen is self.stored[-1]:
            self.search.say(f"{self.subject.name}: {len(done)} trials from the earlier run")

    def _confirm(self, done: list[Trial]) -> list[Trial]:
        """Train the best settings with further seeds, the next ones in place of those that diverge.

        Trials that are confirmed already stay so.
        """
        search, order = self.search, rank(done)
        finalists = 0
        for trial in order if search.further else ():
            if finalists == FINALISTS:
                break
            if trial.confirmed:
                finalists += 1
                continue
            frozen = self._find("confirm", 0, trial.values, search.further)
            if frozen is None:
                space = {key: parse_space(plain) for key, plain in trial.ranges.items()}
                frozen = self._train("confirm", trial.number, trial.values, space, search.further)
            attributes = frozen.user_attrs
            aucs = {int(seed): _mean(of_diseases) for seed, of_diseases in attributes["aucs"].items()}
            if attributes["diverged"]:
                changed = replace(trial, mean=None, diverged=attributes["diverged"])
                search.say(f"{self.subject.name}: trial {trial.number} diverged with a further seed")
            else:
                finalists += 1
                changed = replace(trial, confirmed=aucs)
                text = f"AUC {np.mean(list(aucs.values())):.3f} with {len(aucs)} further seeds"
                search.say(f"{self.subject.name}: trial {trial.number}, AUC {trial.mean:.3f}: {text}")
            done[trial.number - 1] = changed
            search.keep(self.subject.name, done)
        if find_best(done) is None:
            text = f"each of the {len(order)} settings of {self.subject.name} diverges with one of the further seeds"
            raise ChestfedError(f"{text}: lower the range of local_lr (`search` in the YAML)")
        return done

    def _find(
        self, purpose: str, number: int, values: Mapping[str, float] | None = None, seeds: Sequence[int] = ()
    ) -> optuna.trial.FrozenTrial | None:
        """A stored trial: of the search the one with this number, else that of these values."""
        of_purpose = [trial for trial in self.stored if trial.user_attrs["purpose"] == purpose]
        if purpose == "search":
            return of_purpose[number - 1] if number <= len(of_purpose) else None
        return next(
            (
                trial
                for trial in of_purpose
                if trial.user_attrs["values"] == values and (not seeds or trial.user_attrs["seeds"] == list(seeds))
            ),
            None,
        )

    def _next(self, number: int, ranges: Mapping[str, Space]) -> optuna.trial.FrozenTrial:
        """One trial of the search: draw its settings and train."""
        drawn = self._draw(number, ranges, make_distributions(ranges))
        values = {key: ranges[key].as_written(value) for key, value in drawn.items()}
        return self._train("search", number, values, ranges, drawn=drawn)

    def _train(
        self,
        purpose: str,
        number: int,
        values: Mapping[str, float],
        ranges: Mapping[str, Space],
        seeds: Sequence[int] = (),
        drawn: Mapping[str, float] | None = None,
    ) -> optuna.trial.FrozenTrial:
        """Train with every seed, and store the AUCs of the validation images."""
        from optuna.trial import TrialState, create_trial

        seeds = seeds or self.search.seeds
        aucs: dict[str, dict[str, float | None]] = {}
        started, diverged = time.monotonic(), ""
        for seed in seeds:
            try:
                aucs[str(seed)] = self._score(purpose, number, values, seed)
            except TrainingError as error:
                diverged = f"seed {seed}: {error}"
                break
        attributes = {
            "purpose": purpose,
            "values": dict(values),
            "ranges": {key: space.plain() for key, space in ranges.items()},
            "seeds": list(seeds),
            "aucs": aucs,
            "diverged": diverged,
            "seconds": round(time.monotonic() - started, 1),
        }
        state = TrialState.PRUNED if diverged else TrialState.COMPLETE  # pruned: the sampler takes it for the worst
        mean = None if diverged else float(np.mean([_mean(disease_aucs) for disease_aucs in aucs.values()]))
        about: dict[str, Any] = {"params": dict(drawn or values), "distributions": make_distributions(ranges)}
        trial = create_trial(state=state, value=mean, user_attrs=attributes, **about)
        self.study.add_trial(trial)
        shutil.rmtree(self._folder(purpose, number), ignore_errors=True)  # the state of training
        if purpose == "search":
            self.searched.append(trial)
        return trial

    @cached_property
    def searched(self) -> list[optuna.trial.FrozenTrial]:
        """The finished trials of the search, which the sampler learns from."""
        return [trial for trial in self.stored if trial.user_attrs["purpose"] == "search"]

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
        asked.add_trials(self.searched[: number - 1])
        return asked.ask(distributions).params

    def _score(self, purpose: str, number: int, values: Mapping[str, float], seed: int) -> dict[str, float | None]:
        """Validation AUC per disease after the last round."""
        search, base = self.search, self.experiment
        federated = with_values(base.pipeline.federated, values)
        pipeline = base.pipeline.model_copy(update={"seed": seed, "federated": federated})
        experiment = replace(base, pipeline=pipeline)
        start = search.pretrained(experiment, seed)
        folder = self._folder(purpose, number) / f"{seed}-{short_digest(json.dumps(dict(values)))}"
        folder.mkdir(parents=True, exist_ok=True)
        of = f" of {self.trials}" if number <= self.trials else ", beside the best"
        what = f"{self.subject.name}, trial {number}{of}, seed {seed}"

        def report(history: History) -> None:
            search.report(what, len(history), pipeline.federated.rounds)

        train = partial(train_federated, experiment, self.subject.k_trained, start, folder, report)
        trained = retrain_if_damaged(folder / STATE, train)
        return dict(trained.history[-1]["auc"])

    def _folder(self, purpose: str, number: int) -> Path:
        return self.search.folder / "training" / self._name(purpose, number)

    def _name(self, purpose: str, number: int) -> str:
        """A trial of these ranges: those of others, in the same folder, have the same numbers."""
        name = self.subject.name.replace(":", ".")
        return f"{name}-{self.digest}-{'' if purpose == 'search' else f'{purpose}-'}{number}"

    def _say(self, done: Sequence[Trial]) -> None:
        trial, best = done[-1], find_best(done)
        settings = ", ".join(f"{key} {value:g}" for key, value in trial.values.items())
        result = "diverged" if trial.mean is None else f"AUC {trial.mean:.3f}"
        so_far = "" if best is None or best.mean is None else f" (best {best.mean:.3f}, trial {best.number})"
        count = f"{trial.number}/{self.trials}" if trial.purpose == "search" else f"{trial.number}, beside the best"
        self.search.say(f"{self.subject.name} {count}: {settings}: {result}{so_far}")

    def _make_trial(self, number: int, frozen: optuna.trial.FrozenTrial) -> Trial:
        attributes: dict[str, Any] = frozen.user_attrs
        return Trial(
            self.search.folder / "trials" / self._name(attributes["purpose"], number),
            self.search.name,
            self.subject.name,
            number,
            dict(attributes["values"]),
            attributes["ranges"],
            {int(seed): _mean(disease_aucs) for seed, disease_aucs in attributes["aucs"].items()},
            frozen.value,
            attributes["diverged"],
            attributes["seconds"],
            self.search.data.origin,
            attributes["purpose"],
        )


def make_distributions(ranges: Mapping[str, Space]) -> dict[str, BaseDistribution]:
    """The ranges, as Optuna takes them."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return {
        key: CategoricalDistribution(space.values)
        if isinstance(space, Grid)
        else FloatDistribution(space.low, space.high, log=space.log)
        for key, space in ranges.items()
    }


def find_open_end(
    done: Sequence[Trial], ranges: Mapping[str, Space], declared: Mapping[str, Space], best: Trial | None
) -> tuple[dict[str, float], dict[str, Space]] | None:
    """Settings of a trial beside the best value of a key, and the ranges that hold them; None if tried ones are near.

    The other keys are as in the trial `best`. `EDGES` trials per key at most: then the best is left at an edge.
    """
    if best is None or sum(trial.purpose == "edge" for trial in done) >= EDGES * len(declared):
        return None
    for key, space in declared.items():
        for value in space.open_ends(best.values[key], [trial.values[key] for trial in done]):
            values = {**best.values, key: value}
            wider = {
                name: of_key.including(values[name]) if isinstance(of_key, Range) else of_key
                for name, of_key in ranges.items()
            }
            return values, wider
    return None


def _with_seed(pipeline: Pipeline, seed: int) -> Pipeline:
    """The study with this training seed, at the largest K."""
    return pipeline.model_copy(update={"seed": seed, "k": [max(pipeline.k)]})


def _spread(seed: int, key: str) -> list[float]:
    """Where the first trials lie in a key's range, from 0 to 1: one in each of equal parts, in a random order."""
    rng = numpy_stream(seed, "tune", key)
    return list((rng.permutation(_SPREAD) + rng.random(_SPREAD)) / _SPREAD)


def _mean(aucs: Mapping[str, float | None]) -> float:
    """Over the diseases that have one, which are the same in every trial."""
    return float(np.mean([value for value in aucs.values() if value is not None]))
