"""Beside a real OVN with two chassis: nothing is written to br-int, and its megaflows are judged as chains.

Userspace datapath: all is software here, so what is tested is which chains are seen, and what is said about them.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.ovn import VIP, Ovn, two_chassis
from tests.patience import eventually
from xenoovs.datapath.fact import Unknown
from xenoovs.switch.ovsdb import read_logical_flows
from xenoovs.switch.process import run

_REQUESTS = 50


@pytest.fixture(scope="module")
def ovn() -> Iterator[Ovn]:
    with two_chassis() as found:
        yield found


@pytest.fixture
def on_br_int(tmp_path: Path) -> Path:
    """A config that names br-int."""
    path = tmp_path / "my.yaml"
    config = (
        SMALL_CONFIG.replace("bridge: ovsbr1", "bridge: br-int").replace("[p0]", "[vm1]").replace("p1}", "ovn-hv2-0}")
    )
    path.write_text(config)
    return path


def _rows(xenoovs: CommandLine, ovn: Ovn) -> list[dict[str, Any]]:
    said = xenoovs("verify-offload", "--bridge", "br-int", "--db", ovn.chassis[0].ovs.db, "-o", "json")
    assert (said.status, said.err) == (2, "")
    found: list[dict[str, Any]] = json.loads(said.out)["rows"]
    return found


def test_br_int_is_refused_and_stays_as_it_was(ovn: Ovn, on_br_int: Path, xenoovs: CommandLine) -> None:
    """The seed of this: apply worked on br-int, and a restart of ovn-controller deleted its flows without a message."""
    hv1, before = ovn.chassis[0], ovn.chassis[0].flows()
    for command in (("plan",), ("apply", "--yes"), ("agent", "--once"), ("remove", "--yes")):
        said = xenoovs(command[0], on_br_int, "--db", hv1.ovs.db, *command[1:])
        assert (said.status, "bridge br-int belongs to OVN" in said.err) == (1, True), said
    assert hv1.flows() == before
    assert "br-int: no flows" not in xenoovs("remove", "--all", "--yes", "--db", hv1.ovs.db).out


def test_ovn_controller_deletes_what_others_have_written(ovn: Ovn) -> None:
    """The reason of the guard. If this fails, OVN has changed, and the guard may be too strict."""
    hv1 = ovn.chassis[0]
    hv1.add_flow("cookie=0x786f010101000001,table=0,priority=7,ip,nw_dst=203.0.113.1,actions=drop")
    assert any("203.0.113.1" in flow for flow in hv1.flows())
    hv1.stop_controller()
    hv1.start_controller()
    eventually(lambda: not any("203.0.113.1" in flow for flow in hv1.flows()), "ovn-controller deletes the flow")
    ovn.nbctl("sync")


def test_doctor_names_ovn(ovn: Ovn, xenoovs: CommandLine) -> None:
    said = xenoovs("doctor", "--db", ovn.chassis[1].ovs.db, "-o", "json")
    rows = {(row["check"], row["subject"]): row["seen"] for row in json.loads(said.out)["checks"]}
    assert rows["OVN here", "br-int"] == "it belongs to OVN (chassis hv2, geneve, 192.0.2.2); not touched"
    assert rows["controllers", "br-int"] == "none in the database; ovn-controller writes by br-int.mgmt"
    assert ("OVN here", "br-ul") not in rows
    assert rows["tunnel route", "ovn-hv1-0 192.0.2.1"] == "by br-ul of bridge br-ul"
    assert rows["tunnel MTU", "ovn-hv1-0 192.0.2.1"].endswith(
        "(1500 of the clients + 50 of geneve + 8 of OVN's option); or lower that of the clients"
    )


def test_a_bridge_for_a_network_of_ovn_is_shared(ovn: Ovn, xenoovs: CommandLine) -> None:
    """ovn-controller makes the patch ports that mark the bridge, whatever the keys say afterwards."""
    hv2 = ovn.chassis[1]
    hv2.ovs.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=physnet1:br-ul")
    localnet = ["lsp-set-type", "ln0", "localnet", "--", "lsp-set-options", "ln0", "network_name=physnet1"]
    ovn.nbctl("lsp-add", "sw0", "ln0", "--", *localnet, "--", "lsp-set-addresses", "ln0", "unknown")

    def seen() -> str:
        said = xenoovs("doctor", "--db", hv2.ovs.db, "-o", "json")
        rows = {(row["check"], row["subject"]): row["seen"] for row in json.loads(said.out)["checks"]}
        return str(rows.get(("OVN here", "br-ul"), ""))

    try:
        assert seen().startswith("shared with OVN: ovn-bridge-mappings maps physnet1 to it")
        eventually(lambda: "patch-ln0-to-br-int" in hv2.ovs.vsctl("list-ports", "br-ul"), "OVN makes its patch port")
    finally:
        hv2.ovs.vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
        ovn.nbctl("lsp-del", "ln0")
    wakes = count()

    def is_given_back() -> bool:
        # For its first rounds ovn-controller removes no patch port (daemon_started_recently() of lib/ovn-util.c), and
        # without an event it makes no round.
        hv2.ovs.vsctl("set", "Open_vSwitch", ".", f"external_ids:wake={next(wakes)}")
        return seen() == ""

    eventually(is_given_back, "OVN gives br-ul back")


def test_plain_switching_has_a_megaflow_each_way(ovn: Ovn, xenoovs: CommandLine) -> None:
    hv1 = ovn.chassis[0]
    assert hv1.ask("10.0.0.2", 8080, times=_REQUESTS)
    ways = {row["in_port"]: row for row in _rows(xenoovs, ovn) if row["judged"]}
    assert set(ways) == {"vm1", "genev_sys_6081"}
    assert (ways["vm1"]["logical_port"], ways["vm1"]["out"]) == ("sw0-vm1", ["ul0"])
    assert ways["genev_sys_6081"]["out"] == ["vm1"]
    assert all(row["megaflows"] == row["chains"] for row in ways.values())


def test_a_load_balancer_makes_chains(ovn: Ovn, xenoovs: CommandLine) -> None:
    hv1 = ovn.chassis[0]
    balancer = ["lb-add", "lb0", f"{VIP}:80", "10.0.0.2:8080", "udp", "--", "ls-lb-add", "sw0", "lb0"]
    ovn.nbctl(*balancer, "--", "acl-add", "sw0", "from-lport", "1000", "ip4", "allow-related")
    hv1.ovs.appctl("revalidator/purge")
    assert hv1.ask(VIP, 80, times=_REQUESTS)
    dump = hv1.ovs.appctl("dpctl/dump-flows", "-m")
    assert all(text in dump for text in ("ct_tuple4(", "tnl_push(", "hash(l4(0)),recirc(")), dump
    rows = [row for row in _rows(xenoovs, ovn) if row["in_port"] == "vm1" and row["reason"] != "multicast"]
    (there,) = [row for row in rows if row["judged"]]
    (first,) = [row for row in rows if row["reason"] == "first packet of a connection"]
    # Track, then out; and for the first packet: hash, translate, out.
    assert (there["chains"], there["megaflows"], there["out"]) == (1, 2, ["ul0"])
    assert (first["judged"], first["chains"], first["megaflows"]) == (False, 1, 3)
    assert 0 < there["packets"] < _REQUESTS
    assert there["reason"].startswith("userspace datapath")


def test_the_tree_names_the_logical_flow_behind_each_link(ovn: Ovn, xenoovs: CommandLine) -> None:
    """The load balancer of the test before: tracked by ls_in_pre_stateful, then out by Geneve."""
    hv1 = ovn.chassis[0]
    assert hv1.ask(VIP, 80, times=_REQUESTS)
    command = ("verify-offload", "--bridge", "br-int", "--db", hv1.ovs.db, "--tree", "--flows")
    links = json.loads(xenoovs(*command, "-o", "json").out)["links"]
    (tracked,) = [
        link for link in links if link["in_port"] == "vm1" and f"dst={VIP}," in link["match"] and not link["recirc_id"]
    ]
    ((ct, logical),) = [(flow["actions"], flow["logical_flow"]) for flow in tracked["flows"]]
    assert ct[0].startswith("ct(table=")
    assert (logical["datapath"], logical["stage"]) == ("sw0", "ls_in_pre_stateful")
    assert logical["actions"].endswith("ct_lb_mark;")
    (out,) = [
        link for link in links if link["judged"] and link["recirc_id"] in tracked["recirculates_to"] and link["packets"]
    ]
    assert len(tracked["ct_zones"]) == 1
    ((end,), ports) = out["tunnels_out"], {1, 2}
    assert (end["type"], end["remote"], end["key"]) == ("geneve", "192.0.2.2", 1)
    assert {*end["options"][0]["ovn_logical_ports"]} == ports
    # The flow of a port is physical: OVN has no logical flow for it.
    assert next(flow["logical_flow"] for flow in out["flows"]) is None
    text = xenoovs(*command).out
    assert "logical flow: sw0 ls_in_pre_stateful (table " in text
    assert "leaves by geneve to 192.0.2.2, key 1, OVN's logical port " in text


def test_a_southbound_database_that_does_not_answer_is_a_remark(ovn: Ovn) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        said = read_logical_flows(f"tcp:127.0.0.1:{listener.getsockname()[1]}", [1], timeout_s=1)
    assert isinstance(said, Unknown)
    assert said.reason.endswith("did not answer within 1 s")


def test_why_explains_chains_by_their_first_link(ovn: Ovn, xenoovs: CommandLine) -> None:
    assert ovn.chassis[0].ask("10.0.0.2", 8080, times=2)
    said = xenoovs("why", "--bridge", "br-int", "--db", ovn.chassis[0].ovs.db, "-o", "json", "--listen", "0")
    assert said.status == 2
    megaflows = json.loads(said.out)["megaflows"]
    first = {row["in_port"]: row["reasons"][0] for row in megaflows if "recirc_id(0)," in row["match"]}
    assert {reason["cause"] for reason in first.values()} == {"software-datapath"}
    assert {reason["likelihood"] for reason in first.values()} == {"certain"}
    behind = [row["reasons"][0]["cause"] for row in megaflows if "recirc_id(0)," not in row["match"]]
    assert set(behind) <= {"recirculation"}


def test_geneve_against_a_policy_of_ipsec_is_cleartext(ovn: Ovn, xenoovs: CommandLine) -> None:
    """A userspace datapath bypasses the kernel: the policy holds nothing back, and packets still arrive."""
    hv1 = ovn.chassis[0]
    selector = ["src", "192.0.2.1", "dst", "192.0.2.2", "proto", "udp", "dport", "6081", "dir", "out"]
    policy = ["ip", "-n", hv1.netns, "xfrm", "policy"]
    run([*policy, "add", *selector, "tmpl", "proto", "esp", "mode", "transport"])
    try:
        assert hv1.ask("10.0.0.2", 8080, times=2)
        command = ("verify-offload", "--bridge", "br-int", "--db", hv1.ovs.db)
        said = xenoovs(*command)
        assert (said.status, said.err) == (2, "")
        assert said.out.startswith("CLEARTEXT: UDP port 6081 from 192.0.2.1 to 192.0.2.2 leaves by br-ul unencrypted")
        assert said.out.splitlines()[-1].startswith("packets that need IPsec leave unencrypted")
        (found,) = json.loads(xenoovs(*command, "-o", "json").out)["cleartext"]
        assert (found["local"], found["remote"], found["port"]) == ("192.0.2.1", "192.0.2.2", 6081)
        assert found["reason"] == "a userspace datapath bypasses the kernel's IPsec"
    finally:
        run([*policy, "delete", *selector])
    assert json.loads(xenoovs(*command, "-o", "json").out)["cleartext"] == []


def test_a_bridge_that_is_not_there_is_an_error(ovn: Ovn, xenoovs: CommandLine) -> None:
    said = xenoovs("why", "--bridge", "br-nit", "--db", ovn.chassis[0].ovs.db)
    assert (said.status, "did you mean br-int?" in said.err) == (1, True)
