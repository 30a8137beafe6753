"""Other flows on the bridge of a bed for a while: its own ones come back, whatever ends the experiment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from xenoovs.datapath.ovn import BridgeMarks, chassis_of, use_of
from xenoovs.errors import BridgeOfOvn, CommandFailed, MeasureError
from xenoovs.measure.bed import Bed, Station
from xenoovs.openflow.flow import Flow, is_foreign
from xenoovs.openflow.text import parse_dump, render_flow

_OFCTL = ("ovs-ofctl", "-O", "OpenFlow14")
_TIMEOUT_S = 60.0

_EXTERNAL_IDS = ("ovs-vsctl", "--format=json", "--columns=external_ids", "list", "Open_vSwitch")


def require_not_of_ovn(bed: Bed) -> None:
    """Raise BridgeOfOvn if the bridge of the bed is the one of an ovn-controller there."""
    bridge = bed.balancer.uplinks.bridge
    rows = json.loads(bed.dpu.run(*_EXTERNAL_IDS, timeout_s=_TIMEOUT_S).stdout)["data"]
    # A map is `["map", [[key, value], ...]]` (RFC 7047, 5.1).
    use = use_of(BridgeMarks(bridge), chassis_of(dict(rows[0][0][1]))) if rows else None
    if use is not None and use.is_owner:
        raise BridgeOfOvn(bridge=bridge, evidence=use.evidence)


def bridge_flows(bed: Bed) -> str:
    """Return all flows of the bridge, as `ovs-ofctl replace-flows` reads them. Raises MeasureError."""
    bridge = bed.balancer.uplinks.bridge
    return _ofctl(bed.dpu, bridge, "--names", "--no-stats", "dump-flows", bridge)


@contextmanager
def restored_flows(bed: Bed) -> Iterator[str]:
    """Yield the flows of the bridge; restore them at the end, also if killed. Raises MeasureError, BridgeOfOvn."""
    require_not_of_ovn(bed)
    with flows_of_switch_restored(bed.dpu, bed.balancer.uplinks.bridge) as before:
        yield before


@contextmanager
def flows_of_switch_restored(dpu: Station, bridge: str) -> Iterator[str]:
    before = _ofctl(dpu, bridge, "--names", "--no-stats", "dump-flows", bridge)
    with dpu.undone_at_end(*_OFCTL, "--bundle", "replace-flows", bridge, "-", stdin=before):
        yield before


@contextmanager
def added_flows(bed: Bed, cookie: int, flows: Iterable[str]) -> Iterator[None]:
    """Add flows with a cookie that is foreign to xenoovs; they are gone at the end, also if this process is killed.

    Raises MeasureError, BridgeOfOvn.
    """
    require_not_of_ovn(bed)
    bridge = bed.balancer.uplinks.bridge
    with bed.dpu.undone_at_end(*_OFCTL, "del-flows", bridge, f"cookie={cookie:#x}/-1"):
        add_flows(bed, cookie, flows)
        yield


def add_flows(bed: Bed, cookie: int, flows: Iterable[str]) -> None:
    """Add flows above all others in one bundle, or replace those with the same match. Raises MeasureError."""
    bridge, text = bed.balancer.uplinks.bridge, "".join(f"cookie={cookie:#x},priority=65535,{flow}\n" for flow in flows)
    _ofctl(bed.dpu, bridge, "--names", "--bundle", "add-flows", bridge, "-", stdin=text)


def replace_flows(dpu: Station, bridge: str, text: str) -> None:
    """Make these all the flows of a bridge, in one bundle. Raises MeasureError."""
    _ofctl(dpu, bridge, "--bundle", "replace-flows", bridge, "-", stdin=text)


def set_program(bed: Bed, flows: Iterable[Flow], *, before: str) -> None:
    """Replace the flows of xenoovs in one bundle; foreign flows stay as they were. Raises MeasureError."""
    foreign = [seen.flow for seen in parse_dump(before) if is_foreign(seen.flow.cookie)]
    text = "".join(f"{render_flow(flow)}\n" for flow in (*flows, *foreign))
    replace_flows(bed.dpu, bed.balancer.uplinks.bridge, text)


def _ofctl(dpu: Station, bridge: str, *arguments: str, stdin: str = "") -> str:
    try:
        return dpu.run(*_OFCTL, *arguments, stdin=stdin, timeout_s=_TIMEOUT_S).stdout
    except CommandFailed as failed:
        lines = failed.stderr.strip().splitlines() or [f"status {failed.exit_code}"]
        raise MeasureError(f"flows of bridge {bridge} cannot be changed: {lines[-1]}") from None
