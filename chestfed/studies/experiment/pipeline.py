"""The schema of an experiment: what all methods share, and a study of one method.

Paths of site configurations and of graphs are relative to the pipeline's file; `data_root` is relative to the folder
that the command runs in.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, field_validator, model_validator

from chestfed.core.config import AddedLater, StrictModel
from chestfed.core.diseases import DISEASES, DiseaseName
from chestfed.core.errors import UnknownNameError, nearest
from chestfed.core.plugins import Choice
from chestfed.core.randomness import MOST_SEED, stream_seed
from chestfed.data.images.augment import Augment
from chestfed.data.images.preprocess import Preprocess
from chestfed.data.sites.config import Titles
from chestfed.learning.engines.declaration import ENGINES, EngineOptions
from chestfed.learning.models import MODELS, FeatureOptions, ModelOptions, network_options
from chestfed.results.evaluation.intervals import DEFAULT, MethodName
from chestfed.results.evaluation.protocols import ImageProtocol, OverHospitals
from chestfed.studies.experiment.alternatives import Alternatives, centralized_settings
from chestfed.studies.experiment.data import MOST_CLIENTS, CollectionEntry, HeldOut, Overlap, SampleHospitals, SiteEntry
from chestfed.studies.experiment.ranges import check_values
from chestfed.studies.experiment.stage_2 import Federated

#: The largest number of a split.
MOST_SPLITS: Final = 999


class Published(StrictModel):
    """The paper's figures, shown beside ours."""

    source: str = Field(description="paper and table")
    note: str | None = Field(None, description="how the paper's figures differ from ours; shown below the table")
    auc: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="run (an algorithm, or `algorithm, I=window`) -> disease or `mean` -> AUC"
    )
    largest_window: dict[str, int] = Field(
        default_factory=dict, description="algorithm -> the largest window that costs no AUC, according to the paper"
    )
    tolerance: float = Field(
        0.005,
        gt=0,
        description="a window costs AUC if its mean AUC is lower than that of the smallest window by more than this",
    )


class Pretrain(StrictModel):
    """Stage 1: cross-entropy on the target's (the first client's) training images, with Adam."""

    epochs: float = Field(2.0, ge=0, le=100_000, description="passes over the target's training images; 0: no stage 1")
    batch_size: int = Field(32, ge=1, le=65_536, description="images per step")
    lr: float = Field(1e-5, gt=0, description="Adam's step size (learning rate)")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="cosine: linear warm-up over a tenth of the steps, then cosine decay to 0"
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

    split: Literal["valid", "test"] = Field("valid", description="split of the target site to score")
    protocol: ImageProtocol = Field(
        "frontal-image", description="score frontal images, or all views that the site keeps"
    )
    hospitals: Literal["own_test", "none"] = Field(
        "own_test",
        description="own_test: every K is also scored at each hospital that takes part, on patients of its own: those "
        "of its test_fraction, else of its test split, else of its valid split; none: at the target only",
    )
    over_hospitals: OverHospitals = Field(
        "mean",
        description="the AUC of a test set with images of several hospitals, which several sites with test_fraction "
        "make. mean: the mean of the hospitals' own AUCs, each over pairs of images of one hospital; pooled: one AUC "
        "over all pairs of images, also of two hospitals, which rewards a network that recognizes the hospital",
    )
    batch_norm: Literal["own", "averaged"] = Field(
        "own",
        description="running statistics of batch normalization with which a hospital is scored. own: taken from its "
        "own training images (up to 1,024, without augmentation) with the weights that are scored; averaged: the mean "
        "over the clients, as the server keeps it, which also scores collections and hospitals that do not train",
    )
    every: int = Field(
        1,
        ge=1,
        description="rounds between two evaluations; the last round is always evaluated. npa counts windows of "
        "steps, so that all algorithms of a comparison are evaluated equally often",
    )
    every_steps: int | None = Field(
        None,
        ge=1,
        description="local steps of a client between two evaluations, instead of `every`, so that all windows of "
        "a comparison are evaluated equally often; evaluated after the round in which they are "
        "reached",
    )
    compare_outputs: bool = Field(
        True,
        description="after the last round, score both its point and the average over the rounds of the last stage, "
        "whichever of them `federated.stage_output` returns",
    )
    batch_size: int = Field(
        64, ge=1, le=65_536, description="images per forward pass; may change the last bits of scores"
    )
    resamples: int = Field(2000, ge=0, le=1_000_000, description="bootstrap resamples for the 95% intervals; 0: none")
    interval: MethodName = Field(DEFAULT, description="method of intervals and p values: docs/evaluation.md")


