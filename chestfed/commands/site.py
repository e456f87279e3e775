"""`chestfed site ...`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chestfed.errors import ConfigError


def stats_command(
    console: Console, configs: Sequence[Path], labels: Path | None, data: Path | None, csv: Path | None
) -> None:
    """Print the dataset table of the given sites."""
    from chestfed.checkpoint import write_text
    from chestfed.config import expand_path
    from chestfed.sites import load_site_config, open_site
    from chestfed.sites.stats import dataset_table, render

    if labels is not None and len(configs) != 1:
        raise ConfigError("--labels is the label file of one site: give one configuration with it")
    loaded = [load_site_config(config) for config in configs]
    if labels is None and data is None and not all(expand_path(config.root, Path()).is_absolute() for config in loaded):
        raise ConfigError(
            "where are the sites' files? Give their folder with --data DIR or $CHESTFED_DATA, or --labels FILE"
        )
    root = data if data is not None else Path()
    tables = [open_site(config, root, labels_file=labels) for config in loaded]
    frame = dataset_table(tables)
    console.print(render(frame))
    if csv is not None:
        write_text(csv, frame.to_csv(index=False, float_format="%.4f"))
        console.print(f"written to {csv}", highlight=False, soft_wrap=True)
