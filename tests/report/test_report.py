"""The page about a finished study: what is in it, what must not be, and that it can be read by everybody."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from chestfed.cli import bundled
from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.experiment.loading import load_pipeline
from chestfed.report import figures, overview
from chestfed.report.drift import drift, histogram_distance
from chestfed.report.page import make_report, write_report
from chestfed.results.run_folder import read_run_folder
from chestfed.samples import write_hospitals
from tests.training.test_run import command

VOID = {"meta", "link", "img", "br", "hr"}


class Page(HTMLParser):
    """The elements of a page in order: tag, attributes, and the text inside."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element: tuple[str, dict[str, str | None], list[str]] = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, _, texts in self._open:
            texts.append(data)

    def all(self, *tags: str) -> Iterator[tuple[str, dict[str, str | None], str]]:
        for tag, attributes, texts in self.elements:
            if tag in tags:
                yield tag, attributes, " ".join("".join(texts).split())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hospitals and a finished study of them."""
    folder = tmp_path_factory.mktemp("reporting")
    write_hospitals(folder / "synthetic_hospitals", size="tiny", workers=1)
    result = subprocess.run(command("runs", "--no-tracking"), cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "chestfed report runs/synthetic-source_addition_samples-" in result.stdout
    return folder


@pytest.fixture(scope="module")
def run_folder(home: Path) -> Path:
    (folder,) = (home / "runs").glob("synthetic-source_addition_samples-*")
    return folder


@pytest.fixture(scope="module")
def html(home: Path, run_folder: Path) -> str:
    """The page that the command writes."""
    options = ["report", str(run_folder), "--out", "page.html", "--figures"]
    result = subprocess.run(
        [sys.executable, "-m", "chestfed", *options], cwd=home, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return (home / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture
def copy(run_folder: Path, tmp_path: Path) -> Path:
    """A run folder to damage."""
    return Path(shutil.copytree(run_folder, tmp_path / run_folder.name))


def test_all_sections_are_there(page: Page) -> None:
    headings = [text for _, _, text in page.all("h1", "h2", "h3")]
    wanted = ["Results", "Does adding hospitals help?", "Curves", "Training", "Sites", "How to reproduce"]
    assert [text for _, _, text in page.all("h2")] == wanted
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
        "less that of K=1",
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


def test_the_numbers_are_those_of_the_table(page: Page, run_folder: Path) -> None:
    table = json.loads((run_folder / "table.json").read_text())
    cells = [text for _, _, text in page.all("td")]
    for row in table["rows"]:
        for found in (*row["diseases"].values(), {"auc": row["mean_auc"], "interval": row["mean_interval"]}):
            if found["auc"] is not None:
                low, high = found["interval"]
                assert f"{found['auc']:.3f}[{low:.3f}, {high:.3f}]" in [cell.replace(" [", "[") for cell in cells]
    heads = [text for _, _, text in page.all("th")]
    for disease, found in table["rows"][0]["diseases"].items():
        title = disease.replace("_", " ").title()
        assert any(
            head.startswith(title) and f"n+ {found['positives']}" in head and f"n− {found['negatives']}" in head
            for head in heads
        )


def test_no_patient_or_file_of_a_site_is_named(html: str, home: Path) -> None:
    names = {
        path.stem for path in (home / "synthetic_hospitals").rglob("*") if path.suffix in (".jpg", ".png", ".dicom")
    }
    names |= {path.name for path in (home / "synthetic_hospitals").rglob("patient*")}
    assert len(names) > 50
    text = re.sub(r"data:[^\"]*", "", html)
    assert not [name for name in names if len(name) > 6 and name in text]
    assert not re.search(r"patient\d{5}|\d{8}_\d{3}|p1\d{7}", text)


def test_the_page_is_small_and_needs_nothing_else(html: str, page: Page) -> None:
    assert len(html.encode()) < 3_000_000
    assert not re.search(r"https?:", html)
    assert not list(page.all("script", "iframe", "object", "video"))
    for _, attributes, _ in page.all("img", "link", "a"):
        address = attributes.get("src") or attributes.get("href") or ""
        assert address.startswith(("data:", "#")), address
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


def test_everything_of_synthetic_hospitals_says_so(page: Page) -> None:
    ((_, _, title),) = page.all("title")
    assert title.startswith("SYNTHETIC")
    captions = [text for _, _, text in page.all("caption")]
    assert [text for text in captions if not text.startswith("SYNTHETIC")] == [
        text for text in captions if text.startswith("Published, for orientation only")
    ]
    for _, attributes, _ in page.all("img"):
        assert "synthetic phantom" in (attributes["alt"] or "").lower()


def test_headings_go_down_one_level_at_a_time(page: Page) -> None:
    levels = [int(tag[1]) for tag, _, _ in page.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_page_can_be_read_without_seeing_it(page: Page) -> None:
    ((_, attributes, _),) = page.all("html")
    assert attributes["lang"] == "en"
    assert len(list(page.all("main"))) == 1
    for _, attributes, _ in page.all("img"):
        assert len(attributes["alt"] or "") > 20
    heads = list(page.all("th"))
    assert {attributes["scope"] for _, attributes, _ in heads} == {"col", "row"}
    assert all(text for _, _, text in heads)
    assert len(list(page.all("table"))) == len(list(page.all("caption"))) == len(list(page.all("thead")))
    names = [attributes["id"] for _, attributes, _ in ((t, a, x) for t, a, x in page.elements) if "id" in attributes]
    assert len(names) == len(set(names))
    for _, attributes, _ in page.elements:
        assert attributes.get("aria-labelledby") in (None, *names)
    targets = [attributes["href"] or "" for _, attributes, _ in page.all("a")]
    assert {target[1:] for target in targets if target.startswith("#")} <= set(names)


def luminance(colour: str) -> float:
    """WCAG's relative luminance of `#rrggbb`."""
    parts = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_text_and_figures_have_enough_contrast(html: str) -> None:
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", html))
    grounds = {name: colour for name, colour in colours.items() if name.startswith("ground")}
    texts = {name: colour for name, colour in colours.items() if name.startswith("text")}
    assert len(grounds) == 3
    assert len(texts) == 4
    for name, text in texts.items():
        for ground in grounds.values():
            assert contrast(text, ground) >= 4.5, name
    style = html.split("<style>")[1].split("</style>")[0].split("}", 1)[1]
    assert not re.search(r"#[0-9a-f]{3}", style)  # colours are named at the head only
    assert contrast(figures.INK, "#ffffff") >= 4.5
    assert all(contrast(colour, "#ffffff") >= 3 for colour in figures.COLOURS)


