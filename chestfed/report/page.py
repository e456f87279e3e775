"""The page: what is shown, as plain values, and the template filled with them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from chestfed.core.checkpoint import write_text
from chestfed.core.diseases import TITLES
from chestfed.core.provenance import Origin
from chestfed.evaluation.calibration import calibration_per_disease
from chestfed.evaluation.comparison import Comparison
from chestfed.report import figures
from chestfed.report.drift import drift
from chestfed.report.html import Cell, Line, Table, fill, text_of
from chestfed.results.run_folder import RunFolder, read_run_folder
from chestfed.results.significance import of_study
from chestfed.results.table import paper_table


@dataclass(frozen=True)
class Report:
    """The page, and the figures that are in it."""

    html: str
    pictures: tuple[figures.Picture, ...]


def write_report(folder: Path, out: Path, figures_folder: Path | None = None, *, pictures: bool = False) -> Report:
    """Make the page of a run folder, and write it to `out`; the figures to `figures_folder`, if there is one.

    Pictures of sites that are not synthetic are shown only if `pictures`.

    Raises
    ------
    ChestfedError
        If the study is not finished, or its folder is damaged.
    """
    report = make_report(read_run_folder(folder), pictures=pictures)
    write_text(out, report.html)
    if figures_folder is not None:
        for picture in report.pictures:
            picture.save(figures_folder)
    return report


def make_report(run: RunFolder, *, pictures: bool = False) -> Report:
    """The page of a finished study."""
    comparisons = _comparisons(run)
    groups = {
        "differences": [figures.mean_differences(run, comparisons)] if comparisons else [],
        "roc": figures.roc_curves(run),
        "precision_recall": figures.precision_recall_curves(run),
        "calibration": figures.calibration_curves(run),
        "auc_per_round": figures.auc_per_round(run),
        "per_round": figures.per_round(run),
    }
    grey_levels = figures.grey_levels(run) if run.sites else []
    configuration = yaml.safe_dump(run.study["configuration"], sort_keys=False, allow_unicode=True)
    html = fill(
        "page.html",
        style=text_of("page.css"),
        title=run.table["title"],
        skip_to="results",
        command="chestfed report",
        tag=run.origin.tag,
        mark=run.origin.sentence,
        facts=_facts(run),
        auc=_auc_table(run),
        published=_published_source(run),
        undefined=_undefined(run),
        orientation=_orientation(run),
        differences=_difference_table(run, comparisons),
        verdict=_verdict(run, comparisons),
        added="hospitals" if _adds_hospitals(run) else "clients",
        pictures_left_out=not pictures and any(not _is_synthetic(card) for card in (run.sites or {}).get("sites", ())),
        resamples=run.study["configuration"]["evaluation"]["resamples"],
        calibration=_calibration_table(run),
        training=_training_table(run),
        sites=_site_cards(run, grey_levels, pictures=pictures),
        drift=_drift_table(run),
        groups=groups,
        configuration=configuration,
        configuration_uri="data:text/yaml;base64," + base64.b64encode(configuration.encode()).decode(),
        versions=_plain_table("versions", "Versions of the software", "package", "version", run.study["versions"]),
        inputs=_plain_table("inputs", "Digests of the data: pixels, labels and counts", "part", "digest", _inputs(run)),
        code=run.study["results_version"],
        digest=run.study["digest"],
        machine=run.study["machine"],
        pipeline=_pipeline_name(run),
    )
    every = [*(picture for group in groups.values() for picture in group), *grey_levels]
    return Report(html, tuple(every))


def _facts(run: RunFolder) -> dict[str, str]:
    table, federated = run.table, run.study["configuration"]["federated"]
    left_out = sum(run.study["quarantined"].values())
    facts = {
        "data": run.origin.description,
        "model": table["model"],
        "algorithm": f"{federated['algorithm']}, {federated['window']} local steps per round",
        "test images": f"{table['images']:,} of {table['patients']:,} patients ({table['protocol']})",
        "K": ", ".join(str(result.k) for result in run.results),
        "seed": str(run.study["configuration"]["seed"]),
        "intervals": table["interval"],
    }
    if left_out:
        facts["left out"] = f"{left_out:,} unreadable images"
    return facts


def _auc_table(run: RunFolder) -> Table:
    lines = []
    for row in run.table["rows"]:
        cells = [_auc_cell(found["auc"], found["interval"]) for found in row["diseases"].values()]
        mean = _auc_cell(row["mean_auc"], row["mean_interval"])
        lines.append(Line(f"K={row['k']}", (Cell(row["clients"][-1]), *cells, mean)))
        paper = _paper_row(run, row["k"])
        if paper:
            values = (paper.get(name) for name in (*run.diseases, "average"))
            shown = (Cell("" if value is None else f"{value:.4f}") for value in values)
            lines.append(Line(f"paper, K={row['k']}", (Cell(""), *shown), "paper"))
    return Table(
        "auc",
        f"AUC {_where(run)} by number of clients ({_over(run)}); below each its 95% interval",
        (Cell("K"), Cell("added"), *_disease_columns(run), Cell("mean")),
        tuple(lines),
    )


def _adds_hospitals(run: RunFolder) -> bool:
    """Whether each K adds a hospital; else clients are parts of a hospital, or of a public collection."""
    sites = run.study["configuration"]["sites"]
    return len(sites) > 1 and all(site["clients"] == 1 for site in sites)


def _where(run: RunFolder) -> str:
    held_out = sum(site["test_fraction"] is not None for site in run.study["configuration"]["sites"])
    return "at the first hospital" if _adds_hospitals(run) and held_out < 2 else "on the test images"


def _over(run: RunFolder) -> str:
    return f"{run.table['protocol']}, n = {run.table['images']:,}"


def _paper_row(run: RunFolder, k: int) -> dict[str, float]:
    """The paper's figures for this K, `average` among them; empty without."""
    published = run.table.get("published")
    if published is not None and k == run.results[-1].k:
        auc = dict(published["auc"])
        return auc | ({"average": auc["mean"]} if "mean" in auc else {})
    return next((row for row in run.table.get("paper") or () if row["sources"] == k), {})


