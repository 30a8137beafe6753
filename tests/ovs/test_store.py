"""The store of a fleet on a real ovsdb-server: views, changes by compare-and-set, states of DPUs, bad rows."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from uuid import uuid4

import pytest

from scripts.bench.fleet import monitor_request
from tests.ovs.stores import Proxy, StoreServer, first_view, running_cluster, running_store, service, wait_generation
from tests.patience import PATIENCE_S, eventually
from tests.unit.store.test_export import HUGE
from xenoovs.decision.decision import Blocks
from xenoovs.errors import StoreError, StoreMalformed, StoreNewer, StoreRejected
from xenoovs.store import servers
from xenoovs.store.client import CommitOutcome, DpuStatusClient, DpuStatusReader, StoreClient
from xenoovs.store.replica import NO_ANSWER
from xenoovs.store.rows import STATUSES, StoreDatabase
from xenoovs.store.servers import create_databases, server_of, start_server
from xenoovs.store.view import (
    FORMAT,
    MAX_ERROR,
    Changes,
    Dpu,
    DpuStatus,
    FleetOverride,
    Intent,
    IntentState,
)

INTENT = Intent(1, "services: []\n", "0f" * 32, "ada", "first", 1_700_000_000_000, IntentState.STAGED)
OVERRIDE = FleetOverride("dns", "a", Fraction(7, 2), Fraction(70), "ada", 1_700_000_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreServer]:
    with running_store(tmp_path) as server:
        yield server


@pytest.fixture
def client(store: StoreServer) -> Iterator[StoreClient]:
    with StoreClient(store.files.remote, with_intents=True) as made:
        assert (first_view(made).format, made.connection.is_leader) == (FORMAT, True)
        yield made


def test_bug_a_change_that_the_server_refused_was_taken_for_done(store: StoreServer) -> None:
    """ovsdb-client(1) ends with 0 then."""
    for operation in ({"op": "delete", "table": "Nowhere", "where": []}, {"op": "abort"}, {"op": "comment"}):
        with pytest.raises(StoreError):
            servers.transact(store.files, operation)


def test_every_value_comes_back_as_it_was_written(client: StoreClient, store: StoreServer) -> None:
    dns, dpu = service("dns", "a", "b", "c", "d"), Dpu("dpu1", frozenset({"x", "y"}), "rack7", 1, is_out=True)
    changes = Changes({"dns": dns}, {"dpu1": dpu}, {("dns", "a"): OVERRIDE}, {1: INTENT}, intent=1, ack=True)
    assert client.commit(0, changes) is CommitOutcome.COMMITTED
    view = first_view(client)
    assert (view.generation, view.intent, view.ack) == (1, 1, 1)
    assert view.services == {"dns": replace(dns, generation=1)}
    assert (view.dpus, view.overrides) == ({"dpu1": dpu}, {("dns", "a"): OVERRIDE})
    assert view.intents == {1: INTENT}
    with StoreClient(store.files.remote) as reader:
        assert first_view(reader) == replace(view, intents={})
    # Rows change, get their first blocks, take the claim of one that goes, and are removed.
    is_current = replace(INTENT, state=IntentState.CURRENT)
    empty = replace(service("web", "a"), active=Blocks(), home=Blocks())
    assert client.commit(1, Changes({"web": empty}, intents={1: is_current})) is CommitOutcome.COMMITTED
    heir = replace(service("dns2", "a"), claim=dns.claim)
    web = service("web", "a", "b")
    changes = Changes({"dns2": heir, "dns": None, "web": web})
    assert client.commit(2, changes) is CommitOutcome.COMMITTED
    view = first_view(client)
    assert view.services == {"dns2": replace(heir, generation=3), "web": replace(web, generation=3)}
    assert view.intents == {1: is_current}
    # The second of two writers is refused.
    assert client.commit(2, Changes({"web": service("web", "c")})) is CommitOutcome.REFUSED


_READ = """
import sys
from xenoovs.store.client import StoreClient
with StoreClient(sys.argv[1]) as client:
    print(client.wait_changed(None, timeout_s=90).name)
