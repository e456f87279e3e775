"""A finished study, read from its run folder: `chestfed.Study`, for notebooks and scripts.

    study = chestfed.Study.load("runs/synthetic-source_addition_samples-0123456789ab")
    study.table()
    study.plot_roc("edema")

Numbers are those that the study stored; nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from chestfed.core.diseases import title_of
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.evaluation.estimates import Estimate
from chestfed.evaluation.intervals import DEFAULT, MethodName
from chestfed.report import figures
from chestfed.report.figures import Curve
from chestfed.report.run_figures import auc_lines, curves
from chestfed.results import hospital_table
from chestfed.results.batch_norm import describe_statistics
from chestfed.results.chance import describe_chance, list_results
from chestfed.results.predictions import read_run
from chestfed.results.run_folder import RunFolder
from chestfed.results.significance import compare_with_first, frame, stored, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Study:
    """What a study left in its run folder.

    Attributes
    ----------
    folder
        The run folder.
    title
        As in its tables.
    origin
        Whether the hospitals are real, synthetic or mixed.
    configuration
        The resolved pipeline, as plain data.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run, self.folder, self.title, self.origin = run, run.path, run.title, run.origin
        self.configuration: dict[str, Any] = run.configuration

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Open a run folder, or the only one inside a folder of them, such as `runs`.

        Raises
        ------
        ConfigError
            If it is not one, or holds several: then they are named.
        """
        return cls(RunFolder.open(path))

    def __repr__(self) -> str:
        """Title, what is finished, and whether it is synthetic."""
        finished = ", ".join(f"K={k}" for k in self.ks) or "nothing finished"
        return f"<Study {f'{self.origin.tag} '.lstrip()}{self.title!r}: {finished}>"

    @property
    def ks(self) -> tuple[int, ...]:
        """The finished K, rising."""
        return self._run.ks

    @property
    def diseases(self) -> tuple[str, ...]:
        """In the order of the table."""
        return self._run.diseases

    def table(self, *, wide: bool = False) -> pd.DataFrame:
        """AUC, interval, n+ and n- per K and disease (and the mean): one row each, columns as in `table.csv`.

        With `wide` the AUCs alone: one row per K, one column per disease and `mean`. `attrs["scored"]` says with which
        batch-norm statistics.
        """
        table = self._run.frame()
        if wide:
            shown = table.pivot(index="k", columns="disease", values="auc")[[*self.diseases, "mean"]]
            table = shown.rename_axis(index="K", columns=None)
        table.attrs["scored"] = describe_statistics(self._run.statistics)
        return table

    def auc(self, k: int, disease: str = "mean") -> float | None:
        """AUC of one K and disease, or the mean; None if it is not defined.

        Raises
        ------
        ConfigError
            If that K is not finished, or there is no such disease.
        """
        return self._estimate(k, disease).value

    def interval(self, k: int, disease: str = "mean") -> tuple[float, float] | None:
        """The ends of the 95% interval of `auc`, about the choice of test patients; None if there is none."""
        return self._estimate(k, disease).interval

    def predictions(self, k: int | None = None) -> pd.DataFrame:
        """One row per test image: keyed names of image and patient, and score and label of each disease.

        Of the largest finished K, unless another is named.
        """
        return self._run.predictions(k).copy()

    def rounds(self, k: int | None = None) -> pd.DataFrame:
        """One row per round: loss, bytes, `seconds`, `auc_<disease>`; NaN in rounds without evaluation.

        Of the largest finished K, unless another is named.
        """
        rows = []
        for entry in self._run.rounds(k):
            rows.append({**entry, **{f"auc_{name}": value for name, value in entry.pop("auc", {}).items()}})
        found = pd.DataFrame(rows)
        return found.assign(seconds=found["seconds"].astype(float))

    def significance(self) -> pd.DataFrame:
        """The other K against the smallest, per disease and in the mean: columns as in `significance.csv`."""
        found = stored(self._run)
        if found is None:
            raise ChestfedError(
                f"{self.folder}: no significance.json: the study is not finished (run `chestfed study` again to "
                "resume), or has only one K"
            )
        return frame(found)

    @property
    def summary(self) -> str:
        """The largest K minus the smallest in a sentence, and whether a model is worse than chance where it trained."""
        compared, table = stored(self._run), self._run.table()
        results = [] if self.configuration.get("held_out") else list_results(table, hospital_table.read(self.folder))
        return " ".join(filter(None, ("" if compared is None else verdict(compared), describe_chance(results))))

    def hospitals(self) -> pd.DataFrame:
        """Every K at every hospital on its own held-out patients: columns as in `hospitals.csv`, `attrs` as of `table`.

        Raises
        ------
        ChestfedError
            If only the target was scored, or the study is not finished.
        """
        found = hospital_table.read(self.folder)
        if found is None:
            raise ChestfedError(
                f"{self.folder}: no hospital_table.json: the study is not finished, has one hospital, or was run with "
                "evaluation.hospitals: none"
            )
        table = hospital_table.frame(found)
        table.attrs["scored"] = describe_statistics(found.statistics)
        return table

    def alternatives(self) -> pd.DataFrame:
        """What each hospital could do instead of using the largest K: columns as in `alternatives.csv`.

        Raises
        ------
        ChestfedError
            If the pipeline has no `alternatives`, or the study is not finished.
        """
        table = hospital_table.read(self.folder, hospital_table.ALTERNATIVE_TABLE)
        if table is None:
            raise ChestfedError(f"{self.folder}: no alternatives were trained: set `alternatives` in the pipeline")
        return hospital_table.frame(table)

    def compare(
        self, other: Study, k: int | None = None, resamples: int = 2000, interval: MethodName = DEFAULT
    ) -> pd.DataFrame:
        """Another study minus this one on the same test images, paired, each at its largest K or at `k`.

        Columns as in `significance.csv`; what `chestfed compare` prints.

        Raises
        ------
        ConfigError
            If the test images or their labels differ, or K is not finished.
        """
        runs = [read_run(self.folder, k), read_run(other.folder, k)]
        return frame(compare_with_first(runs, resamples, interval))

    def plot_auc(self, disease: str = "mean", ax: Axes | None = None) -> Axes:
        """AUC against K, with the 95% intervals: of one disease, or the mean."""
        table = self.table()
        rows = table[table["disease"] == disease]
        if rows.empty:
            self._known(disease)
        ax = ax or figures.new_axes()
        figures.auc_by_k(ax, rows, disease, **figures.line_style(0, marked=True))
        title = "mean over the diseases" if disease == "mean" else f"{title_of(disease)}, {_counts(rows.iloc[0])}"
        return self._titled(ax, title)

    def plot_roc(self, disease: str, k: int | None = None, ax: Axes | None = None) -> Axes:
        """ROC curves of one disease on the test images, for one K or for all, with AUC, n+ and n-.

        Raises
        ------
        ConfigError
            If there is no such disease or K, or its test images are of one class.
        """
        return self._plot_curves(figures.roc, disease, k, ax)

    def plot_precision_recall(self, disease: str, k: int | None = None, ax: Axes | None = None) -> Axes:
        """Precision-recall curves, with the average precision; otherwise as `plot_roc`."""
        return self._plot_curves(figures.precision_recall, disease, k, ax)

    def plot_calibration(self, disease: str, k: int | None = None, bins: int = 8, ax: Axes | None = None) -> Axes:
        """Reliability curves in bins of equally many images; otherwise as `plot_roc`."""
        return self._plot_curves(lambda axes, found: figures.calibration(axes, found, bins), disease, k, ax)

    def plot_differences(self, k: int | None = None, ax: Axes | None = None) -> Axes:
        """The differences of `significance()` at one K (the largest, unless named), with their 95% intervals.

        Raises
        ------
        ConfigError
            If that K was not compared.
        """
        found = self.significance()
        k = self._run.row(k).k
        rows = found[found["model"] == f"K={k}"]
        if rows.empty:
            known = ", ".join(found["model"].unique())
            raise ConfigError(f"{self.folder}: K={k} is not in significance.json; there are {known}")
        ax = ax or figures.new_axes((5.5, 0.4 * len(rows) + 1.2))
        names = [
            "mean" if row["disease"] == "mean" else f"{title_of(row['disease'])}, {_counts(row)}"
            for row in rows.to_dict("records")
        ]
        figures.forest(ax, rows.assign(name=names, place=self.ks.index(k)), "difference of the AUC, 95% interval")
        return self._titled(ax, f"K={k} minus {rows['reference'].iloc[0]}")

    def plot_rounds(self, disease: str | None = None, ax: Axes | None = None) -> Axes:
        """AUC on the test images against communication rounds, per K: the mean, or one disease's."""
        if disease is not None:
            self._known(disease)
        ax = ax or figures.new_axes()
        ylabel = "mean AUC" if disease is None else f"AUC, {title_of(disease)}"
        figures.rounds(ax, auc_lines(self._run, disease or "mean"), ylabel)
        return self._titled(ax, self.title)

    def _plot_curves(
        self, draw: Callable[[Axes, list[Curve]], object], disease: str, k: int | None, ax: Axes | None
    ) -> Axes:
        self._known(disease)
        found = curves(self._run, disease, None if k is None else [k])
        if not found:
            one = self._estimate(k, disease)
            raise ConfigError(f"{disease}: {one.positives}+ / {one.negatives}- images: there is no curve")
        ax = ax or figures.new_axes()
        draw(ax, found)
        column = found[0].column
        return self._titled(ax, f"{title_of(disease)}, {column.positives}+ / {column.negatives}-")

    def _known(self, disease: str) -> None:
        if disease not in self.diseases:
            raise ConfigError(f"no disease '{disease}' in this study; there are {', '.join(self.diseases)}")

    def _estimate(self, k: int | None, disease: str) -> Estimate:
        if disease != "mean":
            self._known(disease)
        return next(one for one in self._run.row(k).aucs if one.disease == disease)

    def _titled(self, ax: Axes, title: str) -> Axes:
        mark = f"{self.origin.tag} hospitals\n" if self.origin.any_synthetic else ""
        ax.set_title(f"{mark}{title}, {self._run.settings.protocol}", parse_math=False)
        return ax


def _counts(row: Any) -> str:
    """n+ and n- of a row of a table, by `positives` and `negatives`."""
    return f"{row['positives']:.0f}+ / {row['negatives']:.0f}-"
