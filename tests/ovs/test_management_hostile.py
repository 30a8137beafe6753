"""A management socket where another program answers, or Open vSwitch answers wrongly: always a clear error."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from tests.ovs.scripted_switch import (
    BARRIER_REQUEST,
    BUNDLE_CONTROL,
    HELLO,
    MULTIPART_REQUEST,
    ScriptedSwitch,
    error,
    good_answer,
    message,
    part_of,
    port_status,
    scripted_management,
    xid_of,
)
from xenoovs.errors import (
    BundleRejected,
    MalformedOpenFlow,
    OpenFlowVersionDisabled,
    SwitchError,
    SwitchUnreachable,
)
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.switch import openflow
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

_ADD = Bundle((FlowMod(Command.ADD, parse_flow("cookie=0x786f000000000001, priority=7 actions=output:p1")),))
_OPEN, _COMMIT, _DISCARD = 0, 4, 6
_ECHO_REQUEST, _ECHO_REPLY, _MULTIPART_REPLY = 2, 3, 19
_FLOW, _AGGREGATE = 1, 2
_TALKS = 100
_PATIENCE_S = 0.1
"""For answers that never come. Where those that come are later than that, more talks fail, which is as good."""


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openflow, "GREETING_TIMEOUT_S", _PATIENCE_S)
    monkeypatch.setattr(openflow.Connection.receive, "__kwdefaults__", {"timeout_s": _PATIENCE_S})
    monkeypatch.setattr(openflow, "_COMMIT_S", _PATIENCE_S)


@pytest.fixture
def switch(tmp_path: Path) -> ManagementSwitch:
    return ManagementSwitch(Endpoint(f"unix:{tmp_path}/db.sock", tmp_path))


def _step(request: bytes) -> int | None:
    return int.from_bytes(request[12:14], "big") if request[1] == BUNDLE_CONTROL else None


def _is_barrier(request: bytes) -> bool:
    return request[1] == BARRIER_REQUEST


def _is_opening(request: bytes) -> bool:
    return _step(request) == _OPEN


def _is_commit(request: bytes) -> bool:
    return _step(request) == _COMMIT


def _is_dump(request: bytes) -> bool:
    return request[1] == MULTIPART_REQUEST and part_of(request) == _FLOW


def test_echo_requests_are_answered_meanwhile(switch: ManagementSwitch, tmp_path: Path) -> None:
    def answer(request: bytes) -> bytes | None:
        return message(_ECHO_REQUEST, b"still there?", xid=9) + good_answer(request)

    with scripted_management(tmp_path, answer=answer) as made:
        switch.apply("ovsbr1", _ADD)
    assert (made[0].heard.count(BUNDLE_CONTROL), _ECHO_REPLY in made[0].heard) == (2, True)


def test_answers_to_no_request_are_ignored(switch: ManagementSwitch, tmp_path: Path) -> None:
    def answer(request: bytes) -> bytes | None:
        good = good_answer(request)
        return good[:4] + bytes(4) + good[8:] + good + good[:4] + b"\xff\xff\xff\xff" + good[8:] if good else None

    with scripted_management(tmp_path, answer=answer):
        switch.apply("ovsbr1", _ADD)
        assert switch.dump_flows("ovsbr1") == ()
        assert switch.count_flows("ovsbr1") == 0


@pytest.mark.parametrize(
    ("is_refused", "told", "steps"),
    [
        (_is_barrier, "the commit of a bundle of 1 flow-mod", [_OPEN, _DISCARD]),
        (_is_opening, "the opening of a bundle of 1 flow-mod", [_OPEN]),
        (_is_commit, "the commit of a bundle of 1 flow-mod", [_OPEN, _COMMIT]),
    ],
)
def test_a_step_of_a_bundle_is_refused(
    switch: ManagementSwitch, tmp_path: Path, *, is_refused: Callable[[bytes], bool], told: str, steps: list[int]
) -> None:
    seen: list[int | None] = []

    def answer(request: bytes) -> bytes | None:
        seen.append(_step(request))
        return error(request) if is_refused(request) else None

    with scripted_management(tmp_path, answer=answer), pytest.raises(BundleRejected) as caught:
        switch.apply("ovsbr1", _ADD)
    assert (caught.value.error, caught.value.message) == ("OFPBRC_EPERM", told)
    assert [step for step in seen if step is not None] == steps


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize("sent", [0, 5, -1], ids=["nothing", "half a header", "all but a byte"])
@pytest.mark.parametrize("is_late", [_is_barrier, _is_commit, _is_dump])
def test_an_answer_that_does_not_come_to_its_end(
    switch: ManagementSwitch, tmp_path: Path, *, is_late: Callable[[bytes], bool], sent: int
) -> None:
    def answer(request: bytes) -> bytes | None:
        return good_answer(request)[:sent] if is_late(request) else None

    with scripted_management(tmp_path, answer=answer), pytest.raises(SwitchUnreachable, match="does not answer"):
        _use(switch, is_late)


@pytest.mark.parametrize("is_last", [_is_barrier, _is_commit, _is_dump])
def test_a_connection_that_ends_within_an_answer(
    switch: ManagementSwitch, tmp_path: Path, is_last: Callable[[bytes], bool]
) -> None:
    def answer(request: bytes) -> bytes | None:
        if is_last(request):
            made[-1].send(good_answer(request)[:-1])
            made[-1].close()
        return None

    with scripted_management(tmp_path, answer=answer) as made, pytest.raises(SwitchUnreachable, match="was lost"):
        _use(switch, is_last)


def _use(switch: ManagementSwitch, request: Callable[[bytes], bool]) -> None:
    if request is _is_dump:
        switch.dump_flows("ovsbr1")
    else:
        switch.apply("ovsbr1", _ADD)


def test_a_dump_that_cannot_be_read(switch: ManagementSwitch, tmp_path: Path) -> None:
    for number, body in enumerate(
        (
            bytes.fromhex("0001 0000 00000000 0007 0000 00000000"),  # a flow of 7 bytes
            bytes.fromhex("0001 0000 00000000") + bytes(55),  # half a flow
            bytes.fromhex("0002 0000 00000000") + bytes(24),  # an answer to something else
            bytes.fromhex("0001"),  # no kind
        )
    ):

        def answer(request: bytes) -> bytes | None:
            return message(_MULTIPART_REPLY, body, xid=xid_of(request)) if _is_dump(request) else None  # noqa: B023

        malformed = pytest.raises(MalformedOpenFlow, match=rf"unix:.*ovsbr{number}\.mgmt")
        with scripted_management(tmp_path, answer=answer, name=f"ovsbr{number}"), malformed:
            switch.dump_flows(f"ovsbr{number}")


def test_a_dump_that_is_refused(switch: ManagementSwitch, tmp_path: Path) -> None:
    with (
        scripted_management(tmp_path, answer=lambda request: error(request) if _is_dump(request) else None),
        pytest.raises(SwitchError, match="bridge ovsbr1 refused a request: OFPBRC_EPERM"),
    ):
        switch.dump_flows("ovsbr1")


@pytest.mark.parametrize(
    ("hello", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the version and the length of a message"),
        (message(_ECHO_REQUEST), "a HELLO"),
        (b"\x05\x00\x00\x07\0\0\0\1", "the version and the length of a message"),
    ],
    ids=["HTTP", "an echo request", "a length of 7"],
)
def test_a_program_that_speaks_something_else(
    switch: ManagementSwitch, tmp_path: Path, hello: bytes, told: str
) -> None:
    with scripted_management(tmp_path, hello=hello), pytest.raises(MalformedOpenFlow, match=told):
        switch.apply("ovsbr1", _ADD)


def test_a_switch_without_openflow_14(switch: ManagementSwitch, tmp_path: Path) -> None:
    hello = bytes.fromhex("06000010000000010001000800000052")
    with scripted_management(tmp_path, hello=hello), pytest.raises(OpenFlowVersionDisabled) as caught:
        switch.dump_flows("ovsbr1")
    assert caught.value.spoken == ("OpenFlow10", "OpenFlow13", "OpenFlow15")


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize("hello", [b"", HELLO[:5]], ids=["nothing", "half a HELLO"])
def test_a_program_that_says_no_hello(switch: ManagementSwitch, tmp_path: Path, hello: bytes) -> None:
    with scripted_management(tmp_path, hello=hello), pytest.raises(SwitchUnreachable, match="does not answer"):
        switch.dump_flows("ovsbr1")


@pytest.mark.usefixtures("little_patience")
def test_endless_events_do_not_hide_that_no_answer_comes(switch: ManagementSwitch, tmp_path: Path) -> None:
    event = port_status(1, "p0", is_up=False)

    def flood(made: list[ScriptedSwitch]) -> None:
        with suppress(OSError, IndexError):
            while True:
                made[0].send(event * 100)

    def answer(request: bytes) -> bytes | None:
        if _is_dump(request):
            Thread(target=flood, args=(made,), daemon=True).start()
            return b""
        return None

    with scripted_management(tmp_path, answer=answer) as made, pytest.raises(SwitchUnreachable, match="not answer"):
        switch.dump_flows("ovsbr1")


def test_more_refusals_than_fit_a_socket(switch: ManagementSwitch, tmp_path: Path) -> None:
    """A peer that waits until its answers are read takes nothing meanwhile."""
    many = Bundle(_ADD.mods * 20_000)

    def answer(request: bytes) -> bytes | None:
        return error(request) if request[1] == 34 else None

    with scripted_management(tmp_path, answer=answer), pytest.raises(BundleRejected, match="OFPBRC_EPERM on: ADD"):
        switch.apply("ovsbr1", many)


def test_a_run_directory_of_a_long_name(tmp_path: Path) -> None:
    """Of a path, an address of unix(7) holds 107 bytes."""
    directory = tmp_path / ("x" * 100)
    directory.mkdir()
    with _inside(directory), scripted_management(Path()):
        ManagementSwitch(Endpoint(f"unix:{directory}/db.sock", directory)).apply("ovsbr1", _ADD)


@contextmanager
def _inside(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.mark.usefixtures("little_patience")
def test_whatever_comes_is_an_error_of_ours_and_leaves_nothing(switch: ManagementSwitch, tmp_path: Path) -> None:
    chance, drop = random.Random(1), parse_flow("cookie=0x786f000000000001, priority=7 actions=drop")
    calls: tuple[Callable[[], object], ...] = (
        lambda: switch.dump_flows("ovsbr1"),
        lambda: switch.count_flows("ovsbr1"),
        lambda: switch.apply("ovsbr1", Bundle((FlowMod(Command.ADD, drop),))),
    )
    before = _descriptors()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "ovsbr1.mgmt"))
        listener.listen(1)
        failed = 0
        for _ in range(_TALKS):
            thread = Thread(target=_talk, args=(listener, chance))
            thread.start()
            try:
                chance.choice(calls)()
            except SwitchError:
                failed += 1
            thread.join()
    assert _descriptors() == before
    assert 0 < failed < _TALKS


def _talk(listener: socket.socket, chance: random.Random) -> None:
    """Good answers up to some point, and then one with some bytes changed, cut out or put in."""
    good = chance.randrange(5)
    sock, _ = listener.accept()
    with sock, suppress(OSError):
        sock.sendall(HELLO if good else _damaged(HELLO, chance))
        while good and (data := sock.recv(1 << 16)):
            for answer in filter(None, map(good_answer, _whole(data))):
                good -= 1
                sock.sendall(answer if good else _damaged(answer, chance))


def _whole(data: bytes) -> Iterator[bytes]:
    while len(data) >= 8:
        length = max(8, int.from_bytes(data[2:4], "big"))
        yield data[:length]
        data = data[length:]


def _damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed) + 1)
        changed[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
    return bytes(changed)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
