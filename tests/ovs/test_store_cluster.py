"""The store as a cluster of three with relays: servers die under writes, are cut off, and come back."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.ovs.stores import (
    StoreServer,
    first_view,
    leader_of,
    running_cluster,
    running_relay,
    service,
    wait_generation,
)
from tests.patience import eventually
from xenoovs.errors import StoreRejected, StoreUnreachable
from xenoovs.store.client import CommitOutcome, StoreClient
from xenoovs.store.cluster import ServerFacts, ServerRole, host_facts
from xenoovs.store.servers import RaftServer, create_databases
from xenoovs.store.view import Changes
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[StoreServer]]:
    with running_cluster(tmp_path) as servers:
        yield servers


def leader(servers: Sequence[StoreServer]) -> StoreServer:
    eventually(lambda: leader_of(servers) is not None, "a leader")
    found = leader_of(servers)
    assert found is not None
    return found


def roles(servers: Sequence[StoreServer]) -> list[bool]:
    """Whether each server leads, in no order."""
    return sorted(state.is_leader for server in servers if (state := server.state()) is not None)


def remotes(servers: Sequence[StoreServer]) -> str:
    """The unix sockets: a client goes on with another server when one dies."""
    return ",".join(server.files.remote for server in servers)


def test_one_server_leads_and_every_client_sees_all(cluster: list[StoreServer]) -> None:
    with StoreClient(remotes(cluster), with_intents=True) as writer:
        first_view(writer)
        assert writer.commit(0, Changes({"dns": service("dns", "a", "b")})) is CommitOutcome.COMMITTED
    eventually(lambda: roles(cluster) == [False, False, True], "one leader")
    for server in cluster:
        with StoreClient(server.files.remote) as reader:
            assert set(wait_generation(reader, 1).services) == {"dns"}
            eventually(lambda: reader.connection.is_leader == (server is leader_of(cluster)), "who leads")  # noqa: B023


def test_without_a_majority_nothing_is_written_and_readers_see_it(cluster: list[StoreServer]) -> None:
    first, *others = [leader(cluster), *(server for server in cluster if server is not leader(cluster))]
    with StoreClient(first.files.remote, with_intents=True) as client:
        first_view(client)
        for server in others:
            server.kill()
        outcome: object
        try:
            outcome = client.commit(0, Changes({"dns": service("dns", "a")}), timeout_s=1)
        except StoreUnreachable:
            outcome = CommitOutcome.UNKNOWN
        assert outcome is CommitOutcome.UNKNOWN
        eventually(lambda: not client.connection.is_connected, "the client leaves a server without its cluster")
        eventually(lambda: "cut off from its cluster" in client.connection.reason, "why")
        assert client.view() is not None
        for server in others:
            server.start(wait=False)
        eventually(lambda: client.connection.is_connected, "the return")
        # What had no answer may have come true by now, or not; a new attempt from the newest view decides.
        eventually(
            lambda: client.commit(first_view(client).generation, Changes()) is CommitOutcome.COMMITTED, "a write"
        )


def test_a_stopped_leader_is_left_by_probes_of_the_cluster_and_catches_up(cluster: list[StoreServer]) -> None:
    stopped = leader(cluster)
    rest = [server for server in cluster if server is not stopped]
    stopped.signal(signal.SIGSTOP)
    try:
        eventually(lambda: leader_of(rest) is not None, "another leader")
        with StoreClient(remotes(rest), with_intents=True) as client:
            first_view(client)
            assert client.commit(0, Changes({"dns": service("dns", "a")}), timeout_s=60) is CommitOutcome.COMMITTED
    finally:
        stopped.signal(signal.SIGCONT)
    with StoreClient(stopped.files.remote) as late:
        assert set(wait_generation(late, 1).services) == {"dns"}


def test_a_relay_sends_all_and_takes_no_writes(cluster: list[StoreServer], tmp_path: Path) -> None:
    source = ",".join(server.remote for server in cluster)
    with running_relay(tmp_path, source) as relay, StoreClient(remotes(cluster), with_intents=True) as writer:
        first_view(writer)
        with StoreClient(relay.remote, with_intents=True) as reader:
            first_view(reader)
            assert writer.commit(0, Changes({"dns": service("dns", "a")})) is CommitOutcome.COMMITTED
            wait_generation(reader, 1)
            with pytest.raises(StoreRejected, match='role "reader" prohibit'):
                reader.commit(1, Changes({"dns": None}))
    with StoreClient(cluster[0].remote, with_intents=True) as stranger:
        wait_generation(stranger, 1)
        with pytest.raises(StoreRejected, match='role "reader" prohibit'):
            stranger.commit(1, Changes({"dns": None}))


def test_a_relay_that_restarts_sends_what_came_meanwhile(cluster: list[StoreServer], tmp_path: Path) -> None:
    source = ",".join(server.remote for server in cluster)
    with running_relay(tmp_path, source) as relay, StoreClient(remotes(cluster), with_intents=True) as writer:
        first_view(writer)
        with StoreClient(relay.remote) as reader:
            first_view(reader)
            relay.kill()
            eventually(lambda: not reader.connection.is_connected, "the loss of the relay")
            assert writer.commit(0, Changes({"dns": service("dns", "a")})) is CommitOutcome.COMMITTED
            relay.start()
            assert set(wait_generation(reader, 1).services) == {"dns"}


def test_a_relay_without_its_source_is_left(tmp_path: Path) -> None:
    with (
        running_cluster(tmp_path, size=1) as (server,),
        running_relay(tmp_path, server.remote) as relay,
        StoreClient(relay.remote) as reader,
    ):
        good = first_view(reader)
        server.kill()
        # After 30 s (RELAY_MAX_RECONNECTION_MS of ovsdb/relay.c); until then it may come back unnoticed.
        eventually(lambda: "lost its source" in reader.connection.reason, "a relay without a source is left")
        assert not reader.connection.is_connected
        assert reader.view() is good
        server.start(wait=False)
        eventually(lambda: reader.connection.is_connected, "the source is back")
        assert reader.view() == good


def test_a_client_passes_over_a_dead_server(cluster: list[StoreServer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        dead = f"tcp:127.0.0.1:{reserved.getsockname()[1]}"
    with StoreClient(f"{dead},{remotes(cluster)}", with_intents=True) as client:
        first_view(client)
        assert client.connection.remote != dead
        assert client.commit(0, Changes({"dns": service("dns", "a")}), timeout_s=60) is CommitOutcome.COMMITTED


def test_servers_report_their_role_and_the_leader_names_one_that_is_gone(cluster: list[StoreServer]) -> None:
    def facts(server: StoreServer) -> ServerFacts:
        return next(each for each in host_facts(server.files.directory) if each.database is server.database)

    first = leader(cluster)
    eventually(lambda: not list(facts(first).problems()), "a leader without problems")
    found = sorted(facts(server).role.value for server in cluster)
    assert found == ["follower", "follower", "leader"]
    status = facts(first).cluster
    assert status is not None
    assert len(status.members) == 3
    eventually(lambda: {lag(facts(first), each.id) for each in status.members} == {0}, "no server lacks an entry")

    gone = next(server for server in cluster if server is not first)
    gone.kill()
    assert facts(gone).role is ServerRole.DOWN
    eventually(lambda: any("has not answered for" in each for each in facts(first).problems()), "the silent server")

    next(server for server in cluster if server not in (first, gone)).kill()
    eventually(lambda: any("lost most of its cluster" in each for each in facts(first).problems()), "no majority")


def lag(facts: ServerFacts, member: str) -> int | None:
    assert facts.cluster is not None
    return next(facts.cluster.lag(each) for each in facts.cluster.members if each.id == member)


def test_a_server_that_lost_its_files_is_replaced(cluster: list[StoreServer]) -> None:
    """As docs/how-to/fleet.md says it: the leader forgets the old server, and a new one joins at its address."""
    first = leader(cluster)
    gone = next(server for server in cluster if server is not first)
    with StoreClient(first.files.remote, with_intents=True) as writer:
        first_view(writer)
        assert writer.commit(0, Changes({"dns": service("dns", "a")})) is CommitOutcome.COMMITTED
        gone.kill()
        shutil.rmtree(gone.files.directory)
        host = gone.listen[0].host
        members = [RaftServer(server.listen[0].host) for server in cluster if server is not gone]
        run(["ovs-appctl", "-t", str(first.files.control), "cluster/kick", "xenoovs", f"tcp:{host}:6641"])
        create_databases(gone.files.directory, name="test", servers=[*members, RaftServer(host)], local=2)
        gone.start()
        assert writer.commit(1, Changes({"web": service("web", "a")}), timeout_s=60) is CommitOutcome.COMMITTED
    with StoreClient(gone.files.remote) as reader:
        assert set(wait_generation(reader, 2).services) == {"dns", "web"}
    facts = next(each for each in host_facts(first.files.directory) if each.database is first.database)
    assert facts.cluster is not None
    assert len(facts.cluster.members) == 3
