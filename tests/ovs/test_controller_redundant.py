"""Two controllers for one bridge: one is master, the other takes over when that one is gone, and not before."""

from __future__ import annotations

import subprocess
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from tests.command_line import CommandResult, finish, running, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.scripted_switch import (
    AGGREGATE,
    MULTIPART_REQUEST,
    ScriptedSwitch,
    message,
    part_of,
    scripted_switch,
    xid_of,
)
from tests.ovs.ways import Record, connect, live_switch, running_server
from tests.patience import eventually
from xenoovs.controller import mastership
from xenoovs.controller.connection import BridgeConnection
from xenoovs.controller.server import ControllerSwitch, Server
from xenoovs.errors import StandingBy, SwitchError
from xenoovs.openflow.flow import FOREIGN, LEASE_OWNER, OWNER_MASK, Bundle, Command, CookieMask, FlowMod, ObservedFlow
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.message import Role, decode_role, encode_role_request
from xenoovs.switch.endpoint import answers
from xenoovs.switch.openflow import ask, connected

_OLD, _NEW = (
    Bundle((FlowMod(Command.ADD, parse_flow(f"cookie=0x786f000000000001, priority={i} actions=drop")),)) for i in (1, 2)
)

_ROLE_REQUEST, _ROLE_REPLY = 24, 25


def _connection(server: Server) -> BridgeConnection:
    connection = server.expect("ovsbr1").connection
    assert connection is not None
    return connection


def _become_master(server: Server, what: str) -> ControllerSwitch:
    expected = server.expect("ovsbr1")
    eventually(lambda: expected.is_master, what)
    return ControllerSwitch(server.registry)


_LAST = (1 << 64) - 1
"""Generation ids are compared around the end of 64 bits (OpenFlow 1.4.0, 6.3.5)."""


@pytest.mark.parametrize("generation", [0, _LAST - 1], ids=["the first generations", "the last ones"])
def test_the_one_that_stands_by_changes_nothing_and_takes_over_at_once(bridge: DummyBridge, generation: int) -> None:
    def is_now(generation: int) -> bool:
        return _request_role(bridge, Role.NOCHANGE, 0) == generation & _LAST

    first, second = Record(), Record()
    _request_role(bridge, Role.MASTER, generation)
    with running_server(second, is_redundant=True) as heir:
        heir.expect("ovsbr1")
        with running_server(first, is_redundant=True) as server:
            connect(bridge.ovs, "ovsbr1", server)
            master = _become_master(server, "the first is master")
            master.apply("ovsbr1", _OLD)
            assert is_now(generation + 1)
            connect(bridge.ovs, "ovsbr1", heir)
            eventually(lambda: second.of("another controller is master; standing by") != [], "the second stands by")
            standby = ControllerSwitch(heir.registry)
            for change in (lambda: standby.apply("ovsbr1", _NEW), lambda: standby.dump_flow_text("ovsbr1")):
                with pytest.raises(StandingBy):
                    change()
            assert len(standby.dump_flows("ovsbr1")) == 1
        _become_master(heir, "the second is master").apply("ovsbr1", _NEW)
        assert is_now(generation + (2 if generation == 0 else 3))
        with pytest.raises(SwitchError, match="refused ROLE_REQUEST: OFPRRFC_STALE"):
            _request_role(bridge, Role.SLAVE, generation)
    assert len(live_switch(bridge.ovs).dump_flows("ovsbr1")) == 2


