"""A management socket where another program answers, or Open vSwitch answers wrongly: always a clear error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from tests.ovs.scripted_switch import (
    ADD,
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
    step_of,
    xid_of,
)
from xenoovs.errors import (
    BundleRejected,
    MalformedOpenFlow,
    OpenFlowVersionDisabled,
    SwitchError,
    SwitchUnreachable,
)
from xenoovs.switch import openflow
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

_OPEN, _COMMIT, _DISCARD = 0, 4, 6
_ECHO_REQUEST, _ECHO_REPLY, _MULTIPART_REPLY = 2, 3, 19
_FLOW, _AGGREGATE = 1, 2
_PATIENCE_S = 0.1
"""For answers that never come."""


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openflow, "GREETING_TIMEOUT_S", _PATIENCE_S)
    monkeypatch.setattr(openflow.Connection.receive, "__kwdefaults__", {"timeout_s": _PATIENCE_S})
    monkeypatch.setattr(openflow, "_COMMIT_S", _PATIENCE_S)


@pytest.fixture
def switch(tmp_path: Path) -> ManagementSwitch:
    return ManagementSwitch(Endpoint(f"unix:{tmp_path}/db.sock", tmp_path))


def _is_barrier(request: bytes) -> bool:
    return request[1] == BARRIER_REQUEST


def _is_opening(request: bytes) -> bool:
    return step_of(request) == _OPEN


def _is_commit(request: bytes) -> bool:
    return step_of(request) == _COMMIT


def _is_dump(request: bytes) -> bool:
    return request[1] == MULTIPART_REQUEST and part_of(request) == _FLOW


def test_echo_requests_are_answered_and_answers_to_no_request_ignored(switch: ManagementSwitch, tmp_path: Path) -> None:
    def answer(request: bytes) -> bytes | None:
        good, echo = good_answer(request), message(_ECHO_REQUEST, b"still there?", xid=9)
        return (
            echo + good[:4] + bytes(4) + good[8:] + good + good[:4] + b"\xff\xff\xff\xff" + good[8:] if good else echo
        )

    with scripted_management(tmp_path, answer=answer) as made:
        switch.apply("ovsbr1", ADD)
        assert (made[0].heard.count(BUNDLE_CONTROL), _ECHO_REPLY in made[0].heard) == (2, True)
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
        seen.append(step_of(request))
        return error(request) if is_refused(request) else None

    with scripted_management(tmp_path, answer=answer), pytest.raises(BundleRejected) as caught:
        switch.apply("ovsbr1", ADD)
    assert (caught.value.error, caught.value.message) == ("OFPBRC_EPERM", told)
    assert [step for step in seen if step is not None] == steps


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize("is_last", [_is_barrier, _is_commit, _is_dump])
@pytest.mark.parametrize(
    ("sent", "ends", "told"),
    [
        (0, False, "does not answer"),
        (5, False, "does not answer"),
        (-1, False, "does not answer"),
        (-1, True, "was lost"),
    ],
    ids=["nothing", "half a header", "all but a byte", "all but a byte, and the end"],
)
def test_an_answer_that_does_not_come_to_its_end(
    switch: ManagementSwitch,
    tmp_path: Path,
    *,
    is_last: Callable[[bytes], bool],
    sent: int,
    ends: bool,
    told: str,
) -> None:
    def answer(request: bytes) -> bytes | None:
        if not is_last(request):
            return None
        made[-1].send(good_answer(request)[:sent])
        if ends:
            made[-1].close()
        return b""

    ask = partial(switch.dump_flows, "ovsbr1") if is_last is _is_dump else partial(switch.apply, "ovsbr1", ADD)
    before = _descriptors()
    with scripted_management(tmp_path, answer=answer) as made, pytest.raises(SwitchUnreachable, match=told):
        ask()
    assert _descriptors() == before


@pytest.mark.parametrize(
    "body",
    [
        "0001 0000 00000000 0007 0000 00000000",
        "0001 0000 00000000" + "00" * 55,
        "0002 0000 00000000" + "00" * 24,
        "0001",
        None,
    ],
    ids=["a flow of 7 bytes", "half a flow", "an answer to something else", "no kind", "refused"],
)
def test_a_dump_that_cannot_be_read(switch: ManagementSwitch, tmp_path: Path, body: str | None) -> None:
    def answer(request: bytes) -> bytes | None:
        if not _is_dump(request):
            return None
        if body is None:
            return error(request)
        return message(_MULTIPART_REPLY, bytes.fromhex(body), xid=xid_of(request))

    kind = SwitchError if body is None else MalformedOpenFlow
    told = "bridge ovsbr1 refused a request: OFPBRC_EPERM" if body is None else r"unix:.*ovsbr1\.mgmt"
    with scripted_management(tmp_path, answer=answer), pytest.raises(kind, match=told):
        switch.dump_flows("ovsbr1")


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize(
    ("hello", "kind", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", MalformedOpenFlow, "the version and the length of a message"),
        (message(_ECHO_REQUEST), MalformedOpenFlow, "a HELLO"),
        (b"\x05\x00\x00\x07\0\0\0\1", MalformedOpenFlow, "the version and the length of a message"),
        (
            bytes.fromhex("06000010000000010001000800000052"),
            OpenFlowVersionDisabled,
            "OpenFlow10, OpenFlow13, OpenFlow15",
        ),
        (b"", SwitchUnreachable, "does not answer"),
        (HELLO[:5], SwitchUnreachable, "does not answer"),
    ],
    ids=["HTTP", "an echo request", "a length of 7", "no OpenFlow 1.4", "nothing", "half a HELLO"],
)
def test_a_program_that_greets_in_another_way(
    switch: ManagementSwitch, tmp_path: Path, hello: bytes, kind: type[SwitchError], told: str
) -> None:
    with scripted_management(tmp_path, hello=hello), pytest.raises(kind, match=told):
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


def test_a_run_directory_of_a_long_name(tmp_path: Path) -> None:
    """Of a path, an address of unix(7) holds 107 bytes."""
    directory = tmp_path / ("x" * 100)
    directory.mkdir()
    with _inside(directory), scripted_management(Path()):
        ManagementSwitch(Endpoint(f"unix:{directory}/db.sock", directory)).apply("ovsbr1", ADD)


@contextmanager
def _inside(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
