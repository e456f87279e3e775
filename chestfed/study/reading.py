"""A finished study, read from its run folder: `chestfed.Study`, for notebooks and scripts.

    study = chestfed.Study.load("runs/synthetic-source_addition_samples-0123456789ab")
    study.table()
    study.plot_roc("edema")

Nothing is computed anew and nothing is written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.diseases import TITLES
from chestfed.errors import ChestfedError, ConfigError
from chestfed.study.significance import PREDICTIONS, folder_of_k

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Study:
    """What a study left in its run folder.

    Attributes
    ----------
    folder
        The run folder.
    title, synthetic
        As in its tables.
    configuration
        The resolved pipeline, as plain data.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder = folder
        self.title: str = about["title"]
        self.synthetic: bool = about["synthetic"]
        self.configuration: dict[str, Any] = about["configuration"]

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Open a run folder.

        Raises
        ------
        ConfigError
            If it is none.
        """
        folder = Path(path)
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
        return f"<Study {'SYNTHETIC ' if self.synthetic else ''}{self.title!r}: {finished}>"

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

    def table(self) -> pd.DataFrame:
        """One row per K and disease (and the mean): AUC, interval, n+, n-; columns as in `table.csv`."""
        return self._csv("table.csv")

    def auc(self, k: int, disease: str = "mean") -> float | None:
        """AUC of one K and disease, or the mean; None if it is not defined.

        Raises
        ------
        ConfigError
            If that K is not finished, or there is no such disease.
        """
        table = self.table()
        found = table[(table["k"] == k) & (table["disease"] == disease)]
        if len(found) != 1:
            names = ", ".join(table["disease"].unique())
            raise ConfigError(f"{self.folder}: no AUC of K={k}, {disease}; there are K={list(self.ks)} and {names}")
        value = float(found["auc"].iloc[0])
        return None if np.isnan(value) else value

    def predictions(self, k: int) -> pd.DataFrame:
        """One row per test image: keyed names of image and patient, and score and label of each disease."""
        return pd.read_parquet(folder_of_k(self.folder, k) / PREDICTIONS)

    def rounds(self, k: int) -> pd.DataFrame:
        """One row per round, `auc_<disease>` among the columns; NaN in rounds without evaluation."""
        file = folder_of_k(self.folder, k) / "rounds.jsonl"
        entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        rows = [
            {**entry, **{f"auc_{name}": value for name, value in entry.pop("auc", {}).items()}} for entry in entries
        ]
        return pd.DataFrame(rows)

    def significance(self) -> pd.DataFrame:
        """The other K against the smallest, per disease and in the mean: columns as in `significance.csv`."""
        return self._csv("significance.csv")

    def plot_roc(self, disease: str, k: int | None = None, ax: Axes | None = None) -> Axes:
        """ROC curves of one disease on the test images, for one K or for all, with AUC, n+ and n-.

        Raises
        ------
        ConfigError
            If there is no such disease or K, or its test images are of one class.
        """
        from sklearn.metrics import roc_curve

        if disease not in self.diseases:
            raise ConfigError(f"no disease '{disease}' in this study; there are {', '.join(self.diseases)}")
        ax = ax or _new_axes()
        counts = ""
        for number in self.ks if k is None else (k,):
            frame = self.predictions(number).dropna(subset=[f"label_{disease}"])
            labels = frame[f"label_{disease}"]
            positives = int((labels == 1).sum())
            if positives in (0, len(labels)):
                raise ConfigError(f"{disease}: {positives} positive images of {len(labels)}: there is no ROC curve")
            counts = f"{positives}+ / {len(labels) - positives}-"
            false, true, _ = roc_curve(labels, frame[f"score_{disease}"], drop_intermediate=False)
            ax.plot(false, true, label=f"K={number}: {self.auc(number, disease):.3f}")
        ax.plot([0, 1], [0, 1], ":", color="grey", linewidth=1)
        ax.set(xlabel="1 - specificity", ylabel="sensitivity", aspect="equal")
        ax.set_title(self._marked(f"{TITLES.get(disease, disease)}, {counts}, {self._protocol}"))
        ax.legend(title="AUC", frameon=False)
        return ax

    def plot_rounds(self, disease: str | None = None, ax: Axes | None = None) -> Axes:
        """AUC on the test images against communication rounds, per K: the mean, or one disease's."""
        ax = ax or _new_axes()
        column = "mean_auc" if disease is None else f"auc_{disease}"
        for k in self.ks:
            rounds = self.rounds(k)
            if column not in rounds:
                raise ConfigError(f"no AUC of '{disease}' in the rounds of K={k}")
            evaluated = rounds.dropna(subset=[column])
            ax.plot(evaluated["round"], evaluated[column], marker="o", markersize=3, label=f"K={k}")
        what = "mean AUC" if disease is None else f"AUC, {TITLES.get(disease, disease)}"
        ax.set(xlabel="communication rounds", ylabel=what)
        ax.set_title(self._marked(f"{self.title}, {self._protocol}"))
        ax.legend(frameon=False)
        ax.grid(alpha=0.3)
        return ax

    @property
    def _protocol(self) -> str:
        return self.configuration["evaluation"]["protocol"] if self.configuration.get("sites") else "test images"

    def _marked(self, title: str) -> str:
        return f"SYNTHETIC phantoms. {title}" if self.synthetic else title

    def _csv(self, name: str) -> pd.DataFrame:
        try:
            return pd.read_csv(self.folder / name)
        except FileNotFoundError:
            raise ChestfedError(
                f"{self.folder}: no {name}: the study is not that far (`chestfed study` goes on with it), or has one K "
                "only"
            ) from None


def _new_axes() -> Axes:
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]
