"""The network between the servers of a store breaks: each has a namespace of its own, with a cable to a bridge."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from tests.ovs.certificates import certificates
from tests.ovs.stores import StoreServer, first_view, leader_of, service, wait_generation
from tests.patience import eventually
from xenoovs.errors import StoreUnreachable
from xenoovs.store.client import CommitOutcome, StoreClient
from xenoovs.store.cluster import host_facts
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import RaftServer, ServerFiles, StorePort, create_databases, files_of
from xenoovs.store.view import Changes
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

SIZE = 3


def ip(*words: str) -> None:
    run(["ip", *words])


@dataclass(frozen=True)
class Islands:
    """Servers, and the namespace of the bridge between them, in which a relay runs."""

    hub: str
    servers: list[StoreServer]
    relay: StoreServer

    def cut(self, server: StoreServer) -> None:
        ip("-n", self.hub, "link", "set", self._cable(server), "down")

    def heal(self, server: StoreServer) -> None:
        ip("-n", self.hub, "link", "set", self._cable(server), "up")

    def _cable(self, server: StoreServer) -> str:
        return f"v{self.servers.index(server)}"

    def others(self, server: StoreServer) -> list[StoreServer]:
        return [each for each in self.servers if each is not server]

    def leader(self) -> StoreServer:
        eventually(lambda: leader_of(self.servers) is not None, "a leader")
        found = leader_of(self.servers)
        assert found is not None
        return found


def remotes(servers: list[StoreServer]) -> str:
    return ",".join(server.files.remote for server in servers)


def namespace(stack: ExitStack, name: str) -> str:
    full = f"xo-cut-{os.getpid()}-{name}"
    ip("netns", "add", full)
    stack.callback(ip, "netns", "delete", full)
    ip("-n", full, "link", "set", "lo", "up")
    return full


@pytest.fixture
def islands(tmp_path: Path) -> Iterator[Islands]:
    authority = trustme.CA()
    members = [RaftServer(f"192.0.2.{number + 1}") for number in range(SIZE)]
    with ExitStack() as stack:
        hub = namespace(stack, "hub")
        ip("-n", hub, "link", "add", "br0", "up", "type", "bridge")
        ip("-n", hub, "address", "add", "192.0.2.100/24", "dev", "br0")
        servers = list[StoreServer]()
        for number, member in enumerate(members):
            place = namespace(stack, str(number))
            ip("-n", hub, "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", place)
            ip("-n", hub, "link", "set", f"v{number}", "up", "master", "br0")
            ip("-n", place, "address", "add", f"{member.host}/24", "dev", "eth0")
            ip("-n", place, "link", "set", "eth0", "up")
            directory = tmp_path / f"s{number}"
            create_databases(directory, name="test", servers=members, local=number, is_tls=True)
            server = StoreServer(
                files_of(directory, StoreDatabase.FLEET),
                listen=[StorePort(member.host, 6661, is_read_only=True, is_tls=True)],
                tls=certificates(authority, tmp_path, f"server{number}"),
                inside=("ip", "netns", "exec", place),
            )
            stack.callback(server.kill)
            server.start()
            servers.append(server)
        (tmp_path / "relay").mkdir(mode=0o700)
        relay = StoreServer(
            ServerFiles(tmp_path / "relay", "relay"),
            source=",".join(server.remote for server in servers),
            tls=certificates(authority, tmp_path, "relay"),
            inside=("ip", "netns", "exec", hub),
        )
        stack.callback(relay.kill)
        relay.start()
        yield Islands(hub, servers, relay)


def test_a_leader_that_is_cut_off_says_so_and_what_it_was_given_never_comes_true(islands: Islands) -> None:
    old = islands.leader()
    rest = islands.others(old)
    with ExitStack() as stack:
        stranded = stack.enter_context(StoreClient(old.files.remote, with_intents=True))
        writer = stack.enter_context(StoreClient(remotes(rest), with_intents=True))
        reader = stack.enter_context(StoreClient(islands.relay.files.remote))
        for client in (stranded, writer, reader):
            first_view(client)
        islands.cut(old)
        try:
            lost = stranded.commit(0, Changes({"dns": service("dns", "lost")}), timeout_s=1)
        except StoreUnreachable:
            lost = CommitOutcome.UNKNOWN
        assert lost is CommitOutcome.UNKNOWN
        assert writer.commit(0, Changes({"dns": service("dns", "right")}), timeout_s=60) is CommitOutcome.COMMITTED
        assert set(wait_generation(reader, 1).services["dns"].active.owners) == {"right"}, "the relay goes on"
        eventually(lambda: "cut off from its cluster" in stranded.connection.reason, "its client leaves it")
        state = old.state()
        assert state is not None
        assert (state.is_leader, state.is_connected) == (False, False)
        (facts,) = (each for each in host_facts(old.files.directory) if each.database is StoreDatabase.FLEET)
        assert any("has lost most of its cluster" in problem for problem in facts.problems())
        assert leader_of(rest) is not None

        islands.heal(old)
        for client in (stranded, writer, reader):
            assert set(wait_generation(client, 1).services["dns"].active.owners) == {"right"}
        assert stranded.commit(1, Changes({"web": service("web", "a")}), timeout_s=60) is CommitOutcome.COMMITTED
        views = [wait_generation(client, 2) for client in (stranded, writer)]
        assert views[0] == views[1]


def test_a_follower_that_is_cut_off_is_left_and_catches_up(islands: Islands) -> None:
    leader = islands.leader()
    alone, *_ = islands.others(leader)
    with (
        StoreClient(remotes(islands.others(alone)), with_intents=True) as writer,
        StoreClient(alone.files.remote) as stranded,
        StoreClient(islands.relay.files.remote) as reader,
    ):
        for client in (writer, stranded, reader):
            first_view(client)
        islands.cut(alone)
        assert writer.commit(0, Changes({"dns": service("dns", "a")}), timeout_s=60) is CommitOutcome.COMMITTED
        assert set(wait_generation(reader, 1).services) == {"dns"}, "a relay goes to another server by itself"
        eventually(lambda: "cut off from its cluster" in stranded.connection.reason, "its client leaves it")
        assert stranded.view() is not None
        assert islands.leader() is leader
        islands.heal(alone)
        assert set(wait_generation(stranded, 1).services) == {"dns"}
        eventually(lambda: stranded.connection.is_connected, "it serves again")
