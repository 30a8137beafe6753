"""`apply` with a way back: confirmed it stays; in every other case the bridge has its old flows, byte for byte.

A drain goes on while nobody has confirmed yet; the way back leaves those of others alone.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, XENOOVS, Command, finish, running, start
from tests.compiled import moves_of
from tests.ovs.dummy import DummyBridge, udp_packet
from tests.ovs.ways import live_switch
from tests.patience import PATIENCE_S, eventually
from xenoovs.decision.decision import BlockMove, Phase
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.model.load import parse_config

FOREIGN = "cookie=0x5,table=0,priority=5000,arp actions=NORMAL\n"


@pytest.fixture
def before(on_bridge: Command, bridge: DummyBridge, config: Path) -> list[str]:
    """The flows of the first config and a foreign one; the file has another weight then."""
    assert on_bridge("apply", config, "--yes").status == 0
    bridge.add_flows(FOREIGN)
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50"))
    return sorted(bridge.dump_flows())


def begin(bridge: DummyBridge, config: Path, before: list[str]) -> subprocess.Popen[str]:
    """An apply that has changed the flows and waits."""
    process = start("apply", config, "--db", bridge.ovs.db, "--yes", "--confirm", "10m")
    try:
        eventually(lambda: sorted(bridge.dump_flows()) != before, "the change")
    except BaseException:
        process.kill()
        raise
    return process


def children(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def confirm(on_bridge: Command, bridge: DummyBridge) -> int:
    return on_bridge("confirm", "--bridge", bridge.name).status


def test_confirmed_it_stays(on_bridge: Command, bridge: DummyBridge, config: Path, before: list[str]) -> None:
    process = begin(bridge, config, before)
    eventually(lambda: confirm(on_bridge, bridge) == 0, "an apply that waits for it")
    said = finish(process)
    assert (said.status, "done:" in said.out) == (0, True), said.err
    assert on_bridge("plan", config).status == 0
    assert confirm(on_bridge, bridge) == 1


def test_interrupted_or_killed(bridge: DummyBridge, config: Path, before: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        process = begin(bridge, config, before)
        process.send_signal(number)
        said = finish(process)
        if number is not signal.SIGKILL:
            assert said.status == 1
            assert f"interrupted by {number.name}: the change was rolled back" in said.err
        eventually(lambda: sorted(bridge.dump_flows()) == before, "the old flows")


def test_stopped_it_is_taken_back_in_time(bridge: DummyBridge, config: Path, before: list[str]) -> None:
    process = start("apply", config, "--db", bridge.ovs.db, "--yes", "--confirm", "1s")
    assert process.stderr is not None
    assert "applied; rollback in 1s unless confirmed" in process.stderr.readline()
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: sorted(bridge.dump_flows()) == before, "the old flows")
    process.send_signal(signal.SIGCONT)
    assert finish(process).status == 1


def test_bug_the_command_that_keeps_it_was_for_another_switch(
    on_bridge: Command, bridge: DummyBridge, config: Path
) -> None:
    process = start("apply", config, "--db", bridge.ovs.db, "--yes", "--confirm", "30s")
    assert process.stderr is not None
    assert f"keep it with `xenoovs confirm --db {bridge.ovs.db}`" in process.stderr.readline()
    eventually(lambda: confirm(on_bridge, bridge) == 0, "an apply that waits for it")
    assert finish(process).status == 0


def test_a_lost_guard_is_made_up_for(bridge: DummyBridge, config: Path, before: list[str]) -> None:
    process = begin(bridge, config, before)
    # The last ovs-ofctl is gone, too, when it waits.
    eventually(lambda: len(children(process)) == 1, "the guard alone")
    os.kill(children(process)[0], signal.SIGKILL)
    assert finish(process).status == 1
    assert sorted(bridge.dump_flows()) == before


def test_software_is_not_hardware(bridge: DummyBridge, config: Path, before: list[str]) -> None:
    """The dummy datapath offloads nothing; a block that has traffic shows it."""
    process = start("apply", config, "--db", bridge.ovs.db, "--yes", "--rollback-unless-offloaded", "--within", "5s")
    while process.poll() is None:
        bridge.send("p0", [udp_packet("192.0.2.7")])
    said = finish(process)
    assert said.status == 1
    assert "1 of 1 block with traffic not in hardware" in said.err
    assert sorted(bridge.dump_flows()) == before


@pytest.mark.parametrize(
    ("ahead", "typed", "limit", "end"),
    [
        (b"", b"\n", "10m", "done"),
        (b"", b"\x04", "10m", "rolled back"),
        # It is no answer.
        (b"\n", b"", "1s", "the change was not confirmed within 1s"),
    ],
    ids=["ENTER", "end of file", "typed ahead"],
)
def test_at_a_terminal(
    bridge: DummyBridge, config: Path, before: list[str], ahead: bytes, typed: bytes, limit: str, end: str
) -> None:
    ours, theirs = os.openpty()
    os.write(ours, ahead)
    argv = [str(XENOOVS), "apply", str(config), "--db", bridge.ovs.db, "--yes", "--confirm", limit]
    process = subprocess.Popen(argv, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    said = b""
    while b"press ENTER to keep it" not in said:
        said += (more := os.read(process.stdout.fileno(), 4096))
        assert more, said
    assert ahead or sorted(bridge.dump_flows()) != before
    os.write(ours, typed)
    last, _ = process.communicate(timeout=PATIENCE_S)
    assert end in (said + last).decode()
    assert (process.returncode == 0, sorted(bridge.dump_flows()) != before) == (end == "done",) * 2
    os.close(ours)
    os.close(theirs)


def test_first_offloaded_and_then_confirmed(
    on_bridge: Command, bridge: DummyBridge, config: Path, before: list[str]
) -> None:
    options = ["--rollback-unless-offloaded", "--within", "100ms", "--confirm", "10m"]
    process = start("apply", config, "--db", bridge.ovs.db, "--yes", *options)
    eventually(lambda: confirm(on_bridge, bridge) == 0, "an apply that waits for it")
    said = finish(process)
    assert (said.status, "no block has had traffic, so the change stays" in said.err) == (0, True)
    assert sorted(bridge.dump_flows()) != before


def test_a_confirmation_in_two_pieces_is_answered(bridge: DummyBridge, config: Path, before: list[str]) -> None:
    """As `xenoovs confirm` sends it: the body after the head. Bug: it was answered that no apply waits."""
    process = begin(bridge, config, before)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        path = bridge.ovs.directory / "xenoovs" / f"{bridge.name}.apply"
        eventually(lambda: sock.connect_ex(str(path)) == 0, "an apply that waits")
        sock.sendall(b"POST /v1/confirm HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n")
        # The head has been read: nothing of it is left in the queue (unix(7), SIOCOUTQ).
        eventually(lambda: fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)) == bytes(4), "the head is read")
        sock.sendall(b"{}")
        assert b"confirmed: the change stays" in sock.makefile("rb").read()
    assert finish(process).status == 0


DRAIN = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin, timeout: 60s, idle_timeout: 60s}
services:
""" + "".join(
    f"  - name: {name}\n    vip: {vip}\n    protocol: tcp\n    ports: [{port}]\n    backends:\n"
    "      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}\n      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}\n"
    for name, vip, port in (("web", "10.3.10.45", 80), ("mail", "10.3.10.46", 25))
)
WITHOUT_ONE = DRAIN.replace("00:02, weight: 1", "00:02, weight: 0", 1)


