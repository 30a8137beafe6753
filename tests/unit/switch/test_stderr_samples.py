"""Recorded stderr of ovs-ofctl and ovs-appctl 3.1.0, and the errors that it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.errors import (
    BridgeMissing,
    BundleRejected,
    CommandFailed,
    OpenFlowVersionDisabled,
    SwitchUnreachable,
)
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.stderr import lift, lift_refusal

_LINES = ("add cookie=0x1,table=0,priority=1 actions=output:p1", "add cookie=0x1,table=5,priority=2 actions=drop")
_COMMIT = """\
Error OFPBFC_MSG_FAILED for: OFPT_BUNDLE_CONTROL (OF1.4) (xid=0x9):
 bundle_id=0 type=COMMIT_REQUEST flags=atomic ordered
ovs-ofctl: talking to unix:/run/o/br0.mgmt (Protocol error)
"""
_DECODE_ERROR = """\
Error OFPBAC_BAD_SET_ARGUMENT for: 2026-11-21T04:12:33Z|00001|meta_flow|WARN|destination field nw_proto is not writable
2026-11-21T04:12:33Z|00002|ofp_actions|WARN|bad action at offset 0 (OFPBAC_BAD_SET_ARGUMENT):
00000000  ff ff 00 18 00 00 23 20-00 07 00 07 00 00 0c 01
OFPT_FLOW_MOD (OF1.4) (xid=0x6): ***decode error: OFPBAC_BAD_SET_ARGUMENT***
ovs-ofctl: talking to unix:/run/o/br0.mgmt (Protocol error)
"""


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoint:
    """An Open vSwitch with the bridge br0."""
    (tmp_path / "br0.mgmt").touch()
    return Endpoint(f"unix:{tmp_path}/db.sock", tmp_path)


def _failed(stderr: str) -> CommandFailed:
    return CommandFailed(argv=["ovs-ofctl"], exit_code=1, stdout="", stderr=stderr)


@pytest.mark.parametrize(
    ("stderr", "error", "message"),
    [
        (
            "Error OFPBAC_BAD_OUT_GROUP for: OFPT_FLOW_MOD (OF1.4) (xid=0x7): ADD priority=1,ip,nw_dst=1.1.1.1 "
            f"actions=set_field:00:00:00:00:00:01->eth_dst,group:9\n{_COMMIT}",
            "OFPBAC_BAD_OUT_GROUP",
            "ADD priority=1,ip,nw_dst=1.1.1.1 actions=set_field:00:00:00:00:00:01->eth_dst,group:9",
        ),
        (
            f"Error OFPFMFC_TABLE_FULL for: OFPT_FLOW_MOD (OF1.4) (xid=0x6): ADD priority=2,ip actions=drop\n{_COMMIT}",
            "OFPFMFC_TABLE_FULL",
            "ADD priority=2,ip actions=drop",
        ),
        (_DECODE_ERROR, "OFPBAC_BAD_SET_ARGUMENT", "a flow-mod that ovs-ofctl cannot show"),
        ("ovs-ofctl: -:1: nosuch: output to unknown port\n", None, f"{_LINES[0]} (nosuch: output to unknown port)"),
        (
            "ovs-ofctl: -:2: actions are invalid with specified match (OFPBIC_BAD_TABLE_ID)\n",
            "OFPBIC_BAD_TABLE_ID",
            f"{_LINES[1]} (actions are invalid with specified match)",
        ),
    ],
)
def test_refusals(endpoint: Endpoint, stderr: str, error: str | None, message: str) -> None:
    raised = lift_refusal(_failed(stderr), endpoint=endpoint, bridge="br0", lines=_LINES)
    assert isinstance(raised, BundleRejected)
    assert (raised.error, raised.message) == (error, message)
    assert "no flow was changed" in str(raised)


def test_a_bridge_with_older_openflow_versions(endpoint: Endpoint) -> None:
    stderr = (
        "2026-11-21T03:47:59Z|00001|vconn|WARN|unix:/run/o/br0.mgmt: version negotiation failed "
        "(we support version 0x05, peer supports versions 0x01, 0x04)\n"
        "ovs-ofctl: unix:/run/o/br0.mgmt: failed to connect to socket (Broken pipe)\n"
    )
    raised = lift(_failed(stderr), endpoint=endpoint, bridge="br0")
    assert isinstance(raised, OpenFlowVersionDisabled)
    assert raised.spoken == ("OpenFlow10", "OpenFlow13")
    assert "`ovs-vsctl add bridge br0 protocols OpenFlow14`" in str(raised)


@pytest.mark.parametrize(
    ("stderr", "advice"),
    [
        ("ovs-ofctl: connecting to unix:/run/o/br0.mgmt (Connection refused)\n", "systemctl start"),
        ("ovs-ofctl: connecting to unix:/run/o/br0.mgmt (No such file or directory)\n", "systemctl start"),
        ("ovs-ofctl: connecting to unix:/run/o/br0.mgmt (Permission denied)\n", "sudo"),
        ("ovs-ofctl: talking to unix:/run/o/br0.mgmt (End of file)\n", "try again"),
        ("ovs-ofctl: talking to unix:/run/o/br0.mgmt (Connection reset by peer)\n", "try again"),
        (
            "2026-11-21T04:12:34Z|00001|vconn_stream|ERR|send: Broken pipe\n"
            "ovs-ofctl: talking to unix:/run/o/br0.mgmt (Broken pipe)\n",
            "try again",
        ),
        (
            "2026-11-21T09:59:54Z|00001|vconn_stream|ERR|connection dropped mid-packet\n"
            "ovs-ofctl: OpenFlow receive failed (Protocol error)\n",
            "try again",
        ),
        (
            "2026-11-21T03:47:59Z|00001|daemon_unix|WARN|/run/o/ovs-vswitchd.pid: open: No such file or directory\n"
            'ovs-appctl: cannot read pidfile "/run/o/ovs-vswitchd.pid" (No such file or directory)\n',
            "systemctl start",
        ),
        ('ovs-appctl: cannot read pidfile "/run/o/ovs-vswitchd.pid" (No such process)\n', "systemctl start"),
        ('ovs-appctl: cannot connect to "/run/o/ovs-vswitchd.9.ctl" (Permission denied)\n', "sudo"),
    ],
)
def test_an_unreachable_switch(endpoint: Endpoint, stderr: str, advice: str) -> None:
    raised = lift_refusal(_failed(stderr), endpoint=endpoint, bridge="br0", lines=_LINES)
    assert isinstance(raised, SwitchUnreachable)
    assert advice in str(raised)


def test_a_bridge_that_is_not_there(endpoint: Endpoint) -> None:
    stderr = "ovs-ofctl: connecting to unix:/run/o/br7.mgmt (No such file or directory)\n"
    raised = lift(_failed(stderr), endpoint=endpoint, bridge="br7")
    assert isinstance(raised, BridgeMissing)
    assert raised.present == ("br0",)


def test_anything_else_stays_what_it_is(endpoint: Endpoint) -> None:
    failed = _failed("nobr: unknown bridge\novs-appctl: ovs-vswitchd: server returned an error\n")
    assert lift(failed, endpoint=endpoint) is failed
