"""What a running agent shows of real packets and links, against what went in."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.command_line import CommandLine, running
from tests.ovs.dummy import DummyBridge, udp_packet
from tests.ovs.test_agent_control import agent
from tests.patience import PATIENCE_S, eventually

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
