"""A first YAML for a new hospital, from its folder of images and its spreadsheet.

Every guess carries the evidence for it; without enough evidence it is a question, or an error that lists the
candidates. Column names, words and counts may be shown; cells that may identify a patient never are. What terms mean is
decided by a person in the mapping table, NAME.terms.csv, which quotes them and stays at the hospital.
"""

from __future__ import annotations

from chestfed.new_site.choosing import Choices, Chooser
from chestfed.new_site.describe import Draft, terms_file
from chestfed.new_site.draft import draft_site

__all__ = ["Choices", "Chooser", "Draft", "draft_site", "terms_file"]
