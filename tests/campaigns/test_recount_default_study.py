"""The default study's numbers, counted again from label files and predictions: screen, page, MLflow run and CSV.

Nothing of the suite counts here: the command line is run and its files are read. `CHESTFED_DEFAULT_STUDY` may name a
folder with the `runs` and `synthetic_hospitals` of a finished default study; without it the study is run.
"""

from __future__ import annotations

import ast
import html
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from scipy import optimize, stats
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score, roc_curve

pytestmark = pytest.mark.campaign

#: Disease -> its name in the tables of CheXpert and MIMIC-CXR; elsewhere other words.
TITLES = {
    "cardiomegaly": "Cardiomegaly",
    "edema": "Edema",
    "consolidation": "Consolidation",
    "atelectasis": "Atelectasis",
    "pleural_effusion": "Pleural Effusion",
}
KS, PLACES = range(1, 6), ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")
OWN, FEW = "own", 10
T = TypeVar("T")
#: PadChest's tree of terms: a label means its term and all below it.
TERMS = Path(__file__).parents[2] / "chestfed/data/sites/releases/padchest_terms.csv"


@dataclass(frozen=True)
class Study:
    """A finished default study and what the commands say of it."""

    home: Path
    run: Path
    said: dict[str, Any]
    page: str

    def read(self, model: int | str, place: str) -> pd.DataFrame:
        """Predictions of a K, or of own data alone, at a hospital."""
        if place == PLACES[0]:
            folder = self.run / f"k{1 if model == OWN else model}"
        elif model == OWN:
            folder = self.run / "k5" / "alternatives" / "own_data" / place
        else:
            folder = self.run / f"k{model}" / "hospitals" / place
        return pd.read_parquet(folder / "predictions.parquet")

    def csv(self, name: str, *keys: str) -> pd.DataFrame:
        return pd.read_csv(self.run / f"{name}.csv", keep_default_na=True).set_index([*keys])

    def rows(self, caption: str) -> Iterator[list[list[str]]]:
        """Rows of the page's tables with this in their caption: of each cell its lines."""
        for table in re.findall(r"<table>.*?</table>", self.page, re.DOTALL):
            if caption in html.unescape(re.sub("<[^>]+>", "", table.split("</caption>")[0])):
                for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL):
                    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
                    yield [html.unescape(cell).replace("</span>", "").split('<span class="below">') for cell in cells]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    home = tmp_path_factory.mktemp("default")
    if given := os.environ.get("CHESTFED_DEFAULT_STUDY"):
        for name in ("runs", "synthetic_hospitals"):
            shutil.copytree(Path(given) / name, home / name)
    else:
        call(home, "study")
    said = json.loads(call(home, "study", "--json", "--no-tracking"))
    run = home / said["result"]["folder"]
    call(home, "report", str(run), "--out", "page.html")
    return Study(home, run, said, (home / "page.html").read_text(encoding="utf-8"))


def call(home: Path, *words: str) -> str:
    command = [sys.executable, "-m", "chestfed", *words]
    return subprocess.run(command, cwd=home, check=True, stdout=subprocess.PIPE, text=True).stdout


# ---- counting ----------------------------------------------------------------------------------------------------


def remember(count: Callable[[pd.DataFrame, str], T]) -> Callable[[pd.DataFrame, str], T]:
    """The count, made once of each frame; the frames are kept, so that no two have one id."""
    kept: dict[tuple[int, str], tuple[pd.DataFrame, T]] = {}

    def find(frame: pd.DataFrame, disease: str) -> T:
        if (id(frame), disease) not in kept:
            kept[id(frame), disease] = frame, count(frame, disease)
        return kept[id(frame), disease][1]

    return find


@remember
def known(frame: pd.DataFrame, disease: str) -> pd.DataFrame:
    part = frame.dropna(subset=f"label_{disease}")
    return part.assign(label=part[f"label_{disease}"] == 1)