@pytest.fixture
def drained(on_bridge: Command, bridge: DummyBridge, config: Path) -> list[str]:
    """The flows of two services; the file takes backend one out of web then."""
    config.write_text(DRAIN)
    assert on_bridge("apply", config, "--yes").status == 0
    config.write_text(WITHOUT_ONE)
    return sorted(bridge.dump_flows())


def moving(bridge: DummyBridge) -> tuple[tuple[int, BlockMove], ...]:
    return moves_of(live_switch(bridge.ovs).dump_flows(bridge.name))


def has_settled(bridge: DummyBridge) -> bool:
    return all(move.phase is Phase.OPEN for _, move in moving(bridge))


@contextmanager
def applying(config: Path, bridge: DummyBridge, *options: str) -> Iterator[subprocess.Popen[str]]:
    """An `apply` that has begun a drain; it is ended by the test or killed."""
    with running("apply", config, "--db", bridge.ovs.db, "--yes", *options) as process:
        eventually(lambda: bool(moving(bridge)), "the drain")
        yield process


def test_a_drain_goes_on_while_nobody_has_confirmed(
    on_bridge: Command, bridge: DummyBridge, config: Path, drained: list[str]
) -> None:
    """New connections go to the new backend: a change that is to be judged has to be there."""
    config.write_text(WITHOUT_ONE.replace("timeout: 60s, idle_timeout: 60s", "timeout: 4s, idle_timeout: 4s"))
    with applying(config, bridge, "--confirm", "60s") as process:
        eventually(lambda: has_settled(bridge), "new connections that go on")
        eventually(lambda: not moving(bridge), "the end of the drain")
        assert confirm(on_bridge, bridge) == 0
        said = finish(process)
    assert (said.status, "drained: all blocks have moved" in said.out) == (0, True), said.err
    assert sorted(bridge.dump_flows()) != drained


def test_the_way_back_ends_the_drain_that_it_began_and_leaves_that_of_another_service(
    bridge: DummyBridge, config: Path, drained: list[str]
) -> None:
    """It was ended with the change: all flows were put back as they had been.

    An agent begins the other drain; a second `apply` is refused meanwhile.
    """
    with applying(config, bridge, "--confirm", "10m") as process:
        engine = Engine(live_switch(bridge.ovs))
        both = parse_config(DRAIN.replace("00:02, weight: 1", "00:02, weight: 0"), file="other.yaml")
        engine.apply(engine.plan(both, PlanOptions()))
        assert len({service for service, _ in moving(bridge)}) == 2
        process.terminate()
        assert finish(process).status == 1
    (left,) = {each[0] for each in moving(bridge)}
    web = [line for line in drained if f"{left:#x}" not in line]
    assert [line for line in sorted(bridge.dump_flows()) if f"{left:#x}" not in line] == web