def test_a_master_that_hangs_loses_its_place_and_cannot_change_anything(
    bridge: DummyBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Record(), Record()
    with running_server(first, is_redundant=True) as server, running_server(second, is_redundant=True) as heir:
        server.expect("ovsbr1")
        heir.expect("ovsbr1")
        connect(bridge.ovs, "ovsbr1", server)
        hung = _become_master(server, "the first is master")
        connect(bridge.ovs, "ovsbr1", heir)
        eventually(lambda: second.of("another controller is master; standing by") != [], "the second stands by")
        step = mastership.Mastership._step

        def step_of_all_but_the_first(self: mastership.Mastership, connection: BridgeConnection) -> None:
            if connection is not _connection(server):
                step(self, connection)

        monkeypatch.setattr(mastership.Mastership, "_step", step_of_all_but_the_first)
        _become_master(heir, "the lease has run out").apply("ovsbr1", _NEW)
        eventually(lambda: first.of("another controller has become master") != [], "the first is told")
        with pytest.raises(StandingBy):
            hung.apply("ovsbr1", _OLD)
        # Also if it did not believe it: the switch knows.
        _connection(server).is_standby = False
        with pytest.raises(StandingBy):
            hung.apply("ovsbr1", _OLD)
    (seen,) = live_switch(bridge.ovs).dump_flows("ovsbr1")
    assert seen.flow.priority == 2


def test_a_role_that_is_answered_with_noise_ends_the_connection_and_nothing_else() -> None:
    """Found when the thread that keeps the role had died of it, and nobody was ever master again."""

    def noise(_switch: ScriptedSwitch, request: bytes) -> bytes | None:
        return message(_ROLE_REPLY, b"\xff", xid=xid_of(request)) if request[1] == _ROLE_REQUEST else None

    def good(_switch: ScriptedSwitch, request: bytes) -> bytes | None:
        return message(_ROLE_REPLY, request[8:], xid=xid_of(request)) if request[1] == _ROLE_REQUEST else None

    record = Record()
    with running_server(record, is_redundant=True) as server:
        with scripted_switch(server, answer=noise):
            eventually(lambda: record.of("bridge disconnected") != [], "the connection is given up")
        with scripted_switch(server, answer=good):
            _become_master(server, "it is master of the next")


def test_a_lease_is_no_flow_of_the_program_and_heartbeats_change_no_flow(bridge: DummyBridge) -> None:
    """Found when each renewal of the lease was a flow-mod, after which Open vSwitch revalidates all megaflows."""
    local = live_switch(bridge.ovs)

    def lease() -> ObservedFlow | None:
        return next(iter(local.dump_flows("ovsbr1", only=(CookieMask(LEASE_OWNER << 48, OWNER_MASK),))), None)

    with running_server(Record(), is_redundant=True) as server:
        server.expect("ovsbr1")
        connect(bridge.ovs, "ovsbr1", server)
        remote = _become_master(server, "it is master")
        eventually(lambda: lease() is not None, "the lease is there")
        first = lease()
        assert first is not None
        assert len(bridge.dump_flows()) == 1
        for switch in (local, remote):
            assert switch.dump_flows("ovsbr1") == ()
            assert (switch.count_flows("ovsbr1", only=FOREIGN), switch.dump_flows("ovsbr1", only=FOREIGN)) == (0, ())
        assert bridge.megaflows() == []
        eventually(lambda: (now := lease()) is not None and now.packets >= first.packets + 10, "ten heartbeats")
        last = lease()
        assert last is not None
        # Adding a flow again resets how long it has been there.
        assert (last.flow, last.duration_s > first.duration_s) == (first.flow, True)
    eventually(lambda: bridge.dump_flows() == [], "the lease is gone")


def test_a_standby_refuses_requests_and_takes_over_with_what_operators_have_set(
    bridge: DummyBridge, config: Path, tmp_path: Path
) -> None:
    """Found when a standby gave a drained backend its clients back, four seconds after its master was killed.

    Found, too, when it remembered a request that it had answered with 1, and when it ended at once: an agent holds a
    lock, so that there is one for a bridge.
    """
    requests = (("drain", "dns", "fips3"), ("weight", "dns", "fips3", "5"), ("pause",))
    sockets = {name: tmp_path / f"{name}.sock" for name in ("first", "second")}

    def controller(name: str) -> AbstractContextManager[subprocess.Popen[str]]:
        listen = f"punix:{bridge.ovs.directory}/{name}.controller"
        options = ("--attach", "--redundant", "--listen", listen, "--control", sockets[name])
        return running("controller", config, "--db", bridge.ovs.db, *options)

    def ask(name: str, *words: str) -> CommandResult:
        return finish(start(*words, "--control", sockets[name]))

    with ExitStack() as both:
        first = both.enter_context(controller("first"))
        eventually(lambda: len(bridge.ours()) == 8, "the first has installed all flows")
        second = both.enter_context(controller("second"))
        assert second.stderr is not None
        assert any("another controller is master; standing by" in line for line in second.stderr)
        eventually(lambda: answers(sockets["second"]), "its agent, which has read the state of the first")
        for request in requests:
            refused = ask("second", *request)
            assert refused.status == 1
            assert f"PID {first.pid}, --control {sockets['first']}) is master of bridge ovsbr1" in refused.err
        drained = ask("first", "drain", "dns", "fips2")
        assert drained.status == 0, drained.err
        before = bridge.ours()
        assert not any("mod_dl_dst:02:00:5e:10:00:02" in flow for flow in before)
        first.kill()
        assert any("this controller is master" in line for line in second.stderr)
        bridge.ofctl("del-flows", "cookie=0x786f000000000000/0xffff000000000000")
        eventually(lambda: bridge.ours() == before, "the second has reinstalled what the first had")
        assert "drained" in ask("second", "status").out
        assert ask("second", "reset", "dns", "fips2").status == 0
        assert any("mod_dl_dst:02:00:5e:10:00:02" in flow for flow in bridge.ours())
        assert [ask("second", *request).status for request in requests] == [0, 0, 0]


def test_a_bridge_that_hangs_costs_no_other_its_master(bridge: DummyBridge) -> None:
    """Each has a keeper of its own: while one waits for an answer that never comes, the other becomes master."""

    def answer(_switch: ScriptedSwitch, request: bytes) -> bytes | None:
        is_first_question = request[1] == MULTIPART_REQUEST and part_of(request) == AGGREGATE
        return None if is_first_question else b""

    with (
        running_server(Record(), is_redundant=True) as server,
        scripted_switch(server, answer=answer, name="ovsbr0") as hung,
    ):
        # For its ports, for our flows, to tell of changes, and for a lease: the last one is waited for.
        eventually(lambda: hung.heard.count(MULTIPART_REQUEST) == 4, "it is asked for a lease")
        connect(bridge.ovs, "ovsbr1", server)
        _become_master(server, "the other one has its master").apply("ovsbr1", _NEW)
        assert hung.heard.count(MULTIPART_REQUEST) == 4
    assert len(live_switch(bridge.ovs).dump_flows("ovsbr1")) == 1


def _request_role(bridge: DummyBridge, role: Role, generation: int) -> int:
    """The generation afterwards."""
    with connected(live_switch(bridge.ovs).endpoint, bridge.name) as connection:
        reply = ask(connection, lambda xid: encode_role_request(role, generation, xid), "ROLE_REQUEST")
    return decode_role(reply)[1]
