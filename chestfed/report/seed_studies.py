"""One study with several training seeds, read from the folder of its comparison: `chestfed.SeedStudies`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pandas as pd

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import MisplacedError, Part
from chestfed.report import figures
from chestfed.report.run_figures import draw_over_seeds
from chestfed.report.study import Study
from chestfed.results import compare, hospital_table
from chestfed.results.compare import Comparison
from chestfed.results.run_folder import COMPARISON, RunFolder
from chestfed.results.significance import frame, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_T = TypeVar("_T")


class SeedStudies:
    """Every K with every training seed: what `chestfed study --seeds N` prints and writes.

    Attributes
    ----------
    folder
        Of the comparison; the studies' folders are beside it.
    title
        As in its tables.
    origin
        Whether the hospitals are real, synthetic or mixed.
    """

    def __init__(self, comparison: Comparison, folder: Path) -> None:
        self._comparison, self.folder = comparison, folder
        self.title, self.origin = comparison.title, comparison.origin

    @classmethod
    def load(cls, path: str | Path) -> SeedStudies:
        """Open a folder `comparison-<digest>` of one algorithm.

        Raises
        ------
        ConfigError
            If it is not such a folder, or compares algorithms or windows.
        """
        folder = Path(path)
        if not (folder / COMPARISON).is_file():
            raise ConfigError(f"{folder}: no {COMPARISON}; give the folder comparison-... of `chestfed study --seeds`")
        found = compare.read(folder)
        if len(found.results[["algorithm", "window"]].drop_duplicates()) > 1:
            raise ConfigError(f"{folder}: compares algorithms or windows; read table.csv and results.csv in it")
        return cls(found, folder)

    @classmethod
    def of(cls, folders: Sequence[Path]) -> SeedStudies:
        """What was written about the studies in these folders, which lie side by side."""
        runs = [RunFolder(folder) for folder in folders]
        return cls.load(compare.folder_of(runs, folders[0].parent))

    def __repr__(self) -> str:
        """Title, K and seeds, and whether it is synthetic."""
        ks, seeds = (", ".join(map(str, values)) for values in (self.ks, self.seeds))
        return f"<SeedStudies {f'{self.origin.tag} '.lstrip()}{self.title!r}: K={ks}; seeds {seeds}>"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds, rising."""
        return tuple(self._comparison.trained)

    @property
    def ks(self) -> tuple[int, ...]:
        """The K, rising."""
        return tuple(sorted({int(k) for k in self._comparison.results["k"]}))

    @property
    def summary(self) -> str:
        """The verdict, and whether a model is worse than chance where it was trained."""
        return " ".join(filter(None, (self.verdict, compare.warn_of_chance(self._comparison))))

    @property
    def verdict(self) -> str:
        """The sentence on the largest K minus the smallest, over test patients and seeds; empty with one K."""
        return "" if self._comparison.compared is None else verdict(self._comparison.compared)

    def study(self, seed: int) -> Study:
        """The study of one seed.

        Raises
        ------
        ConfigError
            If there is no such seed.
        MisplacedError
            If its folder holds another study.
        """
        for run in self._comparison.runs:
            if run["seed"] == seed:
                opened = RunFolder.open(self.folder.resolve().parent / run["folder"])
                if opened.digest != run["digest"]:
                    raise MisplacedError(opened.path, Part(opened.digest, "."), Part(run["digest"], "."))
                return Study(opened)
        raise ConfigError(f"{self.folder}: no seed {seed}; there are {', '.join(map(str, self.seeds))}")

    def table(self) -> pd.DataFrame:
        """One row per K and disease (and the mean): mean `auc` over the seeds, its standard deviation `sd`, `seeds`."""
        found = compare.table_frame(self._comparison)
        ks = self._comparison.results.groupby("run")["k"].first()
        return found.assign(k=found["run"].map(ks))[["k", "disease", "auc", "sd", "seeds"]]

    def by_seed(self) -> pd.DataFrame:
        """One row per K and seed, with the AUC of each disease and their mean."""
        found = self._comparison.results
        wide = found.pivot(index=["k", "seed"], columns="disease", values="auc")[list(found["disease"].unique())]
        return wide.assign(mean=wide.mean(axis=1)).rename_axis(columns=None)

    def significance(self) -> pd.DataFrame:
        """The other K against the smallest, over test patients and training seeds: columns as in `significance.csv`.

        Raises
        ------
        ChestfedError
            If there is one K only.
        """
        return frame(self._there(self._comparison.compared, f"only K={self.ks[0]} was run: nothing to compare"))

    def hospitals(self) -> pd.DataFrame:
        """Every K at every hospital on its own held-out patients, over the seeds: columns as in `hospitals.csv`.

        Raises
        ------
        ChestfedError
            If only the target was scored.
        """
        found = self._there(self._comparison.hospitals, "only the test images of the target were scored")
        return hospital_table.frame(found)

    def alternatives(self) -> pd.DataFrame:
        """What each hospital could do instead of using the largest K, over the seeds.

        Raises
        ------
        ChestfedError
            If the pipeline has no `alternatives`.
        """
        table = self._there(self._comparison.alternatives, "no alternatives were trained")
        return hospital_table.frame(table)

    def _there(self, found: _T | None, otherwise: str) -> _T:
        if found is None:
            raise ChestfedError(f"{self.folder}: {otherwise}")
        return found

    def plot_auc(self, ax: Axes | None = None) -> Axes:
        """Mean AUC against K: each seed, the mean, and the interval of the difference to the smallest K."""
        ax = ax or figures.new_axes()
        draw_over_seeds(ax, self._comparison)
        mark = f"{self.origin.tag} hospitals\n" if self.origin.any_synthetic else ""
        ax.set_title(f"{mark}{self.title}", parse_math=False)
        return ax
