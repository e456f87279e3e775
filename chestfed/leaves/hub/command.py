"""`chestfed export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.app.commands.evaluate import Network
from chestfed.core.console import command, open_console, say, show_answer

Model = Annotated[
    str,
    typer.Argument(
        callback=options.run_name,
        autocompletion=options.known_runs,
        help="Name or folder of a run, one of its kN folders, or a model.safetensors of chestfed.",
        show_default=False,
    ),
]
Out = Annotated[Path, typer.Option(help="New folder for model.safetensors, config.json and README.md.")]
Release = Annotated[
    bool,
    typer.Option(
        "--release",
        help="The hospitals have agreed that a model that was trained on their patients is given away. Needed for "
        "every model that is not of synthetic hospitals alone.",
    ),
]


def export(
    model: Model,
    out: Out = Path("hub"),
    k: options.K = None,
    network: Network = None,
    license_: Annotated[str, typer.Option("--license", help="License on the model card.")] = "other",
    release: Release = False,
) -> None:
    """Write a model in the layout of the Hugging Face Hub: weights, config.json and a model card. Nothing is sent.

    `chestfed evaluate FOLDER` opens the folder again, also after it was downloaded from the Hub. A network with batch
    normalization has the statistics of its file there; the card says of which images they are.

    Example:

        chestfed export runs/synthetic-source_addition_samples-0123456789ab --out hub
    """
    from chestfed.leaves.hub.layout import write_layout

    options.refuse_no_model(model)
    console = open_console()
    written, notes = write_layout(model, out, k, license_, release=release, network=network)
    for note in notes:
        say(console, note)
    say(console, f"send it with your own tool: hf upload USER/NAME {out}")
    say(console, f"opened by: {command('evaluate', out, '--site', 'SITE')}")
    show_answer(console, f"written to {out}: {', '.join(written)}", folder=str(out), files=written, notes=notes)
