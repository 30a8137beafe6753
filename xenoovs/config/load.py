"""A config file to a Balancer, or to every mistake in it at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from xenoovs.config.compose import Document, compose
from xenoovs.config.remark import Remark
from xenoovs.config.text import MAX_SIZE_BYTES
from xenoovs.config.tree import Place, Places, render_path
from xenoovs.errors import ConfigError, ConfigUnreadable, Finding
from xenoovs.errors.words import counted
from xenoovs.model.balancer import Balancer

MAX_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Located:
    """A balancer with the place of each of its services, in their order, for messages of later stages."""

    balancer: Balancer
    file: str
    services: tuple[Place, ...]


def load_config(path: Path) -> Balancer:
    """Read a config file. Raises ConfigUnreadable, or ConfigError with all findings."""
    return load_located(path).balancer


def parse_config(text: str | bytes, *, file: str) -> Balancer:
    """Read a config; `file` is its name in messages. Raises ConfigError with all findings."""
    return parse_located(text, file=file).balancer


def load_located(path: Path) -> Located:
    """As load_config, with the places of services."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_SIZE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigUnreadable(file=str(path), reason=_reason(error)) from None
    return parse_located(data, file=str(path))


def parse_located(text: str | bytes, *, file: str) -> Located:
    """As parse_config, with the places of services."""
    document = compose(text, file=file)
    balancer = _balancer(document, file)
    places = tuple(document.places.of_value(("services", i)) for i in range(len(balancer.services)))
    return Located(balancer, file, places)


def _balancer(document: Document, file: str) -> Balancer:
    # pydantic takes a quarter of a second to import, and only commands that read a config need it.
    from xenoovs.config.build import build_balancer
    from xenoovs.config.check import check_parts
    from xenoovs.config.structure import check_structure

    checked = check_structure(document.root)
    remarks = (*checked.remarks, *check_parts(checked))
    if remarks or document.findings or checked.switch is None:
        findings = {*document.findings, *_findings(remarks, document.places, file)}
        raise ConfigError(_capped(findings, omitted=checked.omitted))
    return build_balancer(checked.switch, checked.services, health=checked.health, drain=checked.drain)


def _findings(remarks: Iterable[Remark], places: Places, file: str) -> Iterable[Finding]:
    for remark in remarks:
        path = places.nearest(remark.path)
        place = places.of_key(path) if remark.at_key else places.of_value(path)
        yield Finding(file, place.line, place.column, render_path(path), remark.message)


def _capped(findings: Iterable[Finding], *, omitted: int) -> list[Finding]:
    """The first in the file; a wrong file would otherwise fill the screen."""
    ordered = sorted(findings)
    shown, rest = ordered[:MAX_FINDINGS], ordered[MAX_FINDINGS:]
    if not rest:
        return shown
    more = f"and {counted(len(rest) + omitted, 'more mistake')}, the next one here; correct those above first"
    return [*shown, Finding(rest[0].file, rest[0].line, rest[0].column, "", more)]


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
