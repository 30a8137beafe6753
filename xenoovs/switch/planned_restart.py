"""A planned restart of Open vSwitch: save all flows of everybody, restart in flow-restore-wait, put all back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import FlowsNotBack, SwitchError
from xenoovs.switch.api import Switch, require_ports
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.restore_wait import waiting_for_flows
from xenoovs.switch.tables import Tables, dump_tables, restore_tables

DEFAULT_TIMEOUT_S = 60.0
_STEP_S = 0.05


@dataclass(frozen=True, slots=True)
class PlannedRestart:
    """What became of it. gap_s: from the order to restart until all was back. flows, groups: by bridge."""

    gap_s: float
    flows: Mapping[str, int]
    groups: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Saved:
    """`ports`: those that worked; flows are put back when they do again. `file`: the same tables."""

    tables: Tables
    ports: tuple[str, ...]
    file: Path


def planned_restart(
    switch: Switch,
    endpoint: Endpoint,
    restart: Callable[[], None],
    *,
    directory: Path,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> PlannedRestart:
    """Restart by `restart`, with all flows and groups of all bridges before and after. Meters are not kept.

    A file for each bridge lies in `directory` for as long as its flows are not back. They are put back, and Open
    vSwitch waits no more, also when `restart` fails or is interrupted. Raises SwitchError, FlowsNotBack.
    """
    saved = _save(switch, endpoint, directory)
    began = time.monotonic()
    with waiting_for_flows(endpoint.db):
        try:
            restart()
        finally:
            _put_back(switch, endpoint, saved, deadline=began + timeout_s)
    gap_s = time.monotonic() - began
    for kept in saved.values():
        kept.file.unlink(missing_ok=True)
    return PlannedRestart(
        gap_s,
        {bridge: len(kept.tables.flows) for bridge, kept in saved.items()},
        {bridge: len(kept.tables.groups) for bridge, kept in saved.items()},
    )


def _save(switch: Switch, endpoint: Endpoint, directory: Path) -> dict[str, _Saved]:
    saved: dict[str, _Saved] = {}
    for state in switch.bridges():
        tables = dump_tables(endpoint, state.name)
        file = directory / f"xenoovs-restart-{state.name}.bundle"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(tables.bundle)
        ports = tuple(port for port in state.ofports if port != state.name)
        saved[state.name] = _Saved(tables, ports, file)
    return saved


def _put_back(switch: Switch, endpoint: Endpoint, saved: Mapping[str, _Saved], *, deadline: float) -> None:
    failed: dict[str, str] = {}
    for bridge, kept in saved.items():
        try:
            _until(deadline, lambda bridge=bridge, kept=kept: _restore(switch, endpoint, bridge, kept))  # type: ignore[misc]
        except SwitchError as error:
            failed[bridge] = str(error)
    if failed:
        raise FlowsNotBack(reasons=failed, files={bridge: str(saved[bridge].file) for bridge in failed})


def _restore(switch: Switch, endpoint: Endpoint, bridge: str, kept: _Saved) -> None:
    require_ports(switch, bridge, kept.ports)
    restore_tables(endpoint, bridge, kept.tables)


def _until(deadline: float, action: Callable[[], None]) -> None:
    # The bridge, its socket and its ports come back one after the other.
    while time.monotonic() < deadline:
        with suppress(SwitchError):
            return action()
        time.sleep(_STEP_S)
    return action()
