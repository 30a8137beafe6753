"""The store as a cluster of three with relays: servers die under writes, fill their disk, are cut off, come back."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
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
from xenoovs.errors import StoreUnreachable
from xenoovs.store.client import CommitOutcome, StoreClient
from xenoovs.store.servers import (
    ServerFacts,
    ServerRole,
    create_databases,
    host_facts,
    parse_server,
    stop_server,
)
from xenoovs.store.view import Changes
from xenoovs.switch.process import run


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[StoreServer]]:
    with running_cluster(tmp_path) as servers:
        yield servers


def leader(servers: Sequence[StoreServer]) -> StoreServer:
    eventually(lambda: leader_of(servers) is not None, "a leader")
    found = leader_of(servers)
    assert found is not None
    return found


def remotes(servers: Sequence[StoreServer]) -> str:
    """The unix sockets: a client goes on with another server when one dies."""
    return ",".join(server.files.remote for server in servers)


def facts(server: StoreServer) -> ServerFacts:
    return next(each for each in host_facts(server.files.directory) if each.database is server.database)


def test_a_silent_server_is_named_and_without_a_majority_nothing_is_written_and_all_see_it(
    cluster: list[StoreServer],
) -> None:
    first = leader(cluster)
    others = [server for server in cluster if server is not first]
    eventually(lambda: not list(facts(first).problems()), "a leader without problems")
    assert sorted(facts(server).role.value for server in cluster) == ["follower", "follower", "leader"]
    with StoreClient(first.files.remote, with_intents=True) as client:
        first_view(client)
        others[0].kill()
        assert facts(others[0]).role is ServerRole.DOWN
        eventually(lambda: any("has not answered for" in each for each in facts(first).problems()), "the silent server")
        others[1].kill()
        try:
            outcome = client.commit(0, Changes({"dns": service("dns", "a")}), timeout_s=1)
        except StoreUnreachable:
            outcome = CommitOutcome.UNKNOWN
        assert outcome is CommitOutcome.UNKNOWN
        eventually(lambda: "cut off from its cluster" in client.connection.reason, "the client leaves it")
        assert (client.connection.is_connected, client.view() is None) == (False, False)
        eventually(lambda: any("lost most of its cluster" in each for each in facts(first).problems()), "no majority")
        for server in others:
            server.start(wait=False)
        eventually(lambda: client.connection.is_connected, "the return")
        # What had no answer may have come true by now, or not; a new attempt from the newest view decides.
        eventually(
            lambda: client.commit(first_view(client).generation, Changes()) is CommitOutcome.COMMITTED, "a write"
        )


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


def test_a_server_that_lost_its_files_is_replaced(cluster: list[StoreServer]) -> None:
    """As docs/how-to/fleet-store.md says it: the leader forgets the old server, and a new one joins at its address."""
    first = leader(cluster)
    gone = next(server for server in cluster if server is not first)
    with StoreClient(first.files.remote, with_intents=True) as writer:
        first_view(writer)
        assert writer.commit(0, Changes({"dns": service("dns", "a")})) is CommitOutcome.COMMITTED
        gone.kill()
        shutil.rmtree(gone.files.directory)
        host = gone.listen[0].host
        members = [parse_server(server.listen[0].host) for server in cluster if server is not gone]
        run(["ovs-appctl", "-t", str(first.files.control), "cluster/kick", "xenoovs", f"tcp:{host}:6641"])
        create_databases(gone.files.directory, name="test", servers=[*members, parse_server(host)], local=2)
        gone.start()
        assert writer.commit(1, Changes({"web": service("web", "a")}), timeout_s=60) is CommitOutcome.COMMITTED
    with StoreClient(gone.files.remote) as reader:
        assert set(wait_generation(reader, 2).services) == {"dns", "web"}
    assert len(facts(first).members) == 3


DISK = "2m"


@pytest.fixture
def on_disks(tmp_path: Path) -> Iterator[list[StoreServer]]:
    """Three servers, each with a small disk of its own."""
    with ExitStack() as stack:
        for number in range(3):
            directory = tmp_path / f"s{number}"
            directory.mkdir(mode=0o700)
            run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "none", str(directory)])
            stack.callback(run, ["umount", "--lazy", str(directory)])
        yield stack.enter_context(running_cluster(tmp_path))


@contextmanager
def full_disk(server: StoreServer) -> Iterator[None]:
    filler = server.files.directory / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


def problems(server: StoreServer) -> str:
    found = host_facts(server.files.directory, reads_files=True)
    facts = next(each for each in found if each.database is server.database)
    return "\n".join(facts.problems())


def write(client: StoreClient, name: str) -> None:
    """Write a service of 8 kB until the store has it."""
    big = service(name, "a" * 4000, "b" * 4000)

    def is_done() -> bool:
        view = first_view(client)
        if name in view.services:
            return True
        with suppress(StoreUnreachable):
            client.commit(view.generation, Changes({name: big}), timeout_s=5)
        return False

    eventually(is_done, f"service {name}")


@pytest.mark.parametrize(
    ("role", "is_told"),
    [("leader", False), ("follower", True), pytest.param("follower", False, marks=pytest.mark.long)],
    ids=["leader", "follower, by the command of the message", "follower"],
)
def test_a_server_with_a_full_disk_stops_nobody_and_starts_again(
    on_disks: list[StoreServer], role: str, *, is_told: bool
) -> None:
    """With a gap in its log ovsdb-server does not start: "record 11 advances commit index to 7".

    Its end closes the gap, and so does the command that a message names, after which it may even crash.
    """
    full = leader(on_disks) if role == "leader" else next(each for each in on_disks if each is not leader(on_disks))
    rest = [each for each in on_disks if each is not full]
    written = ["before", "meanwhile0", "meanwhile1", "meanwhile2", "after"]
    with StoreClient(remotes(rest), with_intents=True) as writer:
        first_view(writer)
        write(writer, "before")
        assert not any("has a gap" in problems(each) for each in on_disks)
        with full_disk(full):
            assert "B free, less than 10 times the database" in problems(full)
            for number in range(3):
                write(writer, f"meanwhile{number}")
        write(writer, "after")
        if is_told:
            eventually(lambda: "xenoovs.db has a gap, as after a full disk (record " in problems(full), "the gap")
            assert not any("has a gap" in problems(each) for each in rest)
            (command,) = re.findall(r"`(ovs-appctl [^`]*)`", problems(full))
            run(shlex.split(command))
            assert "has a gap" not in problems(full)
            full.kill()
            written.append("without it")
            write(writer, "without it")
        else:
            assert full.process is not None
            with ThreadPoolExecutor(1) as pool:
                pool.submit(full.process.wait)
                assert stop_server(full.files)
        full.start()
        with StoreClient(full.files.remote) as reader:
            eventually(lambda: set(first_view(reader).services) == {*written}, "all, after its restart")


def test_a_relay_that_dies_during_a_change_of_all_services_sends_the_whole(
    on_disks: list[StoreServer], tmp_path: Path
) -> None:
    names = [f"s{number}" for number in range(200)]
    with (
        running_relay(tmp_path, ",".join(each.remote for each in on_disks)) as relay,
        StoreClient(remotes(on_disks), with_intents=True) as writer,
        StoreClient(relay.remote) as reader,
    ):
        first_view(writer)
        assert writer.commit(0, Changes({name: service(name, "a", "b") for name in names})) is CommitOutcome.COMMITTED
        before = wait_generation(reader, 1)
        with ThreadPoolExecutor(1) as pool:
            change = Changes({name: service(name, "b", "a") for name in names})
            writing = pool.submit(writer.commit, 1, change, timeout_s=60)
            relay.kill()
            assert writing.result() is CommitOutcome.COMMITTED
        assert reader.view() is before or wait_generation(reader, 2).services == first_view(writer).services
        relay.start()
        assert wait_generation(reader, 2).services == first_view(writer).services
