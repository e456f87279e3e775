"""Schema of `alternatives`: what a hospital could do instead of using the common model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from chestfed.core.config import AddedLater, StrictModel
from chestfed.core.errors import ConfigError
from chestfed.results.evaluation.joining.gate import CAUTION
from chestfed.studies.experiment.stage_2 import Federated, complete_entry

if TYPE_CHECKING:
    from chestfed.studies.experiment.pipeline import Pretrain


class FineTuning(StrictModel):
    """The common model trained on at a hospital, with the study's algorithm and this hospital as its only client.

    Passes and step size are those with the best mean AUC on the hospital's validation patients, of which the common
    model without further training is one candidate.
    """

    epochs: list[float] = Field(
        [1, 2, 5, 10], min_length=1, description="passes over the hospital's training images after which it is scored"
    )
    lr_factors: list[float] = Field(
        [1.0, 0.3, 0.1], min_length=1, description="step sizes, relative to federated.local_lr"
    )

    @field_validator("epochs", "lr_factors")
    @classmethod
    def _are_positive(cls, values: list[float]) -> list[float]:
        if min(values) <= 0 or len(set(values)) < len(values):
            raise ValueError("positive numbers, each once")
        return values


class Gate(StrictModel):
    """Which model a hospital uses, chosen on its validation patients (`chestfed.results.evaluation.joining.gate`).

    It keeps the model of its own data, unless the best there of the common model, the fine-tuned one, and mixtures of
    its own with either is better by more than `caution` standard errors of the difference. No other is tested.
    """

    caution: float = Field(
        CAUTION,
        ge=0,
        description="standard errors by which the best of the other models on the validation patients must be better "
        "than own data; if it is not, own data are kept, whatever the next best; 0: whatever looks best",
    )
    worst: Annotated[float | None, AddedLater()] = Field(
        None,
        gt=0,
        lt=1,
        description="instead of a caution: the AUC that hospitals with such validation patients may lose in the worst "
        "5%, by simulation; the smallest caution with that bound is taken, of 0, 0.5, 1, 1.5, 2, 2.5 and 3",
    )

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        if self.worst is not None and "caution" in self.model_fields_set:
            raise ValueError("alternatives.gate: worst chooses the caution; remove one of them")
        return self


class Alternatives(StrictModel):
    """Trained and scored for every hospital with both classes of a disease, beside the model of the largest K."""

    own_data: bool = Field(True, description="both stages on the hospital's own images alone")
    own_data_settings: dict[str, dict[str, float]] = Field(
        {},
        description="site -> settings with which its own data are trained on in place of the method's, as "
        "`chestfed tune --k all` finds them: `{nih: {local_lr: 0.02}}`",
    )
    own_data_steps: Annotated[Literal["epochs", "study"], AddedLater()] = Field(
        "epochs",
        description="stage 1 of the model of own data. epochs: pretrain.epochs passes over the hospital's images; "
        "study: as many steps as stage 1 of the study takes at the target, whatever the number of images, so that the "
        "model has as many local steps as the hospital has in the federation after the target's stage 1",
    )
    hospitals: Annotated[list[str] | None, AddedLater()] = Field(
        None, min_length=1, description="the sites that have alternatives, by name; null: all"
    )
    fine_tuned: FineTuning | None = Field(
        FineTuning(), description="the common model trained on at the hospital; needs validation_fraction at its site"
    )
    centralized: dict[str, Any] | None = Field(
        {"algorithm": "centralized_auc"},
        description="all images in one place: an algorithm that pools them, and keys of the method that differ",
    )
    gate: Gate | None = Field(
        None,
        description="own data, common model, fine-tuned or a mixture, whichever the hospital's validation patients "
        "show to be better, beside own data trained with these patients too; needs own_data and validation_fraction; "
        "{}: with the default caution; null: no gate",
    )

    @property
    def needs_validation(self) -> bool:
        """Whether something is chosen on validation patients."""
        return self.fine_tuned is not None or self.gate is not None

    def includes(self, name: str) -> bool:
        """Whether a hospital has alternatives."""
        return self.hospitals is None or name in self.hospitals

    def refuse_unknown(self, sites: Sequence[str]) -> None:
        """Raise `ConfigError` if a hospital is none of these sites."""
        if unknown := [name for name in self.hospitals or () if name not in sites]:
            text = f"alternatives.hospitals: no site is called {', '.join(unknown)}; sites: {', '.join(sites)}"
            raise ConfigError(text, kind="unknown site", key="alternatives.hospitals")

    def limit_pretraining(self, pretrain: Pretrain, rows: int, target_rows: int) -> Pretrain:
        """Stage 1 of a hospital's own data: it has `rows` training rows, and the study's target `target_rows`."""
        if self.own_data_steps == "epochs":
            return pretrain
        steps = pretrain.steps(target_rows)
        epochs = max(0.0, steps - 0.5) * pretrain.batch_size / rows  # half a step less: rounded up, it is `steps`
        return pretrain.model_copy(update={"epochs": epochs})

    @model_validator(mode="after")
    def _gate_has_own_model(self) -> Self:
        if self.gate is not None and not self.own_data:
            raise ValueError("alternatives.gate keeps the model of a hospital's own data: set own_data: true")
        return self


def centralized_settings(federated: Federated, changes: dict[str, Any]) -> Federated:
    """Stage 2 of the centralized model: the method with these keys in place of its own.

    Raises `ValueError` if a key is unknown, the keys do not go together, or the algorithm does not pool the images.
    """
    keys = federated.model_fields_set & (Federated.model_fields.keys() - {"algorithm", "objective", "by_k"})
    written = {key: getattr(federated, key) for key in keys}
    settings = Federated.model_validate(complete_entry(written, changes))
    settings.check()
    if not settings.spec.pooled:
        raise ValueError(f"alternatives.centralized: {settings.spec.name} does not pool images; take centralized_auc")
    return settings
