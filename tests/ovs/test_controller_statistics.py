"""Packets and bytes of backends reach status and metrics by multipart requests: no ovs-ofctl is run for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from tests.command_line import finish, running, start
from tests.ovs.dummy import DummyBridge, udp_packet
from tests.ovs.test_agent_seen import samples
from tests.patience import eventually

_LENGTH = 100


@contextmanager
def controller(config: Path, env: dict[str, str]) -> Iterator[tuple[str, str]]:
    """A process until the end of the `with`: where bridges connect, and where its page is."""
    options = ("--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--offload-interval", "100ms", "--log", "json")
    with running("controller", config, *options, env=env) as process:
        assert process.stderr is not None
        found = (str(json.loads(line).get("at", "")) for line in process.stderr)
        target, url = islice((at for at in found if at.startswith(("tcp:", "http:"))), 2)
        yield target, url


def _send(bridge: DummyBridge) -> dict[str, int]:
    """Packets from 40 clients. How many went to each backend, as seen on the wire."""
    before = len(bridge.sent("p1"))
    bridge.send("p0", [udp_packet(f"198.51.100.{client}") for client in range(40)], length=_LENGTH)
    names = {2: "fips2", 3: "fips3"}
    counts = dict.fromkeys(names.values(), 0)
    for frame in bridge.sent("p1")[before:]:
        counts[names[frame[5]]] += 1
    assert min(counts.values()) > 0
    return counts


def test_of_a_switch_elsewhere_flows_are_counted(bridge: DummyBridge, config: Path, tmp_path: Path) -> None:
    """No program of Open vSwitch can be run, and there is no database: all that is known came by OpenFlow."""
    env = {"PATH": str(tmp_path), "OVS_RUNDIR": str(tmp_path / "nowhere")}
    with controller(config, env) as (target, url):
        bridge.ovs.vsctl("set-controller", bridge.name, target)
        eventually(lambda: len(bridge.ours()) == 8, "all flows")
        sent = _send(bridge)
        wanted = {(name, "unknown", "dns"): packets for name, packets in sent.items()}
        eventually(lambda: samples(url, "xenoovs_backend_packets_total") == wanted, "the packets of each backend")
        sizes = samples(url, "xenoovs_backend_bytes_total")
        assert sizes == {key: packets * _LENGTH for key, packets in wanted.items()}
        assert samples(url, "xenoovs_service_offload_ratio") == {}
        said = finish(start("status", "--control", tmp_path / "nowhere" / "xenoovs" / "ovsbr1.sock", "-o", "json"))
        backends = json.loads(said.out)["snapshot"]["services"][0]["backends"]
        assert {one["name"]: one["counted"]["packets"] for one in backends} == sent
        assert [one["traffic"] for one in backends] == [None, None]
        # Flows that are made anew begin to count anew: what was counted stays.
        bridge.ofctl("del-flows", "table=1,ip")
        eventually(lambda: len(bridge.ours()) == 8, "all flows again")
        more = _send(bridge)
        wanted = {(name, "unknown", "dns"): packets + more[name] for name, packets in sent.items()}
        eventually(lambda: samples(url, "xenoovs_backend_packets_total") == wanted, "the sum of both")
