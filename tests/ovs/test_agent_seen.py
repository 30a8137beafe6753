"""What a running agent shows of real packets and links: metrics, status page and `top`, against what went in."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.command_line import XENOOVS, CommandLine
from tests.ovs.dummy import DummyBridge, udp_packet
from tests.ovs.test_agent_control import agent
from tests.patience import PATIENCE_S, eventually

CLIENTS = 64
_HERE = ("--web", "127.0.0.1:0", "--offload-interval", "100ms")


@pytest.fixture
def switch(bridge: DummyBridge) -> list[str]:
    """The options that name the switch."""
    return ["--db", f"unix:{bridge.ovs.directory / 'db.sock'}"]


@pytest.fixture
def url(bridge: DummyBridge, config: Path, switch: list[str], tmp_path: Path) -> Iterator[str]:
    """An agent with its page, once its flows are there."""
    log, at = tmp_path / "log", re.compile(r"at=(http://127\.0\.0\.1:[0-9]+)")
    control = ("--control", str(tmp_path / "agent.sock"))
    with log.open("w") as stderr:
        agent = subprocess.Popen([XENOOVS, "agent", config, *switch, *control, *_HERE], stderr=stderr)
    try:
        eventually(lambda: "flows changed" in log.read_text(), "flows")
        eventually(lambda: at.search(log.read_text()) is not None, "its page")
        (found,) = at.findall(log.read_text())
        yield found
    finally:
        agent.terminate()
        assert agent.wait(PATIENCE_S) == 0


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


def send(bridge: DummyBridge) -> None:
    """One packet of each of 64 clients, and one more: the first of a block makes its megaflow and is not counted."""
    packets = [udp_packet(f"192.0.2.{client}", mac="02:00:00:00:00:aa") for client in range(CLIENTS)]
    bridge.send("p0", packets)
    bridge.ovs.appctl("revalidator/wait")


def packets_of(url: str) -> dict[str, float]:
    """Packets in software by backend."""
    return {
        backend: value
        for (backend, path, _), value in samples(url, "xenoovs_backend_packets_total").items()
        if path == "software"
    }


def test_packets_are_counted_where_they_went_and_never_less(bridge: DummyBridge, url: str) -> None:
    send(bridge)
    blocks = sum(samples(url, "xenoovs_backend_flows").values())
    eventually(lambda: sum(packets_of(url).values()) == CLIENTS - blocks, "all packets but the first of each block")
    before = packets_of(url)
    assert all(before.values())
    bridge.settle(removed_s=0)
    eventually(lambda: samples(url, "xenoovs_service_megaflows") == {("dns",): 0}, "no megaflow any more")
    assert packets_of(url) == before
    send(bridge)
    eventually(lambda: sum(packets_of(url).values()) == 2 * (CLIENTS - blocks), "the packets of both times")


def test_megaflows_are_as_many_as_predicted(bridge: DummyBridge, url: str) -> None:
    send(bridge)
    predicted = samples(url, "xenoovs_service_megaflows_predicted")
    eventually(lambda: samples(url, "xenoovs_service_megaflows") == predicted, "as predicted")
    verdicts = {verdict for _, _, verdict in samples(url, "xenoovs_backend_blocks")}
    assert verdicts == {"SW"}


def test_top_prints_one_frame(bridge: DummyBridge, url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [XENOOVS, "top", "--once", "--control", tmp_path / "agent.sock"],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert re.search(r"^  fips2 +unchecked +- +70 +70% ", done.stdout, re.MULTILINE)


def test_rounds_are_timed(url: str) -> None:
    # The log has the change a moment before the metrics.
    eventually(lambda: samples(url, "xenoovs_apply_duration_seconds_count") == {(): 1}, "the first apply")
    assert samples(url, "xenoovs_plan_duration_seconds_count")[()] >= 1


def test_the_uplink_is_down(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    where = ("--db", bridge.ovs.db)
    from_bridge = ("status", config, *where, "--interval", "0")
    assert xenoovs("apply", config, *where, "--yes").status == 0
    assert xenoovs(*from_bridge).status == 0
    bridge.ovs.appctl("netdev-dummy/set-admin-state", "p1", "down")
    eventually(lambda: xenoovs(*from_bridge).status == 2, "no link")
    assert "port p1 has no link" in xenoovs(*from_bridge).out
    assert json.loads(xenoovs(*from_bridge, "-o", "json").out)["ports_without_link"] == ["p1"]
    with agent(bridge, config):
        eventually(lambda: "port p1 has no link" in xenoovs("status", *where).out, "the agent to tell")
        assert xenoovs("status", *where).status == 2
        bridge.ovs.appctl("netdev-dummy/set-admin-state", "p1", "up")
        eventually(lambda: xenoovs("status", *where).status == 0, "the link")


def test_an_agent_whose_ingress_ports_have_no_link_is_not_ready(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    """Only a controller knew of links: `/ready` answered 200, and the VIP stayed announced."""
    where = ("--db", bridge.ovs.db)

    def reason() -> str:
        document = json.loads(xenoovs("status", *where, "-o", "json").out)
        found: str = document["snapshot"]["not_ready"]
        return found

    with agent(bridge, config):
        eventually(lambda: reason() == "", "an agent that is ready")
        bridge.ovs.appctl("netdev-dummy/set-admin-state", "p0", "down")
        eventually(lambda: reason() == "no ingress port has a link", "the reason")
        bridge.ovs.appctl("netdev-dummy/set-admin-state", "p0", "up")
        eventually(lambda: reason() == "", "the link")
