"""The page about a finished study: what is in it, what must not be, and that it can be read by everybody."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from chestfed.core.bundled import bundled
from chestfed.core.provenance import Origin
from chestfed.reports.pages import figures, run_figures
from chestfed.reports.pages.drift import drift, histogram_distance
from chestfed.reports.pages.html import read_template
from chestfed.reports.pages.page import _how_to_reproduce, make_report, write_report
from chestfed.reports.pages.participants import participants
from chestfed.reports.pages.sites_section import list_mistakes
from chestfed.results.evaluation.metrics import sensitivity_at_specificity
from chestfed.results.tables.frames import Results, make_differences, make_estimates
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import shareable
from tests.command_line import drawn_once
from tests.reports.pages.pages import (
    Page,
    assert_needs_nothing_else,
    assert_readable_without_seeing_it,
    assert_says_synthetic,
)
from tests.results.tables.finished_runs import labels_and_patients, seal_run, write_run

#: What readers see of linear red, green and blue: Machado, Oliveira and Fernandes (2009), at full severity.
VISIONS = {
    "normal": np.eye(3),
    "protan": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deutan": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritan": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
GAINS = {"a": None, "b": 0.01}


@pytest.fixture(scope="module")
def home(tiny_study: Path) -> Path:
    """A folder with hospitals and a finished study of them."""
    return tiny_study


@pytest.fixture(scope="module")
def run_folder(home: Path) -> Path:
    (folder,) = (home / "runs").glob("synthetic-source_addition_samples-*")
    return folder


@pytest.fixture(scope="module")
def html(tiny_page: Path) -> str:
    """The page that the command writes."""
    return tiny_page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture
def copy(run_folder: Path, tmp_path: Path, unchecked: None) -> Path:
    """A run folder to change."""
    return Path(shutil.copytree(run_folder, tmp_path / run_folder.name))


def test_all_sections_are_there(page: Page) -> None:
    headings = [text for _, _, text in page.all("h1", "h2", "h3", "h4")]
    titles = ["AUC at every hospital", "AUC of each disease", "Differences", "Curves and operating points"]
    titles += [
        "Subgroups",
        "Participants and labels",
        "Training",
        "Statistical methods",
        "Use and limits",
        "How to reproduce",
    ]
    assert [text for _, _, text in page.all("h2")] == [*titles, "Checklists"]
    sites = ["chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr", "test images"]
    assert set(headings) >= {
        "ROC",
        "Precision and recall",
        "Calibration",
        "AUC per round",
        "Drift between sites",
        *sites,
    }
    captions = " ".join(text for _, _, text in page.all("caption"))
    for part in (
        "AUC at the first hospital",
        "minus that of K=1",
        "Expected calibration error",
        "Drift score",
        "Digests",
    ):
        assert part in captions
    pictures = [attributes["alt"] or "" for _, attributes, _ in page.all("img")]
    for part in (
        *("ROC curves of Edema", "Precision-recall curves", "Calibration of"),
        *("AUC per round", "Bytes per round", "Time per round, seconds: K=1 takes", "Client drift"),
    ):
        assert any(part in alt for alt in pictures), part


def test_answer_comes_first_and_details_fold(html: str, page: Page) -> None:
    order = [(tag, attributes, text) for tag, attributes, text in page.all("h1", "p", "img", "summary", "table")]
    places = [place for place, (tag, _, _) in enumerate(order) if tag == "h1"]
    _, attributes, answer = order[places[0] + 1]
    place = next(place for place, (tag, _, _) in enumerate(order) if tag == "img")
    first = order[: next(place for place, (tag, _, _) in enumerate(order) if tag in ("summary", "table"))]
    pictures = [str(attributes["alt"]) for tag, attributes, _ in first if tag == "img"]
    legend = next(text for tag, _, text in first if tag == "p" and "K is the number of hospitals" in text)
    assert (order[places[0]][2], attributes["class"]) == ("Does adding hospitals help at chexpert?", "answer")
    assert any("k2/model.safetensors" in text for _, _, text in first)
    assert "the mean AUC " in answer
    assert order[place - 1][1]["class"] == "gains"  # who gains comes before the figures
    for picture, start in zip(pictures, ("AUC by number of clients: K=1 0.", "Mean AUC at each hospital"), strict=True):
        assert start in picture
    assert all(word in legend for word in ("K=1 is chexpert alone", "network weights"))
    folded = [text for tag, _, text in order if tag == "summary"]
    assert {"Participants and labels", "Training", "Checklists", "How to reproduce"} <= set(folded)
    assert "prefers-color-scheme: dark" in html  # for figures; other dark colors come with the light ones


def test_every_hospital_has_aucs_and_gain(page: Page, run_folder: Path) -> None:
    cells = [text for _, _, text in page.all("td")]
    table = pd.read_csv(run_folder / "hospitals.csv").query("disease == 'mean'")
    assert len(table) == 4
    for row in table.to_dict("records"):
        shown = f"{row['auc']:.3f}" if row["takes_part"] else f"({row['auc']:.3f})"
        assert f"{shown}[{row['low']:.3f}, {row['high']:.3f}]" in [cell.replace(" [", "[") for cell in cells]


def test_participants_are_counted_to_last(run_folder: Path, home: Path) -> None:
    hospitals = json.loads((run_folder / "sites.json").read_text())["hospitals"]
    assert [entry["site"] for entry in hospitals] == ["chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr"]
    chexpert, cxr8, *_ = hospitals
    rows = [pd.read_csv(home / "synthetic_hospitals" / "synthetic-chexpert" / f"{n}.csv") for n in ("train", "valid")]
    lateral = sum((table["Frontal/Lateral"] == "Lateral").sum() for table in rows)
    assert chexpert["found"] == sum(map(len, rows))
    assert chexpert["left_out"] == {"other views than pa, ap, frontal": lateral}
    assert [chexpert["people"][part]["images"] for part in ("train", "test")] == [24, 24]
    entries = pd.read_csv(home / "synthetic_hospitals" / "synthetic-chestxray8" / "Data_Entry_2017_v2020.csv")
    test = (home / "synthetic_hospitals" / "synthetic-chestxray8" / "test_list.txt").read_text().split()
    people = entries[entries["Image Index"].isin(test)].drop_duplicates("Patient ID")
    assert cxr8["people"]["test"]["patients"] == len(people)
    assert cxr8["people"]["test"]["women"] == pytest.approx((people["Patient Gender"] == "F").mean())


def test_operating_points_of_stored_scores(page: Page, run_folder: Path) -> None:
    stored = pd.read_parquet(run_folder / "k2" / "predictions.parquet")
    score, positive = stored["score_edema"].to_numpy(), stored["label_edema"].to_numpy() == 1
    (line,) = [text for _, _, text in page.all("tr") if text.startswith("at specificity 0.9")]
    second = re.findall(r"(\d\.\d{3}) / (\d\.\d{3})PPV|(\d\.\d{3}) / (\d\.\d{3}) ?PPV", line)[1]
    sensitivity, specificity = (float(value) for value in second if value)
    reached = [t for t in [*score, np.inf] if (score[~positive] < t).mean() >= 0.9]
    assert sensitivity == pytest.approx(max((score[positive] >= t).mean() for t in reached), abs=5e-4)
    assert specificity >= 0.9


def test_checklist_items_point_to_a_section(page: Page) -> None:
    ids = {str(attributes["id"]) for _, attributes, _ in page.elements if "id" in attributes}
    for checklist in yaml.safe_load(read_template("checklists.yaml")):
        places = {where.partition(": ")[0] for _, _, where in checklist["items"] if where}
        assert places <= ids
    assert sum(text == "for the authors" for _, _, text in page.all("td")) > 10


def test_the_numbers_are_those_of_the_table(page: Page, run_folder: Path) -> None:
    cells = [text.replace(" [", "[") for _, _, text in page.all("td")]
    heads = [text for _, _, text in page.all("th")]
    for row in (row for k in (1, 2) for row in RunFolder.open(run_folder).row(k).aucs):
        if row.value is not None and row.interval is not None:
            assert f"{row.value:.3f}[{row.interval.low:.3f}, {row.interval.high:.3f}]" in cells
        if row.disease != "mean":
            title, counts = row.disease.replace("_", " ").title(), (f"n+ {row.positives}", f"n− {row.negatives}")
            assert any(head.startswith(title) and all(count in head for count in counts) for head in heads)


def test_page_names_no_patient_or_file(html: str, home: Path) -> None:
    names = {
        path.stem for path in (home / "synthetic_hospitals").rglob("*") if path.suffix in (".jpg", ".png", ".dicom")
    }
    names |= {path.name for path in (home / "synthetic_hospitals").rglob("patient*")}
    assert len(names) > 50
    text = re.sub(r"data:[^\"]*", "", html)
    assert not [name for name in names if len(name) > 6 and name in text]
    assert not re.search(r"patient\d{5}|\d{8}_\d{3}|p1\d{7}", text)


def test_page_self_contained_and_accessible(html: str, page: Page) -> None:
    assert_needs_nothing_else(html)
    assert_readable_without_seeing_it(page)
    assert_says_synthetic(page)


def luminance(color: str) -> float:
    """WCAG's relative luminance of `#rrggbb`."""
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def linear(color: str) -> np.ndarray:
    """Linear red, green and blue of a color of sRGB."""
    parts = np.array([int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def darken(color: str) -> str:
    """A figure's color on the dark page: the style's `invert(.92) hue-rotate(180deg)`, as the standard defines them."""
    parts = np.array([int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    rotated = np.array([[-0.574, 1.430, 0.144], [0.426, 0.430, 0.144], [0.426, 1.430, -0.856]]) @ (0.92 - 0.84 * parts)
    return "#" + "".join(f"{round(255 * part):02x}" for part in np.clip(rotated, 0, 1))


def locate(light: np.ndarray) -> np.ndarray:
    """Place of linear red, green and blue in CIELAB."""
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratios = matrix @ np.clip(light, 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(ratios > 0.008856, np.cbrt(ratios), 7.787 * ratios + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(color: str, other: str) -> float:
    low, high = sorted([luminance(color), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_text_and_figures_have_contrast(html: str) -> None:
    colors = {name: both for name, *both in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", html)}
    grounds = {name: both for name, both in colors.items() if name.startswith("ground")}
    texts = {name: both for name, both in colors.items() if name.startswith("text")}
    assert len(grounds) == 3
    assert len(texts) == 4
    for name, text in texts.items():
        for ground in grounds.values():
            assert all(contrast(*pair) >= 4.5 for pair in zip(text, ground, strict=True)), name
    style = html.split("<style>")[1].split("</style>")[0].split("}", 1)[1]
    assert not re.search(r"#[0-9a-f]{3}", style)  # colors are named at the head only
    for shown in (str, darken):
        assert contrast(shown(figures.INK), shown("#ffffff")) >= 4.5
        for color in (*figures.COLORS, figures.MEAN):
            assert contrast(shown(color), shown("#ffffff")) >= 3, (shown, color)


def test_colors_differ_in_any_color_vision() -> None:
    for shown in (str, darken):
        for name, vision in VISIONS.items():
            places = [locate(vision @ linear(shown(color))) for color in figures.COLORS]
            apart = min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2))
            assert apart > 10, (name, shown)  # 2.3 are just noticeable


def test_figures_are_written_as_png_and_svg(html: str, home: Path) -> None:
    assert len(html) > 0
    folder = home / "page-figures"
    svg, png = sorted(folder.glob("*.svg")), sorted(folder.glob("*.png"))
    assert [path.stem for path in svg] == [path.stem for path in png]
    small = sum(picture.get("width") == "96" for _, picture, _ in Page(html).all("img"))
    assert len(svg) == len(list(Page(html).all("figure"))) - small
    drawn = [path for path in png if path.stat().st_size]
    assert {path.stem.partition("-")[0] for path in drawn} == {path.stem.partition("-")[0] for path in png}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


@pytest.mark.slow
def test_the_same_folder_gives_the_same_page(run_folder: Path, html: str) -> None:
    with drawn_once():
        assert make_report(RunFolder.open(run_folder)).html == html


def test_configuration_on_page_is_same_study(page: Page, run_folder: Path, tmp_path: Path) -> None:
    (address,) = (a["href"] or "" for _, a, _ in page.all("a") if "download" in a)
    file = tmp_path / "again.yaml"  # bundled sites are found by name
    file.write_bytes(base64.b64decode(address.split(",")[1]))
    again = load_pipeline(file).resolve()
    assert shareable(again) == json.loads((run_folder / "study.json").read_text())["configuration"]
    assert all(Path(site.config).parent == bundled("site_configs") / "synthetic" for site in again.sites)


def test_own_site_and_unreadable_are_named(run_folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run_folder, tmp_path / run_folder.name))
    about, sites = (json.loads((copy / name).read_text()) for name in ("study.json", "sites.json"))
    about["quarantined"] = {"vindr": 1}
    sites["hospitals"][-1]["title"] = "Elsewhere"
    (copy / "study.json").write_text(json.dumps(about))
    (copy / "sites.json").write_text(json.dumps(sites))
    seal_run(copy)
    values = _how_to_reproduce(RunFolder.open(copy))
    assert (values["own_sites"], values["skipped"]) == (["vindr.yaml"], 1)
    names = [entry["config"] for entry in yaml.safe_load(values["configuration"])["sites"]]
    assert (names[0], names[-1]) == ("synthetic/chexpert.yaml", "vindr.yaml")


def test_the_cards_count_what_the_sites_hold(run_folder: Path) -> None:
    cards = json.loads((run_folder / "sites.json").read_text())["sites"]
    run = RunFolder.open(run_folder)
    assert [card["role"] for card in cards] == ["client"] * 5 + ["test"]
    test = cards[-1]
    assert test["images"] == run.about["scored"]["images"]
    for disease in run.row(1).diseases:
        assert test["diseases"][disease.disease]["positives"] == disease.positives
        assert test["diseases"][disease.disease]["negatives"] == disease.negatives
    for card in cards:
        assert sum(card["gray_levels"]) == card["gray_level_images"] * 64 * 64
    with np.load(run_folder / "thumbnails.npz") as stored:
        assert {name: stored[name].shape for name in stored.files} == {str(n): (4, 96, 96) for n in range(6)}


def test_images_that_are_misjudged(run_folder: Path) -> None:
    run = RunFolder.open(run_folder)
    stored = run.mistakes
    assert stored["pixels"].shape == (len(stored["disease"]), 96, 96)
    for place, column in enumerate(run.columns()):
        point = sensitivity_at_specificity(column)
        assert point is not None
        for positive in (True, False):
            wrong = (column.positive == positive) & ((column.score < point.threshold) == positive)
            below = sorted(((column.score < score).mean() for score in column.score[wrong]), reverse=not positive)
            shown = stored["below"][(stored["disease"] == place) & (stored["positive"] == positive)]
            assert shown.tolist() == below[:3]
    parts = list_mistakes(run, pictures=False)
    assert sum(len(part["pictures"]) for part in parts) == len(stored["disease"])
    run.sites["sites"][-1]["data"] = "real"
    assert list_mistakes(run, pictures=False) == []
    assert [part["title"] for part in list_mistakes(run, pictures=True)] == [part["title"] for part in parts]


def test_drift_sums_gray_levels_prevalences() -> None:
    assert histogram_distance([4, 0, 0, 0], [0, 0, 0, 2]) == 0.75  # three of four bins further
    a, b = [1, 1], [3, 1]
    of_a, of_b = {"edema": 0.1, "mass": None}, {"edema": 0.4, "mass": 0.5, "hernia": 0.1}
    assert drift(a, a, of_a, of_a).score == 0
    assert drift(a, b, of_a, of_b).gray_levels == 0.125
    assert drift(a, b, of_a, of_b).prevalence == pytest.approx(0.3)
    assert drift(b, a, of_b, of_a).score == pytest.approx(0.425)
    assert drift(a, b, {"mass": None}, of_b).prevalence is None


@pytest.mark.usefixtures("undrawn")
def test_real_pictures_shown_on_request_only(copy: Path) -> None:
    are_real(copy, lambda _: True)
    run = RunFolder.open(copy)
    without, shown = make_report(run).html, make_report(run, pictures=True).html
    assert "data:image/png" not in without
    assert without.count("Images of real\npatients are left") == 1
    assert "Images of real\npatients are left" not in shown
    assert shown.count("data:image/png") == 24 + count_mistakes(run)
    assert "SYNTHETIC" not in re.sub(r"data:[^\"]*", "", shown)


def count_mistakes(run: RunFolder) -> int:
    return sum(len(part["pictures"]) for part in list_mistakes(run, pictures=True))


def are_real(run: Path, which: Callable[[str], bool]) -> None:
    """Make the clients and test images of these names real ones."""
    about = json.loads((run / "sites.json").read_text())
    for card in about["sites"]:
        card["data"] = "real" if which(card["name"]) else card["data"]
    origin = Origin.together(Origin(card["data"]) for card in about["sites"])
    (run / "sites.json").write_text(json.dumps(about | origin.keys()))
    for name in ("study.json",):
        (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | origin.keys()))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_real_pictures_among_phantoms_hidden(copy: Path) -> None:
    are_real(copy, lambda name: name in ("padchest", "test images"))
    run = RunFolder.open(copy)
    text, shown = make_report(run).html, make_report(run, pictures=True).html
    page = Page(text)
    pictures = [attributes["alt"] or "" for _, attributes, _ in page.all("img") if "Small" in (attributes["alt"] or "")]
    assert len(pictures) == 16
    assert not any("padchest" in alt or "test images" in alt for alt in pictures)
    assert shown.count("data:image/png") == 24 + count_mistakes(run)
    assert "Small synthetic radiograph of padchest" not in shown
    ((_, _, title),) = page.all("title")
    assert title.startswith("PARTLY SYNTHETIC: ")
    assert "others have real patients" in text
    assert "No patients" not in text


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_rounds_of_unknown_time_are_reported(copy: Path) -> None:
    (copy / "k1" / "seconds.jsonl").unlink()
    assert "K=1 was not recorded" in make_report(RunFolder.open(copy)).html


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_what_the_labels_do_not_show_is_said(copy: Path) -> None:
    study = json.loads((copy / "study.json").read_text())
    assert study["notes"] == {}
    (copy / "study.json").write_text(json.dumps(study | {"notes": {"padchest": ["7 of 24 rows have no term"]}}))
    html = make_report(RunFolder.open(copy)).html
    assert "padchest: 7 of 24 rows have no term" in html


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_parts_one_hospital_called_clients(copy: Path) -> None:
    study = json.loads((copy / "study.json").read_text())
    study["configuration"]["sites"] = [{**study["configuration"]["sites"][0], "clients": 5, "test_fraction": 0.3}]
    study["title"] = study["configuration"]["title"] = "Parts of one hospital"
    (copy / "study.json").write_text(json.dumps(study))
    html = make_report(RunFolder.open(copy)).html
    assert "Does adding clients help?" in html
    assert "AUC on the test images by number of clients" in html
    for part in ("adding hospitals", "first hospital", "the target"):
        assert part not in html


def test_precision_recall_begins_at_first(run_folder: Path) -> None:
    run = RunFolder.open(run_folder)
    for j, picture in enumerate(run_figures.precision_recall_curves(run)):
        lines = [line for line in picture.figure.axes[0].get_lines() if str(line.get_label()).startswith("K=")]
        for k, line in zip(run.ks, lines, strict=bool(lines)):
            column = run.columns(k)[j]
            assert line.get_drawstyle() == "steps-pre"
            assert line.get_ydata()[0] <= 1
            assert line.get_xdata()[0] == 0
            if not column.positive[column.score == column.score.max()].any():  # the highest score is a negative image's
                assert line.get_ydata()[0] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unchecked")
def test_stored_differences_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", ks=(1, 2, 3))
    stored = make_report(RunFolder.open(run)).html

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("models were compared")

    with monkeypatch.context() as patch:
        patch.setattr("chestfed.results.tables.collect.list_differences", refuse)
        assert make_report(RunFolder.open(run)).html == stored
        (run / "significance.csv").unlink()
        with pytest.raises(AssertionError, match="were compared"):
            make_report(RunFolder.open(run))
    assert make_report(RunFolder.open(run)).html == stored


@pytest.mark.slow
def test_disease_of_one_class_is_left_out(tmp_path: Path) -> None:
    labels = labels_and_patients()[0]
    labels[:, 0] = 0
    page = Page(make_report(RunFolder.open(write_run(tmp_path / "run", labels=labels))).html)
    assert any("Edema: no positive image" in text for _, _, text in page.all("p"))
    texts = [attributes["alt"] or "" for _, attributes, _ in page.all("img")]
    for seen in ("ROC curves of Edema", "Precision-recall curves of Edema", "Calibration of Edema"):
        assert any(seen in text and "nothing to draw, no positive image" in text for text in texts), seen


def test_hospital_in_no_k_is_marked(copy: Path) -> None:
    sites = json.loads((copy / "sites.json").read_text())
    sites["hospitals"].append({**sites["hospitals"][0], "site": "chex"})
    (copy / "sites.json").write_text(json.dumps(sites))
    flow = participants(RunFolder.open(copy))[0]
    marked = [line.head for line in flow.lines if "in no K of this study" in line.cells[2].below]
    assert "chex" in marked
    assert "chexpert" not in marked


def test_unreadable_images_are_in_the_flow(copy: Path) -> None:
    study = json.loads((copy / "study.json").read_text())
    (copy / "study.json").write_text(json.dumps(study | {"quarantined": {"chexpert": 3}}))
    (line,) = [line for line in participants(RunFolder.open(copy))[0].lines if line.head == "chexpert"]
    assert "and 3 unreadable of those counted on the right" in line.cells[1].below


def test_copies_of_one_disease_attributed(copy: Path) -> None:
    sites = json.loads((copy / "sites.json").read_text())
    for hospital in sites["hospitals"]:
        hospital["policy"]["upsample"] = {"edema": 2}
    (copy / "sites.json").write_text(json.dumps(sites))
    labels = next(grid for grid in participants(RunFolder.open(copy)) if grid.name == "labels")
    assert {line.cells[-1].text for line in labels.lines} == {"3 times: Edema"}


def test_a_gain_without_interval_is_not_nan() -> None:
    head = {"view": "hospitals", "disease": "mean"}
    gains = [
        {**head, "reference": "K=1", "model": "K=2", "hospital": name, "difference": d} for name, d in GAINS.items()
    ]
    places = make_estimates({**head, "hospital": name} for name in GAINS)
    results = Results("t", Origin.REAL, {"seeds": [1]}, places, make_differences(gains))
    (picture,) = run_figures.draw_hospitals(results)
    assert picture.alt == "Mean AUC at each hospital, K=2 minus K=1: b +0.010."


@pytest.mark.usefixtures("undrawn", "unchecked")
def test_a_title_is_text_and_never_markup(tmp_path: Path) -> None:
    copy = write_run(tmp_path / "run")
    study = json.loads((copy / "study.json").read_text())
    (copy / "study.json").write_text(json.dumps(study | {"title": "<img src=x> & more"}))
    write_report(copy, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert "<img src=x>" not in html
    assert "&lt;img src=x&gt; &amp; more" in html


def test_page_fits_a_narrow_browser(html: str, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    # A page that frames the report at 375 pixels and writes how wide its content is.
    (tmp_path / "page.html").write_text(html.replace("</body>", "<div id='end'></div></body>"), encoding="utf-8")
    frame = "<iframe id='f' src='page.html' style='width:375px;height:800px;border:0'></iframe>"
    script = "f.onload = () => { document.title = 'wide ' + f.contentDocument.documentElement.scrollWidth }"
    (tmp_path / "frame.html").write_text(f"<!DOCTYPE html><title>-</title>{frame}<script>{script}</script>")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    flags += ["--allow-file-access-from-files", "--virtual-time-budget=10000", "--dump-dom"]
    arguments = [browser, "--headless", *flags, f"file://{tmp_path / 'frame.html'}"]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)
    match = re.search(r"<title>wide (\d+)</title>", result.stdout)
    assert match, result.stderr[-2000:]
    assert int(match[1]) <= 375  # a scroll bar may take part of it
