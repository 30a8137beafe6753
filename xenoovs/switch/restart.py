"""Restart ovs-vswitchd and put our flows back: no flow survives a restart (ovs-vswitchd(8) keeps them in memory)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import FlowsNotBack, ReadBackDiffers, SwitchError
from xenoovs.openflow.bundle import Bundle, Command, FlowMod
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.render import render_bundle
from xenoovs.switch.api import Switch, require_ports

DEFAULT_TIMEOUT_S = 60.0
_STEP_S = 0.1


@dataclass(frozen=True, slots=True)
class Saved:
    """Our flows of one bridge before the restart, and the ports that it had working."""

    flows: tuple[Flow, ...]
    ports: tuple[str, ...]

    @property
    def bundle(self) -> Bundle:
        """Adds from the last table to the first, so that no packet is sent to blocks that are not there yet."""
        ordered = sorted(self.flows, key=lambda flow: (-flow.table, -flow.priority))
        return Bundle(tuple(FlowMod(Command.ADD, flow) for flow in ordered))


@dataclass(frozen=True, slots=True)
class Restarted:
    """What became of it. gap_s: from the order to restart until the last flow was back. flows: by bridge."""

    gap_s: float
    flows: Mapping[str, int]


def save_flows(switch: Switch) -> dict[str, Saved]:
    """Our flows of every bridge that has some. Raises SwitchError."""
    saved: dict[str, Saved] = {}
    for state in switch.bridges():
        flows = tuple(seen.flow for seen in switch.dump_flows(state.name))
        if flows:
            ports = tuple(port for port in state.ofports if port != state.name)
            saved[state.name] = Saved(flows, ports)
    return saved


def restart_with_flows(
    switch: Switch, restart: Callable[[], None], *, directory: Path, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Restarted:
    """Save our flows, restart, wait for the ports, put the flows back in one bundle a bridge, and read them back.

    A file of the flows of each bridge lies in `directory` for as long as they are not back. They are put back also when
    `restart` fails or is interrupted. Raises SwitchError; FlowsNotBack where flows could not be put back.
    """
    saved = save_flows(switch)
    files = _write(saved, directory)
    began = time.monotonic()
    try:
        restart()
    finally:
        _put_back(switch, saved, files=files, deadline=began + timeout_s)
    gap_s = time.monotonic() - began
    for file in files.values():
        file.unlink(missing_ok=True)
    return Restarted(gap_s, {bridge: len(kept.flows) for bridge, kept in saved.items()})


def _write(saved: Mapping[str, Saved], directory: Path) -> dict[str, Path]:
    files = {bridge: directory / f"xenoovs-restart-{bridge}.flows" for bridge in saved}
    for bridge, file in files.items():
        file.write_text(render_bundle(saved[bridge].bundle))
    return files


def _put_back(switch: Switch, saved: Mapping[str, Saved], *, files: Mapping[str, Path], deadline: float) -> None:
    failed: dict[str, str] = {}
    for bridge, kept in saved.items():
        try:
            _retry(lambda bridge=bridge, kept=kept: _apply(switch, bridge, kept), deadline=deadline)  # type: ignore[misc]
        except SwitchError as error:
            failed[bridge] = str(error)
    if failed:
        raise FlowsNotBack(reasons=failed, files={bridge: str(files[bridge]) for bridge in failed})


def _apply(switch: Switch, bridge: str, kept: Saved) -> None:
    require_ports(switch, bridge, kept.ports)
    switch.apply(bridge, kept.bundle)
    found = {seen.flow.key: seen.flow for seen in switch.dump_flows(bridge)}
    missing = sum(found.get(flow.key) != flow for flow in kept.flows)
    if missing:
        raise ReadBackDiffers(bridge=bridge, flows=missing)


def _retry(action: Callable[[], None], *, deadline: float) -> None:
    # The bridge, its socket and its ports come back one after the other.
    while time.monotonic() < deadline:
        with suppress(SwitchError):
            return action()
        time.sleep(_STEP_S)
    return action()
