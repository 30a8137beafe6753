"""The directory of a lab, errors about its host and state, and labs on a slow machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.judged import assert_recorded
from tests.patience import eventually
from tests.switch_tunnels import GENEVE, behind_tunnels
from xenoovs.errors import LabError
from xenoovs.lab import host
from xenoovs.lab.host import check_host, is_alive, kill_and_wait
from xenoovs.lab.lab import directory_of, open_lab
from xenoovs.lab.nic import call
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.lab.nic.up import wait_until_ready
from xenoovs.lab.topology import check_name, is_namespace_of, lab_namespace
from xenoovs.lab.underlay import associations_of
from xenoovs.model.tunnel import Ipsec, TunnelPorts, TunnelType

MISSING: dict[str, tuple[object, str, object]] = {
    "root": (os, "geteuid", lambda: 1),
    "programs": (host, "missing_programs", lambda _: {"ip": "iproute2", "ovs-vswitchd": "openvswitch-switch"}),
    "tun": (os, "access", lambda *_: False),
    "IPv6": (host, "has_ipv6", lambda: False),
}


def lacking(name: str, *, needs_ipv6: bool) -> None:
    """Check a host that lacks only what `name` says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 0)
        patch.setattr(os, "access", lambda *_: True)
        patch.setattr(host, "missing_programs", lambda _: {})
        patch.setattr(host, "has_ipv6", lambda: True)
        if name:
            patch.setattr(*MISSING[name])
        check_host(needs_ipv6=needs_ipv6)


NAMES = ("", "A", "a_b", "-a", "a-", "a/b", "a b", "ä", "..", "../a", "a\n", "a" * 17)


def test_what_is_missing_and_unusable_names_are_reported_with_the_remedy(*, update_golden: bool) -> None:
    for good in ("a", "7", "demo-2", "a" * 16):
        check_name(good)
    lacking("", needs_ipv6=True)
    lacking("IPv6", needs_ipv6=False)
    calls: dict[str, Callable[[], object]] = {
        **{name: partial(lacking, name, needs_ipv6=True) for name in MISSING},
        **{repr(name): partial(directory_of, name, Path("/run/given")) for name in NAMES},
    }
    said = dict[str, str]()
    for title, checks in calls.items():
        with pytest.raises(LabError) as raised:
            checks()
        said[title] = str(raised.value)
    assert_recorded("lab/errors.txt", said, update=update_golden)


def test_namespaces_of_labs_with_similar_names_are_distinguished() -> None:
    names = ("a", "a-b1", "a-sw", "a-clients")
    for name in names:
        for made in (lab_namespace(name, role) for role in ("sw", "clients", "b12", "leafa", "spine3", "elephant")):
            assert [other for other in names if is_namespace_of(made, other)] == [name]


def test_directories_parameter_before_environment_before_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", "/run/elsewhere")
    assert directory_of("a", Path("/run/given")) == Path("/run/given/a")
    assert directory_of("a", None) == Path("/run/elsewhere/a")
    monkeypatch.delenv("XENOOVS_LAB_DIRECTORY")
    assert directory_of("a", None) == Path("/run/xenoovs/lab/a")


@pytest.mark.parametrize("text", ["", "{}", "\0\0", '{"complete": true, "topology": {}}'])
def test_an_unreadable_state_is_reported_with_its_remedy(text: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "lab.json").write_text(text)
    with pytest.raises(LabError, match="lab down --lab a"):
        open_lab("a", directory=tmp_path)


_MAIN_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)  # SYS_exit: of this thread alone
"""


def test_a_process_whose_main_thread_alone_has_ended_is_alive() -> None:
    """Its other threads still hold sockets and locks; `kill_and_wait` returned before they had ended."""
    with subprocess.Popen([sys.executable, "-c", _MAIN_THREAD_ENDS]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: ") Z " in stat.read_text(), "the end of the main thread")
        assert is_alive(process.pid)
        assert kill_and_wait([process.pid])
        assert not is_alive(process.pid)


SECURE = replace(GENEVE, ports=TunnelPorts.EACH, ipsec=Ipsec(psk_file="/k"))


def test_both_ends_have_the_same_keys_and_mirrored_policies() -> None:
    first, second = associations_of(behind_tunnels(SECURE))
    switch, machine = tuple(first.lines(first.local)), tuple(first.lines(first.remote))
    assert [line for line in switch if " state " in line] == [line for line in machine if " state " in line]
    to = f"src {first.local} dst {first.remote} proto udp dport 6081 tmpl"
    assert any(line.startswith(f"xfrm policy add dir out {to}") for line in switch)
    assert any(line.startswith(f"xfrm policy add dir in {to}") for line in machine)
    assert first.local == second.local == str(SECURE.local)
    assert len({*first.keys, *second.keys}) == 4
    assert first.number != second.number


def test_gre_has_no_port_and_without_ipsec_there_is_nothing() -> None:
    tunnel = replace(SECURE, type=TunnelType.GRE, dst_port=0)
    assert {each.selector for each in associations_of(behind_tunnels(tunnel))} == {"proto gre"}
    assert associations_of(behind_tunnels()) == ()


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "sleep", self.pass_s)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


def test_down_waits_for_daemons_that_end_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stopped waiting after some seconds, and left a lab that was half removed."""
    clock, signalled = Clock(monkeypatch), list[int]()
    monkeypatch.setattr(os, "kill", lambda pid, _number: signalled.append(pid))
    monkeypatch.setattr(host, "is_alive", lambda _pid: clock.now_s < 25)
    assert kill_and_wait([10, 11], signal.SIGTERM)
    assert signalled == [10, 11]


class Booting:
    """The port of a guest that takes ten minutes to boot, and then answers."""

    BOOT_S = 600.0
    clock: Clock

    def __init__(self, _machine: VirtualMachine) -> None:
        self.orders: list[dict[str, Any]] = []

    def write(self, data: bytes) -> None:
        self.orders += map(json.loads, data.splitlines()[-1:] if data.strip() else [])

    def read(self, timeout_s: float) -> bytes:
        self.clock.pass_s(timeout_s)
        answers = [
            {"ready": order["hello"], "uid": 0} if "hello" in order else {"id": order["start"], "exit": 0}
            for order in self.orders
            if self.clock.now_s >= self.BOOT_S and ("hello" in order or "start" in order)
        ]
        self.orders = [] if answers else self.orders
        return "".join(f"{json.dumps(answer)}\n" for answer in answers).encode()

    def close(self) -> None:
        """There is nothing to close."""


def test_a_guest_that_boots_for_ten_minutes_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Booting, "clock", Clock(monkeypatch), raising=False)
    monkeypatch.setattr(call, "_GuestPort", Booting)
    wait_until_ready(VirtualMachine(tmp_path))
    assert Booting.clock.now_s >= Booting.BOOT_S