@remember
def count_patients(frame: pd.DataFrame, disease: str) -> list[int]:
    """Patients with a positive image, and with a negative one."""
    part = known(frame, disease)
    return [part.loc[part["label"] == value, "patient"].nunique() for value in (True, False)]


def list_counted(frame: pd.DataFrame) -> list[str]:
    return [name for name in TITLES if min(count_patients(frame, name)) >= FEW]


def count_auc(frame: pd.DataFrame, disease: str, score: str = "") -> float:
    part = known(frame, disease)
    return float(roc_auc_score(part["label"], part[f"{score or 'score'}_{disease}"]))


def pair_models(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """The predictions of two models on the same images, the first one's scores under `first_...`."""
    assert first["image"].tolist() == second["image"].tolist()
    return second.assign(**{f"first_{name}": first[f"score_{name}"] for name in TITLES})


@remember
def list_sums(frame: pd.DataFrame, disease: str) -> dict[bool, pd.Series]:
    """Obuchowski's sums of centered structural components per patient, of each class; of a difference if paired."""
    part, sums = known(frame, disease), {}
    for value in (True, False):
        rows, others = part[part["label"] == value], part[part["label"] != value]
        shares = []
        for column in [c for c in (f"first_{disease}", f"score_{disease}") if c in frame]:
            above = rows[column].to_numpy()[:, None] - others[column].to_numpy()
            shares.append((1 if value else -1) * np.sign(above).mean(axis=1) / 2)
        component = pd.Series(np.diff(shares, axis=0)[0] if len(shares) > 1 else shares[0], rows.index)
        sums[value] = (component - component.mean()).groupby(rows["patient"]).sum() / len(rows)
    return sums


def count_variance(frame: pd.DataFrame, diseases: Sequence[str]) -> float:
    """Of the mean over diseases: Obuchowski's of each, and between two the patients' products."""
    of_class = {name: list_sums(frame, name) for name in diseases}
    total, terms = 0.0, []
    for name, sums in of_class.items():
        factor = {value: len(part) / (len(part) - 1) for value, part in sums.items()}
        n = known(frame, name)["patient"].nunique()
        total += sum(factor[value] * (part**2).sum() for value, part in sums.items())
        total += 2 * n / (n - 1) * (sums[True] * sums[False]).sum()
        terms.append(
            sum((factor[v] ** 0.5 * part).reindex(frame["patient"].unique(), fill_value=0) for v, part in sums.items())
        )
    total += 2 * sum((a * b).sum() for a, b in itertools.combinations(terms, 2))
    return float(total) / len(diseases) ** 2


def pool(frame: pd.DataFrame, diseases: Sequence[str], each: Iterable[float]) -> float:
    """Satterthwaite's degrees of freedom of a mean, and at most those of the patients of the rarer class of any."""
    weights = np.array([sum(1 / n for n in count_patients(frame, name)) for name in diseases])
    pooled = weights.sum() ** 2 / (weights**2 / np.array([*each])).sum()
    parts = [known(frame, name) for name in diseases]
    any_of = [pd.concat(p.loc[p["label"] == v, "patient"] for p in parts).nunique() for v in (True, False)]
    return float(min(pooled, min(any_of) - 1))


def count_freedom(frame: pd.DataFrame, diseases: Sequence[str]) -> float:
    return pool(frame, diseases, (min(count_patients(frame, name)) - 1 for name in diseases))


def bound_auc(frame: pd.DataFrame, diseases: Sequence[str]) -> list[float]:
    """Obuchowski's variance, logit scale, Student's t with O'Neill's degrees of freedom of the rarer class."""
    auc, freedom = np.mean([count_auc(frame, name) for name in diseases]), []
    for name in diseases:
        positive, negative = list_sums(frame, name).values()
        rarer = positive if len(positive) <= len(negative) else negative
        m, square = len(rarer), (rarer**2).sum()
        excess = max(0.0, m * (rarer**4).sum() / square**2 - 3)
        freedom.append(2 / (2 / (m - 1) + excess / m))
    t = stats.t.ppf(0.975, min(pool(frame, diseases, freedom), count_freedom(frame, diseases)))
    half = t * count_variance(frame, diseases) ** 0.5 / (auc * (1 - auc))
    return [float(1 / (1 + np.exp(-(np.log(auc / (1 - auc)) + sign * half)))) for sign in (-1, 1)]


def bound_difference(frame: pd.DataFrame, diseases: Sequence[str]) -> list[float]:
    """Difference ± t SE with Student's t, cut at -1 and 1."""
    first, second = (np.mean([count_auc(frame, name, s) for name in diseases]) for s in ("first", "score"))
    half = stats.t.ppf(0.975, count_freedom(frame, diseases)) * count_variance(frame, diseases) ** 0.5
    return [float(np.clip(second - first + sign * half, -1, 1)) for sign in (-1, 1)]


def count_detectable(frame: pd.DataFrame) -> float:
    """The difference that the t test sees with a power of 80%, by the noncentral t distribution."""
    diseases = list_counted(frame)
    error, freedom = count_variance(frame, diseases) ** 0.5, count_freedom(frame, diseases)
    limit = stats.t.ppf(0.975, freedom)
    return error * float(optimize.brentq(lambda ratio: stats.nct.sf(limit, freedom, ratio) - 0.8, 0, 40))


def count_recognized(frame: pd.DataFrame, score: str, weight: np.ndarray | None = None) -> float:
    """Findings of 1,000 images above thresholds with a specificity of 90%; weights count images, not prevalence."""
    total = 0.0
    for name in list_counted(frame):
        part = known(frame, name)
        each = None if weight is None else weight[frame.index.get_indexer(part.index)]
        false, true, _ = roc_curve(part["label"], part[f"{score}_{name}"], sample_weight=each, drop_intermediate=False)
        total += 1000 * part["label"].mean() * true[false <= 0.1 + 1e-9].max()
    return total


def count_ece(frame: pd.DataFrame, disease: str) -> float:
    """15 bins of equally many images, those of one score together."""
    part = known(frame, disease).sort_values(f"score_{disease}")
    first = part[f"score_{disease}"].rank(method="min").astype(int) - 1
    error = (part[f"score_{disease}"] - part["label"]).groupby(first * 15 // len(part)).sum()
    return float(error.abs().sum() / len(part))


def compute_power(difference: float, of_patients: float, freedom: float, seeds: int) -> float:
    """Chance that the test of Behrens and Fisher sees a difference, of a standard deviation over seeds of 0.02."""
    drawn = stats.t.ppf((np.arange(2000) + 0.5) / 2000, seeds - 1)  # equally likely errors of the seeds

    def find_limit(share: float) -> float:
        a, b = share**0.5, (1 - share) ** 0.5
        return float(optimize.brentq(lambda w: 2 * stats.t.sf((w - a * drawn) / b, freedom).mean() - 0.05, 1, 9))

    shares = np.linspace(0, 0.999, 17) ** 2
    limits = [find_limit(share) for share in shares]
    of_seeds, grid = 0.02**2 / seeds, (np.arange(300) + 0.5) / 300
    one = of_seeds * stats.chi2.ppf(grid, seeds - 1)[:, None] / (seeds - 1)
    two = of_patients * stats.chi2.ppf(grid, freedom) / freedom
    least = (one + two) ** 0.5 * np.interp(one / (one + two), shares, limits)
    error = (of_seeds + of_patients) ** 0.5
    return float(np.mean(stats.norm.sf((least - difference) / error) + stats.norm.sf((least + difference) / error)))


@pytest.fixture(scope="module")
def aucs(study: Study) -> dict[tuple[int | str, str, str], float]:
    """By model, hospital and disease; `mean` over the diseases that count."""
    found = {}
    for model, place in itertools.product((*KS, OWN), PLACES):
        frame = study.read(model, place)
        for name in TITLES:
            if min(count_patients(frame, name)):
                found[model, place, name] = count_auc(frame, name)
        found[model, place, "mean"] = float(np.mean([found[model, place, name] for name in list_counted(frame)]))
    return found


# ---- labels ------------------------------------------------------------------------------------------------------


def read_labels(home: Path) -> dict[str, pd.DataFrame]:
    """Of each hospital's test images the patient and the labels, from its own files as its YAML says."""
    at = {folder.name.removeprefix("synthetic-"): folder for folder in (home / "synthetic_hospitals").glob("synth*")}
    tables = {}
    table = pd.read_csv(at["chexpert"] / "valid.csv").query("`Frontal/Lateral` == 'Frontal'")
    tables["chexpert"] = table.assign(patient=table["Path"].str.extract(r"/(patient\d+)/")[0])
    table = pd.read_csv(next(at["chestxray8"].glob("Data_Entry*.csv")))
    table = table[table["Image Index"].isin((at["chestxray8"] / "test_list.txt").read_text().split())]
    words = table["Finding Labels"].str.split("|")
    has = {title: [title.split()[-1] in row for row in words] for title in TITLES.values()}
    tables["chestxray8"] = table.assign(patient=table["Patient ID"], **has)
    table = pd.read_csv(next(at["padchest"].glob("PADCHEST*.csv"))).query("Pediatric != 'PED'")
    splits = pd.read_csv(at["padchest"] / "splits.csv").set_index("patient")["split"]
    table = table[(table["PatientID"].map(splits) == "test") & table["Projection"].isin(["PA", "AP", "AP_horizontal"])]
    tree = pd.read_csv(TERMS, comment="#").set_index("term")["below"].fillna("").str.split(";")

    def is_below(term: str, name: str) -> bool:
        return term == name or any(is_below(above, name) for above in tree.get(term, []) if above)

    words = table["Labels"].map(lambda text: [word.strip() for word in ast.literal_eval(text)])
    terms = {title: "pulmonary edema" if title == "Edema" else title.lower() for title in TITLES.values()}
    has = {title: [any(is_below(word, term) for word in row) for row in words] for title, term in terms.items()}
    tables["padchest"] = table.assign(patient=table["PatientID"], **has)
    parts = [pd.read_csv(next(at["mimic-cxr"].glob(f"*-{name}.csv.gz"))) for name in ("metadata", "split", "chexpert")]
    table = parts[0].merge(parts[1], on=["dicom_id", "study_id", "subject_id"]).query("split == 'test'")
    table = table[table["ViewPosition"].isin(["PA", "AP"])].merge(parts[2], on=["study_id", "subject_id"], how="left")
    mentioned = table["study_id"].isin(parts[2]["study_id"])
    for title in TITLES.values():
        uncertain = 1.0 if title in ("Edema", "Atelectasis") else 0.0
        table[title] = table[title].replace(-1.0, uncertain).fillna(0.0).where(mentioned)
    tables["mimic_cxr"] = table.assign(patient=table["subject_id"])
    table = pd.read_csv(at["vindr"] / "annotations" / "image_labels_test.csv")
    table = table.rename(columns={"Pleural effusion": "Pleural Effusion"})
    tables["vindr"] = table.assign(patient=table["image_id"], Edema=np.nan)  # the samples' YAML: not labeled
    return tables


def test_counts_are_those_of_label_files(study: Study) -> None:
    """Images and patients of either class at every hospital, and so the rule of ten patients."""
    study_rows, rows = study.csv("table", "k", "disease"), study.csv("hospitals", "k", "hospital", "disease")
    for place, table in read_labels(study.home).items():
        for name, title in TITLES.items():
            of_class = [table[table[title] == value] for value in (1, 0)]
            images, patients = map(len, of_class), [part["patient"].nunique() for part in of_class]
            counts = [*images, *patients, int(table[title].isna().sum()), len(table), table["patient"].nunique()]
            columns = ["positives", "negatives", "positive_patients", "negative_patients", "missing"]
            for k in KS:
                row = rows.loc[(k, place, name)]
                assert row[[*columns, "images", "patients"]].tolist() == counts, (place, name)
                assert row["in_mean"] == (min(patients) >= FEW), (place, name)
                assert row["protocol"] == f"frontal-image, {'valid' if place == PLACES[0] else 'test'} split"
                if place == PLACES[0]:
                    assert study_rows.loc[(k, name), [*columns, "images", "patients"]].tolist() == counts


# ---- CSV ---------------------------------------------------------------------------------------------------------


def test_tables_have_aucs_and_intervals(study: Study, aucs: dict[tuple[int | str, str, str], float]) -> None:
    """Of every K, and of own data alone, at every hospital: of each disease, and of the mean."""
    of_study = study.csv("table", "k", "disease")
    at, alone = (
        study.csv("hospitals", "k", "hospital", "disease"),
        study.csv("alternatives", "kind", "hospital", "disease"),
    )
    for model, place in itertools.product((*KS, OWN), PLACES):
        frame = study.read(model, place)
        for name in [*TITLES, "mean"]:
            row = alone.loc[("own_data", place, name)] if model == OWN else at.loc[(model, place, name)]
            if (model, place, name) not in aucs:
                assert np.isnan(row["auc"]), (model, place, name)
                continue
            diseases = list_counted(frame) if name == "mean" else [name]
            expected = [aucs[model, place, name], *bound_auc(frame, diseases)]
            assert row[["auc", "low", "high"]].tolist() == pytest.approx(expected, abs=1e-9), (model, place, name)
            if place == PLACES[0] and model != OWN:
                row = of_study.loc[(model, name)]
                assert row[["auc", "low", "high"]].tolist() == pytest.approx(expected, abs=1e-9), (model, name)


def list_differences(study: Study) -> Iterator[tuple[pd.Series, pd.DataFrame, str, float, float]]:
    """Each row of a table of differences with its paired predictions, hospital and the two models."""
    for name, keys in (("significance", ["k"]), ("hospital_gains", ["hospital"]), ("alternative_gains", ["hospital"])):
        for key, rows in pd.read_csv(study.run / f"{name}.csv").groupby(keys[0]):
            place = PLACES[0] if name == "significance" else key
            first = OWN if name == "alternative_gains" else 1
            frame = pair_models(study.read(first, place), study.read(key if name == "significance" else 5, place))
            for _, row in rows.iterrows():
                yield row, frame, place, first, key if name == "significance" else 5


def test_differences_have_their_intervals(study: Study, aucs: dict[tuple[int | str, str, str], float]) -> None:
    """Each K against the smallest, the largest at every hospital, and own data alone; what they could not show."""
    for row, frame, place, first, model in list_differences(study):
        name = row["disease"]
        if (model, place, name) not in aucs:
            assert np.isnan(row["difference"])
            continue
        diseases = list_counted(frame) if name == "mean" else [name]
        low, high = bound_difference(frame, diseases)
        expected = [aucs[model, place, name] - aucs[first, place, name], low, high]
        assert row[["difference", "low", "high"]].tolist() == pytest.approx(expected, abs=1e-9), (place, name)
        assert np.isnan(row["p"])  # one training seed
        if name == "mean":
            assert row["detectable"] == pytest.approx(count_detectable(frame), rel=1e-6)
            side = np.sign(low) + np.sign(high)
            parts = {left: bound_difference(frame, [d for d in diseases if d != left]) for left in diseases}
            turns = [left for left, part in parts.items() if np.sign(part).sum() != side]
            found = row["turns_without"] if isinstance(row["turns_without"], str) else ""
            assert found == ", ".join(turns), place


# ---- the first screen, and the top of the page ---------------------------------------------------------------------


def signed(value: float) -> str:
    return f"{value:+.3f}"


def state(study: Study, aucs: dict[tuple[int | str, str, str], float]) -> list[str]:
    """Sentences of the first screen, but for intervals by resampling and the advice."""
    place, gains, texts = PLACES[0], {"gain": [], "lose": [], "": []}, []
    frame = pair_models(study.read(1, place), study.read(5, place))
    low, high = bound_difference(frame, list_counted(frame))
    before, after = aucs[1, place, "mean"], aucs[5, place, "mean"]
    images = f"{len(frame)} images of {frame['patient'].nunique()} patients"
    interval = f"[{signed(low)}, {signed(high)}]"
    texts.append(f"{before:.3f} to {after:.3f} ({signed(after - before)} {interval}, {images}, one training run)")
    findings = 1000 * sum(known(frame, name)["label"].mean() for name in list_counted(frame))
    first, last = (round(count_recognized(frame, score)) for score in ("first", "score"))
    change = f"{abs(last - first)} {'more' if last > first else 'fewer'}"
    texts.append(f"{findings:,.0f} findings: {last:,} detected instead of {first:,} ({change} [")
    texts.append(f"A difference below {count_detectable(frame):.3f} would")
    for hospital in PLACES:
        both = pair_models(study.read(OWN, hospital), study.read(5, hospital))
        low, high = bound_difference(both, list_counted(both))
        gains["gain" if low > 0 else "lose" if high < 0 else ""].append(hospital)
    for verb, names in gains.items():
        joined = " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
        texts += [f"{joined} {verb}{'s' * (len(names) == 1)}" if verb else f"inconclusive at {joined}"] if names else []
    return texts


def test_first_screen_has_the_numbers(study: Study, aucs: dict[tuple[int | str, str, str], float]) -> None:
    result = study.said["result"]
    screen = " ".join([result["answer"], *result["details"]]).replace("\u2212", "-")
    page = re.sub("<[^>]+>", "", html.unescape(study.page)).replace("\u2212", "-")
    for text in state(study, aucs):
        assert text in screen, text
        assert text in page, text
    low = study.csv("significance", "k", "disease").loc[(5, "mean"), "low"]
    verdict = "Probably" if low > 0 else "No significant difference"
    assert f"? {verdict}: " in result["answer"]
    for row in study.said["tables"][0]["rows"]:
        place = row[0]
        both = pair_models(study.read(OWN, place), study.read(5, place))
        ends = bound_difference(both, list_counted(both))
        joins = PLACES.index(place) + 1
        cells = [f"{aucs[k, place, 'mean']:.3f}" for k in KS[1:]]
        cells = [cell if k >= joins else f"({cell})" for k, cell in zip(KS[1:], cells, strict=True)]
        gain = signed(aucs[5, place, "mean"] - aucs[OWN, place, "mean"])
        interval = f"[{signed(ends[0])}, {signed(ends[1])}]"
        assert row == [place, f"{aucs[OWN, place, 'mean']:.3f}", *cells, gain, interval]


def test_findings_have_their_interval(study: Study) -> None:
    """1.96 standard deviations of a bootstrap over patients: of other draws, so within what 500 resamples give."""
    frame = pair_models(study.read(1, PLACES[0]), study.read(5, PLACES[0]))
    names, patient = np.unique(frame["patient"], return_inverse=True)
    rng, changes = np.random.default_rng(1), []
    for _ in range(200):
        weight = np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))[patient].astype(float)
        changes.append(count_recognized(frame, "score", weight) - count_recognized(frame, "first", weight))
    change = count_recognized(frame, "score") - count_recognized(frame, "first")
    low, high = map(
        int, re.findall(r"\[([-+\u2212]\d+), ([-+]\d+)\]", study.said["result"]["details"][0].replace("\u2212", "-"))[0]
    )
    assert (low + high) / 2 == pytest.approx(change, abs=0.6)
    assert high - low == pytest.approx(2 * 1.96 * np.std(changes, ddof=1), rel=0.15)