_DEVICE: Final = r"^(auto|cpu|cuda(:\d{1,3})?)$"


def _check_device(device: str) -> str:
    if not re.match(_DEVICE, device):
        gpu = "cuda" if device.casefold() in ("gpu", "nvidia") else nearest(device.casefold(), ("auto", "cpu", "cuda"))
        hint = f"; did you mean '{gpu}'?" if gpu else ""
        raise UnknownNameError(f"no device '{device}': give auto, cpu, cuda or cuda:1{hint}", gpu)
    return device


class Runtime(StrictModel):
    """Where it runs. `loader_workers` and `recompute` never change a result; the others may change its last bits."""

    device: Annotated[str, AfterValidator(_check_device)] = Field(
        "auto",
        json_schema_extra={"pattern": _DEVICE},
        description="auto: CUDA if there is one, else the CPU; or cpu, cuda, cuda:1",
    )
    threads: int | None = Field(
        None, ge=1, le=4096, description="CPU threads of torch; null: all cores that the process may use"
    )
    bf16: bool = Field(False, description="run the network in bfloat16 (autocast)")
    dtype: Annotated[Literal["float32", "float64"], AddedLater()] = Field(
        "float32",
        description="numbers of network, gradients and messages; float64, on a CPU in one process or on ranks: to "
        "compare a method with a plain loop to the last digits",
    )
    batch_parts: Annotated[int, AddedLater()] = Field(
        1,
        ge=1,
        le=1024,
        description="parts of a batch through which the network goes one by one, in stage 1 and at the clients; "
        "processes of torchrun share them, if there are more than clients. Their number changes the last bits, that of "
        "the processes none. For objectives of logits alone; with batch normalization see sync_batch_norm",
    )
    sync_batch_norm: Annotated[bool, AddedLater()] = Field(
        False,
        description="with batch_parts: batch normalization over the whole batch, for which its processes, at most one "
        "for each part, go through the network at the same time. One process computes the batch undivided; the number "
        "of processes changes the last bits, and what dropout draws, and is part of a run's identity",
    )
    channels_last: bool = Field(
        True, description="memory format from the first convolution on; faster on CPUs and on GPUs"
    )
    compile: bool = Field(
        False,
        description="train the network as torch.compile makes it: faster steps for minutes of compiling at the start "
        "of each stage and K; needs a C++ compiler, on a GPU Triton",
    )
    recompute: bool = Field(
        False,
        description="activation checkpointing: parts of the network compute their activations again for the gradient "
        "instead of keeping them, which saves memory and costs time; for the DenseNets, ResNet20 and networks that say "
        "which parts",
    )
    loader_workers: int | None = Field(
        None,
        ge=0,
        le=1024,
        description="threads that read and augment images ahead of training; 0: none; null: one per core that "
        "`threads` leaves, or per core beyond two, at most 8 (beside a network on both of two cores they would only "
        "slow it down)",
    )

    @property
    def passes(self) -> int:
        """Passes through the network for a batch in one process."""
        return 1 if self.sync_batch_norm else self.batch_parts

    @model_validator(mode="after")
    def _float64_is_of_cpus(self) -> Self:
        if self.dtype == "float64" and (self.bf16 or self.device.startswith("cuda")):
            raise ValueError("dtype: float64 is for CPUs, without bf16; set device: cpu and bf16: false")
        return self


def _or_null(schema: dict[str, Any]) -> None:
    """Let null be written for the default, the empty list, which may not."""
    schema["anyOf"] = [{key: schema.pop(key) for key in ("type", "items")}, {"type": "null"}]


