"""Finished runs of several methods or windows, read from the folder of their comparison: `chestfed.Comparison`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from chestfed.core.config import as_path
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.reports.pages.study import Study
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.collect import name_folder, read_comparison
from chestfed.results.tables.frames import Results
from chestfed.results.tables.run_folder import COMPARISON, RunFolder
from chestfed.results.tables.settings import summarize_hospitals, tabulate_settings
from chestfed.results.tables.views import drop_single_mean


class Comparison:
    """Several methods or windows on the same data, over training seeds.

    Attributes
    ----------
    folder
        The folder of the comparison, beside those of the runs.
    title
        As in its tables.
    origin
        Whether the data are real, synthetic or mixed.
    """

    def __init__(self, folder: Path, results: Results) -> None:
        self.folder, self._results = folder, results
        self.title, self.origin = results.title, results.origin

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Open the folder `comparison-...`.

        Raises
        ------
        ConfigError
            If it is not the folder of a comparison.
        """
        folder = as_path(path, "path")
        if not (folder / COMPARISON).is_file():
            raise ConfigError(
                f"{folder}: not a comparison; open a study with chestfed.Study.load", kind="no comparison"
            )
        return cls(folder, read_comparison(folder))

    @classmethod
    def of(cls, folders: Sequence[Path]) -> Comparison:
        """Load what was written about the runs in these folders, which lie side by side."""
        origin = Origin.together(RunFolder(folder).origin for folder in folders)
        return cls.load(name_folder([folder.name for folder in folders], origin, folders[0].parent))

    def __repr__(self) -> str:
        """Title and methods, and whether it is synthetic."""
        return f"<Comparison {f'{self.origin.tag} '.lstrip()}{self.title!r}: {', '.join(self.methods)}>"

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of what is compared, in the order of the table; with the window where windows are."""
        return tuple(dict.fromkeys(run["run"] for run in self._results.about["runs"]))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds, rising."""
        return self._results.seeds

    @property
    def verdict(self) -> str:
        """The question of the comparison and its answer in one sentence, as terminal and page have it."""
        return str(answer_study(self._results))

    def table(self, *, wide: bool = False) -> pd.DataFrame:
        """AUC, interval, spread over seeds, n+ and n- per method and disease (and the mean): columns as in `table.csv`.

        Intervals of several seeds are about test patients and training seeds; `reason` says why there is none.

        With `wide` the AUCs alone: one row per method, one column per disease and, of several, `mean`.
        """
        table = self._results.view("study")
        if not wide:
            return table
        columns = drop_single_mean(list(table["disease"].unique()))
        aucs = table.pivot(index="model", columns="disease", values="auc")
        return aucs.loc[list(self.methods), columns].rename_axis(index="method", columns=None)

    def by_seed(self) -> pd.DataFrame:
        """One row per method and seed, and split if there are several, with the AUC of each disease and their mean."""
        rows = self._results.view("seeds")
        columns = list(rows["disease"].unique())
        draws = self._results.draws
        wide = rows.pivot(index=["model", *draws], columns="disease", values="auc")[columns]
        return wide.assign(mean=wide.mean(axis=1)).rename_axis(index=["method", *draws], columns=None)

    def significance(self) -> pd.DataFrame:
        """The other methods against the first, per disease and in the mean; empty with one seed."""
        return self._results.gains("study")

    def settings(self) -> pd.DataFrame:
        """One row per method: its settings, how they were found (`chosen`), rounds, gradients, and megabytes sent."""
        return tabulate_settings(self._results.about["methods"])

    def fairness(self) -> pd.DataFrame:
        """One row per method: AUC at the worst hospital, spread over hospitals, share of them below the first method.

        Empty unless hospitals were scored on patients of their own.
        """
        return summarize_hospitals(self._results.view("hospitals"), self.methods[0])

    def curves(self) -> pd.DataFrame:
        """One row per method, seed and evaluated round: AUC, loss, and sums of bytes, images and gradients."""
        return self._results.curves

    def study(self, method: str, seed: int | None = None, split: int | None = None) -> Study:
        """The study of one method, seed and split of the patients, by default the first of each.

        Raises
        ------
        ConfigError
            If there is none.
        """
        chosen_seed = self.seeds[0] if seed is None else seed
        for run in self._results.about["runs"]:
            if (run["run"], run["seed"]) == (method, chosen_seed) and split in (None, run.get("split", 0)):
                return Study.load(self.folder.resolve().parent / run["folder"])
        text = f"there are {', '.join(self.methods)}, seeds {', '.join(map(str, self.seeds))}"
        raise ConfigError(f"{self.folder}: no run of {method}, seed {chosen_seed}; {text}", kind="no such run")
