"""The first YAML of a new hospital: columns by their headers, confirmed by content, and a code book for a person."""

from chestfed.data.drafts.draft import draft_site
from chestfed.data.drafts.proposal import Answers, Proposal, Question, parse_answers
from chestfed.data.drafts.writing import name_book

__all__ = ["Answers", "Proposal", "Question", "draft_site", "name_book", "parse_answers"]
