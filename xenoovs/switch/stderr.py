"""Turns the stderr of the OVS tools into errors: the only module that reads such text (samples: the tests)."""

from __future__ import annotations

from collections.abc import Sequence

from xenoovs.errors import (
    BridgeMissing,
    BundleRejected,
    CommandFailed,
    OpenFlowVersionDisabled,
    SwitchError,
    SwitchUnreachable,
)
from xenoovs.openflow.wire.frame import name_versions
from xenoovs.regex import MULTILINE, regex
from xenoovs.switch.endpoint import Endpoint

_REFUSED = regex(r"^Error (OFP\w+) for: (?:OFPT_FLOW_MOD \(OF[0-9.]+\) \(xid=0x[0-9a-f]+\): )?(.*)", MULTILINE)
_SYNTAX = regex(r"^ovs-ofctl: -:([0-9]{1,9}): (.*?)(?: \((OFP\w+)\))?$", MULTILINE)
_NEGOTIATION = regex(r"version negotiation failed \(we support versions? [^,]*, peer supports versions? (.*?)\)")
_LOG = regex(r"^[0-9T:.Z-]+\|[0-9]+\|.*\n?", MULTILINE)

_START_COMMAND = "systemctl start openvswitch-switch"
_START = f"is ovs-vswitchd running? If not, `{_START_COMMAND}`; or name another with --db"
_LOST = "the connection was lost: ovs-vswitchd stopped or restarted meanwhile (its tables are then empty); try again"
_LOST_BY = ("End of file", "Connection reset by peer", "Broken pipe")
_REASONS = {
    "Permission denied": "permission denied; run as root, e.g. with sudo",
    "Operation not permitted": "permission denied; run as root, e.g. with sudo",
    "No such file or directory": f"no process listens there; {_START}",
    "No such process": f"ovs-vswitchd has ended; {_START}",
    "Connection refused": f"no process listens there; {_START}",
    **dict.fromkeys(_LOST_BY, _LOST),
}
"""strerror(3) of glibc under LC_ALL=C, and ovs_retval_to_string() of lib/util.c."""

_TORN = regex(r"\|vconn_stream\|ERR\|connection dropped mid-packet$", MULTILINE)
"""do_recv() of lib/vconn-stream.c. EPROTO alone may also mean that the peer does not speak OpenFlow."""

_CONNECTION = regex(rf"^ovs-(?:ofctl|appctl): .*\(({'|'.join(_REASONS)})\)$", MULTILINE)

_CONNECTING = regex(r"^ovs-ofctl: (?:connecting to .*|.*: failed to connect to socket) \(", MULTILINE)
"""Before the greeting has ended (open_vconn__() of utilities/ovs-ofctl.c)."""

_SHOW_LIMITS = "ovs-vsctl list Flow_Table"
_ADVICE = {
    "OFPFMFC_TABLE_FULL": f"the table has a limit: raise flow_limit of its Flow_Table (`{_SHOW_LIMITS}`)",
    "OFPBAC_BAD_OUT_PORT": "the port is not on the bridge any more: plan again",
    "OFPBRC_EPERM": "the table belongs to Open vSwitch: use tables 0 to 253",
    "OFPBIC_BAD_TABLE_ID": "goto_table leads to higher tables only: use resubmit",
}
_DEFAULT_ADVICE = (
    "see ovs-vswitchd.log for details; if xenoovs wrote a flow that Open vSwitch refuses, please report it"
)


def lift(failed: CommandFailed, *, endpoint: Endpoint, bridge: str | None = None) -> SwitchError:
    """Return the error behind a failed tool: not reachable, no such bridge, wrong version; else `failed` itself."""
    if bridge is not None and (found := _NEGOTIATION.search(failed.stderr)):
        spoken = name_versions(int(version, 16) for version in found[1].split(", "))
        return OpenFlowVersionDisabled(bridge=bridge, version="OpenFlow14", spoken=spoken)
    reason = _broken_connection(failed.stderr)
    return lift_lost(reason, endpoint=endpoint, bridge=bridge) if reason else failed


def has_lost_connection(failed: CommandFailed, *, is_change: bool = False) -> bool:
    """Return whether a tool lost its connection. `is_change`: only if it had not sent flow-mods yet."""
    is_asked = is_change and not _CONNECTING.search(failed.stderr)
    return _broken_connection(failed.stderr) in _LOST_BY and not is_asked


def lift_lost(reason: str, *, endpoint: Endpoint, bridge: str | None = None) -> SwitchError:
    """Return the error for a connection that cannot be made or is lost. `reason`: text of strerror(3)."""
    present = endpoint.bridges_with_socket()
    if bridge is not None and reason == "No such file or directory" and present and bridge not in present:
        return BridgeMissing(bridge=bridge, present=present)
    target = endpoint.management(bridge) if bridge is not None else str(endpoint.local_rundir)
    return unreachable(target, reason)


def _broken_connection(stderr: str) -> str | None:
    """Return the text of strerror(3) for the lost connection; None if it was not lost."""
    if _TORN.search(stderr):
        return "End of file"
    found = _CONNECTION.search(stderr)
    return found[1] if found else None


def unreachable(target: str, message: str) -> SwitchUnreachable:
    """Return the error, with what to do, for a system error between us and Open vSwitch, by its text in strerror(3)."""
    reason = explain(message)
    return SwitchUnreachable(target=target, reason=reason, commands=(_START_COMMAND,) if _START in reason else ())


def explain(message: str) -> str:
    """Return the same as text."""
    return _REASONS.get(message, message)


def lift_refusal(failed: CommandFailed, *, endpoint: Endpoint, bridge: str, lines: Sequence[str]) -> SwitchError:
    """Return what `lift` returns, or BundleRejected, for a bundle of the flow-mods `lines`."""
    if found := _REFUSED.search(failed.stderr):
        return rejected(bridge, found[1], _LOG.sub("", found[2]) or "a flow-mod that ovs-ofctl cannot show")
    if found := _SYNTAX.search(failed.stderr):
        number = int(found[1])
        line = lines[number - 1] if 0 < number <= len(lines) else f"line {number}"
        return rejected(bridge, found[3], f"{line} ({found[2]})")
    return lift(failed, endpoint=endpoint, bridge=bridge)


def rejected(bridge: str, error: str | None, message: str) -> BundleRejected:
    """Return the error for a refused bundle. `error`: OpenFlow's name. `message`: the refused flow-mod."""
    advice = _ADVICE.get(error, _DEFAULT_ADVICE) if error else _DEFAULT_ADVICE
    commands = (_SHOW_LIMITS,) if _SHOW_LIMITS in advice else ()
    return BundleRejected(bridge=bridge, error=error, message=message, advice=advice, commands=commands)
