"""The card of a site: what `chestfed site check` found, as one page and as Markdown, beside other sites.

`build.py` examines the sites; `sections.py`, `problems.py` and `comparison.py` are its content; `render.py` writes it.
"""

from chestfed.report.site_card.build import SiteCard, make_card
from chestfed.report.site_card.render import check_page, write_card

__all__ = ["SiteCard", "check_page", "make_card", "write_card"]