def test_advice_has_the_power_it_names(study: Study) -> None:
    """More patients and 10 seeds: enough, and neither any number of seeds nor a smaller step of either."""
    frame = pair_models(study.read(1, PLACES[0]), study.read(5, PLACES[0]))
    row = study.csv("significance", "k", "disease").loc[(5, "mean")]
    diseases = list_counted(frame)
    error, freedom = count_variance(frame, diseases) ** 0.5, count_freedom(frame, diseases)
    size, times, seeds = abs(row["difference"]), row["times_needed"], int(row["seeds_needed"])
    (text,) = [part for part in study.said["result"]["details"] if "as large as this" in part]
    patients = frame["patient"].nunique()
    assert text.startswith("No number of training seeds")
    assert f" {size:.3f}," in text
    assert f"it takes {times * patients:,.0f} patients in place of {patients:,}, and {seeds} seeds" in text
    limit = stats.t.ppf(0.975, freedom)
    assert stats.nct.sf(limit, freedom, size / error) < 0.8  # with endless seeds
    assert compute_power(size, error**2 / 1000, 1000 * freedom, 5) < 0.8  # with endless patients
    assert seeds == 10
    power = [compute_power(size, error**2 / n, (freedom + 1) * n - 1, seeds) for n in (times, times / 1.015)]
    assert power[1] < 0.8 < power[0] + 0.0005


