"""The reference of the algorithms, from their declarations."""

from __future__ import annotations

from chestfed.app.commands.algorithms import as_markdown

HEAD = """# Table of algorithms

What `chestfed algorithms --markdown` prints. d is the number of
weights, J of diseases. Non-IID clients: where it ends, with a constant step size, if the clients' data differ.
`variant of` names the algorithm whose update rule is used, and what is set otherwise. [Details](../algorithms.md).
"""


def page() -> str:
    """The whole page, as Markdown."""
    return f"{HEAD}\n{as_markdown()}\n"