def _published_source(run: RunFolder) -> str:
    if run.table.get("published"):
        return str(run.table["published"]["source"])
    return "the source paper's Table 4 or 5, on the real CheXpert validation set" if run.table.get("paper") else ""


def _undefined(run: RunFolder) -> list[str]:
    found = run.table["rows"][0]["diseases"]
    return [f"{_title(disease)}: {entry['reason']}" for disease, entry in found.items() if entry.get("reason")]


def _orientation(run: RunFolder) -> Table | None:
    """Beside a synthetic study: the published table, as it was printed."""
    if run.origin is not Origin.SYNTHETIC:
        return None
    rows = paper_table("densenet121")
    names = [name for name in rows[0] if name != "sources"]
    return Table(
        "orientation",
        "Published, for orientation only: the source paper's Table 4, DenseNet121 on the real CheXpert validation set. "
        "Another network on real patients; it is not to be compared with the table above, which is about phantoms",
        (Cell("K"), *(Cell("mean" if name == "average" else TITLES[name]) for name in names)),
        tuple(Line(f"K={row['sources']:.0f}", tuple(Cell(f"{row[name]:.4f}") for name in names)) for row in rows),
    )


def _comparisons(run: RunFolder) -> list[Comparison]:
    """Every larger K against the smallest, as in the study's `significance.json`."""
    resamples = run.study["configuration"]["evaluation"]["resamples"]
    found = of_study(run.path, [result.k for result in run.results], resamples) if resamples else None
    return [] if found is None else list(found.comparisons)


def _difference_table(run: RunFolder, comparisons: Sequence[Comparison]) -> Table | None:
    if not comparisons:
        return None
    lines = []
    for result, found in zip(run.results[1:], comparisons, strict=True):
        cells = [_difference_cell(d.difference, d.interval, d.p_holm) for d in found.diseases]
        mean = _difference_cell(found.mean.difference, found.mean.interval, found.mean.p_holm)
        lines.append(Line(f"K={result.k}", (Cell(result.clients[-1]), *cells, mean)))
    return Table(
        "differences",
        f"AUC less that of K={run.results[0].k} on the same test images ({_over(run)}); below each its 95% interval "
        "and corrected p",
        (Cell("K"), Cell("added"), *_disease_columns(run), Cell("mean")),
        tuple(lines),
    )


