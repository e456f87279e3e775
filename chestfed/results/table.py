"""AUCs of one model at one place, as `result.json` holds them, and the figures that a paper printed."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.evaluation.estimates import Estimate, auc_estimates
from chestfed.evaluation.intervals import DEFAULT
from chestfed.evaluation.intervals.methods import Intervals, MethodName
from chestfed.evaluation.labeled import Scored

if TYPE_CHECKING:
    from chestfed.results.run_folder import RunFolder

#: Of intervals, unless another number is asked for.
RESAMPLES: Final = 2000
_PAPER_TABLES = {"densenet121": "table4_chexpert_densenet121.csv", "densenet161": "table5_chexpert_densenet161.csv"}


@dataclass(frozen=True)
class Row:
    """The AUC of each disease, and at last their mean, with 95% intervals.

    `interval` and `resamples` are the method of the intervals. `scores_stay`: the scores stayed at a hospital, so that
    there are no predictions beside the result.
    """

    k: int
    clients: tuple[str, ...]
    aucs: tuple[Estimate, ...]
    interval: MethodName = DEFAULT
    scores_stay: bool = False
    resamples: int = RESAMPLES

    @classmethod
    def from_scores(
        cls, k: int, clients: Sequence[str], scored: Scored, resamples: int, interval: MethodName = DEFAULT
    ) -> Row:
        """The result of scores; the same scores always get the same intervals."""
        return cls(k, tuple(clients), auc_estimates(scored, Intervals(interval, resamples)), interval, False, resamples)

    @property
    def diseases(self) -> tuple[Estimate, ...]:
        """All but the mean."""
        return self.aucs[:-1]

    @property
    def mean(self) -> Estimate:
        """Over the diseases that have an AUC."""
        return self.aucs[-1]

    def with_intervals(self, how: Intervals, scored: Scored | None, place: object) -> Row:
        """The row with intervals by this method, computed from the scores if it has others."""
        if self.interval == how.method:
            return self
        if scored is None:
            raise ConfigError(
                f"{place}: the scores stayed at the hospital, which computed intervals by {self.interval}; for others "
                "set evaluation.interval in the pipeline and run it again",
                kind="no scores here",
            )
        return Row.from_scores(self.k, self.clients, scored, how.resamples, how.method)

    def with_reasons(self, reasons: Mapping[str, str]) -> Row:
        """The row with these reasons of diseases without an AUC."""
        aucs = (
            replace(auc, reason=reasons.get(auc.disease, auc.reason)) if auc.value is None else auc for auc in self.aucs
        )
        return replace(self, aucs=tuple(aucs))

    def to_plain(self) -> Any:
        """The content of `result.json`."""
        return _ROW.dump_python(self, mode="json")

    @classmethod
    def from_plain(cls, plain: Any) -> Row:
        """The row that `to_plain` wrote; raises `ValueError` if it is not one."""
        return _ROW.validate_python(plain, strict=False)


_ROW: Final = TypeAdapter(Row)


@cache
def read_paper_table(model: str) -> tuple[dict[str, float], ...]:
    """The source paper's Table 4 (DenseNet121) or 5 (DenseNet161): AUC on the real CheXpert validation set.

    One row per K with `sources`, each disease, and `mean`. Empty for another network.
    """
    if model not in _PAPER_TABLES:
        return ()
    with resources.files("chestfed.results").joinpath("paper", _PAPER_TABLES[model]).open() as file:
        return tuple(
            {"mean" if name == "average" else name: float(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        )


def find_paper(run: RunFolder, row: Row, label: str, *, is_largest: bool) -> Mapping[str, float]:
    """The AUCs that a paper printed for this model, by disease and `mean`."""
    published, settings = run.configuration.get("published"), run.settings
    keys = [label, *([f"{settings.algorithm}, I={settings.window}", settings.algorithm] if is_largest else [])]
    printed: dict[str, float] = (
        next((published["auc"][key] for key in keys if key in published["auc"]), {}) if published else {}
    )
    if not printed and _is_paper_table(run, row):
        return next((theirs for theirs in _read_paper(run) if theirs["sources"] == row.k), {})
    return printed | ({row.diseases[0].disease: printed["mean"]} if len(row.diseases) == 1 and printed else {})


def _read_paper(run: RunFolder) -> Sequence[Mapping[str, float]]:
    return read_paper_table(str(run.configuration.get("model", {}).get("name")))


def _is_paper_table(run: RunFolder, row: Row) -> bool:
    real = run.origin is Origin.REAL and not run.configuration.get("held_out")
    return real and row.clients[0] == "chexpert" and bool(_read_paper(run))


def name_paper(run: RunFolder, row: Row) -> str:
    """The source of the paper's figures; empty without."""
    if published := run.configuration.get("published"):
        note = published.get("note")
        return published["source"] + (f"; {note}" if note else "")
    table = "the source paper's Table 4 or 5, on the real CheXpert validation set"
    return table if _is_paper_table(run, row) else ""
