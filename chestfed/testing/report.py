"""What came out of the checks of a site."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One thing that a site does not keep; `check` is the key of `CHECKS` that found it."""

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


@dataclass(frozen=True)
class ConformanceReport:
    """The checks that ran, what they found, and what could not be checked, with the reason."""

    site: str
    rows: int
    checked: tuple[str, ...]
    violations: tuple[Violation, ...]
    not_checked: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        count = len(self.violations)
        verdict = "conforms" if not count else f"violates {count} of what chestfed relies on"
        lines = [f"site '{self.site}' ({self.rows} images) {verdict}:"]
        lines += [f"  {violation}" for violation in self.violations]
        lines.append(f"  checked: {', '.join(self.checked)}")
        lines += [f"  not checked: {check}: {reason}" for check, reason in self.not_checked]
        return "\n".join(lines)


class ConformanceError(AssertionError):
    """The message lists all violations; `report` holds them."""

    def __init__(self, report: ConformanceReport) -> None:
        self.report = report
        super().__init__(str(report))
