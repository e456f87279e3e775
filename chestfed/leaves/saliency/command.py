"""`chestfed saliency`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from chestfed.app.commands import options
from chestfed.app.commands.evaluate import BatchNorm, Model, Network, Site
from chestfed.core.console import open_console, plural, say, show_answer, text_table

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.leaves.saliency.misjudged import Misjudged

Split = Annotated[Literal["train", "valid", "test"], typer.Option(help="Images to look at.")]
Out = Annotated[Path, typer.Option(help="Folder for saliency.csv, and with --pictures for a figure per disease.")]
Shown = Annotated[int, typer.Option(min=1, max=20, help="Missed images, and false alarms, of each disease.")]
Pictures = Annotated[
    bool,
    typer.Option(
        "--pictures",
        help="Write the images with their maps, even of real patients. Check the license of the data set first.",
    ),
]


def saliency(
    model: Model,
    site: Site,
    data: options.Data = None,
    split: Split = "valid",
    out: Out = Path("saliency"),
    cache: options.Cache = options.AUTO,
    k: options.K = None,
    network: Network = None,
    images: Shown = 3,
    pictures: Pictures = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    skip_unreadable: options.SkipUnscorable = False,
    allow_trained: options.AllowTrained = False,
    batch_norm: BatchNorm = None,
) -> None:
    """Show where a model looks in the images that it misjudges: Grad-CAM and occlusion, checked against random weights.

    They are scored as by `chestfed evaluate`, and misclassified at a specificity of 90% in this split. Each map is
    compared with that of random weights: where both are alike, the map shows the image, not what was learned.

    Example:

        chestfed saliency synthetic-source_addition_samples-0123456789ab --site synthetic/chexpert --data DIR --pictures
    """
    options.refuse_no_model(model)
    with options.quick_imports():
        from chestfed.app.commands.progress import Bars
        from chestfed.core.disk import making_folder
        from chestfed.core.provenance import Origin
        from chestfed.data.sites import load_site_config, open_site
        from chestfed.leaves.saliency.misjudged import find_misjudged, write
        from chestfed.studies.experiment.device import machine_with
        from chestfed.studies.scoring.batch_norm import choose_statistics
        from chestfed.studies.scoring.evaluate import select_rows
        from chestfed.studies.scoring.scorers import Declared, open_scorer
        from chestfed.studies.scoring.trained_patients import check_tested

    console, config = open_console(), load_site_config(site)
    machine, table = machine_with(device), open_site(config, options.data_root(data, [config]))
    shown = pictures or table.phantoms
    with making_folder(out, "--out"):
        scorer = open_scorer(model, Declared(k, network=network), machine, site=table.name)
        rows = select_rows(table, scorer.diseases, split, "frontal-image")
        tested = check_tested(model, scorer, table, rows, split, allow=allow_trained)
        with Bars(console) as bars:
            decoded, progress = partial(bars.decoding, table.name), partial(bars.progressed, "maps", unit="image")
            statistics = choose_statistics(model, scorer, table, cache, batch_norm, decoded)
            looked_at = (table, split, cache, machine, images, seed, statistics, progress)
            misjudged = find_misjudged(scorer, *looked_at, skip_unreadable=skip_unreadable)
        misjudged = replace(misjudged, trained=tested.trained or 0, notes=(*tested.notes, *misjudged.notes))
        files = write(misjudged, out, Origin.together([table.origin, scorer.origin or table.origin]), pictures=shown)
    _print(console, misjudged, out, files, pictures=shown)


def _print(console: Console, misjudged: Misjudged, out: Path, files: Sequence[str], *, pictures: bool) -> None:
    """The table of the maps, what is left out, where the files are, and the verdict."""
    from chestfed.core.diseases import format_title
    from chestfed.leaves.saliency.misjudged import judge, tabulate

    examples = misjudged.examples
    rows = [
        (format_title(row["disease"]), row["kind"], row["method"], str(row["images"]), *_show(row))
        for row in tabulate(examples).to_dict("records")
    ]
    heads = ("images", "mean", "largest")
    caption = "Rank correlation of a map with that of random weights (Adebayo et al., 2018): 1 alike, 0 unrelated"
    caption = " ".join((f"{caption}.", misjudged.scored)).rstrip()
    console.print(text_table("Saliency of misclassified images", ("disease", "kind", "map"), heads, rows, caption))
    for note in misjudged.notes:
        say(console, note)
    absent = [f"{format_title(disease)}: {text}" for disease, text in misjudged.absent]
    for text in absent:
        say(console, text)
    if misjudged.unreadable:
        say(console, f"left out: {plural(misjudged.unreadable, 'unreadable image')}")
    if not pictures and examples:
        say(console, "images of patients were not written: --pictures writes them")
    say(console, f"written to {out}: {', '.join(files)}")
    about = {name: {"likeness": mean, "verdict": text} for name, (mean, text) in judge(examples).items()}
    answer = "; ".join(f"{name}: {method['verdict']}" for name, method in about.items())
    numbers = {"images": len(examples), "unreadable": misjudged.unreadable, "absent": absent}
    show_answer(console, answer if examples else "no image is misjudged", methods=about, files=files, **numbers)


def _show(row: Mapping[Hashable, Any]) -> list[str]:
    return ["-" if math.isnan(row[name]) else f"{row[name]:+.2f}" for name in ("mean", "largest")]
