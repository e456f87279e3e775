"""The card of a site: what `chestfed site check` found, as one page and as Markdown, beside other sites.

`making.py` looks at the sites, `sections.py` says what the card says, `page.py` and `markdown.py` write it.
"""

from chestfed.study.card.making import SiteCard, make_card
from chestfed.study.card.writing import write_card

__all__ = ["SiteCard", "make_card", "write_card"]
