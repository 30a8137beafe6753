"""What came of the lab's traffic, beside what was wanted."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from xenoovs.cli.output import percent, print_table
from xenoovs.errors.words import counted

if TYPE_CHECKING:
    from xenoovs.compile.program import Program
    from xenoovs.lab.report import ServiceTraffic, TrafficReport

_HEADERS = ["SERVICE", "BACKEND", "WANTED", "ADDRESS SPACE", "PACKETS", "SEEN"]


def show_traffic(report: TrafficReport, program: Program) -> None:
    """Print a table, then what was lost or went astray."""
    rows = [row for service in report.services for row in _rows(service, _spaces(program, service.service))]
    print_table(_HEADERS, rows, right=range(2, 6))
    click.echo()
    for service in report.services:
        click.echo(_line(service))
    for name, reason in report.skipped:
        click.echo(f"{name}: not tried, {reason}")
    for reason, packets in report.failures:
        click.echo(click.style(f"{counted(packets, 'packet')} not sent: {reason}", fg="red"))
    if report.duplicates:
        click.echo(click.style(f"{counted(report.duplicates, 'packet')} answered twice", fg="yellow"))


def traffic_document(report: TrafficReport, program: Program) -> dict[str, object]:
    """The same for programs."""
    return {
        "duration_s": round(report.duration_s, 3),
        "duplicates": report.duplicates,
        "skipped": dict(report.skipped),
        "failures": dict(report.failures),
        "services": [_document(service, _spaces(program, service.service)) for service in report.services],
    }


def _spaces(program: Program, name: str) -> Mapping[str, Fraction]:
    found = next(service for service in program.services if service.service.name == name)
    names = (backend.name for backend in found.service.backends)
    return dict(zip(names, found.shares, strict=True))


def _rows(service: ServiceTraffic, spaces: Mapping[str, Fraction]) -> list[list[str]]:
    rows = [
        [
            service.service,
            backend.name,
            percent(backend.wanted),
            percent(spaces[backend.name]),
            str(backend.answered),
            percent(backend.share),
        ]
        for backend in service.backends
    ]
    strangers = [[service.service, name, "-", "-", str(packets), "-"] for name, packets in service.strangers]
    return [*rows, *strangers]


def _line(service: ServiceTraffic) -> str:
    kind = f"{counted(service.sent, f'{service.protocol.value} packet')} of {counted(service.clients, 'client')}"
    told = f"{service.service}: {kind}, {service.answered} answered, {service.lost} lost"
    return click.style(told, fg="yellow") if service.lost else told


def _document(service: ServiceTraffic, spaces: Mapping[str, Fraction]) -> dict[str, object]:
    return {
        "service": service.service,
        "protocol": service.protocol.value,
        "clients": service.clients,
        "sent": service.sent,
        "answered": service.answered,
        "lost": service.lost,
        "strangers": dict(service.strangers),
        "backends": [
            {
                "backend": backend.name,
                "wanted": float(backend.wanted),
                "space": float(spaces[backend.name]),
                "answered": backend.answered,
                "seen": None if backend.share is None else float(backend.share),
            }
            for backend in service.backends
        ],
    }
