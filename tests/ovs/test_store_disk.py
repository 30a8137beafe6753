"""Servers of a store whose disk is full, or that compact their database under writes; a relay that dies meanwhile."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterator
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
from xenoovs.store.cluster import host_facts
from xenoovs.store.servers import stop_server
from xenoovs.store.view import Changes
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

DISK = "2m"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[StoreServer]]:
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


def leader(servers: list[StoreServer]) -> StoreServer:
    eventually(lambda: leader_of(servers) is not None, "a leader")
    found = leader_of(servers)
    assert found is not None
    return found


def remotes(servers: list[StoreServer]) -> str:
    return ",".join(server.files.remote for server in servers)


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


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_a_server_with_a_full_disk_stops_nobody_and_starts_again(cluster: list[StoreServer], role: str) -> None:
    """With a gap in its log ovsdb-server does not start: "record 11 advances commit index to 7"."""
    full = leader(cluster) if role == "leader" else next(each for each in cluster if each is not leader(cluster))
    rest = [each for each in cluster if each is not full]
    with StoreClient(remotes(rest), with_intents=True) as writer:
        first_view(writer)
        write(writer, "before")
        with full_disk(full):
            assert "B free, less than 10 times the database" in problems(full)
            for number in range(3):
                write(writer, f"meanwhile{number}")
        write(writer, "after")
        names = set(first_view(writer).services)
        assert full.process is not None
        with ThreadPoolExecutor(1) as pool:
            pool.submit(full.process.wait)
            assert stop_server(full.files)
        full.start()
        with StoreClient(full.files.remote) as reader:
            eventually(lambda: set(first_view(reader).services) == names, "all, after a restart of the server")
    assert names == {"before", "meanwhile0", "meanwhile1", "meanwhile2", "after"}


def test_a_gap_in_a_log_is_shown_while_the_server_runs_and_the_command_of_the_message_ends_it(
    cluster: list[StoreServer],
) -> None:
    full = next(each for each in cluster if each is not leader(cluster))
    rest = [each for each in cluster if each is not full]
    with StoreClient(remotes(rest), with_intents=True) as writer:
        first_view(writer)
        write(writer, "before")
        assert not any("has a gap" in problems(each) for each in cluster)
        with full_disk(full):
            for number in range(3):
                write(writer, f"meanwhile{number}")
        write(writer, "after")
        eventually(lambda: "xenoovs.db has a gap, as after a full disk (record " in problems(full), "the gap")
        assert not any("has a gap" in problems(each) for each in rest)
        (command,) = re.findall(r"`(ovs-appctl [^`]*)`", problems(full))
        run(shlex.split(command))
        assert "has a gap" not in problems(full)
        full.kill()
        write(writer, "without it")
        full.start()
        names = set(first_view(writer).services)
        with StoreClient(full.files.remote) as reader:
            eventually(lambda: set(first_view(reader).services) == names, "all, after a crash of the server")


def test_compaction_under_writes_loses_nothing_and_changes_no_leader(cluster: list[StoreServer]) -> None:
    leading, is_over = leader(cluster), threading.Event()
    committed = list[int]()

    def go_on() -> None:
        with StoreClient(remotes(cluster), with_intents=True) as writer:
            first_view(writer)
            while not is_over.is_set():
                generation = first_view(writer).generation
                outcome = writer.commit(generation, Changes({"dns": service("dns", f"b{generation}")}), timeout_s=60)
                if outcome is CommitOutcome.COMMITTED:
                    committed.append(generation + 1)

    with ThreadPoolExecutor(1) as pool, StoreClient(remotes(cluster)) as reader:
        first_view(reader)
        writing = pool.submit(go_on)
        try:
            for server in cluster:
                wait_generation(reader, first_view(reader).generation + 20)
                before = server.files.database.stat().st_ino
                run(["ovs-appctl", "-t", str(server.files.control), "ovsdb-server/compact", "xenoovs"])
                assert server.files.database.stat().st_ino != before
        finally:
            is_over.set()
        writing.result()
        assert committed == list(range(1, len(committed) + 1))
        wait_generation(reader, committed[-1])
    assert leader(cluster) is leading
    for server in cluster:
        server.kill()
    for server in cluster:
        server.start(wait=False)
    with StoreClient(remotes(cluster)) as reader:
        assert wait_generation(reader, committed[-1]).services["dns"].active.owners == {f"b{committed[-1] - 1}"}


def test_a_relay_that_dies_during_a_change_of_all_services_sends_the_whole(
    cluster: list[StoreServer], tmp_path: Path
) -> None:
    names = [f"s{number}" for number in range(200)]
    with (
        running_relay(tmp_path, ",".join(each.remote for each in cluster)) as relay,
        StoreClient(remotes(cluster), with_intents=True) as writer,
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
