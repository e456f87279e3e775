"""Plan of a study: images, positives, steps, bytes, time. Reads label files, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.console import plural, text_table
from chestfed.core.diseases import format_title as disease_title
from chestfed.core.disk import size_text
from chestfed.core.processes.workers import cores
from chestfed.core.provenance import Origin
from chestfed.data.sites.stats import advise_test_fraction
from chestfed.data.sites.table import count_labels
from chestfed.learning.engines.declaration import engine_for
from chestfed.learning.models import name_network
from chestfed.results.evaluation import power
from chestfed.results.evaluation.joining.planning import count_freedom
from chestfed.results.evaluation.labeled import LEAST_PATIENTS
from chestfed.results.evaluation.protocols import describe_hospitals
from chestfed.results.tables.clients.influence import ClientCounts, Influence, compute_influence, unusual_clients
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.options.sampling import check_classes
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.providers import Unwritten
from chestfed.studies.experiment.stage_2 import whole_rounds
from chestfed.studies.training.client_summary import weights_of_largest_k
from chestfed.studies.training.costs import (
    Timings,
    bytes_per_client_round,
    count_state_bytes,
    duration,
    estimated,
)
from chestfed.studies.training.data.class_counts import draw_class_counts
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.data.prevalence import describe_thinning
from chestfed.studies.training.data.sites import TEST, TRAIN, StudySite

#: Files per site in the sample of sizes, and bytes of JPEG that a core decodes per second.
_SIZED_IMAGES, DECODED_BYTES = 20, 25e6
#: The keys that say how many patients are tested.
_FRACTION: Final = "test_fraction (in the pipeline's sites, or splits.test_fraction in the site's YAML)"


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
    write_seconds: float = 0.0
    remarks: tuple[str, ...] = ()  #: on sites with another share of positives, partitions and missing images, in words

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
        k_seconds = sum(map(self.stage_2_seconds, self.pipeline.k), self.stage_1_seconds)
        every = k_seconds + self.feature_seconds
        return sum((alternative_seconds(self.timings, part) for part in self.alternatives), every)

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
        if choices.own_data and alone:
            target = clients[0].rows
            steps = sum(
                choices.limit_pretraining(pipeline.pretrain, client.rows, target).steps(client.rows) for client in alone
            )
            parts.append(PlannedAlternative("own data alone", len(alone), steps, len(alone) * settings.steps))
        if choices.fine_tuned is not None and able:
            passes = max(choices.fine_tuned.epochs) * len(choices.fine_tuned.lr_factors)
            steps = round(sum(passes * client.rows / settings.images_per_step for client in able))
            parts.append(PlannedAlternative("fine-tuned", len(able), 0, steps))
        if choices.centralized is not None:
            parts.append(PlannedAlternative("centralized", 1, 0, settings.steps * len(clients)))
        return tuple(parts)


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
        unwritten.seconds / cores(),
        (
            *(describe_thinning(site) for site in experiment.sites if site.entry.positives is not None),
            *_describe_draws(experiment.sites),
            *([] if unwritten.image_bytes else _describe_absent(experiment.sites)),
        ),
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


def render(plan: StudyPlan, machine: Machine) -> RenderableType:
    """One study: images and labels of each client and of the test set, and its parts."""
    caption = (
        "rows: the training list, with repeated positives; positive/negative images per disease, the rest is missing"
    )
    shares = {share.client: [f"{share.weight:.2f}", f"{share.per_row:.2f}"] for share in plan.influence}
    if shares:
        caption += (
            f". weight: in every mean of K={max(plan.pipeline.k)}, federated.weights: "
            f"{plan.pipeline.federated.weights}; per row: relative to a mean over all rows"
        )
    clients = text_table(
        f"{plan.origin.short_mark}{plan.pipeline.title}",
        ["client"],
        ["images", "rows", *_tasks(plan), *(["weight", "per row"] if shares else [])],
        (
            [part.name, f"{part.images:,}", f"{part.rows:,}", *part.per_disease, *shares.get(part, [])]
            for part in (*plan.clients, plan.test)
        ),
        caption,
    )
    total = plan.data_seconds + plan.training_seconds
    facts = (
        f"{_facts(plan, machine)}, evaluated {plural(len(plan.pipeline.evaluated_rounds), 'time')}{_elsewhere(plan)}. "
        f"{_headline(plan)}"
        f"{estimated(total, plan.timings)}, without start-up and MLflow. Nothing was written."
    )
    picture = draw_class_counts({client.name: client.classes for client in plan.clients})
    pictures = [Text(f"{picture}\n")] if picture else []
    below = [facts, *list_needs(plan), *propose_settings(machine)]
    return Group(clients, *pictures, *map(Text, _remarks(plan)), tabulate_parts(plan), *map(Text, below))


def tabulate_parts(plan: StudyPlan) -> RenderableType:
    """Table of what would run: steps, images, rounds, bytes and time."""
    columns = ["clients", "steps per client", "images", "rounds", "sent up", "sent down", "time"]
    return text_table("What would run", ["part"], columns, _parts(plan))


def list_needs(plan: StudyPlan) -> list[str]:
    """Disk and memory, as far as they are known before a study runs."""
    states = size_text(count_state_bytes(plan.timings.parameters, len(plan.pipeline.k)))
    decoded = f"{size_text(plan.images * plan.pipeline.preprocess.size**2)} of decoded images in the cache, "
    disk = f"Disk: {decoded if plan.pipeline.sites else ''}at least {states} of models and states in --out."
    memory = f"Memory: at least {size_text(plan.timings.memory)}, which a step needed here."
    return [disk, memory] if plan.timings.memory else [disk]


def propose_settings(machine: Machine) -> list[str]:
    """Settings with which this machine would be faster; each makes another run."""
    if not machine.lacks_bf16:
        return []
    return [
        "Proposed on this GPU: --set runtime.bf16=true. The network then moves half the bytes; the last digits change."
    ]


def render_held_out(plans: Sequence[StudyPlan], title: str, machine: Machine) -> RenderableType:
    """One study per held-out site: who trains, and what is scored."""
    first = plans[0]
    assert first.pipeline.held_out is not None
    which = first.pipeline.held_out.images
    images = "all its images" if which == "all" else f"its {which} split"
    shown = text_table(
        f"{first.origin.short_mark}{title}",
        ["held out", "stage 1 on", "stage 2 on"],
        ["rows trained on", "images scored", *_tasks(first), "time"],
        (
            [
                plan.label.removesuffix(" held out"),
                plan.clients[0].name,
                "\n".join(client.name for client in plan.clients),
                f"{sum(client.rows for client in plan.clients):,}",
                f"{plan.test.images:,}",
                *plan.test.per_disease,
                duration(plan.training_seconds),
            ]
            for plan in plans
        ),
        f"positives/negatives per disease of the images that are scored: of each held-out site {images} "
        f"({first.pipeline.evaluation.protocol}); the rest is missing. None of them trains.",
    )
    most = sum(plan.training_seconds for plan in plans) + first.data_seconds
    facts = (
        f"{len(plans)} studies, one for each site that is held out; stage 1 is shared by those that start on the same "
        f"site. {_facts(first, machine)}. {estimated(most, first.timings)}, with stage 1 counted for every study, "
        "without start-up and MLflow. Nothing was written."
    )
    return Group(shown, Text(facts))


def _remarks(plan: StudyPlan) -> list[str]:
    """Unusual clients, and what the test set can show at all."""
    pipeline = plan.pipeline
    remarks = [*plan.remarks]
    remarks += unusual_clients(
        plan.influence, pipeline.tasks, adds_hospitals=bool(pipeline.sites) and not pipeline.held_out
    )
    few = {
        task: f"{disease_title(task)} ({positives} with it, {negatives} without)"
        for task, (positives, negatives) in zip(pipeline.tasks, plan.test_patients, strict=True)
        if 0 < min(positives, negatives) < LEAST_PATIENTS
    }
    if few:
        least = dict(zip(pipeline.tasks, map(min, plan.patients), strict=False))  # of a collection nothing is known
        advice = advise_test_fraction({task: least[task] for task in few if task in least}, LEAST_PATIENTS, _FRACTION)
        remarks.append(
            f"Warning: fewer than {LEAST_PATIENTS} test patients have, or do not have, {', '.join(few.values())}: no "
            f"mean and no verdict will rest on it. {advice}".rstrip(". ")
        )
    counted = [
        ((positives, negatives), patients)
        for positives, negatives, patients in zip(
            plan.test.positives, plan.test.negatives, plan.test_patients, strict=True
        )
        if min(patients) >= LEAST_PATIENTS
    ]
    error = power.difference_error(images for images, _ in counted)
    if error is not None:
        smallest = power.detectable_difference(error, count_freedom([patients for _, patients in counted]))
        remarks.append(
            f"With these {plan.test.images:,} test images a difference of mean AUC below about "
            f"{smallest:.3f} is likely to be missed (80% power, 5% level; assuming AUCs of "
            f"{power.AUC} and scores of two models with a correlation of {power.CORRELATION}; other training seeds "
            "come on top)"
        )
    return remarks


def alternative_seconds(timings: Timings, part: PlannedAlternative) -> float:
    """Training alone."""
    return timings.pretrain_step * part.pretrain_steps + timings.federated_step * part.federated_steps


def _parts(plan: StudyPlan) -> Iterable[Sequence[str]]:
    """Steps, images, bytes and time of decoding, stage 1, and stage 2 of each K."""
    pipeline, settings, steps = plan.pipeline, plan.pipeline.federated, plan.pretrain_steps
    images = plan.images
    if plan.write_seconds:
        yield ["draw the synthetic hospitals", "", "", "", "", "", "", duration(plan.write_seconds)]
    yield ["decode what is not cached", "", "", f"{images:,}", "", "", "", duration(plan.decode_seconds)]
    if plan.timings.feature:
        yield ["features not cached", "", "", f"{images:,}", "", "", "", duration(plan.feature_seconds)]
    trained = f"{steps * pipeline.pretrain.batch_size:,}"
    yield ["stage 1", "1", f"{steps:,}", trained, "", "", "", duration(plan.stage_1_seconds)]
    for k in pipeline.k:
        up, down = bytes_per_client_round(pipeline, plan.timings.parameters, plan.timings.buffers, k)
        clients = settings.taking_part(k)
        yield [
            f"stage 2, K={k}",
            str(k),
            f"{settings.steps:,}",
            f"{settings.steps * clients * settings.images_per_step:,}",
            f"{settings.rounds:,}",
            size_text(settings.rounds * clients * up),
            size_text(settings.rounds * clients * down),
            duration(plan.stage_2_seconds(k)),
        ]
    for part in plan.alternatives:
        images = part.pretrain_steps * pipeline.pretrain.batch_size + part.federated_steps * settings.images_per_step
        count, seconds = part.pretrain_steps + part.federated_steps, alternative_seconds(plan.timings, part)
        name = f"{part.name}, {plural(part.models, 'model')}"
        yield [name, "1", f"{count:,}", f"{images:,}", "", "", "", duration(seconds)]


def _facts(plan: StudyPlan, machine: Machine) -> str:
    pipeline, settings = plan.pipeline, plan.pipeline.federated
    length = f"{plural(len(settings.schedule), 'stage')}, {plural(settings.rounds, 'round')}{whole_rounds(settings)}"
    return (
        f"{name_network(pipeline.model)}, {plan.timings.parameters:,} parameters, on {machine.name}. "
        f"{settings.spec.name}, window {settings.window}, {length}"
    )


def _elsewhere(plan: StudyPlan) -> str:
    if not plan.at_hospitals:
        return ""
    whose = plural(plan.hospitals, "hospital") + (
        ", the target included" if plan.with_target else " besides the target"
    )
    return f"; every K then on {plan.at_hospitals:,} held-out images of {whose}"


def _headline(plan: StudyPlan) -> str:
    """Meaning of the AUC if the test set has images of several hospitals; else empty."""
    text = describe_hospitals(plan.test_hospitals, plan.pipeline.evaluation.over_hospitals).removeprefix(", ")
    return f"AUC: {text}. " if text else ""


def _tasks(plan: StudyPlan) -> list[str]:
    return [disease_title(task) for task in plan.pipeline.tasks]
