"""Two DPUs, each with an Open vSwitch of its own, and their store: what is applied, and what its loss leaves alone."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, start
from tests.ovs.fleets import FleetDpu, FleetServers
from tests.patience import eventually
from xenoovs.terminal.command import user_name

MORE = SMALL_CONFIG + "      - {name: fips4, mac: 02:00:5e:10:00:04, weight: 30, egress: hosts}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """That of the fleet."""
    return tmp_path / "services.yaml"


def apply(store: FleetServers, config: Path) -> str:
    said = store.fleet("apply", config, "--now", "--yes")
    assert said.status == 0, said.out + said.err
    return said.out


def status_of(dpu: FleetDpu) -> str:
    return dpu.store.xenoovs("status", "--db", dpu.bridge.ovs.db).out


def test_all_dpus_have_the_same_blocks_and_changes_move_few_clients(store: FleetServers, config: Path) -> None:
    one, two = store.dpus
    assert one.blocks() == two.blocks()
    assert len(one.blocks()) == 5
    assert (store.fleet("plan", config).status, "nothing to do" in apply(store, config)) == (0, True)

    config.write_text(MORE)
    planned = store.fleet("plan", config)
    assert planned.status == 2
    assert planned.out.splitlines()[1].split() == ["dns", "all", "2", "changed", "8", "23.44%"]
    apply(store, config)
    assert one.blocks() == two.blocks()
    assert sum("output:p2" in line for line in one.blocks()) > 0
    assert store.states() == {"dpu1": "applied", "dpu2": "applied"}

    before = one.blocks()
    assert store.fleet("drain", "dns", "fips2", "--comment", "new memory").status == 0
    assert one.blocks() == two.blocks() != before
    assert not any("02:00:5e:10:00:02" in line for line in one.blocks())
    assert "dns/fips2 is drained for" in store.fleet("status").out
    assert store.fleet("reset", "dns", "fips2").status == 0
    assert any("02:00:5e:10:00:02" in line for line in one.blocks())

    assert store.fleet("rollback", "--now", "--yes").status == 0
    assert one.blocks() == two.blocks()
    assert not any("output:p2" in line for line in one.blocks())
    history = store.history()
    given = [(each["config"], each["state"], each["action"]) for each in history if each["config"]]
    assert given == [(3, "current", "rollback 1"), (2, "past", "apply"), (1, "past", "apply")]
    (drain,) = (each for each in history if each["action"] == "drain dns/fips2")
    assert (drain["author"], drain["host"]) == (user_name(), socket.gethostname())
    assert (drain["changed"], drain["comment"]) == ("dns/fips2 70 -> 0", "new memory")
    assert store.fleet("history", 1).out == SMALL_CONFIG
    assert store.fleet("history", 2).out == MORE
    said = store.fleet("history", 9)
    assert (said.status, "has no config 9; it has 3, 2, 1" in said.err) == (1, True)
    assert store.end_controller().count('fleet changed action="drain dns/fips2" author=') == 1


def test_without_the_store_nothing_changes_and_a_dpu_that_boots_forwards(store: FleetServers, config: Path) -> None:
    one, two = store.dpus
    flows = one.flows()
    eventually(two.cache.exists, "the saved view")
    assert two.cache.stat().st_mode & 0o777 == 0o600
    # Bug: `decision` refused the file of a DPU.
    said = store.xenoovs("decision", two.config, "--installed", "--db", two.bridge.ovs.db, "-o", "json")
    assert [each["name"] for each in json.loads(said.out)["services"]] == ["dns"], said.err
    store.stop()
    for dpu in store.dpus:
        eventually(lambda dpu=dpu: "store lost since" in status_of(dpu), "the loss")  # type: ignore[misc]
        assert store.xenoovs("status", "--db", dpu.bridge.ovs.db).status == 2
    assert store.fleet("status").status == 1

    two.stop()
    two.bridge.add_flows("delete\n")
    assert two.flows() == []
    two.start()
    eventually(lambda: two.flows() == flows, "the flows of the saved view")
    eventually(lambda: "store lost since" in status_of(two), "the loss")

    # A damaged view is not used: it waits for the store, and leaves the flows as they are.
    two.stop()
    two.cache.write_bytes(two.cache.read_bytes().replace(b"fips2", b"fips9"))
    two.start()
    store.start()
    eventually(two.answers, "the store")
    assert two.flows() == flows == one.flows()
    eventually(store.is_well, "the store")
    eventually(lambda: "store lost" not in status_of(one) + status_of(two), "the agents at the store")
    config.write_text(MORE)
    apply(store, config)
    assert one.blocks() == two.blocks()
    assert "its checksum is wrong" in two.stop()


def test_commands_of_one_dpu_are_refused_and_external_changes_are_reverted(store: FleetServers) -> None:
    one, two = store.dpus
    flows = one.flows()
    said = store.xenoovs("drain", "dns", "fips2", "--db", one.bridge.ovs.db)
    assert (said.status, "xenoovs fleet drain SERVICE BACKEND" in said.err) == (1, True)
    # A pause stays local, and what the bridge has instead shows as drift.
    assert store.xenoovs("pause", "--db", two.bridge.ovs.db).status == 0
    assert store.fleet("drain", "dns", "fips2", "--timeout", "1s").status == 2
    eventually(lambda: store.states() == {"dpu1": "applied", "dpu2": "drifted"}, "the drift")
    eventually(lambda: re.search(r"^dpu2 +dns +other blocks", store.fleet("diff").out, re.MULTILINE) is not None, "it")
    assert (store.fleet("diff", "dpu1").status, store.fleet("diff", "dpu2").status) == (0, 2)
    said = store.fleet("diff", "dpu3")
    assert (said.status, "the fleet has no DPU dpu3" in said.err) == (1, True)
    assert two.flows() == flows
    assert store.xenoovs("resume", "--db", two.bridge.ovs.db).status == 0
    eventually(store.is_well, "the end of the drift")
    assert (store.fleet("diff").status, store.fleet("diff").out) == (0, "no service differs from the store\n")
    assert one.blocks() == two.blocks()


def test_hostile_rows_change_no_flow(store: FleetServers) -> None:
    one, two = store.dpus
    flows = one.flows(), two.flows()
    (before,) = store.select("Service")
    store.transact({"op": "update", "table": "Fleet", "where": [], "row": {"name": "te\u001b[31mst\nX"}})
    eventually(
        lambda: store.fleet("status").out.startswith("te\\x1b[31mst\\nX: generation "), "the name, without effect"
    )
    store.end_controller()
    rows: tuple[dict[str, object], ...] = (
        {"config": "{"},
        {"config": '{"name":"dns","backends":[{"name":"\\u001b[2Jx","weight":1}]}'},
        {"config": json.dumps({"name": "dns", "weights": {"from": "/etc/shadow"}, "backends": [{"name": "a"}]})},
        {"blocks": ["map", [["0x0/0", "\u001b]0;x\u0007"]]]},
        {"blocks": ["map", [["../../etc", "fips2"]]]},
        {"blocks": ["map", []]},
    )
    for row in rows:
        for written in (row, {key: before[key] for key in row}):
            raised = {"op": "mutate", "table": "Fleet", "where": [], "mutations": [["generation", "+=", 1]]}
            store.transact({"op": "update", "table": "Service", "where": [], "row": written}, raised)
            wanted = 2 if written is row else 0
            for dpu in store.dpus:
                db = ("--db", dpu.bridge.ovs.db)
                eventually(lambda: store.xenoovs("status", *db).status == wanted, f"{written} at {dpu.name}")  # noqa: B023
                assert "\x1b]0" not in status_of(dpu)
            assert (one.flows(), two.flows()) == flows


def test_the_page_and_the_metrics_of_a_controller_say_who_has_what(store: FleetServers) -> None:
    said = store.fleet("serve", "--web", "0.0.0.0:0")
    assert (said.status, "--tls-cert and --tls-key and --token-file" in said.err) == (1, True)
    serving = start("fleet", "serve", "--directory", store.directory, "--web", "127.0.0.1:0")
    store.controllers.append(serving)
    assert serving.stderr is not None
    line = next(line for line in serving.stderr if "listening" in line)
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found is not None, line
    url = found[0]

    def text(path: str) -> str:
        with urllib.request.urlopen(url + path, timeout=30) as answer:
            read: bytes = answer.read()
        return read.decode()

    eventually(lambda: 'xenoovs_fleet_dpus{state="applied"} 2.0' in text("/metrics"), "both DPUs in the metrics")
    assert 'xenoovs_store_role{database="xenoovs",role="alone"} 1.0' in text("/metrics")
    page = text("/now")
    assert "all DPUs have the newest generation" in page
    assert "dpu1" in page
    store.stop()
    eventually(lambda: "xenoovs_fleet_active 0.0" in text("/metrics"), "a controller without a store")
    eventually(lambda: "the store does not answer" in text("/now"), "the lost store on the page")
    serving.send_signal(signal.SIGTERM)
    log = serving.communicate()[1]
    assert "Traceback" not in log
    assert serving.returncode == 0