# ---- the rest of the page, and MLflow ------------------------------------------------------------------------------


def test_page_has_the_hospitals(study: Study, aucs: dict[tuple[int | str, str, str], float]) -> None:
    """The worst hospital, the standard deviation, and the share below own data alone."""
    lines = {row[0][0]: [cell[0] for cell in row[1:]] for row in study.rows("Mean AUC over hospitals: the worst")}
    for k in KS:
        means = np.array([aucs[k, place, "mean"] for place in PLACES])
        below = np.mean([mean < aucs[OWN, place, "mean"] - 1e-12 for mean, place in zip(means, PLACES, strict=True)])
        expected = [f"{means.min():.3f}", f"{means.std(ddof=1):.3f}", f"{below:.0%} of {len(means)}"]
        assert lines[f"K={k}"] == expected, k


def test_page_has_calibration_and_points(study: Study) -> None:
    frames = {k: study.read(k, PLACES[0]) for k in KS}
    shown = {row[0][0]: row[1:] for row in study.rows("Expected calibration error")}
    points = {row[0][0]: row[1:] for row in study.rows("AUPRC of K=5")}
    worse = 0
    for place, name in enumerate(TITLES):
        for k, frame in frames.items():
            part = known(frame, name)
            expected = [
                f"{count_ece(frame, name):.3f}",
                f"Brier {brier_score_loss(part['label'], part[f'score_{name}']):.3f}",
            ]
            assert shown[f"K={k}"][place] == expected, (k, name)
        part = known(frames[5], name)
        label, score = part["label"], part[f"score_{name}"]
        assert points["AUPRC"][place] == [f"{average_precision_score(label, score):.3f}"]
        false, true, thresholds = roc_curve(label, score, drop_intermediate=False)
        chosen = {
            "at specificity 0.9": max(range(len(true)), key=lambda i: (false[i] <= 0.1 + 1e-9, true[i], -false[i])),
            "at sensitivity 0.9": max(range(len(true)), key=lambda i: (true[i] >= 0.9 - 1e-9, -false[i], true[i])),
            "at Youden's index": int(np.argmax(true - false)),
        }
        for head, i in chosen.items():
            called = score >= thresholds[i]
            ppv, npv = label[called].mean(), 1 - label[~called].mean()
            cells = [f"{true[i]:.3f} / {1 - false[i]:.3f}", f"PPV {ppv:.3f}", f"NPV {npv:.3f}"]
            assert points[head][place] == cells, (head, name)
    for measure in (count_ece, lambda frame, name: ((frame[f"score_{name}"] - frame[f"label_{name}"]) ** 2).mean()):
        first, last = (np.mean([measure(frames[k], name) for name in TITLES]) for k in (1, 5))
        worse += last > first
    assert worse or "probabilities get worse" not in study.page  # joining lowers both here, so nothing is said


