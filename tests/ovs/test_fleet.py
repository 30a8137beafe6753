"""Two DPUs, each with an Open vSwitch of its own, and their store: what is applied, and what its loss leaves alone.

Roll-outs in waves, of which dpu1 is the canary; the file of a DPU with commands on its host, tunnels and IPsec.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, start
from tests.ovs.dummy import DummyBridge, start_dummy_as_system
from tests.ovs.fleets import LOCAL, FleetDpu, FleetServers, flow_changes
from tests.patience import eventually
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_database, stop_private_ovs
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import server_of
from xenoovs.switch.process import run, try_run
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

    assert store.fleet("apply", "--rollback", "--now", "--yes").status == 0
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
    assert store.xenoovs("pause", "--end", "--db", two.bridge.ovs.db).status == 0
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
    serving = start("fleet", "--directory", store.directory, "serve", "--web", "127.0.0.1:0")
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


def test_a_canary_with_an_error_is_taken_back_and_other_dpus_see_no_flow_mod(
    store: FleetServers, config: Path, tmp_path: Path
) -> None:
    one, two = store.dpus
    config.write_text(MORE)
    one.config.write_text(one.config.read_text().replace("hosts: p2", "hosts: p9"))
    before = one.blocks(), two.blocks()
    with flow_changes(two, tmp_path / "changes") as changes:
        told = changes.read_text()
        said = store.fleet("apply", config, "--yes", "--soak", "2s")
        assert said.status == 1, said.out + said.err
        assert "wave 1: dpu1; watched for 2" in said.out
        assert "refused: wave 1: dpu1: " in said.err
        assert "p9" in said.err
        eventually(store.is_well, "the way back")
        assert (one.blocks(), two.blocks()) == before
        assert (store.intents(), changes.read_text()) == (["refused", "current"], told)

        # The canary can have it now, and has it alone until the wave has passed.
        one.config.write_text(one.config.read_text().replace("hosts: p9", "hosts: p2"))
        said = store.fleet("apply", config, "--yes", "--soak", "1s")
        assert said.status == 0, said.out + said.err
        assert [line.split(";")[0] for line in said.out.splitlines() if line.startswith("wave ")] == [
            "wave 1: dpu1",
            "wave 3: dpu2",
        ]
        assert one.blocks() == two.blocks() != before[0]
        assert store.intents() == ["current", "refused", "past"]
        eventually(lambda: changes.read_text() != told, "the changes of the last wave")


def test_a_roll_out_outlives_ctrl_c_and_its_controller_and_stop_takes_it_back(
    store: FleetServers, config: Path
) -> None:
    one, two = store.dpus
    before = one.blocks()
    config.write_text(MORE)
    waiting = start("fleet", "--directory", store.directory, "apply", config, "--yes", "--soak", "1h")
    eventually(lambda: waiting.poll() is not None or one.blocks() != before, "the canary")
    assert waiting.poll() is None, waiting.communicate()
    waiting.send_signal(signal.SIGINT)
    _, text = waiting.communicate()
    assert "the controller goes on with the roll-out of config 2" in text

    store.end_controller()
    store.start_controller()
    assert (one.blocks() != before, two.blocks()) == (True, before)
    assert store.fleet("stop").status == 0
    eventually(lambda: one.blocks() == before and store.is_well(), "the way back")
    assert store.intents() == ["refused", "current"]


TUNNELED = SMALL_CONFIG.replace("services:", "tunnels: [{name: gnv0, type: geneve, key: 5001}]\nservices:") + (
    '      - {name: far, mac: "02:00:5e:10:00:0d", weight: 30, egress: gnv0, remote: 192.168.77.11}\n'
)


def test_suggested_commands_work_with_the_file_of_a_dpu(store: FleetServers) -> None:
    """`verify-offload` suggested `xenoovs plan`, which refuses this file."""
    one, xenoovs = store.dpus[0], store.xenoovs
    one.stop()
    one.bridge.add_flows("delete\n")
    named = ("--db", one.bridge.ovs.db)
    for command in ("verify-offload", "why"):
        shown = xenoovs(command, one.config, *named)
        assert "of the config are missing on the bridge; see `xenoovs status --db" in shown.out + shown.err
        assert "xenoovs plan" not in shown.out + shown.err
    shown = xenoovs("status", one.config, *named)
    assert (shown.status, "; its agent installs them" in shown.out) == (2, True), shown.out + shown.err
    for command in ("lint", "validate"):
        shown = xenoovs(command, one.config)
        assert shown.status == 0, shown.out + shown.err
    # A command that would decide by itself is refused.
    shown = xenoovs("plan", one.config, *named)
    assert (shown.status, "is the file of a DPU of a fleet" in shown.err) == (64, True)


SECRET = "correct horse battery staple"


def with_tunnel(local: str, more: str = "") -> str:
    """The file of a DPU with its end of the tunnel."""
    return f"{LOCAL}tunnels: [{{name: gnv0, type: geneve, local: {local}{more}}}]\n"


def add_port(dpu: FleetDpu) -> None:
    """Make the port of the tunnel as `xenoovs tunnels` says with the file of the DPU."""
    eventually(dpu.cache.exists, "the saved view")
    xenoovs, db = dpu.store.xenoovs, ("--db", dpu.bridge.ovs.db)
    shown = xenoovs("doctor", dpu.config, *db)
    assert "tunnel port gnv0: does not exist" in shown.out, shown.out + shown.err
    assert "services as the agent saved them: generation " in shown.err
    shown = xenoovs("tunnels", dpu.config, *db)
    assert shown.status == 0, shown.err
    run(["sh", "-c", shown.out])


def behind(dpu: FleetDpu, mac: str) -> str:
    """The flows of a backend."""
    return "\n".join(line for line in dpu.flows() if f"02:00:5e:10:00:{mac}" in line).replace('"', "")


@contextmanager
def _kernel_dpu(directory: Path, store: FleetServers) -> Iterator[FleetDpu]:
    """A DPU in a network namespace whose bridge counts as one of the kernel, without a packet (see test_ipsec.py)."""
    netns, ovs = f"xo{os.getpid()}key", PrivateOvs(directory / "d9")
    ovs.directory.mkdir(mode=0o700)
    run(["ip", "netns", "add", netns])
    dpu: FleetDpu | None = None
    try:
        run(["ip", "-n", netns, "link", "set", "lo", "up"])
        for words in ("link add p0 type veth peer name p1", "link set p0 up", "link set p1 up"):
            run(["ip", "-n", netns, *words.split()])
        start_database(ovs, netns=netns)
        start_dummy_as_system(ovs, netns)
        ovs.add_bridge("ovsbr1", ["p0", "p1"], datapath=Datapath.KERNEL)
        dpu = FleetDpu("dpu9", DummyBridge(ovs, "ovsbr1", ("p0", "p1")), directory / "dpu9.yaml", store, netns)
        yield dpu
    finally:
        if dpu is not None:
            dpu.kill()
        stop_private_ovs(ovs)
        try_run(["ip", "netns", "delete", netns])


def add_policy(netns: str) -> None:
    """Do what an IKE daemon does for packets to the remote."""
    ends = ("src", "192.168.77.1", "dst", "192.168.77.11", "proto", "udp", "dport", "6081", "dir", "out")
    run(["ip", "-n", netns, "xfrm", "policy", "add", *ends, "tmpl", "proto", "esp", "mode", "transport"])


def test_a_dpu_with_ipsec_serves_once_it_has_key_and_policy_and_the_key_stays_there(
    store: FleetServers, tmp_path: Path, xenoovs: CommandLine
) -> None:
    key = tmp_path / "psk"
    key.write_text(SECRET)
    of_dpu = with_tunnel("192.168.77.1", f", key: 5001, ipsec: {{psk_file: {key}}}")
    for dpu in store.dpus:
        dpu.config.write_text(with_tunnel("192.168.77.2"))
        add_port(dpu)
    with _kernel_dpu(tmp_path, store) as encrypting:
        encrypting.config.write_text(of_dpu)
        assert store.fleet("add-dpu", encrypting.name).status == 0
        encrypting.start()
        eventually(store.is_well, "a config without the tunnel")
        before = encrypting.blocks()
        (file := store.directory.parent / "services.yaml").write_text(TUNNELED)
        given = ("apply", file, "--now", "--yes", "--timeout", "1s")
        eventually(lambda: re.search("dpu9: .*gnv0-c0a84d0b", store.fleet(*given).err) is not None, "what dpu9 lacks")

        # As docs/how-to/fleet-set-up.md says: the file of the DPU and the services in one, for `doctor` there.
        whole = tmp_path / "whole.yaml"
        whole.write_text(of_dpu.replace(", fleet_ports: {hosts: p2}", "") + TUNNELED[TUNNELED.index("services:") :])
        fixed = xenoovs("doctor", whole, "--db", encrypting.bridge.ovs.db, "--fix", "--yes")
        assert SECRET not in fixed.out + fixed.err
        eventually(lambda: "no policy covers packets to 192.168.77.11" in store.fleet("status").out, "the policy lacks")
        assert encrypting.blocks() == before
        assert encrypting.netns is not None
        add_policy(encrypting.netns)
        eventually(store.is_well, "all DPUs")
        assert "output:gnv0-c0a84d0b" in behind(encrypting, "0d")

        # The IKE daemon of this DPU ends (bug: as its blocks are those of the store, it went on unencrypted).
        # It alone drops these packets, and the fleet knows why.
        served = encrypting.blocks()
        run(["ip", "-n", encrypting.netns, "xfrm", "policy", "flush"])
        eventually(lambda: "output:gnv0-c0a84d0b" not in behind(encrypting, "0d"), "nothing unencrypted")
        assert encrypting.blocks() == [block for block in served if "gnv0-c0a84d0b" not in block]
        why = "packets to 192.168.77.11 would leave unencrypted: the config wants IPsec, and no policy covers them"
        eventually(lambda: why in " ".join(store.fleet("status").out.split()), "the reason")
        add_policy(encrypting.netns)
        eventually(store.is_well, "all DPUs again")
        assert "output:gnv0-c0a84d0b" in behind(encrypting, "0d")
        assert SECRET in encrypting.bridge.ovs.vsctl("get", "interface", "gnv0-c0a84d0b", "options:psk")

        # A mistake of the operator: the key itself in the config of the fleet.
        file.write_text(TUNNELED.replace("key: 5001", f"key: 5001, ipsec: {{psk: {SECRET}}}"))
        assert "psk_file" in store.fleet("apply", file, "--now", "--yes", "--timeout", "2s").err
        exported = store.fleet("export", "-").out
        log, cache = encrypting.stop(), encrypting.cache.read_text()
        assert "dpu9" in exported
    texts = [server_of(store.directory, database).database.read_text() for database in StoreDatabase]
    for text in (*texts, exported, log, cache, store.fleet("status", "-o", "json").out):
        assert SECRET not in text
