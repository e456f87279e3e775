"""The report about a site: what `chestfed site check` prints and `chestfed site card` writes, from one result.

`content.py` has its sections, `render.py` its forms: terminal, Markdown, JSON and a page.
"""

from chestfed.reports.pages.site_report.content import SiteReport, make_report
from chestfed.reports.pages.site_report.render import check_page, print_report, write_card, write_files

__all__ = ["SiteReport", "check_page", "make_report", "print_report", "write_card", "write_files"]
