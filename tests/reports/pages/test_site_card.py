"""The card of a site: what is on it, what must not be, and that it can be read by everybody."""

from __future__ import annotations

import base64
import io
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import wasserstein_distance
from typer.testing import CliRunner, Result

from chestfed.app.cli import app
from chestfed.core.bundled import bundled
from chestfed.core.diseases import DISEASES, TITLES
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.data.images.decode import decode
from chestfed.data.images.preprocess import Preprocess
from chestfed.data.sites import SiteConfig, load_site_config, open_site
from chestfed.data.sites.tables.codebook import Code, write_book
from chestfed.reports.pages.site_report import SiteReport, check_page, make_report, write_card
from chestfed.reports.pages.site_report.content import SHOWN, SIDE, row_ranges
from chestfed.reports.pages.site_report.meanings import describe_words
from chestfed.reports.pages.site_report.render import as_html, as_markdown
from chestfed.reports.pages.site_report.sections import pool_decades
from tests.cases import assert_refused
from tests.data.checks.planted import FILES, Hospital, dicom, get_row, save
from tests.data.sites.own_tables import config as own_config
from tests.data.sites.own_tables import save_rows
from tests.reports.pages.pages import (
    Page,
    assert_needs_nothing_else,
    assert_readable_without_seeing_it,
    assert_says_synthetic,
)