class Conditions(StrictModel):
    """Common settings of all methods of an experiment: data, network, stage 1, evaluation and machine."""

    short_forms: ClassVar[Mapping[str, str]] = dict.fromkeys(("algorithm", "objective", "model", "engine"), "name")

    title: str = Field(description="heading of tables and reports")
    data_root: str | None = Field(None, description="folder that contains the sites' folders; null: $CHESTFED_DATA")
    samples: SampleHospitals | None = Field(None, description="write synthetic hospitals to data_root first")
    sites: list[SiteEntry] = Field([], description="the sites in the order of addition; the first is the target")
    collection: CollectionEntry | None = Field(None, description="a public image collection instead of sites")
    diseases: list[DiseaseName] = Field(
        list(DISEASES),
        min_length=1,
        description="the binary tasks, any names that the sites use. The target must label all of them; at other "
        "sites an unlabeled disease is missing",
    )
    titles: Titles = Field({}, description="disease -> its name in tables, for diseases without a known title")
    k: list[int] = Field(
        [],
        description="numbers of clients to train with; null: every number from 1 to all clients, for a collection "
        "or with held_out only all clients",
        json_schema_extra=_or_null,
    )
    model: Annotated[ModelOptions, Choice(MODELS)] = Field(
        network_options("small"),
        description="the network: a name, or a mapping of `name` and the network's own options",
    )
    preprocess: Preprocess = Preprocess()
    augment: Augment = Augment()
    pretrain: Pretrain = Pretrain()
    held_out: HeldOut | None = Field(
        None, description="hold each site out in turn; `k` is then the number of clients of all other sites"
    )
    alternatives: Alternatives | None = Field(
        None,
        description="what each hospital could do instead of using the common model of the largest K: its own data "
        "alone, the common model fine-tuned, centralized training; null: not trained",
    )
    overlap: Overlap = Overlap()
    published: Published | None = Field(None, description="the paper's figures, shown beside ours")
    evaluation: Evaluation = Evaluation()
    runtime: Runtime = Runtime()
    engine: Annotated[EngineOptions | None, Choice(ENGINES, optional=True)] = Field(
        None,
        description="where the clients run: a name, or a mapping of `name` and the engine's options; null: torchrun if "
        "it started this process, else in-process. It does not change the result",
    )
    seed: int = Field(1, ge=0, le=MOST_SEED, description="seed of everything except the samples")
    split: Annotated[int, AddedLater()] = Field(
        0,
        ge=0,
        le=MOST_SPLITS,
        description="number of the split: which patients of sites with test_fraction or validation_fraction are "
        "tested, validate and train; the first floor(1 / test_fraction) splits test no patient twice",
    )

    quick: Annotated[bool, AddedLater()] = Field(
        False,
        description="a study of minutes, as `--quick`: small images and network (frozen features stay), at most 400 "
        "training images a client and 1000 scored images a site, few steps, which many methods share, the ends of k "
        "and windows, one seed unless the file gives `seeds` too; it says so wherever it is shown",
    )

    @field_validator("diseases")
    @classmethod
    def _names_each_disease_once(cls, value: list[str]) -> list[str]:
        if len(set(value)) < len(value):
            raise ValueError("names a disease twice")
        return value

    @model_validator(mode="before")
    @classmethod
    def _every_k(cls, data: Any) -> Any:
        """Fill in a missing `k`, so that the resolved configuration contains it."""
        if not isinstance(data, dict) or data.get("k") not in (None, []):
            return data
        if data.get("k") == []:
            raise ValueError("k is empty: name at least one number of clients, or remove it (k: null) for every number")
        data, total = {key: value for key, value in data.items() if key != "k"}, count_all_clients(data)
        only_all = data.get("collection") is not None or data.get("held_out") is not None
        return {**data, "k": [total] if only_all else list(range(1, total + 1))} if total else data

    @model_validator(mode="after")
    def _clients_suffice(self) -> Self:
        if bool(self.sites) == (self.collection is not None):
            raise ValueError("needs either 'sites' or 'collection'")
        available = sum(entry.clients for entry in self.sites)
        if self.collection is not None:
            available = self.collection.clients
        if self.held_out is not None:
            self._can_hold_out(available)
        if self.sites and self.sites[0].control is not None and self.sites[0].clients == 1:
            raise ValueError("control: the first client is the target; only added ones can be negative controls")
        if not all(1 <= k <= available for k in self.k) or self.k != sorted(set(self.k)):
            raise ValueError(
                f"k must be increasing numbers from 1 to {available}, the number of clients; found {self.k}"
            )
        if self.sites and self.sites[0].test_fraction is None and any(entry.test_fraction for entry in self.sites):
            raise ValueError("a site has test_fraction: give the first site, the target, one too")
        if self.sites and self.sites[0].test_fraction is not None and self.evaluation.split != "test":
            raise ValueError(
                "with test_fraction the held-out patients are the 'test' split: set evaluation.split: test"
            )
        return self

    @model_validator(mode="after")
    def _split_changes_patients(self) -> Self:
        if self.split:
            self.check_splits("split")
        return self

    def check_splits(self, key: str) -> None:
        """Raise `ValueError` if patients have the same places in every split."""
        if self.collection is not None:
            raise ValueError(f"{key}: the images of a collection have one split; remove it, or name sites")
        if self.held_out is not None:
            raise ValueError(f"{key}: with held_out the images of whole sites are tested; remove it")
        if all(entry.test_fraction is None and entry.validation_fraction is None for entry in self.sites):
            raise ValueError(
                f"{key}: no patient would change place: give a site a test_fraction or validation_fraction"
            )

    @model_validator(mode="after")
    def _alternatives_are_possible(self) -> Self:
        alternatives = self.alternatives
        if alternatives is None:
            return self
        if not self.sites or self.held_out is not None or self.evaluation.hospitals == "none":
            raise ValueError("alternatives: needs sites that are scored on patients of their own, and no held_out")
        if alternatives.needs_validation and any(entry.validation_fraction is None for entry in self.sites):
            raise ValueError(
                "alternatives.fine_tuned and alternatives.gate choose on validation patients: give every site a "
                "validation_fraction, or set both to null"
            )
        return self

    @model_validator(mode="after")
    def _model_suits(self) -> Self:
        self.check_model(self.model)
        return self

    def check_model(self, model: ModelOptions) -> None:
        """Raise `ValueError` if a network of frozen features does not go with the images."""
        if not isinstance(model, FeatureOptions):
            return
        if "augment" in self.model_fields_set and self.augment.enabled:
            raise ValueError("model features: features are those of unchanged images; set augment: {enabled: false}")
        if self.collection is not None:
            raise ValueError("model features: the images of a collection have no cache; name the network itself")

    def check_federated(self, settings: Federated) -> None:
        """Raise `ValueError` if the settings of a method do not go together, or not with the alternatives."""
        settings.check()
        alternatives = self.alternatives
        own = {} if alternatives is None else alternatives.own_data_settings
        for values in (*settings.by_k.values(), *own.values()):
            check_values(settings, values)
        if alternatives is not None and alternatives.centralized is not None:
            centralized_settings(settings, alternatives.centralized)

    def _can_hold_out(self, clients: int) -> None:
        if any(entry.partition is not None for entry in self.sites):
            raise ValueError("held_out: not with partition; remove one")
        if len(self.sites) < 2:
            raise ValueError("held_out needs at least two sites: one to train on, one to evaluate on")
        if self.k != [clients]:
            raise ValueError("with held_out all other sites train: remove k, or set k: null")

    @property
    def training_seed(self) -> int:
        """Seed of all that training draws: another one in every split, so that splits share no luck of training."""
        return find_training_seed(self.seed, self.split)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Outputs of the network, in their order: diseases, or a collection's tasks."""
        return tuple(self.diseases if self.collection is None else self.collection.tasks)


