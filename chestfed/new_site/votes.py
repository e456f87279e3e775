"""Label columns of several annotators, and those of what they agreed on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from chestfed.new_site.lexicon import COLUMNS, JOINT
from chestfed.new_site.proposal import Proposal, option


def set_joint_labels_aside(
    proposal: Proposal, groups: dict[tuple[str, str], dict[str, str]], settled: Collection[str]
) -> dict[tuple[str, str], dict[str, str]]:
    """The groups without those of what annotators agreed on, or a program says; asks which of the two count.

    Such a column, as `edema_consensus` or `edema_AI`, is no further annotator's vote.
    """
    joint = {affix for affix in groups if JOINT & {*" ".join(affix).split()}}
    open_names = {n: d for affix in joint for n, d in groups[affix].items() if d not in settled}
    votes = {affix: names for affix, names in groups.items() if affix not in joint}
    voted = {disease for names in votes.values() for disease in names.values()}
    if not voted.intersection(open_names.values()):
        return groups
    if proposal.answers.raters is None:
        single = {n: d for names in votes.values() for n, d in names.items()} if len(votes) == 1 else {}
        proposal.ask(
            f"labels: {', '.join(open_names)}: annotators' joint labels or a program's, and no further annotator's. Do "
            "these count, or the others?",
            _list_labels(open_names),
            _list_labels(single) if single else "--raters majority (the annotators' votes; or any, all)",
        )
    return votes


def _list_labels(diseases: Mapping[str, str]) -> str:
    """The options that name these columns."""
    return " ".join(option("--label", f"{disease}={name}") for name, disease in diseases.items())


def note_rule(proposal: Proposal, number: float) -> None:
    """Note how the votes of so many annotators per image count: as the user says, else a rule to look at first."""
    rule = proposal.answers.raters
    proposal.table["raters"] = rule or ("majority" if number >= 3 else "any")
    if rule is None and number < 3:
        proposal.first.append("a finding of any one annotator counts as present (--raters any, all, or one's name)")


def name_readers(texts: Iterable[str]) -> bool:
    """Whether one of the texts has a word for an annotator, perhaps with a number: `r1`, `reader_2`."""
    words = {word for text in texts for word in re.split(r"\W|_|\d", text.casefold())}
    return not words.isdisjoint({*COLUMNS["reader"], "r", "rad", "reviewer"})


def is_numbered_reader(text: str) -> bool:
    """Whether a text is an annotator's number, such as `r1`; not so `r`, which may be the right side."""
    return any(map(str.isdigit, text)) and name_readers([text])
