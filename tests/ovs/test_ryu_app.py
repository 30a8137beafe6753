"""xenoovs as an application beside another one: each has its own bridges, and neither disturbs the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG
from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet
from tests.ovs.ways import free_port
from tests.patience import PATIENCE_S, eventually

_LAUNCHER = (
    "import sys; from os_ken.base.app_manager import AppManager; from os_ken import cfg; "
    "import os_ken.controller.controller; "
    "cfg.CONF(['--ofp-listen-host', '127.0.0.1', '--ofp-tcp-listen-port', sys.argv[1]]); "
    "AppManager.run_apps(sys.argv[2:])"
)
_OURS, _OTHER = "xenoovs.ryu_app", "tests.ovs.other_ryu_app"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, dummy_ovs: DummyOvs) -> Iterator[tuple[DummyBridge, DummyBridge]]:
    """Our bridge and one of the other application."""
    with dummy_ovs.bridge() as ours, dummy_ovs.bridge("br-other", ports=("o0", "o1")) as theirs:
        yield ours, theirs


class Launcher:
    """A launcher with applications. `said`: what the other application has printed, by what it says."""

    def __init__(self, config: Path, apps: tuple[str, ...], directory: Path) -> None:
        self.port = str(free_port())
        env = {**os.environ, "XENOOVS_CONFIG": str(config), "OSKEN_HUB_TYPE": "native", "OVS_RUNDIR": str(directory)}
        argv = [sys.executable, "-c", _LAUNCHER, self.port, *apps]
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said: list[list[Any]] = []
        self.log: list[str] = []
        self._readers = [Thread(target=self._read), Thread(target=self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.said += map(json.loads, self.process.stdout)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log += self.process.stderr

    def about(self, word: str) -> list[list[Any]]:
        """Return what the events of a kind are about."""
        return [line[1:] for line in tuple(self.said) if line[0] == word]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)


@contextmanager
def launched(
    bridges: tuple[DummyBridge, DummyBridge], directory: Path, apps: tuple[str, ...] = (_OURS, _OTHER)
) -> Iterator[Launcher]:
    config = directory / "config.yaml"
    config.write_text(SMALL_CONFIG)
    launcher = Launcher(config, apps, bridges[0].ovs.directory)
    try:
        for bridge in bridges:
            bridge.ovs.vsctl("set-controller", bridge.name, f"tcp:127.0.0.1:{launcher.port}")
            bridge.ovs.vsctl("set", "controller", bridge.name, "max_backoff=1000", "connection_mode=out-of-band")
        yield launcher
    finally:
        for bridge in bridges:
            bridge.ovs.vsctl("del-controller", bridge.name)
        launcher.close()


def datapath_of(bridge: DummyBridge) -> int:
    return int(bridge.ovs.vsctl("get", "bridge", bridge.name, "datapath_id").strip().strip('"'), 16)


def has_flows(bridge: DummyBridge) -> bool:
    return any("mod_dl_dst" in flow or "set_field" in flow for flow in bridge.dump_flows())


@pytest.mark.parametrize("apps", [(_OURS, _OTHER), (_OTHER, _OURS)], ids=["ours first", "ours last"])
def test_bug_another_application_got_no_events_and_its_bridge_was_refused(
    several: tuple[DummyBridge, DummyBridge], tmp_path: Path, apps: tuple[str, ...]
) -> None:
    ours, theirs = several
    number = datapath_of(theirs)
    with launched(several, tmp_path, apps) as launcher:
        eventually(lambda: has_flows(ours), "our flows")
        eventually(lambda: [number, "main"] in launcher.about("state"), "the other bridge at the other application")
        assert launcher.about("features") == [[number]]
        eventually(lambda: any("CONTROLLER" in flow for flow in theirs.dump_flows()), "its flow")
        theirs.send("o0", [udp_packet("192.0.2.7")])
        eventually(lambda: launcher.about("packet") == [[number, 1]], "its packet")
        theirs.ovs.appctl("netdev-dummy/set-admin-state", "o1", "down")
        eventually(lambda: [number, "o1"] in launcher.about("port"), "its port")
        theirs.ovs.appctl("netdev-dummy/set-admin-state", "o1", "up")
        # Nothing that it saw is of our bridge.
        assert {line[0] for line in launcher.about("state")} <= {number, None}
