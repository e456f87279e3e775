"""Plan of a study: images, positives, steps, bytes, time. Reads label files, writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from chestfed.core.console import plural
from chestfed.core.processes.workers import cores
from chestfed.core.provenance import Origin
from chestfed.data.sites.stats import advise_splits
from chestfed.data.sites.table import count_labels
from chestfed.learning.engines.declaration import engine_for
from chestfed.results.tables.clients.influence import ClientCounts, Influence, compute_influence
from chestfed.studies.experiment.options.sampling import check_classes
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.providers import Unwritten
from chestfed.studies.training.client_summary import weights_of_largest_k
from chestfed.studies.training.costs import Timings
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.data.prevalence import describe_thinning
from chestfed.studies.training.data.sites import TEST, TRAIN, VALID, StudySite

#: Files per site in the sample of sizes, and bytes of JPEG that a core decodes per second.
_SIZED_IMAGES, DECODED_BYTES = 20, 25e6
#: Names of parts.
DRAW: Final = "draw the synthetic hospitals"
_DECODE: Final = "decode what is not cached"
_FEATURES: Final = "features not cached"
STAGE_1: Final = "stage 1"


@dataclass(frozen=True)
class ImageCounts(ClientCounts):
    """One client, or the test set: images, training rows (with repeats), positive and negative images per disease."""

    images: int
    classes: tuple[int, ...] = ()  #: images of each class of a collection

    @classmethod
    def of(cls, name: str, labels: np.ndarray, repeats: np.ndarray, classes: tuple[int, ...] = ()) -> Self:
        """Count labels `[n, J]`; only the training list has a row `repeats[n]` times."""
        counts = count_labels(labels)
        positives, negatives = tuple(count.positive for count in counts), tuple(count.negative for count in counts)
        return cls(name, int(repeats.sum()), positives, negatives, len(labels), classes)

    @property
    def per_disease(self) -> list[str]:
        return [f"{p}/{n}" for p, n in zip(self.positives, self.negatives, strict=True)]


@dataclass(frozen=True)
class PlannedAlternative:
    """An alternative of the hospitals: models, and over all of them steps of stage 1 and batches of stage 2."""

    name: str
    models: int
    pretrain_steps: int
    federated_steps: int


@dataclass(frozen=True)
class PlannedPart:
    """A part of a study, which takes `seconds` each time it runs, after `plan`; studies run once what has one `key`.

    None: each study runs its own. `k` of stage 2; `alternative` of an alternative.
    """

    name: str
    seconds: float
    key: str | None = None
    k: int | None = None
    alternative: PlannedAlternative | None = None


@dataclass(frozen=True)
class StudyPlan:
    """One study; `decode_seconds` is estimated from file sizes, `at_hospitals` counts images scored once per K.

    `write_seconds` is for hospitals that are drawn first. `images` counts all that are read, each once: of clients, and
    of patients for testing and for validation.
    These are of `hospitals` hospitals, the target among them or not; `test_hospitals`: those with test images.
    """

    label: str
    pipeline: Pipeline
    clients: tuple[ImageCounts, ...]
    test: ImageCounts
    origin: Origin
    decode_seconds: float
    timings: Timings
    images: int
    at_hospitals: int = 0
    hospitals: int = 0
    with_target: bool = False
    test_hospitals: int = 1
    test_patients: tuple[tuple[int, int], ...] = ()  #: with a positive and with a negative image, of each disease
    patients: tuple[tuple[int, int], ...] = ()  #: as `test_patients`, with those of other roles at the tested sites
    more_tested: tuple[str, ...] = ()  #: what gives the tested sites more test patients, as the begin of a sentence
    write_seconds: float = 0.0
    remarks: tuple[str, ...] = ()  #: on sites with another share of positives, partitions and missing images, in words
    validation: Mapping[str, int] = field(default_factory=dict)  #: client -> images of its validation patients

    @property
    def influence(self) -> tuple[Influence, ...]:
        """That of the clients of the largest K; none where nothing is averaged with weights."""
        weights = weights_of_largest_k(self.pipeline, [client.rows for client in self.clients])
        return compute_influence(self.clients[: len(weights)], weights)

    @property
    def pretrain_steps(self) -> int:
        return self.pipeline.pretrain.steps(self.clients[0].rows)

    @property
    def stage_1_seconds(self) -> float:
        return self.timings.pretrain_step * self.pretrain_steps

    def stage_2_seconds(self, k: int) -> float:
        """Estimated, evaluations included."""
        scored = len(self.pipeline.evaluated_rounds) * self.test.images + self.at_hospitals
        settings, clients = self.pipeline.federated, self.pipeline.federated.taking_part(k)
        share = engine_for(self.pipeline.engine).share(1 if settings.spec.pooled else clients)
        steps = settings.steps * clients * share
        return self.timings.federated_step * steps + self.timings.scored_image * scored

    @property
    def feature_seconds(self) -> float:
        """Taking the features of all images with a frozen network, once."""
        return self.timings.feature * self.images

    @property
    def data_seconds(self) -> float:
        """Writing and decoding the images, once."""
        return self.write_seconds + self.decode_seconds

    @property
    def training_seconds(self) -> float:
        """Features, both stages, of every K, and the alternatives."""
        return sum(part.seconds for part in self.parts if part.name not in (DRAW, _DECODE))

    @property
    def parts(self) -> list[PlannedPart]:
        """Everything that takes time, in the order in which it runs."""
        pipeline, parts = self.pipeline, []
        if self.write_seconds:
            parts.append(PlannedPart(DRAW, self.write_seconds, DRAW))
        parts.append(PlannedPart(_DECODE, self.decode_seconds, _DECODE))
        if self.timings.feature:
            parts.append(PlannedPart(_FEATURES, self.feature_seconds, _FEATURES))
        stage_1 = repr((pipeline.training_seed, pipeline.pretrain, pipeline.model, pipeline.sites[:1]))
        parts.append(PlannedPart(STAGE_1, self.stage_1_seconds, stage_1))
        parts += [PlannedPart(f"stage 2, K={k}", self.stage_2_seconds(k), k=k) for k in pipeline.k]
        for part in self.alternatives:
            key = None if part.federated_steps else f"{part.name}: {stage_1} {pipeline.sites} {pipeline.alternatives}"
            name, seconds = f"{part.name}, {plural(part.models, 'model')}", _alternative_seconds(self.timings, part)
            parts.append(PlannedPart(name, seconds, key, alternative=part))
        return parts

    def list_runs(self, pipelines: Sequence[Pipeline]) -> list[tuple[StudyPlan, PlannedPart]]:
        """Every run of every part of several studies, each with its plan; what they share runs once.

        All are planned with the images of this one.
        """
        runs, seen = [], set[str | None]()
        for plan in (replace(self, pipeline=pipeline) for pipeline in pipelines):
            runs += [(plan, part) for part in plan.parts if part.key is None or part.key not in seen]
            seen.update(part.key for part in plan.parts)
        return runs

    @property
    def alternatives(self) -> tuple[PlannedAlternative, ...]:
        """Alternatives of the hospitals with both classes; of one class none is trained."""
        choices, pipeline, settings = self.pipeline.alternatives, self.pipeline, self.pipeline.federated
        if choices is None:
            return ()
        clients = self.clients[: pipeline.k[-1]]
        able = [client for client in clients if any(map(min, zip(client.positives, client.negatives, strict=True)))]
        able = [client for client in able if choices.includes(client.name)]
        alone = able[1:] if 1 in pipeline.k and able[:1] == list(clients[:1]) else able  # the target alone is K=1
        parts = []
        own = {"own data alone": [client.rows for client in alone]} if choices.own_data else {}
        if choices.gate is not None:
            added = [(client.rows, self.validation.get(client.name, 0)) for client in able]
            own["own data and validation patients"] = [rows + more for rows, more in added if more]
        for name, all_rows in own.items():
            steps = sum(
                choices.limit_pretraining(pipeline.pretrain, rows, clients[0].rows).steps(rows) for rows in all_rows
            )
            stages = {"stage 1": (steps, 0), "stage 2": (0, len(all_rows) * settings.steps)}
            parts += [PlannedAlternative(f"{name}, {of}", len(all_rows), *both) for of, both in stages.items()]
        if choices.fine_tuned is not None and able:
            passes = max(choices.fine_tuned.epochs) * len(choices.fine_tuned.lr_factors)
            steps = round(sum(passes * client.rows / settings.images_per_step for client in able))
            parts.append(PlannedAlternative("fine-tuned", len(able), 0, steps))
        if choices.centralized is not None:
            parts.append(PlannedAlternative("centralized", 1, 0, settings.steps * len(clients)))
        return tuple(part for part in parts if part.pretrain_steps or part.federated_steps)


def plan_study(label: str, experiment: Experiment, timings: Timings, unwritten: Unwritten = Unwritten()) -> StudyPlan:
    """Count what this study would do; of sites labels are read, and no image.

    Raises `ConfigError` if batches are to be drawn by class, and a client cannot.
    """
    if experiment.sites:
        parts = [(name, site.select(TRAIN, name)) for site in experiment.sites for name in site.clients]
        clients = [ImageCounts.of(name, part.labels(), part.frame["repeats"].to_numpy()) for name, part in parts]
    else:
        clients = [
            ImageCounts.of(client.name, client.labels, client.repeats, client.classes) for client in experiment.clients
        ]
    both = {part.name: any(map(min, part.positives, part.negatives)) for part in clients[: max(experiment.pipeline.k)]}
    check_classes(experiment.pipeline.federated, both)
    tests, hospitals = experiment.select_scored()
    scored = np.concatenate([table.labels() for table in tests.values()] or [experiment.test.labels])
    names = [table.frame["patient"].astype(str).to_numpy() for table in tests.values()]
    patients = np.concatenate(names or [experiment.test.patients])
    others = {name: table for name, table in hospitals.items() if [table] != list(tests.values())}
    return StudyPlan(
        label,
        experiment.pipeline,
        tuple(clients),
        ImageCounts.of("test set", scored, np.ones(len(scored), np.int64)),
        experiment.origin,
        _estimate_decoding(experiment, unwritten.image_bytes),
        timings,
        _count_read(experiment),
        sum(len(table.frame) for table in others.values()),
        len(others),
        next(iter(tests), None) in others,
        max(1, len(tests)),
        tuple(_count_patients(scored, patients)),
        tuple(_count_patients_of(experiment.sites)),
        _find_more_tested(experiment),
        unwritten.seconds / cores(),
        (
            *(describe_thinning(site) for site in experiment.sites if site.entry.positives is not None),
            *_describe_draws(experiment.sites),
            *(f"{site.name}: {site.idle_test}" for site in experiment.sites if site.idle_test),
            *([] if unwritten.image_bytes else _describe_absent(experiment.sites)),
        ),
        {site.clients[0]: len(site.find(VALID)) for site in experiment.sites if len(site.clients) == 1},
    )


def _describe_draws(sites: Sequence[StudySite]) -> list[str]:
    """Partitions that were drawn again, and how often, as sentences."""
    discarded = {site.table.part_of: site.table.draws_discarded for site in sites if site.table.draws_discarded}
    return [
        f"{name}, partition: draw {count + 1:,} is used; {plural(count, 'draw')} before it left a client with too few "
        "patients, so that the clients differ less than such draws do on average"
        for name, count in discarded.items()
    ]


def _count_read(experiment: Experiment) -> int:
    """Images that the study reads, each once."""
    if experiment.sites:
        return sum(int(site.in_use.sum()) for site in experiment.sites)
    tests = [experiment.test, *experiment.validation.values()]
    return sum(len(client.labels) for client in experiment.clients) + sum(len(test.labels) for test in tests)


def _count_patients(labels: np.ndarray, patients: np.ndarray) -> Iterator[tuple[int, int]]:
    """Patients with a positive and with a negative image, of each disease."""
    for column in labels.T:
        yield len(np.unique(patients[column == 1])), len(np.unique(patients[column == 0]))


def _count_patients_of(sites: Sequence[StudySite]) -> Iterator[tuple[int, int]]:
    """Patients of each disease as `_count_patients`, whatever their role, of the sites with test images."""
    frames = [site.table.frame for site in sites if len(site.find(TEST))]
    labels = [site.table.labels() for site in sites if len(site.find(TEST))]
    if labels:
        names = np.concatenate([frame["patient"].astype(str).to_numpy() for frame in frames])
        yield from _count_patients(np.concatenate(labels), names)


def _find_more_tested(experiment: Experiment) -> tuple[str, ...]:
    """What gives the tested sites more test patients, each once: the key, or the file, that their split is of."""
    tested, split = [site for site in experiment.sites if len(site.find(TEST))], experiment.pipeline.evaluation.split
    of_pipeline = "Raise test_fraction in the pipeline's sites"
    each = (
        of_pipeline if site.entry.test_fraction is not None else advise_splits(site.splits_file, split)
        for site in tested
    )
    return tuple(dict.fromkeys(each))


def _estimate_decoding(experiment: Experiment, unwritten_bytes: float) -> float:
    """Seconds to decode all images that are read by all cores, from the sizes of a few files per site.

    Of a site without any of them, from the size of images that are not written yet.
    """
    total = 0.0
    for site in experiment.sites:
        sizes = [float(file.stat().st_size) for file in _sample_files(site) if file.is_file()]
        total += float(np.mean(sizes or [unwritten_bytes])) * int(site.in_use.sum()) / DECODED_BYTES / cores()
    return total


def _sample_files(site: StudySite) -> list[Path]:
    """A few of the images that are read, evenly over the rows."""
    places = np.flatnonzero(site.in_use)
    chosen = places[np.linspace(0, len(places) - 1, _SIZED_IMAGES).astype(int)] if len(places) else places
    return [site.table.root / image for image in site.table.frame["image"].iloc[np.unique(chosen)]]


def _describe_absent(sites: Sequence[StudySite]) -> Iterator[str]:
    """Sites of which some of a few images are not there, as sentences: the study would stop."""
    for site in sites:
        files = _sample_files(site)
        if absent := sum(not file.is_file() for file in files):
            text = f"{absent} of {plural(len(files), 'image')} that were looked for are missing"
            yield f"Warning: {site.name}: {text}: is it the right folder? `chestfed site check` names all of them"


def _alternative_seconds(timings: Timings, part: PlannedAlternative) -> float:
    """Training alone."""
    return timings.pretrain_step * part.pretrain_steps + timings.federated_step * part.federated_steps
