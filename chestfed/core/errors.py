"""The exceptions of chestfed: few, each saying what is wrong, where, and what to do.

The command line prints the message of a `ChestfedError` without a traceback and exits with 1; any other
exception is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from chestfed.core.console import ChestfedWarning as ChestfedWarning  # beside the errors for those who import it
from chestfed.core.console import plural

#: A word of a name.
_WORD: Final = re.compile(r"[^\W_]+")
_LEAST_HALF: Final = 4  # letters of a name that is the first half of another


class ChestfedError(Exception):
    """Base of every error that a user can fix.

    Attributes
    ----------
    kind
        What is wrong, in a few words that do not depend on the case. Tests and programs compare it and `fields`, never
        the message. Empty where callers need not distinguish the error from others of its class.
    fields
        Where it is wrong, by name: file, row, key, client. Where the message has advice that depends on the case,
        `suggestion` is what was probably meant, or empty.
    """

    def __init__(self, message: str = "", *, kind: str = "", **fields: object) -> None:
        super().__init__(message)
        self.kind, self.fields = kind, fields

    def __reduce__(self) -> tuple[object, ...]:
        """Whatever a subclass takes: an error that cannot be unpickled would leave a pool of processes waiting."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[ChestfedError], words: tuple[object, ...], state: dict[str, object]) -> ChestfedError:
    error = kind.__new__(kind, *words)
    error.args = words
    error.__dict__.update(state)
    return error


class ConfigError(ChestfedError):
    """A YAML file or an override that cannot be used; the message names file, line and key."""


class UnknownNameError(ValueError):
    """A mistyped name, as the check of a configuration raises it; `suggestion` becomes that of the `ConfigError`."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class DamagedError(ChestfedError):
    """A stored file whose content is not what was written: it can be made again."""


class NotWrittenError(ChestfedError):
    """A file cannot be written: a full disk, no rights. `reason` is the system's word for it, which names no file."""

    def __init__(self, message: str, error: OSError) -> None:
        self.reason = os.strerror(error.errno) if error.errno else "unknown reason"
        super().__init__(message, kind="cannot be written", reason=self.reason)


class ImageError(ChestfedError):
    """An image that cannot be decoded. The message gives the reason, never the content of a header."""


class UnsuitableImage(ImageError):
    """An undamaged image of another kind than the site uses, such as another modality or body part."""


def is_environment_error(error: BaseException) -> bool:
    """Whether an error says nothing about a file's content: a failing disk, a lack of memory or of rights.

    A damaged file makes a decoder seek to where there is nothing, which is EINVAL; Pillow's own errors have no number.
    """
    numbered = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
    return isinstance(error, MemoryError) or numbered


def nearest(names: str | Iterable[str], known: Iterable[str], cutoff: float = 0.0) -> str:
    """The known name that a mistyped one, or the first of several that is like one, stands for; empty if none is.

    `cutoff` is a share of common letters (`difflib`) that is needed besides, where a near name is refused.
    """
    known = [*known]
    near = (
        match
        for name in ([names] if isinstance(names, str) else names)
        for match in list_near(name, known)
        if SequenceMatcher(None, name, match).ratio() >= cutoff
    )
    return next(near, "")


def list_near(name: str, known: Iterable[str]) -> list[str]:
    """The known names that a mistyped one may stand for, the nearest first.

    They differ by at most one letter in four, or begin or end with all words of the other, `image` of `image_size`, or
    one is the first half or more of the other, `valid` of `validation`, or has initials for some of its words: `lr` for
    `learning_rate`. Capitals, and the signs between words, make no difference.
    """
    near = dict[str, int]()
    for match in dict.fromkeys(known):
        words = [_WORD.findall(text.casefold()) for text in (name, match)]
        a, b = map("_".join, words)
        shorter, longer = sorted((a, b), key=len)
        most = (len(longer) + 1) // 4
        is_part = len(shorter) > 1 and (longer.startswith(f"{shorter}_") or longer.endswith(f"_{shorter}"))
        is_part |= len(longer) <= 2 * len(shorter) and len(shorter) >= _LEAST_HALF and longer.startswith(shorter)
        is_part |= shorter in _abbreviate(words[longer == b])
        edits = _count_edits(a, b) if is_part or len(longer) - len(shorter) <= most else len(longer)
        if edits <= most or is_part:
            near[match] = edits
    return sorted(near, key=lambda match: near[match])


def _abbreviate(words: Sequence[str]) -> set[str]:
    """A name with initials in place of two or more of its words: `local_lr` and others for `local_learning_rate`."""
    ends = range(len(words) + 1)
    parts = [(first, last) for first in ends for last in ends[first + 2 :]]
    return {
        "_".join([*words[:first], "".join(word[0] for word in words[first:last]), *words[last:]])
        for first, last in parts
    }


def _count_edits(a: str, b: str) -> int:
    """Letters that are added, missing, replaced, or swapped with the next (optimal string alignment)."""
    before, last = list[int](), [*range(len(b) + 1)]
    for i, letter in enumerate(a, start=1):
        row = [i]
        for j, other in enumerate(b, start=1):
            edits = min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != other))
            is_swapped = i > 1 and j > 1 and (letter, a[i - 2]) == (b[j - 2], other)
            row.append(min(edits, before[j - 2] + 1) if is_swapped else edits)
        before, last = last, row
    return last[-1]


def first_line(error: BaseException) -> str:
    """First line of a library's error, without the advice for programmers below; its kind if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class TrainingError(ChestfedError):
    """Training cannot go on, for example because a client's update is not finite."""


@dataclass(frozen=True)
class Problem:
    """One defect of a site's files.

    `kind` groups problems ("missing column", "unreadable image"); `file` is relative to the site's root;
    `row` is the 1-based line of the label file (the header is line 1), or None; `advice` says what to do. `rows` are
    the first few rows of a problem that several rows have.
    """

    kind: str
    file: str
    message: str
    row: int | None = None
    advice: str = ""
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = self.file if self.row is None else f"{self.file}:{self.row}"
        return f"{where}: {self.message}"


class ImageProblem(Problem):
    """A defect of the image `file`; `row` is that of the label file which names it."""

    def __str__(self) -> str:
        return f"{self.file}: {self.message}" + ("" if self.row is None else f" (row {self.row} of the labels)")


class SiteError(ChestfedError):
    """All the problems of one site in one report, grouped by kind."""

    SHOWN_PER_KIND = 10

    def __init__(self, site: str, problems: Sequence[Problem]) -> None:
        self.site = site
        self.problems = list(problems)
        super().__init__(self._report())

    def _report(self) -> str:
        lines = [f"site '{self.site}' has {plural(len(self.problems), 'problem')}:"]
        for kind, number in Counter(problem.kind for problem in self.problems).items():
            lines.append(f"  {kind} ({number}):")
            members = [problem for problem in self.problems if problem.kind == kind]
            lines += [f"    {problem}" for problem in members[: self.SHOWN_PER_KIND]]
            if number > self.SHOWN_PER_KIND:
                lines.append(f"    ... and {number - self.SHOWN_PER_KIND} more")
            advice = dict.fromkeys(problem.advice for problem in members if problem.advice)
            lines += [f"    -> {text}" for text in advice]
        return "\n".join(lines)


class SeveralSitesError(SiteError):
    """The problems of several sites in one report, site by site."""

    def __init__(self, errors: Sequence[SiteError]) -> None:
        self.errors = list(errors)
        super().__init__(
            ", ".join(error.site for error in errors), [problem for error in errors for problem in error.problems]
        )

    def _report(self) -> str:
        return "\n".join(map(str, self.errors))
