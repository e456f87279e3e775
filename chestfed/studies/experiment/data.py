"""The schema of what an experiment reads: sites or a public collection, what is left out, and shared patients."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from chestfed.core.config import AddedLater, StrictModel
from chestfed.core.diseases import check_column

Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, lt=1)]
TaskName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$"), AfterValidator(check_column)]
#: Limit on the clients of one site or collection.
MOST_CLIENTS: Final = 10_000


class SampleHospitals(StrictModel):
    """Synthetic hospitals that the study writes into `data_root` if they are not there."""

    seed: int = Field(1, description="seed of patients and images")
    size: Literal["default", "full", "tiny"] = Field(
        "default",
        description="default: about 3,500 images; full: as many, with twice the rows and columns; tiny: 275, for tests",
    )


class Skew(StrictModel):
    """Clients that differ by a known amount; exactly one key."""

    dirichlet: float | None = Field(
        None,
        gt=0,
        description="label skew: each class is divided in the shares of a draw from Dirichlet(alpha); small: few "
        "classes per client, large: alike clients. Drawn again until every client has enough patients for its "
        "fractions (of a collection: both labels), so that clients of a small alpha differ less than those of all "
        "draws; a dry run says how many draws of a site were discarded",
    )
    shards: int | None = Field(
        None, ge=1, le=1000, description="label skew: every client gets so many even runs of either label, by class"
    )
    quantity: float | None = Field(
        None, gt=0, description="quantity skew: sizes are a draw from Dirichlet(alpha), prevalences are alike"
    )

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if sum(value is not None for _, value in self) != 1:
            keys = list(type(self).model_fields)
            choice = f"{', '.join(keys[:-1])} and {keys[-1]}"
            raise ValueError(f"partition: give one of {choice}, such as {{dirichlet: 0.3}}")
        return self


class SiteSkew(Skew):
    """Parts of a site that differ by a known amount, or by their patients' age; exactly one key."""

    ages: Annotated[list[Annotated[int, Field(gt=0, lt=130)]] | None, AddedLater()] = Field(
        None,
        min_length=1,
        description="patients by their age in years at the first image: [40, 60] makes three parts, below 40, from 40 "
        "to 59, and from 60; one more than `clients` says is refused",
    )

    @field_validator("ages")
    @classmethod
    def _rise(cls, ages: list[int] | None) -> list[int] | None:
        if ages is not None and any(later <= age for age, later in pairwise(ages)):
            raise ValueError("ages must rise, such as [40, 60]")
        return ages


class SiteEntry(StrictModel):
    """One site of the study, in the order of addition; the first is the target."""

    config: str = Field(description="the site's YAML, relative to this file, or the name of a site")
    root: str | None = Field(None, description="folder of the site's files; null: as in its YAML")
    clients: int = Field(1, ge=1, le=MOST_CLIENTS, description="divide the training patients among this many clients")
    cut: Literal["alike", "unlike"] = Field(
        "alike",
        description="alike: every client gets an equal share of the patients with each disease (IID); unlike: "
        "patients are sorted by their rarest disease and cut into equal runs, so that clients have "
        "different diseases (non-IID); patients without a disease are divided evenly",
    )
    test_fraction: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of the training patients to hold out as the test split, in place of the site's own, whose "
        "images are then not used; the test set has the images of all sites with this key, see "
        "evaluation.over_hospitals",
    )
    validation_fraction: float | None = Field(
        None, gt=0, lt=1, description="share of the remaining training patients to set aside; nothing trains on them"
    )
    training_images: int | None = Field(
        None,
        ge=1,
        description="train on at most so many images: those of whole patients, drawn by the study's seed, so that "
        "fewer images are a part of more. Of a target with several clients the first one does; null: all",
    )
    partition: Annotated[SiteSkew | None, AddedLater()] = Field(
        None,
        description="make each of the `clients` a hospital of its own, SITE-1, SITE-2, ..., which differs from the "
        "others by a known amount: `{dirichlet: 0.05}`, `{shards: 1}`, `{quantity: 0.5}` or `{ages: [40, 60]}`. "
        "Patients stay whole; "
        "a patient's class is the rarest of its diseases. Each has validation and test patients of its own: by the "
        "fractions here, else an even share of the site's valid and test split; null: see cut",
    )
    positives: Annotated[PositiveShare | dict[str, PositiveShare] | None, AddedLater()] = Field(
        None,
        description="share of positives among the training labels, reached by dropping whole patients, drawn by the "
        "study's seed: one number for every disease, or a mapping of some diseases to theirs, such as {edema: 0.01}. "
        "Before training_images; validation and test images stay as they are; null: as found",
    )
    control: Literal["labels_permuted", "noise"] | None = Field(
        None,
        description="make an added site, or all clients of the target but its first, a negative control, which must "
        "not help. labels_permuted: the labels of its training images are permuted between images, so that "
        "prevalences and co-occurrences stay the same; noise: its training images are uniform noise",
    )

    @field_validator("positives")
    @classmethod
    def _names_a_disease(cls, value: float | dict[str, float] | None) -> float | dict[str, float] | None:
        if value == {}:
            raise ValueError("name a disease, such as {edema: 0.01}, or give one number for all")
        return value

    @model_validator(mode="after")
    def _is_cut(self) -> Self:
        if self.partition is not None and (self.clients == 1 or self.cut != "alike" or self.control is not None):
            raise ValueError("partition: needs several clients, and goes with neither cut nor control")
        if (
            self.partition is not None
            and self.positives is not None
            and (self.partition.dirichlet or self.partition.shards)
        ):
            raise ValueError("positives: would make the label skew of partition even; remove one of them")
        if (
            self.partition is not None
            and self.partition.ages is not None
            and len(self.partition.ages) != self.clients - 1
        ):
            raise ValueError(f"partition: {self.clients} clients need {self.clients - 1} ages between them")
        if self.clients == 1 and self.cut != "alike":
            raise ValueError("cut: no effect on a site that is one client; set clients, or remove cut")
        return self


