"""Switches that answer wrongly, in part, or far too much: the controller says what is wrong, and goes on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from tests.ovs.scripted_switch import (
    BARRIER_REQUEST,
    BUNDLE_CONTROL,
    ScriptedSwitch,
    error,
    good_answer,
    packet_in,
    port_status,
    scripted_switch,
)
from tests.ovs.ways import Record, running_server
from tests.patience import PATIENCE_S, eventually
from tests.unit.balancer import balancer, claim, service
from tests.unit.controller.test_solicitation import solicitation
from xenoovs.controller.bridge import NEWS
from xenoovs.controller.neighbour_discovery import BURST, Responder
from xenoovs.controller.server import Server
from xenoovs.controller.switch import ControllerSwitch
from xenoovs.errors import BundleRejected, SwitchUnreachable
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.message import Received, decode

pytestmark = pytest.mark.ovs

_ADD = Bundle((FlowMod(Command.ADD, parse_flow("cookie=0x786f000000000001, priority=7 actions=output:p1")),))
_COMMIT = 4


def _is_commit(request: bytes) -> bool:
    return request[1] == BUNDLE_CONTROL and int.from_bytes(request[12:14], "big") == _COMMIT


def _switch(server: Server) -> ControllerSwitch:
    """Waits for the scripted one."""
    return ControllerSwitch(server.board, patience_s=PATIENCE_S)


def test_a_good_one_takes_a_bundle() -> None:
    """So that the others fail for what they do wrong."""
    with running_server(Record()) as server, scripted_switch(server) as scripted:
        _switch(server).apply("ovsbr1", _ADD)
    assert scripted.heard.count(BUNDLE_CONTROL) == 2


def test_half_an_answer_to_a_commit() -> None:
    """The end of the connection is told; whether the change has happened is not known, and is not claimed."""
    switches: list[ScriptedSwitch] = []

    def answer(request: bytes) -> bytes | None:
        if not _is_commit(request):
            return None
        switches[0].send(good_answer(request)[:9])
        switches[0].close()
        return b""

    with running_server(Record()) as server:
        with scripted_switch(server, answer=answer) as scripted:
            switches.append(scripted)
            with pytest.raises(SwitchUnreachable, match="the connection is lost"):
                _switch(server).apply("ovsbr1", _ADD)
        with scripted_switch(server):
            _switch(server).apply("ovsbr1", _ADD)


@pytest.mark.parametrize(
    ("is_refused", "told"),
    [
        (lambda request: request[1] == BARRIER_REQUEST, "the commit of a bundle of 1 flow-mods"),
        (lambda request: request[1] == BUNDLE_CONTROL, "the opening of a bundle of 1 flow-mods"),
        (_is_commit, "the commit of a bundle of 1 flow-mods"),
    ],
    ids=["a barrier", "the opening", "the commit"],
)
def test_a_step_of_a_bundle_is_refused(is_refused: object, told: str) -> None:
    assert callable(is_refused)

    def answer(request: bytes) -> bytes | None:
        return error(request) if is_refused(request) else None

    with running_server(Record()) as server, scripted_switch(server, answer=answer):
        with pytest.raises(BundleRejected) as caught:
            _switch(server).apply("ovsbr1", _ADD)
        assert (caught.value.error, caught.value.message) == ("OFPBRC_EPERM", told)
        assert [line.bridge for line in server.board.lines] == ["ovsbr1"]


def test_answers_that_nobody_asked_for_are_passed_over() -> None:
    """Also those with the number of a question that is long over."""

    def answer(request: bytes) -> bytes | None:
        good = good_answer(request)
        return good + good + good[:4] + bytes(4) + good[8:] if good else None

    with running_server(Record()) as server, scripted_switch(server, answer=answer):
        switch = _switch(server)
        for _ in range(20):
            switch.apply("ovsbr1", _ADD)
            assert switch.dump_flows("ovsbr1") == ()


def test_a_storm_of_port_changes_is_followed_and_not_all_told() -> None:
    record, storm = Record(), 20_000
    with running_server(record) as server, scripted_switch(server) as scripted:
        switch = _switch(server)
        switch.apply("ovsbr1", _ADD)
        changes = [port_status(2, "p1", is_up=bool(number % 2)) for number in range(storm)]
        scripted.send(b"".join([*changes, port_status(1, "p0", is_up=False)]))
        # The answer comes behind the storm, on the same connection.
        switch.apply("ovsbr1", _ADD)
        assert server.want("ovsbr1").place.ports_down == {"p0"}
    told = [facts for event, facts in record.events if event.startswith("port ")]
    assert NEWS <= len(told) < storm / 10
    assert record.of("ports change faster than is told; they are followed all the same") != []


def test_a_change_waits_for_no_packet_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood stands before the answer on the same connection: of it as many packets are looked at as the bucket holds.

    No token comes while the clock of the bucket stands, so the number is exact on any machine.
    """
    flood, looked_at = 20_000, list[bytes]()

    def counted(frame: bytes, *, names: Mapping[int, str]) -> Received:
        looked_at.append(frame)
        return decode(frame, names=names)

    monkeypatch.setattr("xenoovs.controller.neighbour_discovery.decode", counted)
    with running_server(Record()) as server, scripted_switch(server) as scripted:
        switch, place = _switch(server), server.want("ovsbr1").place
        switch.apply("ovsbr1", _ADD)
        frozen = Responder(lambda: place.lines, voice=Record().voice, now_s=lambda: 1.0)
        place.on_packet(frozen.hear)
        frozen.follow(balancer(service(claim())))
        scripted.send(packet_in(solicitation()) * flood)
        switch.apply("ovsbr1", _ADD)
        frozen.close()
    assert (len(looked_at), frozen.dropped) == (BURST, flood - BURST)