ONEHOT: dict[str, Any] = {}
SITES = bundled("site_configs") / "synthetic"
#: What the synthetic VinDr-CXR labels.
LABELED = [disease for disease in DISEASES if disease != "edema"]
SECTIONS = [
    "Data quality",
    "Splits and labels",
    "What the labels mean here",
    "Patients and views",
    "Shortcuts",
    "Image files",
    "Comparison with other sites",
    "How to reproduce",
    "Images",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was found in the images of the tiny hospitals."""
    return tmp_path_factory.mktemp("cache")


def load(name: str) -> SiteConfig:
    return load_site_config(SITES / f"{name}.yaml")


@pytest.fixture(scope="module")
def card(tiny_hospitals: Path, cache: Path) -> SiteReport:
    others = [load("chexpert"), load("padchest")]
    return make_report(load("vindr"), tiny_hospitals, against=others, cache_root=cache, workers=1)


@pytest.fixture(scope="module")
def html(card: SiteReport) -> str:
    return as_html(card)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture(scope="module")
def markdown(card: SiteReport) -> str:
    return as_markdown(card)


def test_card_says_how_well_sites_are_named(card: SiteReport, markdown: str, tmp_path: Path) -> None:
    assert card.probe is not None
    assert set(card.probe.recall) == {"vindr", "chexpert", "padchest"}
    assert card.probe.chance < card.probe.accuracy <= 1
    assert card.probe.describe() in markdown
    assert own_card(tmp_path, Hospital(tmp_path)).probe is None  # beside no other


def own_card(folder: Path, hospital: Hospital, **keys: Any) -> SiteReport:
    hospital.save()
    site = own_config(folder, ONEHOT, **keys)
    return make_report(site, folder, cache_root=folder / "cache", workers=1)


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["site", "card", *map(str, words)])


def cell(page: Page, row: str) -> list[str]:
    """The texts of the row with this heading."""
    texts = [(tag, text) for tag, _, text in page.all("th", "td")]
    start = next(place for place, (tag, text) in enumerate(texts) if tag == "th" and text == row)
    return [text for _, text in itertools.takewhile(lambda item: item[0] == "td", texts[start + 1 :])]


# ---- what is on it -----------------------------------------------------------------------------------------------


def test_all_sections_are_in_both_forms(page: Page, markdown: str) -> None:
    assert [text for _, _, text in page.all("h2")] == SECTIONS
    assert re.findall(r"^## (.*)$", markdown, re.MULTILINE) == SECTIONS[:-1]  # no pictures there
    for text in ("vindr", "drawn by a program", "license", "chestfed samples", "passed: 0 errors"):
        assert text in markdown
    captions = " ".join(text for _, _, text in page.all("caption"))
    for part in ("Prevalence by disease", "Sexes", "Views", "Formats", "Sizes", "Bits", "transfer syntaxes", "Drift"):
        assert part in captions, part
        assert part in markdown, part


def test_its_numbers_are_those_of_the_check(card: SiteReport, page: Page, markdown: str) -> None:
    counts = card.check.counts
    assert cell(page, "disease without labels")[0] == "warning"
    for disease in LABELED:
        labels = [part.labels[disease] for part in counts.splits]
        assert cell(page, TITLES[disease])[: len(labels)] == [
            f"{entry.prevalence:.3f}n+ {entry.positive}, n− {entry.negative}" for entry in labels
        ]
        cells = " | ".join(f"{entry.prevalence:.3f} (n+ {entry.positive}, n− {entry.negative})" for entry in labels)
        assert f"| {TITLES[disease]} | {cells} |" in markdown
    files = counts.files
    assert files is not None
    assert cell(page, "readable") == [f"{files.readable}"]
    for values in (files.formats, files.sizes, files.bits, files.modes, files.transfer_syntaxes, counts.views):
        for name, number in values.items():
            assert cell(page, name)[0] == f"{number}"
            assert f"| {number} |" in markdown
    assert len(files.modes) > 1
    assert len(files.transfer_syntaxes) > 1


@pytest.mark.slow
def test_drift_equals_other_computation(card: SiteReport, tiny_hospitals: Path, page: Page, markdown: str) -> None:
    tables = {name: open_site(load(name), tiny_hospitals) for name in ("vindr", "chexpert", "padchest")}
    levels, prevalence = {}, {}
    for name, table in tables.items():
        bins = []
        for image, stored in zip(table.frame["image"], table.stored(), strict=True):
            bins.append(Preprocess().apply(decode(table.root / image, stored)).ravel() // 4)
        levels[name] = np.unique(np.concatenate(bins), return_counts=True)
        prevalence[name] = table.frame[LABELED].mean()
    for other in card.other_sites:
        (a, weights), (b, other_weights) = levels["vindr"], levels[other.name]
        of_levels = wasserstein_distance(a, b, weights, other_weights) / 64
        of_labels = float((prevalence["vindr"] - prevalence[other.name]).abs().mean())
        drift = card.profile.drift_to(other)
        assert drift is not None
        assert drift.gray_levels == pytest.approx(of_levels, abs=1e-12)
        assert drift.prevalence == pytest.approx(of_labels, abs=1e-6)
        assert drift.score == pytest.approx(of_levels + of_labels, abs=1e-6)
        assert drift.score > 0.05
        shown = [f"{value:.3f}" for value in (drift.score, drift.gray_levels, drift.prevalence or 0)]
        assert f"| {other.name} | {' | '.join(shown)} | 4 |" in markdown
    drifts = [text for _, _, text in page.all("td")]
    assert set(shown) <= set(drifts)


@pytest.mark.slow
def test_drift_leaves_out_unshared_disease(tmp_path: Path, tiny_hospitals: Path) -> None:
    hospital = Hospital(tmp_path)
    hospital.save()
    labels = {"edema": ["Edema"]}
    site = own_config(tmp_path, ONEHOT, diseases=["edema"], labels=labels, root=str(tmp_path / "site"))
    card = make_report(site, tiny_hospitals, against=[load("padchest")], cache_root=tmp_path / "cache", workers=1)
    (other,) = card.other_sites
    drift = card.profile.drift_to(other)
    assert drift is not None
    assert card.profile.shared(other) == ["edema"]
    prevalence, other_prevalence = card.profile.prevalence["edema"], other.prevalence["edema"]
    assert prevalence is not None
    assert other_prevalence is not None
    assert drift.prevalence == pytest.approx(abs(prevalence - other_prevalence))
    assert drift == card.profile.drift_to(other)
    assert re.search(r"\| padchest \(synthetic\) \|.*\| 1 \|", as_markdown(card))


@pytest.mark.slow
def test_no_drift_without_pictures(tmp_path: Path) -> None:
    hospital, other = Hospital(tmp_path), Hospital(tmp_path / "other")
    for number in range(len(other.rows)):
        other.image(number).unlink()
    hospital.save()
    other.save()
    elsewhere = own_config(tmp_path / "other", ONEHOT, site="st-empty", root=str(tmp_path / "other/site"))
    site = own_config(tmp_path, ONEHOT)
    card = make_report(site, tmp_path, against=[elsewhere], cache_root=tmp_path / "cache", workers=1)
    assert card.profile.drift_to(card.other_sites[0]) is None
    text = as_markdown(card)
    assert "| st-empty | - (no readable images) | - | - | - |" in text
    assert "st-empty has a mean" not in text
    assert re.search(r"\| Cardiomegaly \| (0\.\d{3}) \| \1 \|$", text, re.MULTILINE)


def test_declared_text_is_counted_and_hidden(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    folder = hospital.image(0).parent
    pixels = [np.random.default_rng(number).integers(0, 255, (64, 64), dtype=np.uint8) for number in range(3)]
    overlaid = dicom(pixels[1], BurnedInAnnotation="NO")
    overlaid.add_new((0x6000, 0x0010), "US", 600)
    for number, file in enumerate((dicom(pixels[0], BurnedInAnnotation="YES"), overlaid, dicom(pixels[2]))):
        save(file, folder / f"{number}.dcm")
    hospital.rows[:] = [row | {"File": f"{number}.dcm"} for number, row in enumerate(hospital.rows[:3])]
    card = own_card(tmp_path, hospital)
    text = as_markdown(card)
    assert "| BurnedInAnnotation is YES | 1 |" in text
    assert "| the header has overlays | 1 |" in text
    assert "text in the picture, by its header" in {problem.kind for problem in card.check.warnings}
    (shown,) = card.thumbnails()
    assert np.array_equal(shown.pixels, small(decode(folder / "2.dcm")))


def small(gray: np.ndarray) -> np.ndarray:
    square = Image.fromarray(Preprocess().apply(gray))
    return np.asarray(square.resize((SIDE, SIDE), Image.Resampling.BOX))


@pytest.mark.usefixtures("undrawn")
def test_failed_site_has_card(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for number, name in ((0, "0 bytes"), (1, "truncated"), (3, "blank")):
        FILES[name][0](hospital.image(number))
    hospital.rows[12]["Edema"] = "perhaps"
    for row in hospital.rows:
        row["Consolidation"] = ""
    card = own_card(tmp_path, hospital)
    assert not card.check.passed
    text = as_markdown(card)
    assert "FAILED: 3 errors, 3 warnings" in text
    assert f"| unreadable image | error | table: rows {get_row(0)}–{get_row(1)} | 2 |" in text
    assert "| unknown label | error |" in text
    assert f"| blank picture | warning | table: row {get_row(3)} | 1 |" in text
    assert "Consolidation has no label in 'train'" in text
    assert "| unreadable | 2 |" in text
    page = Page(as_html(card))
    assert cell(page, "unreadable image") == ["error", f"table: rows {get_row(0)}–{get_row(1)}", "2"]


def test_rows_are_listed_as_runs() -> None:
    assert row_ranges([5]) == "row 5"
    assert row_ranges([9, 2, 3, 4, 2]) == "rows 2–4, 9"
    assert row_ranges(range(2, 100, 2)).endswith(" and 37 more")


def test_high_ages_are_one_group(tmp_path: Path) -> None:
    assert pool_decades({"30": 2, "50": 1, "90": 3, "100": 1}) == {"30–39": 2, "40–49": 0, "50–59": 1, "60–69": 0,
        "70–79": 0, "80–89": 0, "90+": 4}  # fmt: skip
    assert pool_decades({"90": 3}) == {"90+": 3}
    assert pool_decades({}) == {}
    hospital = Hospital(tmp_path)
    hospital.rows[0]["Age"] = "103"
    text = as_markdown(own_card(tmp_path, hospital))
    assert "from 63 to 90 or more" in text
    assert "90+ years 1" in text
    assert "103" not in text


def test_unknown_labels_are_not_quoted(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for number in (0, 1, 5):
        hospital.rows[number] |= {"Edema": "QXCELL", "Pulmonary Edema": "QXCELL"}
    hospital.save()
    codes = {"labels": {"QXCELL": "missing"}}
    site = own_config(tmp_path, {"codes": codes})
    text = as_markdown(make_report(site, tmp_path, cache_root=tmp_path / "cache", workers=1))
    table = text.partition("Missing labels")[2].partition("##")[0]
    assert "because of values that mean missing" in table.split("\n")[0]
    assert "| disease | values that mean missing |" in table
    assert "| Edema | 3 |" in table
    assert "| Consolidation | 0 |" in table
    assert "QXCELL" not in text


def test_card_names_words_of_labels(tmp_path: Path) -> None:
    rows = [(f"{n}.png", f"p{n}", "oedema" if n % 2 else "clear") for n in range(4)]
    save_rows(tmp_path / "site/labels.csv", [dict(zip(("File", "MRN", "Terms"), row, strict=True)) for row in rows])
    codes = [
        Code("", "finding", "oedema", 40, "", "", "edema", "yes"),
        Code("", "finding", "no oedema", 30, "", "", "edema absent", "yes"),
        Code("", "finding", "clear", 20, "", "", "normal", "yes"),
        Code("", "finding", "oedema of jane doe", 9, "", "", "edema", "yes"),
        Code("", "finding", "oedema 12.3.1950", 50, "", "", "edema", "yes"),
        Code("", "finding", "oedema of the lung as on the last film", 50, "", "", "edema", "yes"),
        Code("", "finding", "perhaps", 50, "", "", "edema uncertain", ""),
        *(Code("", "finding", f"mass {letter}", 10, "", "", "mass", "yes") for letter in "abcdefgh"),
    ]
    write_book(tmp_path / "own.codes.csv", codes)
    keys = {
        "columns": {"image": "File", "patient": "MRN", "findings": "Terms"},
        "codes": str(tmp_path / "own.codes.csv"),
    }
    words = describe_words(own_config(tmp_path, keys, diseases=["edema", "mass"]))
    masses = ", ".join(f"'mass {letter}'" for letter in "abcdef")
    assert words == {
        "edema": "positive from 'oedema', 3 more; negative from 'no oedema', 'clear'",
        "mass": f"positive from {masses}, 2 more; negative from 'clear'",
    }


def test_card_names_codes_of_columns(tmp_path: Path) -> None:
    codes = {"labels": {"2": "positive", "ja": "positive", "0": "negative"}, "Pulmonary Edema": {"2": "uncertain"}}
    words = describe_words(own_config(tmp_path, {"codes": codes}))
    assert words["cardiomegaly"] == "column Cardiomegaly: positive from 2, 'ja'; negative from 0"
    assert words["edema"].endswith("positive from 2, 'ja'; negative from 0; uncertain from 2")
    assert describe_words(own_config(tmp_path, {}))["cardiomegaly"].endswith(
        "positive from 1, 'yes'; negative from 0, 'no'"
    )
    assert describe_words(own_config(tmp_path, {"threshold": 0.5}))["cardiomegaly"].endswith("positive from 0.5 on")
    assert describe_words(load("vindr"))["cardiomegaly"] == "Cardiomegaly"


# ---- what must not be on it --------------------------------------------------------------------------------------


def test_card_names_no_patient_or_image(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for number, row in enumerate(hospital.rows):
        old = hospital.image(number)
        row["File"] = f"QXIMAGE{number:03d}{old.suffix}"
        old.rename(hospital.image(number))
        row["MRN"] = f"QXPATIENT{number // 2}"
    for number, name in ((0, "0 bytes"), (1, "truncated"), (3, "blank"), (6, "wrong extension"), (7, "removed")):
        FILES[name][0](hospital.image(number))
    hospital.rows[12]["Edema"] = "QXCELL"
    hospital.rows[20]["MRN"] = hospital.rows[14]["MRN"]
    hospital.rows[21]["File"] = "../QXIMAGEout.png"
    hospital.rows[16] |= {"File": hospital.rows[15]["File"]}
    card = own_card(tmp_path, hospital)
    assert len(card.check.errors) >= 5
    assert len(card.thumbnails()) == SHOWN
    for file in write_card(card, tmp_path / "card.html", pictures=True):
        content = file.read_bytes()
        plain = [content, *(base64.b64decode(code) for code in re.findall(rb";base64,([A-Za-z0-9+/=]+)", content))]
        for part in plain:
            for word in (b"QXIMAGE", b"QXPATIENT", b"QXCELL", b"Doe^", tmp_path.name.encode()):
                assert word not in part, (file.name, word)
    for picture in re.findall(r"data:image/png;base64,([^\"]*)", (tmp_path / "card.html").read_text()):
        assert Image.open(io.BytesIO(base64.b64decode(picture))).info == {}


@pytest.mark.usefixtures("undrawn")
def test_real_images_are_shown_on_request(tmp_path: Path, card: SiteReport) -> None:
    real = own_card(tmp_path, Hospital(tmp_path))
    assert "image/png" not in as_html(real)
    assert "Images of real patients are left out" in as_html(real)
    assert as_html(real, pictures=True).count("image/png") == SHOWN
    assert as_html(card).count("image/png") == SHOWN
    assert "image/png" not in as_html(card, pictures=False)


@pytest.mark.usefixtures("undrawn")
def test_words_of_the_yaml_are_no_markup(tmp_path: Path) -> None:
    words = "<script>alert(1)</script> | [a](b)"
    card = own_card(tmp_path, Hospital(tmp_path), title=words, license=words)
    page = Page(as_html(card))
    assert not list(page.all("script"))
    assert words in [text for _, _, text in page.all("dd")]
    assert "<script" not in as_markdown(card)
    assert r"\| \[a\](b)" in as_markdown(card)


# ---- that it can be read by everybody ----------------------------------------------------------------------------


def test_page_is_whole_and_accessible(html: str, page: Page, markdown: str) -> None:
    assert_needs_nothing_else(html)
    assert_readable_without_seeing_it(page)
    assert_says_synthetic(page)
    assert markdown.split("\n")[2].startswith("**SYNTHETIC")


# ---- the command -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_second_card_examines_no_image(
    tmp_path: Path, tiny_hospitals: Path, cache: Path, card: SiteReport, html: str, markdown: str
) -> None:
    words: list[str | Path] = [
        SITES / "vindr.yaml",
        "--data",
        tiny_hospitals,
        "--against",
        SITES / "chexpert.yaml",
        "--against",
    ]
    result = call(*words, SITES / "padchest.yaml", "--out", tmp_path / "a.html", "--cache", cache)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == html
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == markdown
    steps: list[str] = []
    others = [load("chexpert"), load("padchest")]
    again = make_report(
        load("vindr"),
        tiny_hospitals,
        against=others,
        cache_root=cache,
        progress=lambda what, done, total: steps.append(what),
    )
    assert steps == []
    assert as_html(again) == html


def test_missing_other_site_is_refused(tmp_path: Path, tiny_hospitals: Path) -> None:
    missing = tmp_path / "st_john.yaml"
    result = call(SITES / "vindr.yaml", "--data", tiny_hospitals, "--against", missing, "--out", tmp_path / "a.html")
    assert (result.exit_code, str(missing) in str(result.exception)) == (1, True)
    assert not (tmp_path / "a.html").exists()


def test_wrong_calls_have_advice(tmp_path: Path, tiny_hospitals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    assert "--data" in str(call(SITES / "vindr.yaml").exception)
    result = call(SITES / "vindr.yaml", "--data", tiny_hospitals, "--out", tmp_path / "a.md")
    assert (result.exit_code, ".html" in str(result.exception)) == (1, True)
    with assert_refused(ConfigError, "not a page", file=tmp_path / "a.md"):
        check_page(tmp_path / "a.md")
    with assert_refused(ChestfedError, "site given twice", site="vindr"):
        make_report(load("vindr"), tiny_hospitals, against=[load("vindr")], cache_root=tmp_path)
    with assert_refused(ChestfedError, "nothing to show", site="vindr"):
        write_card(make_report(load("vindr"), tmp_path, cache_root=tmp_path), tmp_path / "a.html")