def test_every_figure_is_written_as_png_and_svg_too(html: str, home: Path) -> None:
    assert len(html) > 0
    folder = home / "page-figures"
    svg, png = sorted(folder.glob("*.svg")), sorted(folder.glob("*.png"))
    assert [path.stem for path in svg] == [path.stem for path in png]
    assert len(svg) == len(list(Page(html).all("figure"))) - 6 * 4  # all but the thumbnails
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in png)


def test_the_same_folder_gives_the_same_page(run_folder: Path, html: str) -> None:
    assert make_report(read_run_folder(run_folder)).html == html


def test_the_configuration_on_the_page_is_the_same_study(page: Page, run_folder: Path, tmp_path: Path) -> None:
    (address,) = (a["href"] or "" for _, a, _ in page.all("a") if "download" in a)
    (tmp_path / "pipelines").mkdir()
    shutil.copytree(bundled("site_configs"), tmp_path / "site_configs")
    file = tmp_path / "pipelines" / "again.yaml"
    file.write_bytes(base64.b64decode(address.split(",")[1]))
    again = load_pipeline(file).model_dump(mode="json")
    assert again == json.loads((run_folder / "study.json").read_text())["configuration"]


def test_the_cards_count_what_the_sites_hold(run_folder: Path) -> None:
    cards = json.loads((run_folder / "sites.json").read_text())["sites"]
    table = json.loads((run_folder / "table.json").read_text())
    assert [card["role"] for card in cards] == ["client"] * 5 + ["test"]
    test = cards[-1]
    assert test["images"] == table["images"]
    for disease, found in table["rows"][0]["diseases"].items():
        assert test["diseases"][disease]["positives"] == found["positives"]
        assert test["diseases"][disease]["negatives"] == found["negatives"]
    for card in cards:
        assert sum(card["grey_levels"]) == card["grey_level_images"] * 64 * 64
    with np.load(run_folder / "thumbnails.npz") as stored:
        assert {name: stored[name].shape for name in stored.files} == {str(n): (4, 96, 96) for n in range(6)}


