"""Agents as processes on a real ovs-vswitchd: their socket, their lock, what a kill leaves, what systemd gets.

And what they show of real packets and links, against what went in.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.command_line import SMALL_CONFIG, CommandLine, CommandResult, finish, running, start
from tests.ovs.dummy import DummyBridge, udp_packet
from tests.patience import PATIENCE_S, eventually
from xenoovs.switch.endpoint import answers


@contextmanager
def agent(bridge: DummyBridge, config: Path, *options: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """An agent that answers at its socket."""
    with running("agent", config, "--db", bridge.ovs.db, *options, env=env) as process:
        eventually(lambda: answers(socket_of(bridge)), "its socket")
        yield process


def socket_of(bridge: DummyBridge) -> Path:
    return bridge.ovs.directory / "xenoovs" / f"{bridge.name}.sock"


def share_of_fips2(xenoovs: CommandLine, bridge: DummyBridge) -> str:
    said = xenoovs("weight", "dns", "fips2", "--db", bridge.ovs.db)
    assert said.status == 0, said.err
    return said.out.rpartition(", ")[2].strip()


def end(process: subprocess.Popen[str]) -> CommandResult:
    process.send_signal(signal.SIGTERM)
    return finish(process)


def test_a_second_agent_is_refused_and_the_first_ends_by_sigterm_and_leaves_its_flows(
    bridge: DummyBridge, config: Path
) -> None:
    with agent(bridge, config) as first:
        eventually(lambda: len(bridge.dump_flows()) == 8, "flows")
        said = finish(start("agent", config, "--db", bridge.ovs.db))
        assert said.status == 1
        assert "another agent reconciles bridge ovsbr1 already" in said.err
        once = finish(start("agent", config, "--db", bridge.ovs.db, "--once"))
        assert (once.status, once.err) == (said.status, said.err)
        assert end(first).status == 0
    assert not socket_of(bridge).exists()
    assert len(bridge.dump_flows()) == 8


def test_a_server_is_described_as_before_after_a_kill_of_the_agent_and_its_drain_goes_on(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    db = ("--db", bridge.ovs.db)

    def described(name: str) -> tuple[str, dict[str, object], list[tuple[int, int]]]:
        said = xenoovs("describe", name, *db, "--config", config, "-o", "json")
        assert said.status == 0, said.err
        document = json.loads(said.out)
        (one,) = document["backends"]
        blocks = [(block["value"], block["mask"]) for block in one["block_list"]]
        return document["from"], {key: one[key] for key in ("service", "name", "mac", "share", "flows")}, blocks

    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        before = described("fips3")
        assert xenoovs("drain", "dns", "fips3", *db).status == 0
        with_agent = [described(name) for name in ("fips2", "fips3")]
    said = xenoovs("status", "--bridge", bridge.name, *db)
    assert (said.status, "no process listens; the agent was killed" in said.err) == (1, True)
    without = [described(name) for name in ("fips2", "fips3")]
    assert ({each[0] for each in with_agent}, {each[0] for each in without}) == ({"agent"}, {"bridge"})
    assert [each[1:] for each in with_agent] == [each[1:] for each in without]
    assert (before[2] != [], without[0][2] != [], without[1][1]["share"], without[1][2]) == (True, True, 0, [])
    with agent(bridge, config):
        eventually(lambda: "dns/fips3: drained for" in xenoovs("status", config, *db).out, "the drain")
        assert described("fips3")[2] == []
        assert xenoovs("reset", "dns", "fips3", *db).status == 0


def test_changes_are_refused_that_an_agent_would_take_back_wherever_its_socket_is(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, tmp_path: Path
) -> None:
    """Bug: after `remove` all clients lacked their backends until the agent compared the flows again."""
    other, db = config.with_name("other.yaml"), ("--db", bridge.ovs.db)
    other.write_text(SMALL_CONFIG.replace("30", "50"))
    told = "An agent reconciles bridge ovsbr1"
    with running("agent", config, *db, "--control", tmp_path / "agent.sock"):
        eventually(lambda: len(bridge.dump_flows()) == 8, "flows")
        before = sorted(bridge.dump_flows())
        for words in (("apply", other), ("apply", other, "--confirm", "5s"), ("remove", config), ("remove", "--all")):
            # What is refused is not asked first.
            for said in (xenoovs(*words, *db, "--yes"), *([xenoovs(*words, *db)] if len(words) > 2 else [])):
                assert (said.status, told in said.err) == (64, True), words
        assert "stop the agent first" in xenoovs("remove", config, *db, "--yes").err
        assert sorted(bridge.dump_flows()) == before
        assert xenoovs("apply", other, *db, "--dry-run").status == 0
        assert xenoovs("apply", config, *db, "--yes").status == 0
        said = xenoovs("apply", other, *db, "--yes", "--force")
        assert (said.status, "warning: an agent reconciles bridge ovsbr1" in said.err) == (0, True)
        assert sorted(bridge.dump_flows()) != before
        said = xenoovs("remove", config, *db, "--yes", "--force")
        assert (said.status, "flows removed" in said.out) == (0, True)
        assert "warning: an agent reconciles bridge ovsbr1" in said.err
    assert "an agent" not in xenoovs("apply", config, *db, "--yes").err
    assert "an agent" not in xenoovs("remove", config, *db, "--yes").err


def test_what_commands_say_without_an_agent_and_with_one(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    """Bug: `confirm` said to start an agent."""
    db = ("--db", bridge.ovs.db)
    for arguments in (("drain", "dns", "fips2"), ("pause",), ("logs",), ("status",)):
        said = xenoovs(*arguments, *db)
        assert (said.status, f"start one with `xenoovs agent FILE --db {db[1]}`" in said.err) == (1, True)
    said = xenoovs("confirm", *db)
    assert (said.status, "start one" in said.err) == (1, False)
    assert "nothing waits to be confirmed: " in said.err
    assert "which has no agent" in xenoovs("status", config, *db, "--interval", "0").out
    with agent(bridge, config):
        eventually(lambda: share_of_fips2(xenoovs, bridge) == "68.75% of the clients", "flows")
        assert "no change waits to be confirmed" in xenoovs("confirm", *db).err
        assert xenoovs("status", config, *db).out.startswith("bridge ovsbr1: agent up ")
        said = xenoovs("status", config, *db, "--interval", "0", "--from-bridge")
        assert said.out.startswith("from the flows of bridge ovsbr1:")


def test_logs_are_followed_over_a_restart(bridge: DummyBridge, config: Path) -> None:
    with agent(bridge, config):
        follower = start("logs", "-f", "--db", bridge.ovs.db, "-o", "json")
        assert follower.stdout is not None
        assert '"starting"' in follower.stdout.readline()
    with agent(bridge, config):
        while '"listening"' not in (line := follower.stdout.readline()):
            assert line
    follower.send_signal(signal.SIGINT)
    assert finish(follower).status == 130


def test_notifications_of_a_reload_and_of_the_end(bridge: DummyBridge, config: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{tmp_path}")
        systemd.settimeout(PATIENCE_S)

        def hear(beginning: str) -> str:
            """The next message that begins so."""
            while not (heard := systemd.recv(4096).decode()).startswith(beginning):
                pass
            return heard

        with agent(bridge, config, NOTIFY_SOCKET=f"@{tmp_path}") as process:
            hear("READY=1")
            process.send_signal(signal.SIGHUP)
            begun = hear("RELOADING=1\nMONOTONIC_USEC=").partition("MONOTONIC_USEC=")[2]
            assert int(begun) <= time.monotonic_ns() // 1000
            hear("READY=1")
            hear("WATCHDOG=1")
            assert end(process).status == 0
            hear("STOPPING=1")


CLIENTS = 64


def samples(url: str, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by the values of its labels."""
    # Who only scrapes is content with a look that takes half a percent of the time: on a busy machine one in a minute.
    urllib.request.urlopen(f"{url}/now", timeout=PATIENCE_S).close()
    text = urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S).read().decode()
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_packets_are_counted_where_they_went_and_never_less_and_megaflows_are_as_predicted(
    bridge: DummyBridge, config: Path
) -> None:
    def send() -> None:
        """One packet of each client: the first of a block makes its megaflow and is not counted."""
        bridge.send("p0", [udp_packet(f"192.0.2.{client}", mac="02:00:00:00:00:aa") for client in range(CLIENTS)])
        bridge.ovs.appctl("revalidator/wait")

    def packets() -> dict[str, float]:
        """In software, by backend."""
        found = samples(url, "xenoovs_backend_packets_total").items()
        return {backend: value for (backend, path, _), value in found if path == "software"}

    options = ("--db", bridge.ovs.db, "--web", "127.0.0.1:0", "--offload-interval", "100ms", "--log", "json")
    with running("agent", config, *options) as process:
        assert process.stderr is not None
        places = (str(json.loads(line).get("at", "")) for line in process.stderr)
        url = next(at for at in places if at.startswith("http:"))
        eventually(lambda: samples(url, "xenoovs_apply_duration_seconds_count") == {(): 1}, "the first apply")
        assert samples(url, "xenoovs_plan_duration_seconds_count")[()] >= 1
        send()
        blocks = sum(samples(url, "xenoovs_backend_flows").values())
        eventually(lambda: sum(packets().values()) == CLIENTS - blocks, "all packets but the first of each block")
        before = packets()
        assert all(before.values())
        assert samples(url, "xenoovs_service_megaflows") == samples(url, "xenoovs_service_megaflows_predicted")
        assert {verdict for _, _, verdict in samples(url, "xenoovs_backend_blocks")} == {"SW"}
        bridge.settle(removed_s=0)
        eventually(lambda: samples(url, "xenoovs_service_megaflows") == {("dns",): 0}, "no megaflow any more")
        assert packets() == before
        send()
        eventually(lambda: sum(packets().values()) == 2 * (CLIENTS - blocks), "the packets of both times")


