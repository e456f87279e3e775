"""Results that are told in their own way: one file per view that stands alone.

What no presentation is for is told as a study: `answer.py`, `views.py`, and the first screen of the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chestfed.core.plugins import Catalogue, Options

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from chestfed.results.tables.answer import Answer
    from chestfed.results.tables.frames import Results


@dataclass(frozen=True)
class Presentation:
    """Declaration of how results with the view `name` are told.

    Attributes
    ----------
    name
        The view that the results have: a key of `chestfed.results.tables.frames.VIEWS`.
    answer
        The question and its answer.
    summarize
        The table of the first screen.
    render
        All tables for a terminal.
    list_missing
        What means are without, each with its reason.
    model
        How a model is named in a sentence.
    """

    name: str
    answer: Callable[[Results], Answer]
    summarize: Callable[[Results], Table]
    render: Callable[[Results], RenderableType]
    list_missing: Callable[[Results], list[str]]
    model: str = "{}"
    options: type[Options] = Options


PRESENTATIONS: Final[Catalogue[Presentation]] = Catalogue(
    "presentation", "chestfed.presentations", Presentation, packages=(__name__,)
)


def find_presentation(results: Results) -> Presentation | None:
    """The presentation for a view that these results have; None: they are a study."""
    return next((PRESENTATIONS.find(name) for name in PRESENTATIONS.names if len(results.view(name))), None)