def test_drift_is_the_distance_of_grey_levels_and_of_prevalences() -> None:
    assert histogram_distance([4, 0, 0, 0], [0, 0, 0, 2]) == 0.75  # three of four bins further
    a = {"grey_levels": [1, 1], "diseases": {"edema": {"prevalence": 0.1}, "mass": {"prevalence": None}}}
    b = {"grey_levels": [3, 1], "diseases": {"edema": {"prevalence": 0.4}, "mass": {"prevalence": 0.5}}}
    assert drift(a, a).score == 0
    assert drift(a, b).grey_levels == 0.125
    assert drift(a, b).prevalence == pytest.approx(0.3)
    assert drift(b, a).score == pytest.approx(0.425)


def test_pictures_of_real_patients_are_shown_on_request_only(copy: Path) -> None:
    are_real(copy, lambda _: True)
    run = read_run_folder(copy)
    without, shown = make_report(run).html, make_report(run, pictures=True).html
    assert "data:image/png" not in without
    assert without.count("Pictures of real patients are left") == 1
    assert "Pictures of real patients are left" not in shown
    assert shown.count("data:image/png") == 24
    assert "SYNTHETIC" not in re.sub(r"data:[^\"]*", "", shown)


def are_real(run: Path, which: Callable[[str], bool]) -> None:
    """Make the clients and test images of these names real ones."""
    about = json.loads((run / "sites.json").read_text())
    for card in about["sites"]:
        card["data"] = "real" if which(card["name"]) else card["data"]
    origin = Origin.together(Origin(card["data"]) for card in about["sites"])
    (run / "sites.json").write_text(json.dumps(about | origin.keys()))
    for name in ("study.json", "table.json"):
        (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | origin.keys()))


def test_pictures_of_a_real_hospital_among_phantoms_are_left_out(copy: Path) -> None:
    are_real(copy, lambda name: name in ("padchest", "test images"))
    run = read_run_folder(copy)
    page, shown = Page(make_report(run).html), make_report(run, pictures=True).html
    pictures = [attributes["alt"] or "" for _, attributes, _ in page.all("img") if "Small" in (attributes["alt"] or "")]
    assert len(pictures) == 16
    assert not any("padchest" in alt or "test images" in alt for alt in pictures)
    assert shown.count("data:image/png") == 24
    assert "Small synthetic phantom of padchest" not in shown
    ((_, _, title),) = page.all("title")
    assert title.startswith("PARTLY SYNTHETIC: ")
    text = make_report(run).html
    assert "others have real patients" in text
    assert "No patients" not in text
    assert "Published, for orientation only" not in text


def test_pictures_of_an_earlier_versions_folder_are_left_out(copy: Path) -> None:
    """It does not say which of its sites were real."""
    about = json.loads((copy / "sites.json").read_text())
    for card in about["sites"]:
        del card["data"]
    (copy / "sites.json").write_text(json.dumps(about))
    assert "data:image/png" not in make_report(read_run_folder(copy)).html


def test_without_what_earlier_versions_did_not_write_the_page_says_so(copy: Path) -> None:
    for name in ("sites.json", "thumbnails.npz", "k1/time.json", "k1/seconds.jsonl"):
        (copy / name).unlink()
    html = make_report(read_run_folder(copy)).html
    assert "made by an earlier version" in html
    assert "K=1 was not recorded" in html
    assert "not known" in html


def test_a_study_that_adds_parts_of_one_hospital_speaks_of_clients(copy: Path) -> None:
    study = json.loads((copy / "study.json").read_text())
    study["configuration"]["sites"] = [{**study["configuration"]["sites"][0], "clients": 5, "test_fraction": 0.3}]
    (copy / "study.json").write_text(json.dumps(study))
    html = make_report(read_run_folder(copy)).html
    assert "Does adding clients help?" in html
    assert "AUC on the test images by number of clients" in html
    for part in ("adding hospitals", "first hospital", "the target"):
        assert part not in html