def test_links_of_the_uplink_and_of_ingress_ports(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    """Bug: only a controller knew of links: `/ready` answered 200, and the VIP stayed announced."""
    where = ("--db", bridge.ovs.db)
    from_bridge = ("status", config, *where, "--interval", "0")

    def link(port: str, state: str) -> None:
        bridge.ovs.appctl("netdev-dummy/set-admin-state", port, state)

    def is_not_ready_for(reason: str) -> bool:
        return bool(json.loads(xenoovs("status", *where, "-o", "json").out)["snapshot"]["not_ready"] == reason)

    assert xenoovs("apply", config, *where, "--yes").status == 0
    assert xenoovs(*from_bridge).status == 0
    link("p1", "down")
    eventually(lambda: xenoovs(*from_bridge).status == 2, "no link")
    assert "port p1 has no link" in xenoovs(*from_bridge).out
    assert json.loads(xenoovs(*from_bridge, "-o", "json").out)["ports_without_link"] == ["p1"]
    with agent(bridge, config):
        eventually(lambda: "port p1 has no link" in xenoovs("status", *where).out, "the agent to tell")
        assert xenoovs("status", *where).status == 2
        link("p1", "up")
        eventually(lambda: xenoovs("status", *where).status == 0, "the link")
        assert is_not_ready_for("")
        link("p0", "down")
        eventually(lambda: is_not_ready_for("no ingress port has a link"), "the reason")
        link("p0", "up")
        eventually(lambda: is_not_ready_for(""), "the link")
