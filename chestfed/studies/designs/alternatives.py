"""Alternatives of each hospital to the common model: each study trains `alternatives` after its largest K.

What is trained is in `chestfed.studies.training.alternatives`; its table is the view `alternatives` of the frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chestfed.studies.designs.comparison import Comparison
from chestfed.studies.designs.design import DesignSpec, Done, Finished, Takes


class AlternativesDesign(Comparison):
    """The studies of a comparison, each with its alternatives."""

    def finish(self, done: Sequence[Done], out: Path) -> Finished:
        """Several methods are compared without the alternatives, which stand in the run folder of each."""
        finished = super().finish(done, out)
        if finished.summary is None or finished.results is None or len(finished.results.view("alternatives")):
            return finished
        note = "alternatives are not compared over methods: alternatives.csv in each run folder has them"
        return replace(finished, after=(note,))


ALTERNATIVES = DesignSpec(
    "alternatives",
    AlternativesDesign,
    takes=frozenset(Takes) - {Takes.COLLECTION},
    joins=Takes.ALTERNATIVES,
    in_schema=True,
)
