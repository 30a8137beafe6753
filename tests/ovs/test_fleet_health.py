"""Backends of a fleet that die and come back, with real sockets: three DPUs vote, and all of them change alike."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.fleets import FleetDpu, FleetServers, running_fleet
from tests.patience import eventually
from tests.unix_http import ask
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.switch.process import run

ADDRESSES = ["192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14"]
CONFIG = """\
version: 1
switch: {ingress: [in], egress: out}
health: {probe: tcp, port: 8080, interval: 300ms, fast_interval: 50ms, timeout: 300ms, rise: 2, fall: 4}
services:
  - name: web
    vip: 203.0.113.1
    protocol: tcp
    ports: [80]
    backends:
      - {name: one, mac: 02:00:5e:10:00:01, address: 192.0.2.11, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:02, address: 192.0.2.12, weight: 1}
      - {name: three, mac: 02:00:5e:10:00:03, address: 192.0.2.13, weight: 1}
      - {name: four, mac: 02:00:5e:10:00:04, address: 192.0.2.14, weight: 1}
"""


class Backends:
    """TCP servers at the addresses of backends, in a network namespace."""

    def __init__(self, netns: str) -> None:
        self.netns = netns
        self._sockets = dict[str, socket.socket]()

    def open(self, address: str) -> None:
        server = in_namespace(self.netns, lambda: socket.create_server((address, 8080), backlog=128))
        self._sockets[address] = server
        threading.Thread(target=_accept, args=(server,), daemon=True).start()

    def close(self, address: str) -> None:
        server = self._sockets.pop(address)
        # Wakes the thread in accept(2).
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._sockets)


def _accept(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            server.accept()[0].close()


@pytest.fixture
def backends() -> Iterator[Backends]:
    netns = f"xo-fleet-{os.getpid()}"
    run(["ip", "netns", "add", netns])
    made = Backends(netns)
    try:
        run(["ip", "-n", netns, "link", "set", "lo", "up"])
        for address in ADDRESSES:
            run(["ip", "-n", netns, "address", "add", f"{address}/32", "dev", "lo"])
            made.open(address)
        yield made
    finally:
        for address in made.addresses:
            made.close(address)
        run(["ip", "netns", "delete", netns])


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine, backends: Backends) -> Iterator[FleetServers]:
    with running_fleet(tmp_path, xenoovs, dpus=3, netns=backends.netns, switch_after="2s", text=CONFIG) as made:
        eventually(lambda: all(len(each) == 3 for each in witnesses(made).values()), "the witnesses")
        eventually(made.is_well, "the first config")
        yield made


def witnesses(store: FleetServers) -> dict[str, list[str]]:
    return {row["target"]: row["witnesses"][1] for row in store.select("Watch")}


def down(store: FleetServers) -> list[str]:
    """The addresses of the targets that are down by votes."""
    return sorted(row["target"].split("/")[0] for row in store.select("Watch") if row["is_down"])


def ready(dpu: FleetDpu) -> tuple[int, str]:
    """What the check of a BGP speaker gets: the status, and the reason."""
    answer = ask(dpu.socket, "/ready")
    document = json.loads(answer.body)
    assert document["ready"] is (answer.status == 200)
    return answer.status, document["reason"]


def serves(dpu: FleetDpu, mac: str) -> bool:
    return any(mac in line for line in dpu.blocks())


def all_alike(store: FleetServers, *, without: str = "", served: str = "") -> bool:
    """Whether all DPUs have the same blocks, none of one backend and some of another one."""
    found = {tuple(dpu.blocks()) for dpu in store.dpus}
    first = store.dpus[0]
    return len(found) == 1 and not (without and serves(first, without)) and (not served or serves(first, served))


def test_a_backend_that_dies_loses_its_clients_on_all_dpus_and_gets_them_back(
    store: FleetServers, backends: Backends
) -> None:
    # A weight moves clients at an agreed time; a death waits for none.
    assert store.fleet("weight", "web", "four", 2).status == 0
    assert store.select("Fleet")[0]["switch_at_ms"] > 0
    before = store.dpus[0].blocks()
    assert {target.rpartition("/")[0] for target in witnesses(store)} == {f"{each}/tcp/8080" for each in ADDRESSES}
    backends.close(ADDRESSES[1])
    eventually(lambda: all_alike(store, without="02:00:5e:10:00:02"), "the ejection")
    after = store.dpus[0].blocks()
    assert down(store) == [ADDRESSES[1]]
    assert store.select("Fleet")[0]["switch_at_ms"] == 0
    said = store.fleet("status")
    assert said.status == 2
    assert f"web/two ({ADDRESSES[1]}/tcp/8080" in said.out
    assert "has been down for" in said.out
    # Two votes have sufficed.
    eventually(lambda: len(store.status()["targets"][0]["votes"]["down"]) == 3, "the third vote")
    (target, *others) = store.status()["targets"]
    assert (target["state"], target["backends"]) == ("down", ["web/two"])
    assert [each["state"] for each in others] == ["up", "up", "up"]
    # Only its own clients have moved.
    assert [line for line in before if "02:00:5e:10:00:02" not in line] != []
    assert len(after) >= len(before) - 1
    backends.open(ADDRESSES[1])
    eventually(lambda: all_alike(store, served="02:00:5e:10:00:02"), "the return")
    assert store.dpus[0].blocks() == before

    # Without the store no clients move, and when it is back votes do.
    one, log = store.dpus[0], store.xenoovs
    number = store.status()["generation"]
    store.stop()
    backends.close(ADDRESSES[0])
    eventually(lambda: "connection refused" in log("status", "--db", one.bridge.ovs.db).out, "the failed probes")
    assert all(dpu.blocks() == before for dpu in store.dpus)
    store.start()
    eventually(lambda: all_alike(store, without="02:00:5e:10:00:01"), "the ejection after the loss")
    assert down(store) == [ADDRESSES[0]]
    assert store.status()["generation"] > number

    after = one.blocks()
    assert store.fleet("drain-dpu", "dpu1").status == 0
    eventually(lambda: ready(one)[0] == 503, "a DPU that is not ready")
    assert (one.blocks(), ready(store.dpus[1])) == (after, (200, ""))
