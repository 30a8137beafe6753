"""A config that cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.errors.base import XenoovsError


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One mistake in a config: where and what. Line and column count from 1; path: `services[0].backends[1].weight`."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: "
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"


class ConfigError(XenoovsError):
    """A config that cannot be used; carries all findings at once, sorted by place, those of one place as they come."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(sorted(findings, key=lambda finding: (finding.file, finding.line, finding.column)))
        super().__init__("\n".join(map(str, self.findings)))


class ConfigUnreadable(XenoovsError):
    """The config file cannot be opened or read. `reason`: as the operating system says it."""

    def __init__(self, *, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(
            f"cannot read the config {file}: {reason}; name a readable YAML file, or make one: `xenoovs new`"
        )
