"""A finished study, read from its run folder: `chestfed.Study`, for notebooks and scripts.

    study = chestfed.Study.load("runs/synthetic-source_addition_samples-0123456789ab")
    study.table()
    study.plot_roc("edema")

Nothing is computed anew and nothing is written.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.diseases import TITLES
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.provenance import Origin
from chestfed.report import plots
from chestfed.results.significance import as_csv as differences_csv
from chestfed.results.significance import compare_with_first, folder_of_k, read_run
from chestfed.results.timing import SECONDS, read_round_times

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

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder = folder
        self.title: str = about["title"]
        self.origin = Origin.read(about) or Origin.REAL
        self.configuration: dict[str, Any] = about["configuration"]

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Open a run folder, or the only one inside a folder of them, such as `runs`.

        Raises
        ------
        ConfigError
            If it is none, or holds several: then it names them.
        """
        folder = Path(path)
        if not (folder / "study.json").is_file():
            inside = sorted(file.parent for file in folder.glob("*/study.json"))
            if len(inside) > 1:
                names = ", ".join(one.name for one in inside)
                raise ConfigError(f"{folder} holds {len(inside)} studies; open one of them: {names}")
            folder = inside[0] if inside else folder
        try:
            return cls(folder, json.loads((folder / "study.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError):
            raise ConfigError(
                f"{folder}: not the run folder of a study, which holds a study.json and is called "
                "runs/<pipeline>-<digest>"
            ) from None

    def __repr__(self) -> str:
        """Title, what is finished, and whether it is synthetic."""
        finished = ", ".join(f"K={k}" for k in self.ks) or "nothing finished"
        return f"<Study {f'{self.origin.tag} '.lstrip()}{self.title!r}: {finished}>"

    @property
    def ks(self) -> tuple[int, ...]:
        """The finished K, rising."""
        names = (file.parent.name[1:] for file in self.folder.glob("k*/result.json"))
        return tuple(sorted(int(name) for name in names if name.isdigit()))

    @property
    def diseases(self) -> tuple[str, ...]:
        """In the order of the table."""
        table = self.table()
        return tuple(name for name in table["disease"].unique() if name != "mean")

    def table(self, *, wide: bool = False) -> pd.DataFrame:
        """AUC, interval, n+ and n- per K and disease (and the mean): one row each, columns as in `table.csv`.

        With `wide` the AUCs alone: one row per K, one column per disease and `mean`.
        """
        table = self._csv("table.csv")
        if not wide:
            return table
        shown = table.pivot(index="k", columns="disease", values="auc")[[*self.diseases, "mean"]]
        return shown.rename_axis(index="K", columns=None)

    def auc(self, k: int, disease: str = "mean") -> float | None:
        """AUC of one K and disease, or the mean; None if it is not defined.

        Raises
        ------
        ConfigError
            If that K is not finished, or there is no such disease.
        """
        value = float(self._row(k, disease)["auc"])
        return None if np.isnan(value) else value

    def interval(self, k: int, disease: str = "mean") -> tuple[float, float] | None:
        """The ends of the 95% interval of `auc`, about the choice of test patients; None if there is none."""
        row = self._row(k, disease)
        return None if np.isnan(row["low"]) else (float(row["low"]), float(row["high"]))

    def predictions(self, k: int | None = None) -> pd.DataFrame:
        """One row per test image: keyed names of image and patient, and score and label of each disease.

        Of the largest finished K, unless another is named.
        """
        return read_run(self.folder, k).frames[0]

    def rounds(self, k: int | None = None) -> pd.DataFrame:
        """One row per round: loss, bytes, `seconds`, `auc_<disease>`; NaN in rounds without evaluation.

        Of the largest finished K, unless another is named.
        """
        file = folder_of_k(self.folder, k) / "rounds.jsonl"
        entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        rows = [
            {**entry, **{f"auc_{name}": value for name, value in entry.pop("auc", {}).items()}} for entry in entries
        ]
        seconds = read_round_times(file.parent / SECONDS)
        return pd.DataFrame(rows).assign(seconds=[seconds.get(row["round"], np.nan) for row in rows])

    def significance(self) -> pd.DataFrame:
        """The other K against the smallest, per disease and in the mean: columns as in `significance.csv`."""
        return self._csv("significance.csv")

    def compare(self, other: Study, k: int | None = None, resamples: int = 2000) -> pd.DataFrame:
        """Another study minus this one on the same test images, paired, each at its largest K or at `k`.

        Columns as in `significance.csv`; what `chestfed compare` prints.

        Raises
        ------
        ConfigError
            If the test images or their labels differ, or K is not finished.
        """
        found = compare_with_first([read_run(self.folder, k), read_run(other.folder, k)], resamples)
        return _with_whole_counts(pd.read_csv(io.StringIO(differences_csv(found))))

    def plot_auc(self, disease: str = "mean", ax: Axes | None = None) -> Axes:
        """AUC against K, with the 95% intervals: of one disease, or the mean."""
        table = self.table()
        rows = table[table["disease"] == disease]
        if rows.empty:
            self._known(disease)
        ax = ax or plots.new_axes()
        plots.auc_with_intervals(ax, rows)
        title = "mean over the diseases" if disease == "mean" else f"{_title(disease)}, {_counts(rows.iloc[0])}"
        ax.set_title(self._marked(f"{title}, {self._protocol}"))
        return ax

    def plot_roc(self, disease: str, k: int | None = None, ax: Axes | None = None) -> Axes:
        """ROC curves of one disease on the test images, for one K or for all, with AUC, n+ and n-.

        Raises
        ------
        ConfigError
            If there is no such disease or K, or its test images are of one class.
        """
        curves = [
            replace(c, label=f"{c.label}: {self.auc(number, disease):.3f}") for number, c in self._curves(disease, k)
        ]
        ax = ax or plots.new_axes()
        plots.roc(ax, curves)
        return self._titled(ax, disease, curves[0])

    def plot_precision_recall(self, disease: str, k: int | None = None, ax: Axes | None = None) -> Axes:
        """Precision-recall curves, with the average precision; otherwise as `plot_roc`."""
        curves = [curve for _, curve in self._curves(disease, k)]
        ax = ax or plots.new_axes()
        plots.precision_recall(ax, curves)
        return self._titled(ax, disease, curves[0])

    def plot_calibration(self, disease: str, k: int | None = None, bins: int = 8, ax: Axes | None = None) -> Axes:
        """Reliability curves in bins of equally many images; otherwise as `plot_roc`."""
        curves = [curve for _, curve in self._curves(disease, k)]
        ax = ax or plots.new_axes()
        plots.calibration(ax, curves, bins)
        return self._titled(ax, disease, curves[0])

    def plot_differences(self, k: int | None = None, ax: Axes | None = None) -> Axes:
        """The differences of `significance()` at one K (the largest, unless named), with their 95% intervals.

        Raises
        ------
        ConfigError
            If that K was not compared.
        """
        found = self.significance()
        k = self.ks[-1] if k is None else k
        rows = found[found["model"] == f"K={k}"]
        if rows.empty:
            raise ConfigError(
                f"{self.folder}: K={k} is not in significance.csv; there are {', '.join(found['model'].unique())}"
            )
        ax = ax or plots.new_axes((5.5, 0.4 * len(rows) + 1.2))
        names = [
            "mean" if row["disease"] == "mean" else f"{_title(row['disease'])}, {_counts(row)}"
            for row in rows.to_dict("records")
        ]
        plots.differences(ax, rows.assign(name=names))
        ax.set_title(self._marked(f"K={k} less {rows['reference'].iloc[0]}, {self._protocol}"))
        return ax

    def plot_rounds(self, disease: str | None = None, ax: Axes | None = None) -> Axes:
        """AUC on the test images against communication rounds, per K: the mean, or one disease's."""
        column = "mean_auc" if disease is None else f"auc_{disease}"
        lines = []
        for place, k in enumerate(self.ks):
            frame = self.rounds(k)
            if column not in frame:
                raise ConfigError(f"no AUC of '{disease}' in the rounds of K={k}")
            lines.append((place, f"K={k}", frame.dropna(subset=[column]), column))
        ax = ax or plots.new_axes()
        plots.rounds(ax, lines, "mean AUC" if disease is None else f"AUC, {_title(disease)}")
        ax.set_title(self._marked(f"{self.title}, {self._protocol}"))
        return ax

    def _curves(self, disease: str, k: int | None) -> list[tuple[int, plots.Curve]]:
        """K and curve, of one K or all."""
        self._known(disease)
        found = []
        for number in self.ks if k is None else (k,):
            frame = self.predictions(number).dropna(subset=[f"label_{disease}"])
            positive = frame[f"label_{disease}"].to_numpy() == 1
            if positive.sum() in (0, len(positive)):
                raise ConfigError(f"{disease}: {positive.sum()} positive images of {len(positive)}: there is no curve")
            score = frame[f"score_{disease}"].to_numpy(float)
            found.append((number, plots.Curve(self.ks.index(number), f"K={number}", positive, score)))
        return found

    def _known(self, disease: str) -> None:
        if disease not in self.diseases:
            raise ConfigError(f"no disease '{disease}' in this study; there are {', '.join(self.diseases)}")

    def _row(self, k: int, disease: str) -> pd.Series:
        table = self.table()
        found = table[(table["k"] == k) & (table["disease"] == disease)]
        if len(found) != 1:
            names = ", ".join(table["disease"].unique())
            raise ConfigError(f"{self.folder}: no AUC of K={k}, {disease}; there are K={list(self.ks)} and {names}")
        return found.iloc[0]

    def _titled(self, ax: Axes, disease: str, curve: plots.Curve) -> Axes:
        positives = int(curve.positive.sum())
        counts = f"{positives}+ / {len(curve.positive) - positives}-"
        ax.set_title(self._marked(f"{_title(disease)}, {counts}, {self._protocol}"))
        return ax

    @property
    def _protocol(self) -> str:
        return self.configuration["evaluation"]["protocol"] if self.configuration.get("sites") else "test images"

    def _marked(self, title: str) -> str:
        return f"{self.origin.tag} hospitals\n{title}" if self.origin.any_synthetic else title

    def _csv(self, name: str) -> pd.DataFrame:
        try:
            return _with_whole_counts(pd.read_csv(self.folder / name))
        except FileNotFoundError:
            raise ChestfedError(
                f"{self.folder}: no {name}: the study is not that far (`chestfed study` goes on with it), or has one K "
                "only"
            ) from None


def _with_whole_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Counts as whole numbers also where the mean has none."""
    counts = [name for name in ("n", "positives", "negatives", "missing") if name in frame]
    return frame.astype(dict.fromkeys(counts, "Int64"))


def _counts(row: Any) -> str:
    """n+ and n- of a row of a table, by `positives` and `negatives`."""
    return f"{row['positives']:.0f}+ / {row['negatives']:.0f}-"


def _title(disease: str) -> str:
    return TITLES.get(disease, disease)
