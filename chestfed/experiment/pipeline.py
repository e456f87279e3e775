"""The schema of a pipeline: one YAML is one experiment.

Paths of site configurations and of graphs are relative to the pipeline's file; `data_root` is relative to the folder
that the command runs in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from chestfed.core.config import Document, StrictModel, checked, expand_path
from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ConfigError
from chestfed.engines.topology import NAMED_GRAPHS, read_edges
from chestfed.evaluation.protocols import ImageProtocol
from chestfed.experiment.stage_2 import AVERAGING, PEER_ALGORITHMS, AlgorithmName, Federated
from chestfed.images.augment import Augment
from chestfed.images.preprocess import Preprocess
from chestfed.models import ModelConfig
from chestfed.sites.config import check_diseases, load_site_config


class SampleHospitals(StrictModel):
    """Synthetic hospitals that the study writes into `data_root` if they are not there."""

    seed: int = Field(1, description="seed of patients and pictures")
    size: Literal["default", "tiny"] = Field("default", description="tiny is for tests")


class SiteEntry(StrictModel):
    """One site of the study, in the order of addition; the first is the target."""

    config: str = Field(description="the site's YAML, relative to this file")
    root: str | None = Field(None, description="where the site's files are, if not where its YAML says")
    clients: int = Field(1, ge=1, description="cut the training patients into this many clients")
    test_fraction: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="hold this share of the patients out as the test split; the test images of all sites that say so "
        "are scored together",
    )
    validation_fraction: float | None = Field(
        None, gt=0, lt=1, description="set this share of the remaining training patients aside: nothing trains on them"
    )


class CollectionEntry(StrictModel):
    """A public image collection in place of hospitals, as one binary task; see `docs/collections.md`."""

    name: Literal["cifar10", "cifar100", "stl10", "fashion_mnist", "cats_vs_dogs", "imagenet", "isic2020", "digits"] = (
        Field(description="which collection")
    )
    root: str | None = Field(None, description="folder of its files, below the data root; null: its name")
    clients: int = Field(4, ge=1, description="number of clients that the training images are dealt to")
    partition: Literal["classes", "sorted", "random"] = Field(
        "classes",
        description="classes: no class is at two clients, the IH construction; sorted: even runs of images sorted by "
        "class, for more clients than classes; random: all alike (by patient, where there are patients)",
    )
    imratio: float | None = Field(
        0.1, gt=0, lt=1, description="share of positives in the training images, by dropping positives; null: as it is"
    )
    test_fraction: float = Field(
        0.2, gt=0, lt=1, description="share held out for the test, where the collection has no test part of its own"
    )
    task: str = Field("positive", pattern=r"^[a-z][a-z0-9_]*$", description="what the task is called in tables")


class HeldOut(StrictModel):
    """Train on all sites but one and evaluate on that one, for each in turn: what a new hospital would get."""

    sites: list[str] | Literal["all"] = Field(
        "all", description="`site` names of those that are held out in turn; all: every site, further ones included"
    )
    images: Literal["all", "train", "valid", "test"] = Field(
        "all",
        description="which of its images are scored, of the views of `evaluation.protocol`; all: nothing of the site "
        "has been trained on, so every split may be scored",
    )

    @field_validator("sites")
    @classmethod
    def _names_each_once(cls, value: list[str] | str) -> list[str] | str:
        if not value or (len(set(value)) < len(value) and isinstance(value, list)):
            raise ValueError("names each site once, or says all")
        return value


class Published(StrictModel):
    """What the paper printed, to stand beside our number."""

    source: str = Field(description="paper and table")
    note: str | None = Field(None, description="in what the paper's figures differ from ours; said below the table")
    auc: dict[str, dict[str, float]] = Field(
        default_factory=dict,
        description="run (an algorithm, or `algorithm, I=window`) -> disease or `mean` -> AUC",
    )
    largest_window: dict[str, int] = Field(
        default_factory=dict, description="algorithm -> the largest window that costs no AUC, as the paper found"
    )
    tolerance: float = Field(
        0.005, gt=0, description="a window costs AUC if its mean AUC is lower than the smallest window's by more"
    )


class Comparison(StrictModel):
    """What `chestfed study` compares if the command line names no algorithms: one YAML, one command."""

    algorithms: list[AlgorithmName] = Field(min_length=1, description="in the order of the table")
    windows: list[Annotated[int, Field(ge=1)]] = Field(
        [], description="each algorithm with each; none: federated.window"
    )
    seeds: int = Field(1, ge=1, description="runs per algorithm and window, counted up from `seed`")


class Pretrain(StrictModel):
    """Stage 1: cross-entropy on the target's (the first client's) training images, with Adam."""

    epochs: float = Field(2.0, ge=0, description="passes over the target's training images; 0: no stage 1")
    batch_size: int = Field(32, ge=1, description="images per step")
    lr: float = Field(1e-5, gt=0, description="Adam's step size")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="cosine: the step size rises for a tenth of the steps, then falls to 0 as a cosine"
    )

    def steps(self, rows: int) -> int:
        """Number of batches for `rows` training rows (repeated ones counted)."""
        return math.ceil(self.epochs * rows / self.batch_size)

    def lr_at(self, step: int, steps: int) -> float:
        """Step size of a step, counted from 0: a function of the counter alone, so there is no state to save."""
        if self.schedule == "constant":
            return self.lr
        warm = max(1, steps // 10)
        if step < warm:
            return self.lr * (step + 1) / warm
        return self.lr * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))) / 2


class Evaluation(StrictModel):
    """What is scored, and how often."""

    split: Literal["valid", "test"] = Field("valid", description="split of the target site")
    protocol: ImageProtocol = Field("frontal-image", description="which images are scored, and in which unit")
    every: int = Field(
        1,
        ge=1,
        description="rounds between two evaluations; the last round always is one. For npa windows of steps, so that "
        "all algorithms of a comparison are evaluated as often",
    )
    every_steps: int | None = Field(
        None,
        ge=1,
        description="local steps of a client between two evaluations, in place of `every`, so that all windows of a "
        "comparison are evaluated as often; after the round in which they are reached",
    )
    batch_size: int = Field(64, ge=1, description="images scored at a time; does not change a result")
    resamples: int = Field(2000, ge=0, description="bootstrap resamples for the 95% intervals; 0: none")


class Runtime(StrictModel):
    """Where it runs. `loader_workers` never changes a result; the others may change its last bits."""

    device: str = Field("auto", description="auto: CUDA if there is one, else the CPU; or cpu, cuda, cuda:1")
    threads: int | None = Field(None, ge=1, description="CPU threads of torch; null: all cores")
    bf16: bool = Field(False, description="run the network in bfloat16 (autocast)")
    channels_last: bool = Field(True, description="memory format of the images; faster on CPUs and on GPUs")
    loader_workers: int | None = Field(
        None,
        ge=0,
        description="threads that read and augment ahead of training; 0: none; null: one per core beyond two, at most "
        "8 (on two cores they would only get in the way of the network)",
    )


class Pipeline(StrictModel):
    """One experiment."""

    title: str = Field(description="heading of tables and reports")
    data_root: str | None = Field(None, description="folder of the sites' roots; null: $CHESTFED_DATA")
    samples: SampleHospitals | None = Field(None, description="write synthetic hospitals into data_root first")
    sites: list[SiteEntry] = Field([], description="in the order in which they are added")
    collection: CollectionEntry | None = Field(None, description="a public image collection, in place of sites")
    diseases: list[str] = Field(
        list(DISEASES),
        min_length=1,
        description="the binary tasks; the target labels all of them, elsewhere a disease that a site does not label "
        "is missing",
    )
    k: list[int] = Field(
        [], description="numbers of clients to train with; none: all clients, and with sites every number up to them"
    )
    model: ModelConfig = ModelConfig()
    preprocess: Preprocess = Preprocess()
    augment: Augment = Augment()
    pretrain: Pretrain = Pretrain()
    federated: Federated = Federated()
    per_algorithm: dict[AlgorithmName, dict[str, Any]] = Field(
        default_factory=dict,
        description="keys of `federated` that hold for one algorithm: its own step size, say. They come before those "
        "under `federated`, and after `--set federated.KEY`",
    )
    held_out: HeldOut | None = Field(
        None, description="hold each site out in turn; `k` then is the number of clients of all the others"
    )
    comparison: Comparison | None = Field(None, description="compare these algorithms, unless told otherwise")
    published: Published | None = Field(None, description="the paper's figures, to stand beside ours")
    evaluation: Evaluation = Evaluation()
    runtime: Runtime = Runtime()
    seed: int = Field(1, ge=0, description="seed of everything but the samples")

    @field_validator("diseases")
    @classmethod
    def _diseases_are_known(cls, value: list[str]) -> list[str]:
        check_diseases(value)
        if len(set(value)) < len(value):
            raise ValueError("names a disease twice")
        return value

    @model_validator(mode="after")
    def _clients_suffice(self) -> Self:
        if bool(self.sites) == (self.collection is not None):
            raise ValueError("needs either sites or a collection")
        if self.collection is not None:
            available = self.collection.clients
            everything = [available]
        else:
            available = sum(entry.clients for entry in self.sites)
            everything = list(range(1, available + 1))
        if self.held_out is not None:
            self._can_hold_out(available)
            everything = [available]
        if not self.k:
            object.__setattr__(self, "k", everything)  # frozen for everybody else
        if not all(1 <= k <= available for k in self.k) or self.k != sorted(set(self.k)):
            raise ValueError(
                f"k must be increasing numbers from 1 to {available}, the number of clients; found {self.k}"
            )
        for algorithm in self.per_algorithm:
            self.for_algorithm(algorithm)
        if self.sites and self.sites[0].test_fraction is None and any(entry.test_fraction for entry in self.sites):
            raise ValueError("test_fraction of a further site needs one at the first site, the target, too")
        if self.sites and self.sites[0].test_fraction is not None and self.evaluation.split != "test":
            raise ValueError(
                "with test_fraction the held-out patients are the 'test' split: set evaluation.split: test"
            )
        return self

    def _can_hold_out(self, clients: int) -> None:
        if len(self.sites) < 2:
            raise ValueError("held_out needs two sites at least: one to train on, one to evaluate on")
        if self.comparison is not None:
            raise ValueError("held_out and comparison exclude each other")
        if self.k not in ([], [clients]):
            raise ValueError("with held_out all other sites train: leave k out, or set k: []")

    @property
    def tasks(self) -> tuple[str, ...]:
        """What the network predicts, in the order of its outputs: diseases, or a collection's task."""
        return tuple(self.diseases) if self.collection is None else (self.collection.task,)

    @property
    def evaluated_rounds(self) -> tuple[int, ...]:
        """The rounds, counted from 1 over all stages, after which the test set is scored; the last is one."""
        settings, every = self.federated, self.evaluation.every_steps
        if every is None:
            each = self.evaluation.every * settings.rounds_per_window
            due = list(range(each, settings.rounds + 1, each))
        else:
            steps = [
                stage.window * settings.batches_per_step for stage in settings.schedule for _ in range(stage.rounds)
            ]
            after = [0, *itertools.accumulate(steps)]
            due = [number for number in range(1, len(after)) if after[number] // every > after[number - 1] // every]
        return tuple(due) if due and due[-1] == settings.rounds else (*due, settings.rounds)

    def for_algorithm(self, algorithm: AlgorithmName | None = None, beside: Sequence[str] = ()) -> Pipeline:
        """The experiment with another algorithm, or its own, and the keys that hold for it.

        `beside` are the algorithms it is compared with: what depends on the algorithm but must not differ between
        them (`model.norm: auto`) is chosen to suit all.

        Raises
        ------
        ValueError
            If the algorithm's keys under `per_algorithm` are not those of `federated`, or do not suit it.
        """
        chosen = algorithm or self.federated.algorithm
        base = self.federated.model_dump()
        if chosen != self.federated.algorithm:  # what was said of another algorithm
            base |= {"objective": None, "communication": "published"}
            if chosen not in AVERAGING and base["returned"] == "average":
                base["returned"] = None
        settings = Federated(**{**base, **self.per_algorithm.get(chosen, {}), "algorithm": chosen})
        norm = self.model.norm
        if norm == "auto":
            norm = "group" if {chosen, *beside} & set(PEER_ALGORITHMS) else "batch"
        model = self.model.model_copy(update={"norm": norm})
        return self.model_copy(update={"federated": settings, "model": model, "per_algorithm": {}})

    def variant(
        self, algorithm: AlgorithmName, seed: int, beside: Sequence[str] = (), window: int | None = None
    ) -> Pipeline:
        """One run of a comparison: another algorithm, seed and window, the largest K only.

        Raises
        ------
        ValueError
            As `for_algorithm`.
        """
        chosen = self.for_algorithm(algorithm, beside)
        if window is not None:
            chosen = chosen.model_copy(update={"federated": chosen.federated.model_copy(update={"window": window})})
        return chosen.model_copy(update={"seed": seed, "k": [max(self.k)]})


def load_pipeline(path: Path, overrides: Sequence[str] = (), added: Sequence[Path] = ()) -> Pipeline:
    """Read a pipeline; `added` are the YAMLs of further sites, which come after its own, one client each.

    Where the pipeline lists its `k`, the new numbers of clients are added to them, unless an override says `k`. See
    `chestfed.core.config.load_config` for the errors.
    """
    document = Document(path)
    if added:
        _append_sites(document, added)
    for override in overrides:
        document.override(override)
    if added and not any(override.partition("=")[0] == "k" for override in overrides):
        _extend_k(document, len(added))
    _read_graphs(document)
    pipeline = checked(document, Pipeline)
    for override in overrides:  # said on the command line, a key holds for every algorithm
        section, _, rest = override.partition(".")
        if section == "federated":
            for own in pipeline.per_algorithm.values():
                own.pop(rest.split("=")[0].strip(), None)
    return pipeline


def _read_graphs(document: Document) -> None:
    """Put a graph's edges in the place of its file: what is in the file determines the result, not where it lies."""
    own = document.data.get("per_algorithm")
    places: list[tuple[str, ...]] = [("federated",)]
    places += [("per_algorithm", name) for name in own] if isinstance(own, dict) else []
    for place in places:
        section: Any = document.data
        for name in place:
            section = section.get(name)
        topology = section.get("topology") if isinstance(section, dict) else None
        if isinstance(topology, str) and topology not in NAMED_GRAPHS:
            where = (*place, "topology")
            try:
                section["topology"] = read_edges(expand_path(topology, document.path.parent))
            except ConfigError as error:
                raise ConfigError(f"{document.place(where)}: '{'.'.join(where)}': {error}") from None


def _append_sites(document: Document, added: Sequence[Path]) -> None:
    sites = document.data.get("sites")
    if not isinstance(sites, list) or not sites:
        raise ConfigError(f"--add-site: {document.path} has no hospitals to add one to (no 'sites')")
    configs = [load_site_config(site) for site in added]
    entries = [
        {"config": str(site.absolute()), **_own_root(site, config.root)}
        for site, config in zip(added, configs, strict=True)
    ]
    document.data["sites"] = [*sites, *entries]
    if isinstance(document.data.get("title"), str):
        document.data["title"] += "".join(f" + {config.site}" for config in configs)


def _own_root(site: Path, root: str) -> dict[str, str]:
    """Where an added site's files are if its YAML says so from its own folder; else they are below the data root."""
    beside = expand_path(root, site.absolute().parent)
    return {"root": str(beside)} if beside.is_dir() else {}


def _extend_k(document: Document, added: int) -> None:
    """The numbers of clients that come about by the added sites, one client each, behind those listed."""
    k, sites = document.data.get("k"), document.data["sites"]
    if isinstance(k, list) and k and isinstance(sites, list):
        before = sum(_clients(entry) for entry in sites[:-added])
        total = before + sum(_clients(entry) for entry in sites[-added:])
        document.data["k"] = [*k, *range(before + 1, total + 1)]


def _clients(entry: object) -> int:
    """Clients of a site's entry that is not checked yet."""
    clients = entry.get("clients", 1) if isinstance(entry, dict) else 1
    return clients if isinstance(clients, int) else 1


#: Keys that say where things are or how fast they are read, and never what comes out.
_NOT_IDENTITY = (
    ("title",),
    ("data_root",),
    ("per_algorithm",),
    ("comparison",),
    ("published",),
    ("runtime", "loader_workers"),
)


def identity(pipeline: Pipeline) -> dict[str, Any]:
    """The part of the resolved configuration that determines the result, as plain data."""
    data = pipeline.model_dump(mode="json")
    for *parents, last in _NOT_IDENTITY:
        section = data
        for parent in parents:
            section = section[parent]
        del section[last]
    for entry in data["sites"]:  # what the sites hold is in the digests of their content
        del entry["config"], entry["root"]
    if data["collection"] is not None:
        del data["collection"]["root"]
    return data
