"""Methods of a plug-in's class that would be called otherwise, or never."""

from __future__ import annotations

from chestfed.core.plugins import list_arguments, list_mistakes


class Protocol:
    def step(self, local: int, message: int) -> int:
        return local + message

    def server_round(self, updates: list[int]) -> int:
        return sum(updates)


def test_misspelled_method_is_found() -> None:
    class Rule:
        def server_rond(self, updates: list[int]) -> int:
            return len(updates)

    (mistake,) = list_mistakes(Rule(), list_arguments(Protocol))
    assert "Rule.server_rond is never called: rename it to server_round" in mistake


def test_other_arguments_are_found() -> None:
    class Rule:
        def step(self, local: int) -> int:
            return local

    (mistake,) = list_mistakes(Rule(), list_arguments(Protocol))
    assert "is called as step(self, local, message)" in mistake


def test_methods_that_fit_are_no_mistakes() -> None:
    class Rule(Protocol):
        def step(self, first: int, *others: int) -> int:
            return first + sum(others)

        def server_round(self, updates: list[int], scale: int = 1) -> int:
            return scale * sum(updates)

        def unrelated(self) -> None:
            pass

        def _server_rond(self) -> None:
            pass

    assert not list(list_mistakes(Rule(), list_arguments(Protocol)))