def test_page_has_the_subgroups(study: Study) -> None:
    """AUCs and intervals of each group; means over diseases with ten patients of each class in all of a column."""
    frame = study.read(5, PLACES[0])
    shown = {row[0][0]: row[1:] for row in study.rows("AUC of K=5 by group")}
    for column in ("sex", "age", "view"):
        groups = {f"{column} {name}": part for name, part in frame.groupby(f"group_{column}")}
        counted = {head: set(list_counted(part)) for head, part in groups.items()}
        common = set.intersection(*filter(None, counted.values()))
        for head, part in groups.items():
            images, *cells, mean = shown[head]
            assert images == [f"{len(part)}", f"{part['patient'].nunique()} patients"]
            for name, cell in zip(TITLES, cells, strict=True):
                low, high = bound_auc(part, [name])
                assert cell[:2] == [f"{count_auc(part, name):.3f}", f"[{low:.3f}, {high:.3f}]"], (head, name)
            if not counted[head]:
                assert mean == ["-"], head
                continue
            diseases = [name for name in TITLES if name in common]
            low, high = bound_auc(part, diseases)
            value = np.mean([count_auc(part, name) for name in diseases])
            assert mean == [f"{value:.3f}", f"[{low:.3f}, {high:.3f}]", f"over {len(diseases)}"], head


