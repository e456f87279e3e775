"""Default numbers of trials and seeds of `tune`."""

from typing import Final

#: Option -> its default, and that of a quick search.
COUNTS: Final = {"trials": (20, 4), "seeds": (3, 1), "confirm": (3, 0)}