class CollectionEntry(StrictModel):
    """An image collection in place of hospitals; see `docs/collections.md`."""

    name: str = Field(
        pattern=r"^([a-z][a-z0-9_]*|[A-Za-z_][\w.]*:\w+)$",
        description="digits, or one of torchvision's (cifar10, cifar100, fashion_mnist, imagenet, mnist, stl10), or "
        "any name for a .npz file, or package.module:Name for a CollectionSpec of your own",
    )
    root: str | None = Field(
        None, description="folder or .npz file below the data root; null: NAME.npz if it exists, else NAME"
    )
    download: bool = Field(False, description="let torchvision download missing files")
    clients: int = Field(
        4, ge=1, le=MOST_CLIENTS, description="number of clients among which the training images are divided"
    )
    partition: Literal["classes", "sorted", "random", "client"] | Skew = Field(
        "classes",
        description="classes: no class is at two clients, the IH construction; sorted: equal runs of images "
        "sorted by class, for more clients than classes; random: IID (by patient, if there are "
        "patients); client: as the array `client` of the .npz file; a mapping: clients that differ by a known "
        "amount. All but classes and sorted leave the images of a patient together",
    )
    label_noise: Share | list[Share] = Field(
        0.0, description="share of the training labels of every client that is flipped, or one share per client"
    )
    feature_noise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Gaussian noise on the training images: client i of K gets the variance feature_noise * i / K, in "
        "the unit of gray values over 255",
    )
    positive: Literal["random", "first", "second"] = Field(
        "second", description="the half of the classes that is positive; random: drawn by the study's seed"
    )
    imratio: float | None = Field(
        0.1,
        gt=0,
        lt=1,
        description="share of positives among the training images, reached by dropping positives; null: none are "
        "dropped, as for a collection with labels of several tasks",
    )
    test_fraction: float = Field(
        0.2, gt=0, lt=1, description="share held out for the test if the collection has no test part"
    )
    tasks: list[TaskName] = Field(
        ["positive"], min_length=1, description="names of the tasks in tables, one per column of labels"
    )

    @field_validator("tasks")
    @classmethod
    def _names_tasks_once(cls, value: list[str]) -> list[str]:
        if len(set(value)) < len(value):
            raise ValueError(f"name each task once; found {', '.join(value)}")
        return value

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if isinstance(self.label_noise, list) and len(self.label_noise) != self.clients:
            raise ValueError(f"label_noise: {len(self.label_noise)} shares for {self.clients} clients")
        return self


class HeldOut(StrictModel):
    """Train on all sites but one and evaluate on that one, for each in turn: what a new hospital would get."""

    sites: list[str] | Literal["all"] = Field(
        "all", description="`site` names of the sites to hold out in turn; all: every site, added ones included"
    )
    images: Literal["all", "train", "valid", "test"] = Field(
        "all",
        description="split of the held-out site to score, with the views of `evaluation.protocol`; all: every "
        "split, because nothing was trained on the site",
    )

    @field_validator("sites")
    @classmethod
    def _names_each_once(cls, value: list[str] | str) -> list[str] | str:
        if not value or (len(set(value)) < len(value) and isinstance(value, list)):
            raise ValueError("must name each site once, or be 'all'")
        return value


class Overlap(StrictModel):
    """The same image, or patient, at two sites of the study."""

    found: Literal["refuse", "drop"] = Field(
        "refuse",
        description="refuse: stop before training and list what is shared; drop: leave out all images of such a "
        "patient at one of the sites (scored images are kept, otherwise those of the site listed "
        "first)",
    )
    same_patient_ids: list[list[str]] = Field(
        [],
        description="groups of sites (their `site` names) with common patient ids: the same id is the same "
        "patient there",
    )