def _verdict(run: RunFolder, comparisons: Sequence[Comparison]) -> str:
    """The answer in two sentences."""
    if not comparisons:
        return ""
    first, last, mean = run.results[0].k, run.results[-1].k, comparisons[-1].mean
    if mean.difference is None:
        return ""
    direction = "higher" if mean.difference > 0 else "lower"
    between = "" if mean.interval is None else f"95% interval {_pair(mean.interval.low, mean.interval.high, 3)}"
    of_p = "" if mean.p_holm is None else f"corrected p {_p(mean.p_holm)}"
    in_brackets = "; ".join(part for part in (between, of_p) if part)
    every = [d for found in comparisons for d in found.diseases if d.p_holm is not None and d.difference is not None]
    surer = [d for d in every if d.p_holm is not None and d.p_holm < 0.05]
    higher = sum(d.difference is not None and d.difference > 0 for d in surer)
    which = f"{len(surer)} ({higher} higher, {len(surer) - higher} lower)" if surer else "none"
    return (
        f"With K={last} the mean AUC is {abs(mean.difference):.3f} {direction} than with K={first}"
        f"{f' ({in_brackets})' if in_brackets else ''}. Of {len(every)} comparisons of single diseases, {which} "
        f"{'has' if len(surer) <= 1 else 'have'} a corrected p below 0.05."
    )


def _calibration_table(run: RunFolder) -> Table:
    lines = []
    for result in run.results:
        found = calibration_per_disease(result.scores, result.labels, run.diseases)
        cells = (
            Cell("-") if part.brier is None else Cell(f"{part.ece_equal_mass:.3f}", (f"Brier {part.brier:.3f}",))
            for part in found
        )
        lines.append(Line(f"K={result.k}", tuple(cells)))
    return Table(
        "calibration-errors",
        "Expected calibration error (15 bins of equally many images), and below it the Brier score",
        (Cell("K"), *_disease_columns(run)),
        tuple(lines),
    )


def _training_table(run: RunFolder) -> Table:
    lines = []
    for result in run.results:
        sums = {name: sum(e[name] for e in result.rounds) for name in ("images", "gradients", "bytes_up", "bytes_down")}
        megabytes = (sums["bytes_up"] / 1e6, sums["bytes_down"] / 1e6)
        numbers = (len(result.rounds), sums["gradients"], sums["images"])
        cells = (
            *(Cell(f"{number:,}") for number in numbers),
            *(Cell(f"{amount:,.2f}") for amount in megabytes),
            _time_cell(result.time),
        )
        lines.append(Line(f"K={result.k}", cells))
    return Table(
        "training",
        "What stage 2 took, summed over all clients and rounds",
        tuple(Cell(name) for name in ("K", "rounds", "gradients", "images", "MB up", "MB down", "seconds")),
        tuple(lines),
    )


def _time_cell(time: dict[str, Any]) -> Cell:
    if not time:
        return Cell("not known")
    return Cell(f"{time['seconds']:.0f}", ("last part only, it was interrupted",) if time["resumed"] else ())


def _site_cards(
    run: RunFolder, histograms: Sequence[figures.Picture], *, pictures: bool
) -> list[dict[str, Any]] | None:
    """Per client, and for the test images: its numbers, its histogram and a few pictures."""
    if run.sites is None:
        return None
    cards = []
    for number, (card, histogram) in enumerate(zip(run.sites["sites"], histograms, strict=True)):
        lines = tuple(
            Line(
                _title(disease),
                (
                    Cell(f"{found['positives']:,}"),
                    Cell(f"{found['negatives']:,}"),
                    Cell(f"{found['missing']:,}"),
                    Cell("-" if found["prevalence"] is None else f"{found['prevalence']:.3f}"),
                ),
            )
            for disease, found in card["diseases"].items()
        )
        client, synthetic = card["role"] == "client", _is_synthetic(card)
        shown = pictures or synthetic
        table = Table(
            f"site-{number}",
            f"{card['name']}: labels of its {'training' if client else ''} images".replace("  ", " "),
            tuple(Cell(name) for name in ("disease", "positive", "negative", "missing", "prevalence")),
            lines,
        )
        cards.append(
            {
                "name": card["name"],
                "tag": (Origin.read(card) or Origin.REAL).tag,
                "counts": _counts(card, number, target_first=_adds_hospitals(run)),
                "table": table,
                "histogram": histogram,
                "sampled": card["grey_level_images"],
                "thumbnails": _thumbnails(run, card, number) if shown else [],
                "pictures_missing": shown and len(run.thumbnails.get(str(number), ())) == 0,
            }
        )
    return cards


