"""The first YAML of a new hospital: columns by their headers, confirmed by content, and a code book for a person."""

from chestfed.new_site.draft import draft_site
from chestfed.new_site.proposal import Answers, Proposal, Question, parse_answers
from chestfed.new_site.writing import name_book

__all__ = ["Answers", "Proposal", "Question", "draft_site", "name_book", "parse_answers"]