"""


def test_monitor_requests_of_two_processes_are_equal_and_have_no_conditions(store: StoreServer, tmp_path: Path) -> None:
    """Servers make the text of a notice once for all monitors that are equal."""
    monitors = list[bytes]()
    for seed in ("1", "2"):
        with Proxy(tmp_path / f"proxy{seed}", store.files.socket) as proxy:
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            argv = [sys.executable, "-c", _READ, proxy.remote]
            said = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment)
        assert (said.stdout, said.stderr) == ("test\n", "")
        asked = re.search(
            rb'"monitor_cond_since","params":\["xenoovs","[-0-9a-f]{36}",(.*?),"[-0-9a-f]{36}"\]', proxy.asked
        )
        assert asked is not None, proxy.asked
        monitors.append(asked[1])
    assert monitors[0] == monitors[1]
    assert b"where" not in monitors[0]
    assert b"blocks" in monitors[0]
    assert monitors[0] in monitor_request(str(uuid4())), "the clients of `make bench` ask for the same"


def test_a_transaction_larger_than_the_buffers_of_a_socket_is_written(client: StoreClient) -> None:
    """`select.poll` in the loop of `ovs` forgot that the rest was to be sent."""
    owners = [f"backend{number}" for number in range(16)]
    many = {f"s{number}": service(f"s{number}", *owners) for number in range(1000)}
    assert client.commit(0, Changes(many), timeout_s=PATIENCE_S) is CommitOutcome.COMMITTED
    assert len(first_view(client).services) == 1000


def test_the_store_refuses_what_its_constraints_forbid(client: StoreClient, store: StoreServer) -> None:
    assert client.commit(0, Changes({"dns": service("dns", "a")})) is CommitOutcome.COMMITTED
    twin = replace(service("dns2", "a"), name="dns")
    with pytest.raises(StoreRejected, match=r'identical values \("?dns"?\) for index on column "name"'):
        client.commit(1, Changes({"dns2": twin}))
    with pytest.raises(StoreRejected, match="0 is less than minimum allowed value 1"):
        client.commit(1, Changes(dpus={"d": Dpu("d", frozenset(), wave=0)}))
    assert first_view(client).generation == 1
    for table, row in (("Fleet", {"name": "x", "format": 1}), ("Intent", {"number": 1, "state": "done"})):
        assert store.transact({"op": "insert", "table": table, "row": row})[-1]["error"] == "constraint violation"


def test_a_bad_row_is_named_and_the_last_good_view_stays(client: StoreClient, store: StoreServer) -> None:
    dns = service("dns", "a", "b")
    assert client.commit(0, Changes({"dns": dns}, overrides={("dns", "a"): OVERRIDE})) is CommitOutcome.COMMITTED
    rows: tuple[tuple[str, dict[str, object], str], ...] = (
        ("Service", {"blocks": ["map", [["0x4/2", "a"]]]}, r"table Service, row dns, column blocks: .*4.* 2 bits"),
        ("Service", {"blocks": ["map", [["3/2", "a"]]]}, r"column blocks: '3/2' is no block"),
        ("Service", {"planned": ["map", [["0x0/0", "a"], ["0x1/1", "b"]]]}, "column planned: blocks overlap"),
        ("Service", {"blocks": ["map", [["0x0/0", ""]]]}, "column blocks: block 0x0/0 has no backend"),
        ("Service", {"config": "{"}, "row dns, column config"),
        ("Override", {"weight": "1e999999999"}, "table Override, row dns/a, column weight: '1e999999999' is no"),
        ("Fleet", {"format": FORMAT + 1}, "has 2, which this version does not know; upgrade xenoovs"),
    )
    for generation, (table, row, message) in enumerate(rows, start=1):
        good, (key,) = first_view(client), row
        where = [] if table == "Fleet" else [["service" if table == "Override" else "name", "==", "dns"]]
        store.transact({"op": "update", "table": table, "where": where, "row": row})
        eventually(lambda: client.connection.problem != "", "the problem is reported")
        assert client.connection.is_connected
        with pytest.raises((StoreMalformed, StoreNewer), match=message):
            client.commit(generation, Changes())
        assert client.view() is good
        repaired = {"config": dns.config, "weight": "7/2", "format": FORMAT}
        blocks = ["map", [["0x0/1", "a"], ["0x1/1", "b"]]]
        store.transact({"op": "update", "table": table, "where": where, "row": {key: repaired.get(key, blocks)}})
        eventually(lambda: client.connection.problem == "", "the repair is seen")
        assert client.commit(generation, Changes()) is CommitOutcome.COMMITTED


def test_text_that_ovsdb_cannot_hold_is_refused_and_the_client_goes_on(client: StoreClient) -> None:
    for text in ("a\0b", "\ud800"):
        with pytest.raises(StoreRejected, match="text"):
            client.commit(0, Changes(intents={1: replace(INTENT, text=text)}))
    assert (
        client.commit(0, Changes(intents={1: replace(INTENT, text='é \U0001f600 " \\ \n')})) is CommitOutcome.COMMITTED
    )
    assert first_view(client).intents[1].text == 'é \U0001f600 " \\ \n'


@pytest.mark.parametrize(
    "answer",
    [
        b'{"id":%d,"result":null,"error":null}',
        b'{"id":%d,"result":null,"error":"go away"}',
        b"no JSON %d",
        b"[%d]",
    ],
)
def test_a_peer_that_is_no_server_is_reported_and_another_one_is_taken(
    store: StoreServer, tmp_path: Path, answer: bytes
) -> None:
    path = tmp_path / "odd"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer, suppress(ConnectionError):
                        while data := peer.recv(1 << 16):
                            for number in re.findall(rb'"id":([0-9]+)', data):
                                peer.sendall(answer % int(number))

        threading.Thread(target=serve, daemon=True).start()
        with StoreClient(f"unix:{path}") as alone:
            eventually(lambda: alone.connection.reason not in (NO_ANSWER, ""), "a reason")
            assert not alone.connection.is_connected
            assert alone.view() is None
        with StoreClient(f"unix:{path},{store.files.remote}") as client:
            # The first remote is taken at random.
            assert first_view(client).name == "test"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_writer_goes_on_over_lost_connections(store: StoreServer, tmp_path: Path) -> None:
    is_over = threading.Event()
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(tmp_path / "proxy", store.files.socket))
        client = stack.enter_context(StoreClient(proxy.remote, with_intents=True))

        def cut() -> None:
            # Ever longer: on a slow machine nobody connects within 50 ms.
            pause_s = 0.05
            while not is_over.wait(pause_s):
                proxy.cut()
                pause_s *= 1.2

        first_view(client)
        cutter = threading.Thread(target=cut)
        stack.callback(cutter.join)
        stack.callback(is_over.set)
        cutter.start()
        for generation in range(6):
            change = Changes({"dns": service("dns", f"g{generation}")})
            # There is no other writer, so none may be refused.
            assert client.commit(generation, change, timeout_s=PATIENCE_S) is CommitOutcome.COMMITTED
        is_over.set()
        view = wait_generation(client, 6)
        assert (view.generation, *view.services["dns"].active.owners) == (6, "g5")


def test_a_reconnect_gets_only_the_difference(tmp_path: Path) -> None:
    # Clusters and relays keep a history of transactions (ovsdb-server(7), 4.1.15), also a cluster of one server.
    with running_cluster(tmp_path, size=1) as (server,), StoreClient(server.files.remote, with_intents=True) as writer:
        first_view(writer)
        names = [f"s{number}" for number in range(50)]
        many = {name: service(name, "a", "b", "c", "d") for name in names}
        assert writer.commit(0, Changes(many)) is CommitOutcome.COMMITTED
        # The history is no larger than the database: the next transaction pushes that large one out.
        assert writer.commit(1, Changes({"s9": service("s9", "x")})) is CommitOutcome.COMMITTED
        with Proxy(tmp_path / "proxy", server.files.socket) as proxy, StoreClient(proxy.remote) as reader:
            first_view(reader)
            first, lost_s = len(proxy.said), reader.connection.since_s
            proxy.cut()
            assert writer.commit(2, Changes({"s7": service("s7", "x")})) is CommitOutcome.COMMITTED
            view = wait_generation(reader, 3)
            assert reader.connection.since_s >= lost_s
            again = proxy.said[first:].decode()
        assert view.services["s7"].active.owners == {"x"}
        assert '"result":[true,' in again, "found"
        assert '"s8"' not in again
        assert len(again) < first


def test_a_row_that_went_while_a_client_was_away_is_gone(
    client: StoreClient, store: StoreServer, tmp_path: Path
) -> None:
    # A server without a cluster keeps no history: it sends everything again.
    assert client.commit(0, Changes({n: service(n, "a") for n in ("dns", "web")})) is CommitOutcome.COMMITTED
    with Proxy(tmp_path / "proxy", store.files.socket) as proxy, StoreClient(proxy.remote) as reader:
        first_view(reader)
        proxy.cut()
        assert client.commit(1, Changes({"web": None})) is CommitOutcome.COMMITTED
        assert set(wait_generation(reader, 2).services) == {"dns"}


def test_a_dpu_writes_its_row_and_writes_it_again_after_a_loss(tmp_path: Path) -> None:
    with (
        running_store(tmp_path, StoreDatabase.STATES) as store,
        DpuStatusReader(store.files.remote) as reader,
        DpuStatusClient(store.files.remote) as one,
        DpuStatusClient(store.files.remote) as two,
    ):
        down = frozenset({"x"})
        status = DpuStatus("dpu1", "1.2", 1, 5, 7, 6, "no port", {"dns": "ab"}, {"HW": 3}, 7, down, is_fit=False)
        one.put(status)
        two.put(DpuStatus("dpu2"))
        eventually(lambda: len(reader.statuses() or {}) == 2, "both rows")
        assert reader.statuses() == {"dpu1": status, "dpu2": DpuStatus("dpu2")}
        store.kill()
        later = replace(status, applied=8, drift={}, error="")
        one.put(later)
        eventually(lambda: not one.connection.is_connected and one.written is None, "the loss")
        store.start()
        eventually(lambda: (reader.statuses() or {}).get("dpu1") == later, "the newer row after the return")
        store.transact({"op": "delete", "table": "Dpu_State", "where": []})
        eventually(lambda: reader.statuses() == {}, "no rows")
        one.put(replace(later, applied=9))
        eventually(lambda: set(reader.statuses() or {}) == {"dpu1"}, "the row is made again")


def test_init_leaves_existing_files_alone_and_nothing_half_made(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    state = server_of(directory, StoreDatabase.STATES).database
    state.write_text("mine")
    with pytest.raises(StoreError, match=r"xenoovs_state\.db exists already and stays"):
        create_databases(directory, name="test")
    assert [file.name for file in directory.iterdir()] == ["xenoovs_state.db"]
    assert state.read_text() == "mine"
    with pytest.raises(StoreError, match="cannot be created"):
        create_databases(tmp_path / "other", name="n" * 129)
    assert not (tmp_path / "other").exists()


def test_a_directory_in_which_others_may_write_is_refused_and_stays(tmp_path: Path) -> None:
    create_databases(tmp_path / "s", name="test")
    shared = tmp_path / "shared"
    shared.mkdir()
    for mode in (0o770, 0o703, 0o1777):
        shared.chmod(mode)
        with pytest.raises(StoreError, match=r"others may write in .*/shared .*chmod 700"):
            create_databases(shared, name="test")
        (tmp_path / "s").chmod(mode)
        with pytest.raises(StoreError, match="others may write in"):
            start_server(server_of(tmp_path / "s", StoreDatabase.FLEET))
    assert list(shared.iterdir()) == []
    assert sorted(file.name for file in (tmp_path / "s").iterdir()) == ["xenoovs.db", "xenoovs_state.db"]


def test_a_report_has_bounds_whoever_writes_it(tmp_path: Path) -> None:
    """Found, too, when readers kept the old names after a change of more names than one report has."""
    with (
        running_store(tmp_path, StoreDatabase.STATES) as store,
        DpuStatusClient(store.files.remote) as writer,
        DpuStatusReader(store.files.remote) as reader,
    ):
        before = DpuStatus("dpu1", drift={"x": ""}, verdicts={"x": 1}, down=frozenset({"x"}))
        writer.put(before)
        eventually(lambda: reader.statuses() == {"dpu1": before}, "a small report")
        writer.put(HUGE)
        eventually(lambda: reader.statuses() == {"dpu1": HUGE.bounded}, "the report, cut")
        assert writer.written == HUGE.bounded
        longer = {"op": "update", "table": STATUSES.name, "where": [], "row": {"error": "e" * (MAX_ERROR + 1)}}
        assert store.transact(longer)[-1]["error"] == "constraint violation"
        writer.put(before)
        eventually(lambda: reader.statuses() == {"dpu1": before}, "it is small again")