def _is_synthetic(card: dict[str, Any]) -> bool:
    """Whether a client's images are phantoms; a folder that does not say it is of an earlier version: they are not."""
    return Origin.read(card) is Origin.SYNTHETIC


def _counts(card: dict[str, Any], number: int, *, target_first: bool) -> str:
    text = f"{card['images']:,} images"
    if card["role"] == "client":
        target = ", the target" if number == 0 and target_first else ""
        text = f"Client {number + 1}{target}: {text}, {card['rows']:,} training rows"
    return text + (f"; {card['unreadable']:,} unreadable ones left out" if card["unreadable"] else "")


def _thumbnails(run: RunFolder, card: dict[str, Any], number: int) -> list[dict[str, str]]:
    found = []
    kind = "synthetic phantom" if _is_synthetic(card) else "image"
    for pixels, positive in zip(run.thumbnails.get(str(number), ()), card["shown"], strict=False):
        signs = ", ".join(map(_title, positive)) or "no positive label"
        found.append(
            {"uri": figures.thumbnail(pixels), "alt": f"Small {kind} of {card['name']}: {signs}", "label": signs}
        )
    return found


def _drift_table(run: RunFolder) -> Table | None:
    if run.sites is None or len(run.sites["sites"]) < 2:
        return None
    cards = run.sites["sites"]
    lines = []
    for a in cards:
        found = [None if a is b else drift(a, b) for b in cards]
        cells = (
            Cell("-") if d is None else Cell(f"{d.score:.3f}", (f"{d.grey_levels:.3f} + {_number(d.prevalence)}",))
            for d in found
        )
        lines.append(Line(a["name"], tuple(cells)))
    return Table(
        "drift",
        "Drift score between sites; below it its parts, grey levels + prevalence",
        (Cell("site"), *(Cell(card["name"]) for card in cards)),
        tuple(lines),
    )


def _inputs(run: RunFolder) -> dict[str, str]:
    return {str(name): str(digest) for name, digest in run.study["inputs"].items()}


def _plain_table(name: str, caption: str, head: str, value: str, values: dict[str, str]) -> Table:
    lines = tuple(Line(str(key), (Cell(str(text)),), "plain") for key, text in values.items())
    return Table(name, caption, (Cell(head), Cell(value)), lines)


def _pipeline_name(run: RunFolder) -> str:
    """From the folder's name, `<pipeline>-<digest>`; `study` if it was renamed."""
    name = run.path.resolve().name.removeprefix(run.origin.prefix)
    end = f"-{run.study['digest']}"
    return name.removesuffix(end) if name.endswith(end) else "study"


def _disease_columns(run: RunFolder) -> list[Cell]:
    found = run.table["rows"][0]["diseases"]
    return [Cell(_title(d), (f"n+ {e['positives']:,}", f"n− {e['negatives']:,}")) for d, e in found.items()]


def _auc_cell(auc: float | None, interval: list[float] | None) -> Cell:
    if auc is None:
        return Cell("-")
    return Cell(f"{auc:.3f}", () if interval is None else (f"[{interval[0]:.3f}, {interval[1]:.3f}]",))


def _difference_cell(difference: float | None, interval: Any, p: float | None) -> Cell:
    if difference is None:
        return Cell("-")
    below = [] if interval is None else [_pair(interval.low, interval.high, 3)]
    below += [] if p is None else [f"p {_p(p)}"]
    return Cell(_signed(difference), tuple(below), strong=p is not None and p < 0.05)


def _pair(low: float, high: float, digits: int) -> str:
    return f"[{_signed(low, digits)}, {_signed(high, digits)}]"


def _signed(value: float, digits: int = 3) -> str:
    """With its sign, and a minus as long as the plus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _title(disease: str) -> str:
    return TITLES.get(disease, disease)
