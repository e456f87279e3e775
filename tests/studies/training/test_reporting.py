"""Who hears how a study is going, and what happens when a listener fails."""

from __future__ import annotations

import re

import pytest

from chestfed.core.errors import ConfigError
from chestfed.studies.training.reporting import Reporter, Reporters


class Noted(Reporter):
    """Notes the K that start, and raises at one of them."""

    name = "the notebook"

    def __init__(self, fails_at: int | None = None) -> None:
        self.heard: list[int] = []
        self.fails_at = fails_at

    def k_started(self, k: int) -> None:
        if k == self.fails_at:
            raise OSError("no paper\nleft")
        self.heard.append(k)


def test_failing_reporter_is_removed() -> None:
    warnings: list[str] = []
    failing, other = Noted(fails_at=2), Noted()
    reporters = Reporters([failing, other], warnings.append)
    for k in (1, 2, 3):
        reporters.tell(lambda reporter, k=k: reporter.k_started(k))
    assert (failing.heard, other.heard) == ([1], [1, 2, 3])
    assert (failing in reporters, other in reporters) == (False, True)
    (warning,) = warnings
    assert warning.startswith("the notebook stopped (no paper)")


def test_reason_is_the_first_cause() -> None:
    class Wrapping(Noted):
        def k_started(self, k: int) -> None:
            try:
                super().k_started(k)
            except OSError as error:
                raise (RuntimeError("consider using a session") if k == 1 else ConfigError("store: full")) from error

    warnings: list[str] = []
    for k in (1, 2):
        Reporters([Wrapping(fails_at=k)], warnings.append).tell(lambda reporter, k=k: reporter.k_started(k))
    assert [re.search(r"\((.*?)\)", warning)[1] for warning in warnings] == ["no paper", "store: full"]


def test_default_is_a_python_warning() -> None:
    with pytest.warns(UserWarning, match="the notebook stopped"):
        Reporters([Noted(fails_at=1)]).tell(lambda reporter: reporter.k_started(1))


def test_interruption_is_not_a_failure() -> None:
    class Interrupting(Reporter):
        def k_started(self, k: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Reporters([Interrupting()]).tell(lambda reporter: reporter.k_started(1))


def test_plain_reporter_is_silent() -> None:
    Reporters([Reporter()], pytest.fail).tell(lambda reporter: reporter.round_done(1, [], 5))
