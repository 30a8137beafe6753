"""A DPU of a fleet that gets no clients: a real FRR withdraws its VIP, and announces it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.fleets import FleetServers, running_fleet, wait_for_agents
from tests.ovs.frr import Router, documented_configs, two_routers
from tests.ovs.test_fleet_health import ADDRESSES, CONFIG, Backends, down, namespace, ready
from tests.patience import eventually
from xenoovs.switch.process import run

VIP = "192.0.2.80"


@dataclass(frozen=True)
class Place:
    """A fleet of two DPUs. The first one announces to `neighbor`, and reaches `backends` of its own."""

    store: FleetServers
    neighbor: Router
    backends: Backends

    def announces(self) -> bool:
        return self.neighbor.has(VIP)


@pytest.fixture
def place(tmp_path: Path, xenoovs: CommandLine) -> Iterator[Place]:
    config = tmp_path / "services.yaml"
    config.write_text(CONFIG.replace("203.0.113.1", VIP))
    with ExitStack() as stack:
        other = stack.enter_context(namespace(f"xo-ann-{os.getpid()}"))
        host, neighbor = stack.enter_context(two_routers(documented_configs()[0]))
        made = list[Backends]()
        for netns in (host.netns, other):
            for address in ADDRESSES:
                run(["ip", "-n", netns, "address", "add", f"{address}/32", "dev", "lo"])
            made.append(Backends(netns))
            stack.callback(made[-1].close_all)
            for address in ADDRESSES:
                made[-1].open(address)
        store = stack.enter_context(running_fleet(tmp_path, xenoovs, netns=other))
        one = store.dpus[0]
        one.kill()
        one.config.write_text(one.config.read_text() + "announce: {bgp: frr, on_agent_exit: withdraw}\n")
        one.netns, one.env = host.netns, {"PATH": f"{host.run}:{os.environ['PATH']}"}
        one.start()
        eventually(lambda: store.fleet("apply", config, "--now", "--yes").status == 0, "the first config")
        wait_for_agents(store)
        yield Place(store, neighbor, made[0])


def test_a_dpu_that_is_out_of_service_or_cut_off_withdraws_its_vip_and_announces_it_again(place: Place) -> None:
    store = place.store
    one, two = store.dpus
    eventually(place.announces, "the VIP at the neighbor")
    blocks = one.blocks()

    assert store.fleet("drain-dpu", "dpu1").status == 0
    eventually(lambda: not place.announces(), "the end of the route")
    assert "undrain-dpu dpu1" in ready(one)[1]
    assert store.fleet("undrain-dpu", "dpu1").status == 0
    eventually(place.announces, "the route again")

    # It alone reaches no backend.
    place.backends.close_all()
    eventually(lambda: ready(one) == (503, "this DPU alone cannot reach most backends"), "a DPU that is not ready")
    eventually(lambda: not place.announces(), "the end of the route")
    assert (ready(two), down(store), one.blocks(), two.blocks()) == ((200, ""), [], blocks, blocks)
    for address in ADDRESSES:
        place.backends.open(address)
    eventually(place.announces, "the route again")
