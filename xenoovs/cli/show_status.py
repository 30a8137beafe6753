"""What a running agent knows, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator

import click

from xenoovs.agent.runtime_file import show_weight
from xenoovs.agent.snapshot import BackendState, BackendView, ServiceView, Snapshot
from xenoovs.agent.standing import troubles
from xenoovs.cli.output import percent, print_table, quantity

_HEADERS = ["SERVICE", "BACKEND", "STATE", "FOR", "WEIGHT", "WANTED", "SPACE", "BLOCKS", "PPS", "BPS", "IN HW", "PROBE"]
_SPARE = tuple(_HEADERS.index(name) for name in ("BLOCKS", "BPS", "WANTED", "PPS", "IN HW"))
_COLOURS = {BackendState.UP: "green", BackendState.DOWN: "red", BackendState.DRAINED: "yellow"}

_HOW = {"bad": "red", "warn": "yellow"}


def show_snapshot(snapshot: Snapshot) -> None:
    """Backends, and below them all that is not as it should be."""
    age = duration_text(snapshot.now_s - snapshot.started_s)
    click.echo(f"agent of bridge {snapshot.bridge}, for {age}: {snapshot.config_path} ({snapshot.config_digest})\n")
    rows = [_row(snapshot, service, backend) for service in snapshot.services for backend in service.backends]
    print_table(_HEADERS, rows, right=range(4, 11), spare=_SPARE)
    lines = [*_remarks(snapshot)]
    if lines:
        click.echo()
    for colour, line in lines:
        click.echo(click.style(line, fg=colour))


def duration_text(seconds: float) -> str:
    """The two largest units: 3d 4h, 5m 20s, 12s."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def _row(snapshot: Snapshot, service: ServiceView, backend: BackendView) -> list[str]:
    state = backend.state.value + (" (kept)" if backend.state is BackendState.DOWN and not backend.is_out else "")
    rate, traffic = backend.rate, backend.traffic
    packets = 0 if traffic is None else traffic.hw_packets + traffic.sw_packets
    return [
        service.name,
        backend.name,
        click.style(state, fg=_COLOURS.get(backend.state)),
        "-" if backend.since_s is None else duration_text(snapshot.now_s - backend.since_s),
        _weight(backend),
        percent(backend.share_wanted),
        percent(backend.share_installed),
        str(backend.flows),
        "-" if rate is None else quantity(rate.pps),
        "-" if rate is None else quantity(rate.bps),
        percent(traffic.hw_packets / packets) if traffic is not None and packets else "-",
        _probe(backend),
    ]


def _weight(backend: BackendView) -> str:
    if backend.ramp is not None:
        return f"{backend.weight_in_use:g} ({backend.ramp:.0%})"
    return f"{backend.weight_in_use:g}"


def _probe(backend: BackendView) -> str:
    if not backend.reason:
        return "-"
    latency = backend.probe_latency_s
    return backend.reason if latency is None else f"{backend.reason}, {latency * 1000:.3g} ms"


def _remarks(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Lines with their colour, the most pressing first."""
    for told, how in troubles(snapshot):
        yield _HOW[how], told
    for override in snapshot.overrides:
        age = duration_text(snapshot.now_s - override.since_s)
        what = f"weight {show_weight(override.weight)}" if override.weight else "drained"
        yield (
            "yellow",
            f"{override.service}/{override.backend}: {what} for {age}, the config says "
            f"{show_weight(override.configured)}; `xenoovs undrain {override.service} {override.backend}` goes back",
        )
    for service in snapshot.services:
        if service.draining:
            blocks = "1 block" if service.draining == 1 else f"{service.draining} blocks"
            yield "yellow", f"{service.name}: open connections of {blocks} stay with their old backends"