def test_a_precision_recall_curve_begins_at_the_precision_of_its_first_threshold(run_folder: Path) -> None:
    run = read_run_folder(run_folder)
    pictures = figures.precision_recall_curves(run)
    for j, picture in enumerate(pictures):
        curves = [line for line in picture.figure.axes[0].get_lines() if line.get_label().startswith("K=")]
        for result, line in zip(run.results, curves, strict=bool(curves)):
            top = result.scores[:, j] == result.scores[~np.isnan(result.labels[:, j]), j].max()
            assert line.get_ydata()[0] <= 1
            assert line.get_xdata()[0] == 0
            if np.nanmax(result.labels[top, j]) == 0:  # the highest score is a negative image's
                assert line.get_ydata()[0] == 0


def test_mlflows_precision_recall_curve_is_the_reports(run_folder: Path) -> None:
    run = read_run_folder(run_folder)
    alone = replace(run, table={**run.table, "rows": run.table["rows"][:1]}, results=run.results[:1])
    ours = [line for line in overview._precision_recall(alone).figure.axes[0].get_lines() if len(line.get_xdata()) > 2]
    theirs = [picture.figure.axes[0].get_lines()[-1] for picture in figures.precision_recall_curves(alone)]
    theirs = [line for line in theirs if line.get_label().startswith("K=")]
    assert ours
    for one, other in zip(ours, theirs, strict=True):
        assert one.get_drawstyle() == other.get_drawstyle() == "steps-pre"
        np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())


def test_an_unfinished_study_is_refused(copy: Path) -> None:
    (copy / "k2" / "result.json").unlink()
    with pytest.raises(ChestfedError, match=r"not finished, K=2 is still to come"):
        read_run_folder(copy)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("table.json", b"{", "table.json: cannot be read"),
        ("table.json", b'{"rows": []}', "not all K of the study"),
        ("study.json", b"{}", "not the content that it should have"),
        ("k1/predictions.parquet", b"PAR1", "predictions.parquet: cannot be read"),
        ("k2/rounds.jsonl", b'{"round": 1', "rounds.jsonl: cannot be read"),
        ("k2/rounds.jsonl", b"", "rounds.jsonl: cannot be read"),
        ("thumbnails.npz", b"PK", "thumbnails.npz: cannot be read"),
        ("sites.json", b"", "sites.json: cannot be read"),
    ],
)
def test_a_damaged_file_is_named(copy: Path, name: str, content: bytes, message: str) -> None:
    (copy / name).write_bytes(content)
    with pytest.raises(ChestfedError, match=message):
        read_run_folder(copy)


def test_predictions_of_another_run_are_refused(copy: Path) -> None:
    shutil.copy(copy / "k1" / "predictions.parquet", copy / "k2" / "predictions.parquet")
    with pytest.raises(ChestfedError, match="not of the same run"):
        read_run_folder(copy)


def test_a_folder_that_is_no_run_is_refused_with_what_to_give(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ChestfedError, match="no such folder"):
        read_run_folder(tmp_path / "nowhere")
    with pytest.raises(ChestfedError, match=run_folder.name):
        read_run_folder(run_folder.parent)
    with pytest.raises(ChestfedError, match="this is no run folder"):
        read_run_folder(tmp_path)


def test_a_title_is_text_and_never_markup(copy: Path, tmp_path: Path) -> None:
    table = json.loads((copy / "table.json").read_text())
    (copy / "table.json").write_text(json.dumps(table | {"title": "<img src=x> & more"}))
    write_report(copy, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert "<img src=x>" not in html
    assert "&lt;img src=x&gt; &amp; more" in html


def test_a_browser_shows_it_on_a_narrow_screen_without_scrolling_sideways(html: str, tmp_path: Path) -> None:
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
    found = re.search(r"<title>wide (\d+)</title>", result.stdout)
    assert found, result.stderr[-2000:]
    assert int(found[1]) <= 375  # a scroll bar may take part of it
