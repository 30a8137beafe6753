"""Records the flows that a checkout of xenoovs installs for the configs of this directory; see README.md."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ovs.dummy import DummyBridge, DummyOvs, running_dummy_ovs
from tests.patience import eventually

HERE = Path(__file__).parent
PORTS = ("p0", "p1", "p2")
CLIENTS = range(8)
"""Last parts of the clients' addresses: each block of the drains has some of them."""


def config_of(case: str) -> Path:
    """The config of a case: `drain.open` and `drain.settling` share one."""
    return HERE / f"{case.partition('.')[0]}.yaml"


def packet(client: int, family: int, *, port: int, flags: str = "ack") -> str:
    """A TCP packet to service web (family 4) or web6 (6) as a datapath key, see ovs-appctl(8)."""
    ipv4 = f"eth_type(0x0800),ipv4(src=198.51.100.{client},dst=10.3.10.45,proto=6,tos=0,ttl=64,frag=no)"
    ipv6 = (
        f"eth_type(0x86dd),ipv6(src=2001:db8:1::{client},dst=2001:db8:10::80,label=0,proto=6,tclass=0,hlimit=64,"
        "frag=no)"
    )
    ethernet, network = "eth(src=02:00:00:00:00:01,dst=02:00:5e:10:00:01)", ipv4 if family == 4 else ipv6
    return f"in_port(1),packet_type(ns=0,id=0),{ethernet},{network},tcp(src={port},dst=80),tcp_flags({flags})"


def hold_settling(ovs: DummyOvs) -> None:
    """Let drains settle for four hours: it takes four times the longest time between two looks at megaflows."""
    ovs.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-revalidator=3600000")


@dataclass(frozen=True, slots=True)
class _Recorder:
    """The command line of a checkout, and a bridge. `scratch`: the file of configs that lead to the one of a case."""

    ovs: DummyOvs
    bridge: DummyBridge
    checkout: Path
    scratch: Path

    def variant(self, case: str, *replacements: tuple[str, str]) -> Path:
        text = config_of(case).read_text()
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        self.scratch.write_text(text)
        return self.scratch

    def run(self, command: str, config: Path, *options: str) -> None:
        with self._start(command, config, *options) as process:
            assert process.wait() == 0

    @contextmanager
    def running(self, command: str, config: Path, *options: str) -> Iterator[None]:
        with self._start(command, config, *options) as process:
            try:
                yield
            finally:
                process.kill()

    def wait_for_changes(self, count: int) -> None:
        for _ in range(count):
            before = self.bridge.dump_flows()
            eventually(lambda before=before: self.bridge.dump_flows() != before, "other flows")  # type: ignore[misc]

    def open_connections(self, port: int) -> None:
        packets = [packet(client, family, port=port, flags="syn") for family in (4, 6) for client in CLIENTS]
        self.bridge.send("p0", packets)

    def _start(self, command: str, config: Path, *options: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "xenoovs", command, str(config), "--db", self.bridge.ovs.db, *options]
        environment = {**os.environ, "PYTHONPATH": str(self.checkout)}
        return subprocess.Popen(argv, cwd=self.checkout, env=environment, stdout=subprocess.DEVNULL)


def _apply(recorder: _Recorder, case: str) -> None:
    recorder.run("apply", config_of(case), "--yes")


def _one_out(recorder: _Recorder, case: str) -> None:
    _apply(recorder, case)
    recorder.run("agent", config_of(case), "--once", "--allow-exec")


def _slow_start(recorder: _Recorder, case: str) -> None:
    _apply(recorder, case)
    out = ("[/bin/true]", "[/bin/sh, -c, 'test \"$XENOOVS_ADDRESS\" != 192.0.2.1']")
    recorder.run("agent", recorder.variant(case, out), "--once", "--allow-exec")
    quick = [("1m", "1s"), ("30s", "900ms"), ("1h", "14s")]
    with recorder.running("agent", recorder.variant(case, *quick), "--allow-exec"):
        recorder.wait_for_changes(4)


def _settling(recorder: _Recorder, case: str) -> None:
    hold_settling(recorder.ovs)
    _apply(recorder, "undrain")
    with recorder.running("apply", config_of(case), "--yes"):
        recorder.wait_for_changes(1)
        recorder.open_connections(1000)


def _open(recorder: _Recorder, case: str) -> None:
    _apply(recorder, "undrain")
    with recorder.running("apply", config_of(case), "--yes"):
        recorder.wait_for_changes(2)
        recorder.open_connections(1000)


def _undrain(recorder: _Recorder, case: str) -> None:
    _open(recorder, "drain")
    with recorder.running("apply", config_of(case), "--yes"):
        recorder.wait_for_changes(1)


CASES: dict[str, Callable[[_Recorder, str], None]] = {
    "quickstart": _apply,
    "many-services": _apply,
    "ipv6": _apply,
    "one-out": _one_out,
    "slow-start": _slow_start,
    "drain.settling": _settling,
    "drain.open": _open,
    "undrain": _undrain,
}


def main() -> None:
    """Record all cases, or those that the command line names after the checkout."""
    checkout = Path(sys.argv[1]).resolve()
    for case in sys.argv[2:] or CASES:
        with (
            tempfile.TemporaryDirectory() as name,
            running_dummy_ovs(Path(name) / "ovs") as ovs,
            ovs.bridge(ports=PORTS) as bridge,
        ):
            CASES[case](_Recorder(ovs, bridge, checkout, Path(name) / "config.yaml"), case)
            (HERE / f"{case}.flows").write_text(bridge.ofctl("dump-flows"))


if __name__ == "__main__":
    main()
