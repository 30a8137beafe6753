"""`xenoovs doctor --restart-ovs`: a planned restart of Open vSwitch that restores all flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from xenoovs.display import span
from xenoovs.errors import counted, worded
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.offload_setting import OffloadSwitch
from xenoovs.switch.planned_restart import PlannedRestart, check_is_service, planned_restart, restart_service
from xenoovs.switch.watchdog import run_detached
from xenoovs.terminal.defaults import LabTarget
from xenoovs.terminal.output import echo

_STATE_DIRECTORY = Path("/run/xenoovs")


def restart_order(endpoint: Endpoint, lab: LabTarget | None) -> Callable[[], None]:
    """Return the function that restarts this Open vSwitch. Raises SwitchError if only its owner can restart it."""
    if lab is not None:
        return lab.restart_vswitchd
    check_is_service(endpoint)
    return restart_service


def restart(switch: ManagementSwitch, lab: LabTarget | None, order: Callable[[], None]) -> PlannedRestart:
    """Restart Open vSwitch by `order` and restore all flows and groups. The restart is completed even if this process
    is killed: otherwise ovs-vswitchd or its flows would be missing. Raises SwitchError."""
    return _detached(lambda: planned_restart(switch, switch.endpoint, order, directory=_directory(lab)))


def set_offload(
    switch: ManagementSwitch, lab: LabTarget | None, order: Callable[[], None], *, wanted: bool
) -> PlannedRestart:
    """Turn offload on or off and restart as `restart` does. Raises SwitchError, also if it then is not in effect."""

    def restart(set_it: Callable[[], None]) -> PlannedRestart:
        def set_and_restart() -> None:
            set_it()
            order()

        return planned_restart(switch, switch.endpoint, set_and_restart, directory=_directory(lab))

    return _detached(lambda: OffloadSwitch(switch.endpoint).change(wanted=wanted, restart=restart))


def _directory(lab: LabTarget | None) -> Path:
    """Return where the flows are saved until they are back on their bridges."""
    directory = lab.directory if lab is not None else _STATE_DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _detached(work: Callable[[], PlannedRestart]) -> PlannedRestart:
    try:
        return run_detached(work)
    except KeyboardInterrupt:
        echo("the restart is completed in the background", err=True)
        raise


def restart_document(done: PlannedRestart) -> dict[str, object]:
    counts = {"flows": dict(done.flows), "groups": dict(done.groups)}
    return {"gap_s": round(done.gap_s, 3), **counts, "left_to_ovn": list(done.of_ovn)}


def restart_lines(done: PlannedRestart) -> Iterator[str]:
    for bridge, flows in done.flows.items():
        back = worded(flows + done.groups[bridge], "is", "are")
        groups = f" and {counted(done.groups[bridge], 'group')}" if done.groups[bridge] else ""
        yield f"{bridge}: {counted(flows, 'flow')}{groups} {back} back"
    for bridge in done.of_ovn:
        yield f"{bridge}: left to ovn-controller, which installs its flows again"
    yield f"done: {span(done.gap_s)} from the order to restart until all was back"
