"""Messages to a real Open vSwitch and its answers, besides flows; and how `ovs-ofctl ofp-parse` prints ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ovs.dummy import DummyBridge
from tests.ovs.ways import live_switch
from tests.property.flows import flows
from tests.property.wire_messages import OFPORTS
from tests.strategies import share
from xenoovs.errors import SwitchError
from xenoovs.openflow.flow import (
    Bundle,
    Command,
    Field,
    Flow,
    FlowMod,
    SetField,
)
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.frame import (
    BARRIER_REPLY,
    BARRIER_REQUEST,
    ERROR,
    EXPERIMENTER,
    LOCAL_NUMBER,
    NICIRA,
    decode_error,
    error_name,
    message,
)
from xenoovs.openflow.wire.message import (
    PacketOut,
    Role,
    decode_role,
    encode_bundle,
    encode_discard,
    encode_packet_out,
    encode_role_request,
)
from xenoovs.switch.openflow import (
    Connection,
    ask,
    connected,
    request_datapath_id,
    request_ports,
)
from xenoovs.switch.process import run


@pytest.fixture
def peer(bridge: DummyBridge) -> Iterator[Connection]:
    with connected(live_switch(bridge.ovs).endpoint, bridge.name) as connection:
        yield connection


def _wait_for_barrier(peer: Connection) -> list[bytes]:
    """All messages up to the answer to a barrier sent now."""
    peer.send(message(BARRIER_REQUEST, xid=peer.take_xids(1)))
    frames = []
    while (frame := peer.receive())[1] != BARRIER_REPLY:
        frames.append(frame)
    return frames


def _request_role(peer: Connection, role: Role, generation: int) -> tuple[Role, int]:
    return decode_role(ask(peer, lambda xid: encode_role_request(role, generation, xid), "ROLE_REQUEST"))


def test_a_switch_tells_its_datapath_id_and_ports(bridge: DummyBridge, peer: Connection) -> None:
    in_database = bridge.ovs.vsctl("get", "bridge", bridge.name, "datapath_id").strip().strip('"')
    assert f"{request_datapath_id(peer):016x}" == in_database
    assert {port.name: port.number for port in request_ports(peer)} == {"p0": 1, "p1": 2, "ovsbr1": LOCAL_NUMBER}
    assert all(port.is_up for port in request_ports(peer))
    assert peer.numbers == {"p0": 1, "p1": 2}


def test_a_role_is_granted_and_an_old_generation_refused(peer: Connection) -> None:
    assert _request_role(peer, Role.MASTER, 5) == (Role.MASTER, 5)
    assert _request_role(peer, Role.NOCHANGE, 0) == (Role.MASTER, 5)
    with pytest.raises(SwitchError, match="refused ROLE_REQUEST: OFPRRFC_STALE"):
        _request_role(peer, Role.SLAVE, 4)


def test_a_bundle_can_be_dropped(bridge: DummyBridge, peer: Connection) -> None:
    bundle = Bundle((FlowMod(Command.ADD, parse_flow("priority=1,ip actions=drop")),))
    first = peer.take_xids(4)
    *parts, commit = encode_bundle(bundle, bundle_id=first, first_xid=first, ofports=peer.numbers)
    peer.send(b"".join((*parts, encode_discard(first, first + 3), commit)))
    *_, refused = _wait_for_barrier(peer)
    assert decode_error(refused).name == "OFPBFC_BAD_ID"
    assert bridge.dump_flows() == []


_PRINTED_FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5").ljust(60, b"\0")


def test_errors_have_the_names_of_open_vswitch(tmp_path: Path) -> None:
    """All but three that Open vSwitch does not tell apart from others (13,2 to 13,4: bad properties)."""
    codes = [(kind, code) for kind in range(18) for code in range(17) if error_name(kind, code).startswith("OFP")]
    names = {error_name(*each): pack("!HH", *each) for each in codes if each not in ((13, 2), (13, 3), (13, 4))}
    for code in (2, 3, 4, 11, 12, 15):
        names[error_name(EXPERIMENTER, code, vendor=NICIRA)] = pack("!HHI", EXPERIMENTER, code, NICIRA)
    printed = _printed([message(ERROR, body, xid=1) for body in names.values()], tmp_path / "messages")
    assert [name for name, text in zip(names, printed, strict=True) if name not in text] == []


@share(0.3)
@given(wanted=st.lists(flows(), min_size=1, max_size=20))
def test_packets_go_out_by_any_actions(tmp_path_factory: pytest.TempPathFactory, wanted: list[Flow]) -> None:
    # A packet that is sent out has no match, so no protocol whose ports an action could write.
    portless = [flow for flow in wanted if not _writes_ports(flow)]
    sent = [encode_packet_out(PacketOut(flow.actions, _PRINTED_FRAME), OFPORTS, xid=1) for flow in portless]
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
