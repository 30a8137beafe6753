"""Findings as SARIF 2.1.0 (OASIS Static Analysis Results Interchange Format), which code hosts show beside a change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from xenoovs import __version__


@dataclass(frozen=True, slots=True)
class SarifResult:
    """One finding.

    Attributes:
        level: `error`, `warning` or `note`.
        file: None: it is about no file.
        line, column: from 1; None: the whole file.
    """

    rule: str
    level: str
    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None


def to_sarif(results: Iterable[SarifResult]) -> dict[str, object]:
    listed = list(results)
    rules = [{"id": rule} for rule in sorted({each.rule for each in listed})]
    driver = {"name": "xenoovs", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_result(each) for each in listed]}],
    }


def _result(each: SarifResult) -> dict[str, object]:
    found: dict[str, object] = {"ruleId": each.rule, "level": each.level, "message": {"text": each.text}}
    if each.file is None or each.file.startswith(("<", "-")):
        return found
    place: dict[str, object] = {"artifactLocation": {"uri": quote(each.file)}}
    if each.line is not None:
        place["region"] = {"startLine": each.line, "startColumn": each.column or 1}
    return found | {"locations": [{"physicalLocation": place}]}
