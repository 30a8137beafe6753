"""Open vSwitch itself prints the messages that xenoovs encodes: `ovs-ofctl ofp-parse` reads them from a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.flows import flows
from tests.property.wire_messages import OFPORTS
from xenoovs.controller.monitor import monitor_request
from xenoovs.openflow.flow import Bundle, Command, CookieMask, Field, Flow, FlowMod, SetField
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.frame import (
    BARRIER_REQUEST,
    ECHO_REPLY,
    ERROR,
    EXPERIMENTER,
    FEATURES_REQUEST,
    NICIRA,
    encode_hello,
    error_name,
    message,
)
from xenoovs.openflow.wire.message import (
    PacketOut,
    Role,
    encode_bundle,
    encode_count_request,
    encode_discard,
    encode_flows_request,
    encode_packet_out,
    encode_ports_request,
    encode_role_request,
)
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

_FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5").ljust(60, b"\0")
_BUNDLE = Bundle((FlowMod(Command.ADD, parse_flow("priority=1,ip actions=drop")),))
_COOKIES = CookieMask(0x786F << 48, 0xFFFF << 48)
_MESSAGES = (
    encode_hello((1, 4, 5), xid=1),
    message(ECHO_REPLY, b"x", xid=1),
    message(FEATURES_REQUEST, xid=1),
    message(BARRIER_REQUEST, xid=1),
    *(encode_role_request(role, 5, 1) for role in Role),
    *encode_bundle(_BUNDLE, bundle_id=3, first_xid=1, ofports={}),
    encode_discard(3, 1),
    encode_ports_request(1),
    encode_flows_request(_COOKIES, 1, table=3),
    encode_count_request(_COOKIES, 1),
    monitor_request(),
)


def test_fixed_messages(tmp_path: Path) -> None:
    printed = _printed(_MESSAGES, tmp_path / "messages")
    # The flow-mod within the bundle begins a line of its own.
    assert len(printed) == len(_MESSAGES) + 1
    assert [text for text in printed if "***" in text] == []


def test_errors_have_the_names_of_open_vswitch(tmp_path: Path) -> None:
    """All but three that Open vSwitch does not tell apart from others (13,2 to 13,4: bad properties)."""
    codes = [(kind, code) for kind in range(18) for code in range(17) if error_name(kind, code).startswith("OFP")]
    names = {error_name(*each): pack("!HH", *each) for each in codes if each not in ((13, 2), (13, 3), (13, 4))}
    for code in (2, 3, 4, 11, 12, 15):
        names[error_name(EXPERIMENTER, code, vendor=NICIRA)] = pack("!HHI", EXPERIMENTER, code, NICIRA)
    printed = _printed([message(ERROR, body, xid=1) for body in names.values()], tmp_path / "messages")
    assert [name for name, text in zip(names, printed, strict=True) if name not in text] == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wanted=st.lists(flows(), min_size=1, max_size=20))
def test_messages_about_flows(tmp_path_factory: pytest.TempPathFactory, wanted: list[Flow]) -> None:
    mods = [FlowMod(command, flow) for flow in wanted for command in Command]
    sent = [encode_flow_mod(mod, xid=1, ofports=OFPORTS) for mod in mods]
    # A packet that is sent out has no match, so no protocol whose ports an action could write.
    portless = [flow for flow in wanted if not _writes_ports(flow)]
    sent += [encode_packet_out(PacketOut(flow.actions, _FRAME), OFPORTS, xid=1) for flow in portless]
    printed = _printed(sent, tmp_path_factory.mktemp("wire") / "messages")
    assert len(printed) == len(sent)
    assert [text for text in printed if "***" in text] == []


def _writes_ports(flow: Flow) -> bool:
    return any(isinstance(action, SetField) and action.field in (Field.TP_SRC, Field.TP_DST) for action in flow.actions)


def _printed(messages: Sequence[bytes], path: Path) -> list[str]:
    """What ovs-ofctl prints of each; it writes `***` where it cannot decode."""
    path.write_bytes(b"".join(messages))
    text = run(["ovs-ofctl", "ofp-parse", str(path)], timeout_s=20).stdout
    return re.split(r"^(?=OFP[A-Z]+_)", text, flags=re.MULTILINE)[1:]