def test_mlflow_has_the_numbers(study: Study, aucs: dict[tuple[int | str, str, str], float]) -> None:
    client = MlflowClient(f"sqlite:///{study.home / 'runs' / 'mlflow.db'}")
    run = client.get_run(json.loads((study.run / "mlflow.json").read_text())["run"])
    row = study.csv("significance", "k", "disease").loc[(5, "mean")]  # recounted above
    expected = {"auc/mean": aucs[5, PLACES[0], "mean"]} | {"gain_from": row["low"], "gain_to": row["high"]}
    expected |= {f"mean_auc/K{k}": aucs[k, PLACES[0], "mean"] for k in KS}
    changes = {key[1:]: value - aucs[1, *key[1:]] for key, value in aucs.items() if key[0] == 5}
    expected |= {"gain": changes[PLACES[0], "mean"]}
    for name in TITLES:
        expected[f"gain_per_disease/{name}"] = changes[PLACES[0], name]
        expected[f"auc_per_disease/{name}"] = aucs[5, PLACES[0], name]
    for place in PLACES:
        expected |= {f"auc_at/{place}": aucs[5, place, "mean"], f"change_at/{place}": changes[place, "mean"]}
        expected[f"over_own_data/{place}/K5"] = aucs[5, place, "mean"] - aucs[OWN, place, "mean"]
    found = {name: value for name, value in run.data.metrics.items() if name != "pretraining/loss"}
    assert found == pytest.approx(expected, abs=5.1e-5)  # rounded
    artifacts = study.home / "runs" / "mlflow-artifacts" / run.info.run_id / "artifacts"
    for name in ("table", "significance", "hospitals", "hospital_gains", "alternatives", "alternative_gains"):
        assert (artifacts / "run_folder" / f"{name}.csv").read_bytes() == (study.run / f"{name}.csv").read_bytes()
    table = json.loads((artifacts / "auc_by_k.json").read_text())
    for line in (dict(zip(table["columns"], values, strict=True)) for values in table["data"]):
        for name, title in [*TITLES.items(), ("mean", "mean")]:
            assert line[title] == pytest.approx(aucs[line["K"], PLACES[0], name], abs=5.1e-5)
