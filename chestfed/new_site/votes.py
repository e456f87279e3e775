"""Label columns of several annotators, and those of what they agreed on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from chestfed.new_site.lexicon import COLUMNS, JOINT
from chestfed.new_site.proposal import Proposal, option


def set_joint_labels_aside(
    proposal: Proposal, groups: dict[tuple[str, str], dict[str, str]], settled: Collection[str]
) -> dict[tuple[str, str], dict[str, str]]:
    """The groups without those of what annotators agreed on, such as `edema_consensus`; asks which of the two count."""
    joint = {affix for affix in groups if JOINT & {*" ".join(affix).split()}}
    open_names = {n: d for affix in joint for n, d in groups[affix].items() if d not in settled}
    votes = {affix: names for affix, names in groups.items() if affix not in joint}
    voted = {disease for names in votes.values() for disease in names.values()}
    if not voted.intersection(open_names.values()):
        return groups
    if proposal.answers.raters is None:
        proposal.ask(
            f"labels: {', '.join(open_names)}: annotators' joint labels, which are no further annotator's. Do they "
            "count, or the annotators' votes?",
            " ".join(option("--label", f"{disease}={name}") for name, disease in open_names.items()),
            "--raters majority (the votes; or any, all)",
        )
    return votes


def name_readers(texts: Iterable[str]) -> bool:
    """Whether one of the texts has a word for an annotator, perhaps with a number: `r1`, `reader_2`."""
    words = {word for text in texts for word in re.split(r"\W|_|\d", text.casefold())}
    return not words.isdisjoint({*COLUMNS["reader"], "r", "rad", "reviewer"})


def is_numbered_reader(text: str) -> bool:
    """Whether a text is an annotator's number, such as `r1`; not so `r`, which may be the right side."""
    return any(map(str.isdigit, text)) and name_readers([text])
