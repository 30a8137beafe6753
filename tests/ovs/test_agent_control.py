"""Agents as processes on a real ovs-vswitchd: their socket, their lock, what a kill leaves, what systemd gets."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, CommandResult, finish, start
from tests.ovs.dummy import DummyBridge
from tests.patience import PATIENCE_S, eventually
from xenoovs.agent.control.paths import answers

pytestmark = pytest.mark.ovs


@contextmanager
def agent(bridge: DummyBridge, config: Path, *options: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """An agent that answers at its socket."""
    process = start("agent", config, "--db", bridge.ovs.db, *options, env=env)
    try:
        eventually(lambda: answers(socket_of(bridge)), "its socket")
        yield process
    finally:
        process.kill()
        process.communicate()


def socket_of(bridge: DummyBridge) -> Path:
    return bridge.ovs.directory / "xenoovs" / f"{bridge.name}.sock"


def share_of_fips2(xenoovs: CommandLine, bridge: DummyBridge) -> str:
    said = xenoovs("weight", "dns", "fips2", "--db", bridge.ovs.db)
    assert said.status == 0, said.err
    return said.out.rpartition(", ")[2].strip()


def end(process: subprocess.Popen[str]) -> CommandResult:
    process.send_signal(signal.SIGTERM)
    return finish(process)


def test_a_second_agent_is_refused(bridge: DummyBridge, config: Path) -> None:
    with agent(bridge, config) as first:
        said = finish(start("agent", config, "--db", bridge.ovs.db))
        assert said.status == 1
        assert "another agent reconciles bridge ovsbr1 already" in said.err
        once = finish(start("agent", config, "--db", bridge.ovs.db, "--once"))
        assert (once.status, once.err) == (said.status, said.err)
        assert end(first).status == 0
    assert not socket_of(bridge).exists()


def test_a_drain_outlives_a_kill(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    with agent(bridge, config) as first:
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        assert xenoovs("drain", "dns", "fips2", "--db", bridge.ovs.db).status == 0
        first.kill()
        first.wait()
        assert socket_of(bridge).exists()
        said = xenoovs("status", "--db", bridge.ovs.db)
        assert said.status == 1
        assert "no process listens; the agent was killed" in said.err
    with agent(bridge, config) as second:
        eventually(lambda: xenoovs("status", config, "--db", bridge.ovs.db).status == 0, "the first round")
        assert share_of_fips2(xenoovs, bridge) == "0% of the clients"
        said = xenoovs("status", config, "--db", bridge.ovs.db)
        assert "dns/fips2: drained for" in said.out
        assert xenoovs("undrain", "dns", "fips2", "--db", bridge.ovs.db).status == 0
        assert end(second).status == 0


def test_maintenance_for_a_time_outlives_a_kill_and_ends(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    db = ("--db", bridge.ovs.db)
    with agent(bridge, config) as first:
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        before = sorted(bridge.dump_flows())
        said = xenoovs("maintenance", "02:00:5e:10:00:02", "--for", "1h", *db)
        assert (said.status, "dns/fips2 is in maintenance for 1h: " in said.out) == (0, True), said.err
        first.kill()
        first.wait()
    with agent(bridge, config) as second:
        eventually(lambda: "dns/fips2: maintenance for" in xenoovs("status", config, *db).out, "the first round")
        assert share_of_fips2(xenoovs, bridge) == "0% of the clients"
        assert f" left; `xenoovs reset dns/fips2 --db {bridge.ovs.db}` ends it" in xenoovs("status", config, *db).out
        assert xenoovs("maintenance", "fips2", "--for", "5s", *db).status == 0
        second.kill()
        second.wait()
    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "the end of the maintenance")
        # It has exactly the clients of before.
        assert sorted(bridge.dump_flows()) == before
        said = xenoovs("maintenance", "fips4", *db)
        assert (said.status, said.err) == (1, "error: the config has no backend fips4; did you mean fips3 or fips2?\n")


def test_the_drain_of_a_backend_in_maintenance_moves_no_client_and_its_reset_gives_exactly_its_own_back(
    xenoovs: CommandLine, bridge: DummyBridge, tmp_path: Path
) -> None:
    config = tmp_path / "my.yaml"
    fips5 = "      - {name: fips5, mac: 02:00:5e:10:00:05, weight: 9}\n"
    config.write_text(SMALL_CONFIG.rstrip("\n") + "\n" + fips5)
    db = ("--db", bridge.ovs.db)

    def balance() -> list[str]:
        """The flows of the clients, without the memory of home blocks."""
        return sorted(line for line in bridge.dump_flows() if "table=1" in line)

    with agent(bridge, config):
        eventually(lambda: xenoovs("status", config, *db).status == 0, "the first round")
        well = sorted(bridge.dump_flows())
        assert xenoovs("maintenance", "fips3", *db).status == 0
        maintained = balance()
        assert maintained != [line for line in well if "table=1" in line]
        assert xenoovs("drain", "fips3", *db).status == 0
        assert balance() == maintained
    with agent(bridge, config):
        eventually(lambda: "dns/fips3: drained for" in xenoovs("status", config, *db).out, "the first round")
        assert balance() == maintained
        assert xenoovs("reset", "fips3", *db).status == 0
        assert sorted(bridge.dump_flows()) == well


def test_a_server_is_described_with_and_without_an_agent(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    words = ("describe", "fips3", "--db", bridge.ovs.db, "--config", config, "-o", "json")
    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        with_agent = json.loads(xenoovs(*words).out)
    said = xenoovs(*words)
    assert said.status == 0, said.err
    without = json.loads(said.out)
    assert (with_agent["from"], without["from"]) == ("agent", "bridge")
    same = ("service", "name", "mac", "share", "flows")
    (one,), (other,) = with_agent["backends"], without["backends"]
    assert {key: one[key] for key in same} == {key: other[key] for key in same}
    places = [[(block["value"], block["mask"]) for block in each["block_list"]] for each in (one, other)]
    assert places[0] == places[1] != []
    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        assert xenoovs("drain", "fips3", "--db", bridge.ovs.db).status == 0
    # The agent was killed: the bridge is as it left it, and not as the config says.
    (left,) = json.loads(xenoovs(*words).out)["backends"]
    assert (left["share"], left["block_list"]) == (0, [])
    said = xenoovs("describe", "fips9", "--db", bridge.ovs.db, "--config", config)
    assert (said.status, said.err) == (1, "error: the config has no backend fips9; did you mean fips3 or fips2?\n")


def test_commands_of_probes_and_notifications_die_with_a_killed_agent(bridge: DummyBridge, tmp_path: Path) -> None:
    config, program, pids = tmp_path / "my.yaml", tmp_path / "program", tmp_path / "pids"
    config.write_text(
        f"health: {{probe: exec, command: [{program}], interval: 60s, timeout: 60s, fall: 1}}\n"
        f"notify: {{command: [{program}], timeout: 60s}}\n"
        + SMALL_CONFIG.replace("weight: 70", "weight: 70, address: 198.51.100.2").replace(
            "weight: 30", "weight: 30, address: 198.51.100.3"
        )
    )
    # The first backend is down at once, so its command runs; the probe of the other one does not end.
    program.write_text(
        '#!/bin/sh\nif [ "$XENOOVS_ADDRESS/$#" = 198.51.100.2/0 ]; then exit 1; fi\n'
        f'sleep 600 &\necho "$# $$ $!" >> {pids}\nwait\n'
    )
    program.chmod(0o755)
    with agent(bridge, config, "--allow-exec") as process:

        def begun() -> dict[str, list[int]]:
            lines = [line.split() for line in pids.read_text().splitlines()] if pids.exists() else []
            return {words[0]: [int(word) for word in words[1:]] for words in lines}

        eventually(lambda: begun().keys() == {"0", "3"}, "a probe and a command that do not end")
        running = [pid for of_one in begun().values() for pid in of_one]
        process.kill()
        process.wait()
        eventually(lambda: not any(is_running(pid) for pid in running), "the end of both, with their children")


def is_running(pid: int) -> bool:
    """Whether the process is there and not only waits to be reaped (proc(5), /proc/pid/stat)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_apply_with_a_way_back_keeps_out_of_its_way(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        config.write_text(SMALL_CONFIG.replace("p1", "p7"))
        config.with_name("other.yaml").write_text(SMALL_CONFIG.replace("30", "50"))
        arguments = ("apply", config.with_name("other.yaml"), "--db", bridge.ovs.db, "--confirm", "5s")
        # What is refused is not asked first.
        for said in (xenoovs(*arguments, "--yes"), xenoovs(*arguments)):
            assert said.status == 64
            assert "An agent reconciles bridge ovsbr1" in said.err


def test_apply_is_refused_where_an_agent_would_take_it_back(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    other = config.with_name("other.yaml")
    other.write_text(SMALL_CONFIG.replace("30", "50"))
    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        before = sorted(bridge.dump_flows())
        said = xenoovs("apply", other, "--db", bridge.ovs.db, "--yes")
        assert said.status == 64
        assert "An agent reconciles bridge ovsbr1 with its own config" in said.err
        assert sorted(bridge.dump_flows()) == before
        assert xenoovs("apply", other, "--db", bridge.ovs.db, "--dry-run").status == 0
        assert xenoovs("apply", config, "--db", bridge.ovs.db, "--yes").status == 0
        said = xenoovs("apply", other, "--db", bridge.ovs.db, "--yes", "--force")
        assert said.status == 0
        assert sorted(bridge.dump_flows()) != before
        assert "warning: an agent reconciles bridge ovsbr1" in said.err
    assert "an agent" not in xenoovs("apply", config, "--db", bridge.ovs.db, "--yes").err


@pytest.mark.parametrize("everywhere", [False, True])
def test_remove_is_refused_where_an_agent_would_put_the_flows_back(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, everywhere: bool
) -> None:
    """All clients lost their backends until the agent compared the flows again, up to --resync later."""
    arguments = ("remove", "--all" if everywhere else config, "--db", bridge.ovs.db)
    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        before = sorted(bridge.dump_flows())
        for said in (xenoovs(*arguments, "--yes"), xenoovs(*arguments)):
            assert said.status == 64
            assert "An agent reconciles bridge ovsbr1" in said.err
            assert "stop the agent first" in said.err
        assert sorted(bridge.dump_flows()) == before
        said = xenoovs(*arguments, "--yes", "--force")
        assert (said.status, "flows removed" in said.out) == (0, True)
        assert "warning: an agent reconciles bridge ovsbr1" in said.err
    assert "an agent" not in xenoovs(*arguments, "--yes").err


def test_an_agent_with_another_socket_is_found_too(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, tmp_path: Path
) -> None:
    control = tmp_path / "agent.sock"
    argv = ["agent", config, "--db", bridge.ovs.db, "--control", control]
    process = start(*argv)
    try:
        eventually(lambda: answers(control), "its socket")
        said = xenoovs("remove", config, "--db", bridge.ovs.db, "--yes")
        assert (said.status, "An agent reconciles bridge ovsbr1" in said.err) == (64, True)
    finally:
        process.terminate()
        finish(process)
    assert xenoovs("remove", config, "--db", bridge.ovs.db, "--yes").status == 0


def test_without_an_agent_it_is_said_how_to_start_one(xenoovs: CommandLine, bridge: DummyBridge) -> None:
    for arguments in (("drain", "dns", "fips2"), ("pause",), ("logs",), ("status",)):
        said = xenoovs(*arguments, "--db", bridge.ovs.db)
        assert said.status == 1
        assert "start one with `xenoovs agent FILE`" in said.err


def test_confirm_says_that_nothing_waits(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    """Bug: it said to start an agent."""
    said = xenoovs("confirm", "--db", bridge.ovs.db)
    assert said.status == 1
    assert "nothing waits to be confirmed: " in said.err
    assert "start one" not in said.err
    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        assert "no change waits to be confirmed" in xenoovs("confirm", "--db", bridge.ovs.db).err


def test_status_says_from_where_it_knows(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    assert "which has no agent" in xenoovs("status", config, "--db", bridge.ovs.db, "--interval", "0").out
    with agent(bridge, config):
        assert xenoovs("status", config, "--db", bridge.ovs.db).out.startswith("bridge ovsbr1: agent up ")
        said = xenoovs("status", config, "--db", bridge.ovs.db, "--interval", "0", "--from-bridge")
        assert said.out.startswith("from the flows of bridge ovsbr1:")


@pytest.fixture
def follower(bridge: DummyBridge, config: Path) -> Iterator[subprocess.Popen[str]]:
    """`logs -f`, begun while a first agent runs, which is gone now."""
    with agent(bridge, config):
        process = start("logs", "-f", "--db", bridge.ovs.db, "-o", "json")
        assert process.stdout is not None
        assert '"starting"' in process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_logs_are_followed_over_a_restart(bridge: DummyBridge, config: Path, follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    with agent(bridge, config):
        while '"listening"' not in (line := follower.stdout.readline()):
            assert line
    follower.send_signal(signal.SIGINT)
    assert finish(follower).status == 130


@pytest.mark.parametrize("is_abstract", [False, True])
def test_notifications_of_systemd(bridge: DummyBridge, config: Path, tmp_path: Path, is_abstract: bool) -> None:
    name = f"@{tmp_path}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if is_abstract else name)
        systemd.settimeout(PATIENCE_S)
        with agent(bridge, config, NOTIFY_SOCKET=name) as process:
            heard = [systemd.recv(4096).decode()]
            while heard.count("WATCHDOG=1") < 3:
                heard.append(systemd.recv(4096).decode())
            assert len(bridge.dump_flows()) == 8
            assert heard.index("READY=1") < heard.index("WATCHDOG=1")
            assert any(line.startswith("STATUS=bridge ovsbr1 is as config ") for line in heard)
            assert end(process).status == 0
            while heard[-1] != "STOPPING=1":
                heard.append(systemd.recv(4096).decode())


def test_it_is_not_ready_before_the_bridge_is_right(bridge: DummyBridge, config: Path, tmp_path: Path) -> None:
    config.write_text(SMALL_CONFIG.replace("p1", "p7"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        with agent(bridge, config, NOTIFY_SOCKET=str(tmp_path / "notify")):
            heard = [systemd.recv(4096).decode()]
            while "WATCHDOG=1" not in heard or not any("STATUS=port p7 is on no bridge" in line for line in heard):
                heard.append(systemd.recv(4096).decode())
            assert "READY=1" not in heard
            config.write_text(SMALL_CONFIG)
            while "READY=1" not in heard:
                heard.append(systemd.recv(4096).decode())


def test_systemd_is_notified_of_begin_and_end_of_a_reload(bridge: DummyBridge, config: Path, tmp_path: Path) -> None:
    """systemd waits for the end of a reload, whatever came of it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        with agent(bridge, config, NOTIFY_SOCKET=str(tmp_path / "notify")) as process:
            _hear(systemd, "READY=1")
            for text, flows in ((SMALL_CONFIG.replace("weight: 70", "weight: 50"), 7), ("garbage", 7), ("garbage", 7)):
                config.write_text(text)
                process.send_signal(signal.SIGHUP)
                reloading = _hear(systemd, "RELOADING=1\nMONOTONIC_USEC=")
                assert int(reloading.partition("MONOTONIC_USEC=")[2]) <= time.monotonic_ns() // 1000
                _hear(systemd, "READY=1")
                assert len(bridge.dump_flows()) == flows


def _hear(systemd: socket.socket, beginning: str) -> str:
    while not (said := systemd.recv(4096).decode()).startswith(beginning):
        pass
    return said
