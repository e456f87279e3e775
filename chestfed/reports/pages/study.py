"""A finished study, read from its folder: `chestfed.Study`, for notebooks and scripts.

    study = chestfed.Study.load("runs/synthetic-source_addition_samples-0123456789ab")
    study.table()
    study.plot_roc("edema")

Numbers are those that the study stored; nothing is written. A study with several training seeds is read from the folder
of its comparison; each seed is a study of its own (`Study.study`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from chestfed.core.config import as_path
from chestfed.core.diseases import format_title, recognize_name
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.manifest import MisplacedError, Part
from chestfed.core.provenance import Origin
from chestfed.core.python_words import speak_python
from chestfed.reports.pages import figures
from chestfed.reports.pages.figures import Curve
from chestfed.reports.pages.run_figures import draw_over_seeds, list_auc_lines, list_curves
from chestfed.results.evaluation.intervals import DEFAULT, MethodName
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.clients.batch_norm import describe_statistics
from chestfed.results.tables.collect import collect, list_run_folders, name_folder, read_comparison
from chestfed.results.tables.differences import compare_with_first
from chestfed.results.tables.frames import Results, read_differences, select
from chestfed.results.tables.predictions import load_predictions
from chestfed.results.tables.run_folder import COMPARISON, RunFolder
from chestfed.results.tables.sentences import describe_chance
from chestfed.results.tables.views import drop_single_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import nn


class Study:
    """Results of a study in its run folder, or of several training seeds of one together.

    Attributes
    ----------
    folder
        The run folder; of several seeds, that of their comparison, which lies beside the run folders.
    title
        As in its tables.
    origin
        Whether the hospitals are real, synthetic or mixed.
    configuration
        The resolved pipeline, as plain data; of several seeds, that of the first.
    """

    def __init__(self, folder: Path, results: Results, runs: Sequence[RunFolder]) -> None:
        self.folder, self._results, self._runs = folder, results, tuple(runs)
        self.title, self.origin = results.title, results.origin

    @property
    def configuration(self) -> dict[str, Any]:
        return self._runs[0].configuration

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Open a run folder, the only one inside a folder of them, or the folder `comparison-...` of several seeds.

        Raises
        ------
        ConfigError
            If it is none of these, holds several studies (then they are named), or compares methods, windows or groups.
        """
        folder = as_path(path, "path")
        if not (folder / COMPARISON).is_file():
            run = RunFolder.open(path)
            return cls(run.path, collect([run], differences=read_differences(run.path)), [run])
        results = read_comparison(folder)
        if not results.is_study:
            text = f"{folder}: compares methods, windows or groups of studies; open it with chestfed.Comparison.load"
            raise ConfigError(text)
        return cls(folder, results, list(map(RunFolder, list_run_folders(folder, results))))

    @classmethod
    def of(cls, folders: Sequence[Path]) -> Study:
        """The study in one folder, or what was written about the seeds in several, which lie side by side."""
        if len(folders) == 1:
            return cls.load(folders[0])
        runs = [RunFolder(folder) for folder in folders]
        origin = Origin.together(run.origin for run in runs)
        return cls.load(name_folder([run.path.name for run in runs], origin, folders[0].parent))

    def __repr__(self) -> str:
        """Title, what is finished, and whether it is synthetic."""
        finished = ", ".join(f"K={k}" for k in self.ks) or "nothing finished"
        seeds = f"; seeds {', '.join(map(str, self.seeds))}" if len(self.seeds) > 1 else ""
        seeds += f"; {len(self.splits)} splits of patients" if len(self.splits) > 1 else ""
        return f"<Study {f'{self.origin.tag} '.lstrip()}{self.title!r}: {finished}{seeds}>"

    def _repr_markdown_(self) -> str:
        """In a notebook: the answer, and what it means."""
        answer = answer_study(self._results)
        return "\n\n".join([f"**{answer.question}** {answer.sentence}", *answer.details])

    @property
    def ks(self) -> tuple[int, ...]:
        """The finished K, rising."""
        return tuple(sorted(int(k) for k in self._results.view("study")["k"].unique()))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds, rising."""
        return self._results.seeds

    @property
    def splits(self) -> tuple[int, ...]:
        """The splits of the patients, rising."""
        return self._results.splits

    @property
    def diseases(self) -> tuple[str, ...]:
        """In the order of the table."""
        return tuple(self._results.view("study")["disease"].unique()[:-1])

    def study(self, seed: int, split: int | None = None) -> Study:
        """The study of one seed, and of one split of the patients, by default the first.

        Raises
        ------
        ConfigError
            If there is no such seed or split.
        MisplacedError
            If its folder holds another study.
        """
        for run in self._results.about["runs"]:
            if run["seed"] == seed and split in (None, run.get("split", 0)):
                folder = self.folder if len(self._runs) == 1 else self.folder.resolve().parent / run["folder"]
                opened = RunFolder.open(folder)
                if opened.digest != run["digest"]:
                    raise MisplacedError(opened.path, Part(opened.digest, "."), Part(run["digest"], "."))
                return Study.load(folder)
        raise ConfigError(
            f"{self.folder}: no seed {seed}{'' if split is None else f' of split {split}'}; there are "
            f"{', '.join(map(str, self.seeds))}; splits {', '.join(map(str, self.splits))}",
            kind="no such seed",
            seed=seed,
        )

    def table(self, *, wide: bool = False) -> pd.DataFrame:
        """AUC, interval, spread over seeds, n+ and n- per K and disease (and the mean), columns as in `table.csv`.

        With `wide` the AUCs alone: one row per K, one column per disease and, of several, `mean`. `attrs["scored"]`
        says with which batch-norm statistics.
        """
        table = self._results.view("study")
        if wide:
            aucs = table.pivot(index="k", columns="disease", values="auc")[drop_single_mean([*self.diseases, "mean"])]
            table = aucs.rename_axis(index="K", columns=None)
        return self._with_statistics(table)

    def by_seed(self) -> pd.DataFrame:
        """One row per K and seed, and split if there are several, with the AUC of each disease and their mean."""
        view, run = "seeds" if self._results.repeats else "study", ["k", *self._results.draws]
        wide = self._results.view(view).pivot(index=run, columns="disease", values="auc")[list(self.diseases)]
        counted = self._results.view_counted(view)["disease"].unique()
        return wide.assign(mean=wide[counted].mean(axis=1)).rename_axis(columns=None)

    def auc(self, k: int, disease: str = "mean") -> float | None:
        """AUC of one K and disease, or the mean; None if it is not defined.

        Raises
        ------
        ConfigError
            If that K is not finished, or there is no such disease.
        """
        value = self._find_row(k, disease)["auc"]
        return None if pd.isna(value) else float(value)

    def interval(self, k: int, disease: str = "mean") -> tuple[float, float] | None:
        """The ends of the 95% interval of `auc`, over test patients and, of several, training seeds; or None."""
        low, high = self._find_row(k, disease)[["low", "high"]]
        return None if pd.isna(low) else (float(low), float(high))

    def predictions(self, k: int | None = None) -> pd.DataFrame:
        """One row per test image: keyed names of image and patient, and score and label of each disease.

        Of the largest finished K, unless another is named. Of one seed, as are `rounds` and the curves.
        """
        return self._run.predictions(k).copy()

    def rounds(self, k: int | None = None) -> pd.DataFrame:
        """One row per round: loss, bytes, `seconds`, `auc_<disease>`; NaN in rounds without evaluation.

        Of the largest finished K, unless another is named.
        """
        entries = self._run.rounds(k)
        aucs = [{f"auc_{name}": auc for name, auc in entry.get("auc", {}).items()} for entry in entries]
        frame = pd.DataFrame([{**entry, **each} for entry, each in zip(entries, aucs, strict=True)])
        frame = frame.drop(columns="auc", errors="ignore")
        return frame.assign(seconds=frame["seconds"].astype(float))

    def significance(self) -> pd.DataFrame:
        """The other K against the smallest, per disease and in the mean: columns as in `significance.csv`.

        Raises
        ------
        ChestfedError
            If the study is not finished, or has one K only.
        """
        frame = self._results.gains("study")
        return self._require(
            "differences", frame, "no significance.csv: the study is not finished (run it again), or has only one K"
        )

    @property
    def verdict(self) -> str:
        """The question of the study and its answer in one sentence, as terminal and page have it."""
        return str(answer_study(self._results))

    @property
    def summary(self) -> str:
        """The verdict, what it means in patients, who gains, what could not be seen, and models worse than chance."""
        answer = answer_study(self._results)
        return " ".join(filter(None, (str(answer), *answer.details, describe_chance(self._results))))

    @speak_python
    def network(self, k: int | None = None, device: str = "cpu", network: str | None = None) -> nn.Module:
        """The trained network of the largest finished K, or of `k`: images float32 `[n, 3, size, size]` to logits.

        In evaluation mode. Images are normalized as in docs/images.md; the columns are those of `diseases`. `network`:
        its name, as `package.module:Name`, where the one that the model file names is refused.

        Raises
        ------
        ConfigError
            If that K is not finished, or the network is not what a model file may name (docs/evaluation.md).
        """
        from chestfed.studies.experiment.device import machine_with
        from chestfed.studies.scoring.scorers import Declared, open_scorer

        scorer = open_scorer(str(self._run.path), Declared(k, network=network), machine_with(device))
        assert scorer.network is not None
        return scorer.network

    def hospitals(self) -> pd.DataFrame:
        """Every K at every hospital on its own held-out patients: columns as in `hospitals.csv`, `attrs` as of `table`.

        Raises
        ------
        ChestfedError
            If only the target was scored, or the study is not finished.
        """
        otherwise = "only the test set was scored: one hospital, evaluation.hospitals: none, or not finished"
        return self._with_statistics(self._require("hospitals", self._results.view("hospitals"), otherwise))

    def alternatives(self) -> pd.DataFrame:
        """Alternatives of each hospital to the largest K: columns as in `alternatives.csv`.

        Raises
        ------
        ChestfedError
            If the pipeline has no `alternatives`, or the study is not finished.
        """
        otherwise = "no alternatives were trained: set `alternatives` in the pipeline"
        return self._require("alternatives", self._results.view("alternatives"), otherwise)

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
        models = [load_predictions(study._run.path, k) for study in (self, other)]
        return select(compare_with_first(models, resamples, interval), "study")

    def plot_auc(self, disease: str = "mean", ax: Axes | None = None) -> Axes:
        """AUC against K of one disease, or the mean, with the 95% intervals.

        Of several seeds the mean: each seed, their mean, and the interval of the difference to the smallest K.
        """
        disease = self._find_disease(disease)
        ax, rows = ax or figures.new_axes(), self.table().query("disease == @disease")
        if self._results.repeats:
            draw_over_seeds(ax, self._results)
        else:
            figures.auc_by_k(ax, rows, disease, **figures.line_style(0, marked=True))
        counts = "mean over the diseases" if disease == "mean" else f"{format_title(disease)}, {_count(rows.iloc[0])}"
        return self._set_title(ax, counts)

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
        return self._plot_curves(lambda axes, curves: figures.calibration(axes, curves, bins), disease, k, ax)

    def plot_differences(self, k: int | None = None, ax: Axes | None = None) -> Axes:
        """The differences of `significance()` at one K (the largest, unless named), with their 95% intervals.

        Raises
        ------
        ConfigError
            If that K was not compared.
        """
        frame = self.significance()
        k = self.ks[-1] if k is None else self._check_k(k)
        rows = frame[frame["k"] == k]
        if rows.empty:
            known = ", ".join(frame["model"].unique())
            text = f"{self.folder}: K={k} is not in significance.csv; there are {known}"
            raise ConfigError(text, kind="not compared", k=k)
        ax = ax or figures.new_axes((5.5, 0.4 * len(rows) + 1.2))
        names = [
            "mean" if row["disease"] == "mean" else f"{format_title(row['disease'])}, {_count(row)}"
            for row in rows.to_dict("records")
        ]
        figures.forest(ax, rows.assign(name=names), "difference of the AUC, 95% interval")
        return self._set_title(ax, f"K={k} minus {rows['reference'].iloc[0]}")

    def plot_rounds(self, disease: str | None = None, ax: Axes | None = None) -> Axes:
        """AUC on the test images against communication rounds, per K: the mean, or one disease's."""
        disease = None if disease is None else self._find_disease(disease)
        ax = ax or figures.new_axes()
        ylabel = "mean AUC" if disease is None else f"AUC, {format_title(disease)}"
        figures.rounds(ax, list_auc_lines(self._run, disease or "mean"), ylabel)
        return self._set_title(ax, self.title)

    def _plot_curves(
        self, draw: Callable[[Axes, list[Curve]], object], disease: str, k: int | None, ax: Axes | None
    ) -> Axes:
        disease = self._find_disease(disease)
        curves = list_curves(self._run, disease, None if k is None else [k])
        if not curves:
            raise ConfigError(f"{disease}: {_count(self._find_row(self.ks[-1], disease))} images: there is no curve")
        ax = ax or figures.new_axes()
        draw(ax, curves)
        column = curves[0].column
        return self._set_title(ax, f"{format_title(disease)}, {column.positives}+ / {column.negatives}-")

    @property
    def _run(self) -> RunFolder:
        """The only run.

        Raises `ConfigError` if there are several seeds.
        """
        if len(self._runs) > 1:
            raise ConfigError(
                f"{self.folder}: several runs, {self._results.repeats}: take one, as study({self.seeds[0]})",
                kind="several seeds",
            )
        return self._runs[0]

    def _find_disease(self, disease: str) -> str:
        """The name in this study that a text stands for: `Edema` and `oedema` are edema."""
        known, name = (*self.diseases, "mean"), recognize_name(disease)
        if disease in known or name in known:
            return disease if disease in known else name
        text = f"no disease '{disease}' in this study; there are {', '.join(self.diseases)}"
        raise ConfigError(text, kind="no such disease", disease=disease)

    def _check_k(self, k: int) -> int:
        return int(self._runs[0].folder(k).name[1:])

    def _find_row(self, k: int, disease: str) -> pd.Series:
        disease = self._find_disease(disease)
        return self._results.view("study", k=self._check_k(k), disease=disease).iloc[0]

    def _require(self, view: str, frame: pd.DataFrame, otherwise: str) -> pd.DataFrame:
        if frame.empty:
            raise ChestfedError(f"{self.folder}: {otherwise}", kind="no such table", view=view)
        return frame

    def _with_statistics(self, frame: pd.DataFrame) -> pd.DataFrame:
        frame.attrs["scored"] = describe_statistics(self._results.about["batch_norm"])
        return frame

    def _set_title(self, ax: Axes, title: str) -> Axes:
        mark = f"{self.origin.tag} hospitals\n" if self.origin.any_synthetic else ""
        ax.set_title(f"{mark}{title}, {self._runs[0].settings.protocol}", parse_math=False)
        return ax


def _count(row: Any) -> str:
    """n+ and n- of a row of a table, by `positives` and `negatives`."""
    return f"{row['positives']:.0f}+ / {row['negatives']:.0f}-"
