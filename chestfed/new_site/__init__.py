"""A first YAML for a new hospital, from its folder of images and its spreadsheet.

Every guess carries the evidence for it; without enough evidence it is a question, or an error that lists the
candidates. Column names, words and counts may be shown; cells that may identify a patient never are. What the words of
the table mean is decided by a person in the mapping table, NAME.terms.csv, which quotes them and stays at the hospital.
"""

from __future__ import annotations

from chestfed.new_site.describe import Draft
from chestfed.new_site.draft import draft_site
from chestfed.new_site.work import Choices, UnknownWordsError, terms_file

__all__ = ["Choices", "Draft", "UnknownWordsError", "draft_site", "terms_file"]
