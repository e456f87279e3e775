"""A first YAML for a hospital that nobody has described yet, from its folder of images and its spreadsheet.

Every guess carries the evidence for it; one without enough of it is a question, or an error that lists the candidates.
Column names, labels' terms, words and counts may be shown; cells that may identify a patient never are.
"""

from __future__ import annotations

from chestfed.new_site.choosing import Choices, Chooser
from chestfed.new_site.draft import Draft, draft_site

__all__ = ["Choices", "Chooser", "Draft", "draft_site"]
