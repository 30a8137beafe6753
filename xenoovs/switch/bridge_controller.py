"""The controller of a bridge, set by ovs-vsctl(8): its connection, and flows that outlive it."""

from __future__ import annotations

from xenoovs.errors import ControllerPresent
from xenoovs.switch.api import find_bridge, require_not_of_ovn
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ovsdb import read_bridges
from xenoovs.switch.process import run_vsctl

_PROBE_MS, _BACKOFF_MS = 5000, 1000
"""inactivity_probe and max_backoff of table Controller (ovs-vswitchd.conf.db(5)): a dead controller is noticed after at
most two probes, then Open vSwitch tries every second. It accepts no less than 1000."""

_RATE_PPS, _BURST_PACKETS = 1000, 250
"""controller_rate_limit and controller_burst_limit: above them Open vSwitch drops packets for the controller, and the
ports share the rest. More than the controller answers, and far less than would delay its other messages."""

# For a controller in-band Open vSwitch adds flows of its own, which match addresses and TCP ports and so widen the
# megaflows of all packets (ovs-vswitchd.conf.db(5), column connection_mode).


def attach(endpoint: Endpoint, bridge: str, *, target: str, beside: frozenset[str] | None = None) -> None:
    """Connect `bridge` to `target`, such as `unix:xenoovs.controller`, with fail_mode secure. `beside`: other
    controllers that may stay; None for any. Raises BridgeMissing, BridgeOfOvn, CommandFailed; ControllerPresent:
    nothing was changed."""
    state = find_bridge(read_bridges(endpoint), bridge)
    require_not_of_ovn(state)
    present = [controller.target for controller in state.controllers]
    strangers = [] if beside is None else sorted(set(present) - {target} - beside)
    if strangers:
        raise ControllerPresent(bridge=bridge, present=strangers)
    words = ["set-fail-mode", bridge, "secure"]
    if target not in present:
        pace = [f"inactivity_probe={_PROBE_MS}", f"max_backoff={_BACKOFF_MS}", "connection_mode=out-of-band"]
        pace += [f"controller_rate_limit={_RATE_PPS}", f"controller_burst_limit={_BURST_PACKETS}"]
        # `set-controller` would recreate all rows, and so drop the connections of other controllers.
        words += ["--", "--id=@new", "create", "controller", f'target="{target}"', *pace]
        words += ["--", "add", "bridge", bridge, "controller", "@new"]
    run_vsctl(endpoint.db, *words)


def _rows(endpoint: Endpoint, *conditions: str) -> list[str]:
    """Return the ids of the matching rows of table Controller."""
    return run_vsctl(endpoint.db, "--bare", "--columns=_uuid", "find", "controller", *conditions).stdout.split()


def quicken(endpoint: Endpoint, *, target: str) -> None:
    """Make Open vSwitch apply the max_backoff of `target`, which is connected now. Raises CommandFailed.

    It reads max_backoff only for existing connections, and only when its database changes (ofservice_reconfigure() of
    ofproto/connmgr.c, measured with 3.1); else it retries a dead controller every 8 s. So this changes it twice.
    """
    for row in _rows(endpoint, f'target="{target}"'):
        for pace_ms in (_BACKOFF_MS + 1, _BACKOFF_MS):
            run_vsctl(endpoint.db, "set", "controller", row, f"max_backoff={pace_ms}")