def test_a_flood_at_one_bridge_takes_no_answer_from_another() -> None:
    """Each has a bucket of its own."""
    with running_server(Record()) as server, ExitStack() as both:
        places = [server.want(name).place for name in ("ovsbr1", "ovsbr2")]
        flooded, other = (
            both.enter_context(scripted_switch(server, datapath_id=number, name=place.bridge))
            for number, place in enumerate(places, 1)
        )
        for place in places:
            place.connected(patience_s=PATIENCE_S)
        flooded.send(packet_in(solicitation()) * 5_000)
        other.send(packet_in(solicitation()) * 3)
        mine = server.want("ovsbr2").responder
        mine.follow(balancer(service(claim())))
        ControllerSwitch(server.board).apply("ovsbr2", _ADD)
        ControllerSwitch(server.board).apply("ovsbr1", _ADD)
        assert mine.dropped == 0
        assert server.want("ovsbr1").responder.dropped > 0


def test_the_first_reason_for_an_end_is_told() -> None:
    """Found when a test failed about once in a hundred: a controller that stopped put its own reason over it."""
    record = Record()
    with running_server(record) as server, scripted_switch(server):
        carrier = server.board.line("ovsbr1", patience_s=PATIENCE_S).carrier
        for reason in ("it is malformed", "something else"):
            carrier.abandon(reason)
    assert [facts["reason"] for facts in record.of("bridge disconnected")] == ["it is malformed"]


def test_a_storm_of_reconnects_ends_with_the_last_one() -> None:
    """The same datapath again and again, each before the one before has ended."""
    record, times = Record(), 100
    with running_server(record) as server, ExitStack() as all_of_them:
        for _ in range(times):
            last = all_of_them.enter_context(scripted_switch(server))
        switch = _switch(server)
        eventually(lambda: len(record.of("bridge connected")) >= 1, "one is let in")
        eventually(lambda: _takes(switch, last), "the last one is in use")
        assert len(server.board.lines) == 1


def _takes(switch: ControllerSwitch, scripted: ScriptedSwitch) -> bool:
    try:
        switch.apply("ovsbr1", _ADD)
    except SwitchUnreachable:
        return False
    return BUNDLE_CONTROL in scripted.heard
