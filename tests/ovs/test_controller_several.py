"""One controller process for several bridges: each as its own config says, whatever happens to the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, finish, running
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import PATIENCE_S, eventually

_SECOND = (
    SMALL_CONFIG.replace("ovsbr1", "ovsbr2").replace("p0", "q0").replace("p1", "q1").replace("10.3.10.45", "10.9.9.9")
)


@pytest.fixture
def first(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge() as made:
        yield made


@pytest.fixture
def second(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge("ovsbr2", ports=("q0", "q1")) as made:
        yield made


def controller(*words: str | Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that listens wherever there is room, until the end of the `with`."""
    return running("controller", *words, "--listen", "127.0.0.1:0", "--log", "json")


def _config(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return path


def _vip(bridge: DummyBridge) -> set[str]:
    """The VIPs for which the bridge has flows."""
    return {
        flow.partition("nw_dst=")[2].partition(" ")[0].partition(",")[0] for flow in bridge.ours() if "nw_dst=" in flow
    }


def _told(process: subprocess.Popen[str], event: str) -> dict[str, object]:
    """The next such event in the log."""
    assert process.stderr is not None
    for line in process.stderr:
        found: dict[str, object] = json.loads(line)
        if found["event"] == event:
            return found
    pytest.fail(f"the log ends without {event!r}")


def test_each_bridge_has_the_flows_of_its_config_its_own_status_and_its_part_of_the_page(
    first: DummyBridge, second: DummyBridge, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """A config that names another bridge later is refused: else two agents would fight for one bridge."""
    one, two = _config(tmp_path, "one", SMALL_CONFIG), _config(tmp_path, "two", _SECOND)

    def get(path: str) -> str:
        with urllib.request.urlopen(f"{url}{path}", timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
            return text

    with controller(one, two, "--attach", "--web", "127.0.0.1:0", "--db", first.ovs.db) as process:
        url = next(at for at in iter(lambda: str(_told(process, "listening")["at"]), "") if at.startswith("http"))
        eventually(lambda: _vip(first) == {"10.3.10.45"}, "the flows of the first")
        eventually(lambda: _vip(second) == {"10.9.9.9"}, "the flows of the second")
        drained = xenoovs("drain", "dns", "fips2", "--bridge", "ovsbr2", "--db", first.ovs.db)
        assert drained.status == 0, drained.err
        states = {}
        for bridge in ("ovsbr1", "ovsbr2"):
            snapshot = json.loads(xenoovs("status", "--bridge", bridge, "--db", first.ovs.db, "-o", "json").out)[
                "snapshot"
            ]
            assert snapshot["bridge"] == bridge
            assert [port["link_up"] for port in snapshot["ports"]] == [True, True]
            states[bridge] = [backend["state"] for backend in snapshot["services"][0]["backends"]]
            assert all(event["facts"].get("bridge", bridge) == bridge for event in snapshot["events"])
            for path in ("now", "v1/status"):
                assert json.loads(get(f"/{bridge}/{path}"))["snapshot"]["bridge"] == bridge
            assert f'href="{bridge}/"' in get("/")
            assert f'bridge="{bridge}"' in get(f"/{bridge}/metrics")
        assert states == {"ovsbr1": ["unchecked", "unchecked"], "ovsbr2": ["drained", "unchecked"]}
        assert 'fetch("now"' in get("/ovsbr2/")
        one.write_text(_SECOND.replace("10.9.9.9", "10.7.7.7"))
        refused = _told(process, "the config cannot be applied; the last good one stays")
        assert refused["bridge"] == "ovsbr1"
        assert "manages bridge ovsbr1 and refuses ovsbr2" in str(refused["reason"])
        assert (_vip(first), _vip(second)) == ({"10.3.10.45"}, {"10.9.9.9"})
        process.send_signal(signal.SIGTERM)
        assert finish(process).status == 0


def test_bridges_of_one_name_on_two_hosts_are_told_apart_and_one_that_hangs_keeps_no_flow_from_the_other(
    first: DummyBridge, own_ovs: DummyOvs, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """What others change is put right again and again while questions to the one that hangs run out of time."""
    with own_ovs.bridge() as elsewhere:
        ids = [
            each.ovs.vsctl("get", "bridge", each.name, "datapath_id").strip().strip('"') for each in (first, elsewhere)
        ]
        texts = [SMALL_CONFIG, SMALL_CONFIG.replace("10.3.10.45", "10.9.9.9")]
        files = [
            _config(tmp_path, name, text.replace("{bridge: ovsbr1", f'{{bridge: ovsbr1, datapath_id: "{each}"'))
            for name, text, each in zip(("one", "two"), texts, ids, strict=True)
        ]
        with controller(*files, "--attach", "--resync", "200ms", "--db", first.ovs.db) as process:
            told = _told(process, "a bridge is not attached")
            assert told["bridge"] == f"ovsbr1@{ids[1]}"
            target = str(told["remedy"]).split()[3].rstrip(",")
            quick = ("--", "set", "controller", "ovsbr1", "max_backoff=1000")
            elsewhere.ovs.vsctl("set-controller", "ovsbr1", target, *quick)
            eventually(lambda: _vip(first) == {"10.3.10.45"}, "the flows of the one")
            eventually(lambda: _vip(elsewhere) == {"10.9.9.9"}, "the flows of the other")
            said = xenoovs("status", "--bridge", f"ovsbr1@{ids[1]}", "--db", first.ovs.db)
            assert (said.status, said.out.startswith(f"bridge ovsbr1@{ids[1]}: agent up ")) == (0, True), said.err
            before = first.ours()
            os.kill(own_ovs.ovs.pids()[0], signal.SIGSTOP)
            try:
                for _ in range(3):
                    first.ofctl("del-flows", "table=1,ip")
                    eventually(lambda: first.ours() == before, "what somebody has changed is right again")
            finally:
                os.kill(own_ovs.ovs.pids()[0], signal.SIGCONT)
            elsewhere.ofctl("del-flows", "table=1,ip")
            eventually(lambda: len(elsewhere.ours()) == len(before), "the other one goes on")


def test_a_bridge_that_others_control_is_left_to_them(
    first: DummyBridge, second: DummyBridge, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """Found when the remedy was the very command that puts their controller out."""
    second.ovs.vsctl("set-controller", "ovsbr2", "tcp:127.0.0.1:1")
    one, two = _config(tmp_path, "one", SMALL_CONFIG), _config(tmp_path, "two", _SECOND)
    with controller(one, two, "--attach", "--db", first.ovs.db) as process:
        told = _told(process, "a bridge is not attached")
    assert told["bridge"] == "ovsbr2"
    reason = "has another controller (tcp:127.0.0.1:1) and was not changed"
    assert reason in str(told["reason"])
    assert told["remedy"] == "start this with --redundant, to stand beside tcp:127.0.0.1:1"
    alone = xenoovs("controller", two, "--attach", "--db", first.ovs.db)
    assert (alone.status, reason in alone.err) == (1, True)
    assert second.ovs.vsctl("get-controller", "ovsbr2") == "tcp:127.0.0.1:1"