class TuningRecord(StrictModel):
    """How the settings of a method were found."""

    trials: int = Field(ge=1, description="settings that were tried")
    seeds: list[int] = Field(min_length=1, description="training seeds of each trial")
    grid: bool = Field(description="true: all points of a grid, or some drawn by the seed; false: a search in ranges")
    validation_auc: float = Field(description="mean AUC of the selected settings on the validation images")
    confirmed: list[int] = Field([], description="further training seeds that the best three settings were tried with")
    every_k: bool = Field(False, description="true: searched for every K by itself, and for hospitals alone")


#: A pipeline's file, or a study of one method.
AnyPipeline = TypeVar("AnyPipeline", bound=Conditions)


def find_training_seed(seed: int, split: int) -> int:
    """`Conditions.training_seed` of a study with this seed and split."""
    return stream_seed(seed, "split", split) if split else seed


class Pipeline(Conditions):
    """One study: the experiment with one method."""

    method: str = Field("codasca", description="name of the method in tables")
    tuning: TuningRecord | None = Field(None, description="how its settings were found; null: by hand")
    federated: Federated = Federated()

    @model_validator(mode="after")
    def _settings_suit(self) -> Self:
        self.check_federated(self.federated)
        return self

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


def count_all_clients(data: dict[str, Any]) -> int:
    """Clients of a pipeline that is not checked yet; 0 if unknown."""
    collection, sites = data.get("collection"), data.get("sites")
    if collection is not None:
        return count_clients(collection, CollectionEntry.model_fields["clients"].default)
    return sum(map(count_clients, sites)) if isinstance(sites, list) else 0


def count_clients(entry: object, otherwise: int = 1) -> int:
    """Clients of the entry of a site or collection, checked or not yet; `otherwise` if it does not say."""
    clients = entry.get("clients") if isinstance(entry, dict) else getattr(entry, "clients", None)
    return clients if isinstance(clients, int) and 0 < clients <= MOST_CLIENTS else otherwise
