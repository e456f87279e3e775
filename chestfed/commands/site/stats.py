"""`chestfed site stats`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands import options
from chestfed.commands.console import open_console, say


def site_stats(
    configs: Annotated[
        list[Path], typer.Argument(help="YAMLs of the sites, e.g. site_configs/chexpert.yaml.", show_default=False)
    ],
    labels: Annotated[
        Path | None,
        options.optional(help="Read this label file; the images need not exist. One site only."),
    ] = None,
    data: options.Data = None,
    csv: Annotated[Path | None, options.optional(help="Also write the table to this file, with four decimals.")] = None,
) -> None:
    """Count images and positives per disease, beside the source paper's dataset table. Reads labels only.

    Example:

        chestfed site stats site_configs/chexpert.yaml site_configs/vindr.yaml --data /data/hospitals
    """
    if labels is not None and len(configs) != 1:
        raise typer.BadParameter("--labels is the label file of one site: give one YAML with it")
    from chestfed.core.checkpoint import write_text
    from chestfed.sites import load_site_config, open_site
    from chestfed.sites.stats import dataset_table, render

    console, sites = open_console(), [load_site_config(config) for config in configs]
    root = options.data_root(data, [] if labels else sites, ", or give a label file with --labels FILE")
    tables = [open_site(site, root, labels_file=labels) for site in sites]
    frame = dataset_table(tables)
    console.print(render(frame))
    for table in tables:
        for note in table.notes:
            say(console, f"{table.title}: {note}", "yellow")
    if csv is not None:
        write_text(csv, frame.to_csv(index=False, float_format="%.4f"))
        say(console, f"written to {csv}")
