"""Beside a real OVN with two chassis nothing is written to br-int, and its megaflows have its names."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.command_line import Command, CommandLine
from tests.ovs.dummy import DummyBridge, DummyOvs, ofctl
from tests.patience import eventually
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.datapath.fact import Unknown
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.switch.ovsdb import read_logical_flows
from xenoovs.switch.process import run, try_run

_SCHEMAS = Path("/usr/share/ovn")
_SLOW_S = 120.0


@dataclass(frozen=True, slots=True)
class Chassis:
    """One chassis. `underlay`: address of the tunnels. `port`: on br-int."""

    name: str
    netns: str
    underlay: str
    port: str
    ovs: PrivateOvs

    def flows(self) -> list[str]:
        """Return all flows of br-int."""
        target = f"unix:{self.ovs.directory}/br-int.mgmt"
        text = ofctl(self.ovs, "-O", "OpenFlow15", "--no-stats", "dump-flows", target)
        return [line.strip() for line in text.splitlines() if "actions=" in line]

    def add_flow(self, flow: str) -> None:
        """Install a flow on br-int, as another program would."""
        target = f"unix:{self.ovs.directory}/br-int.mgmt"
        ofctl(self.ovs, "-O", "OpenFlow15", "add-flow", target, flow)


@dataclass(frozen=True, slots=True)
class Ovn:
    """The databases of OVN, and both chassis."""

    directory: Path
    chassis: tuple[Chassis, Chassis]

    def nbctl(self, *arguments: str) -> str:
        """Run ovn-nbctl(8), and wait until both chassis have the result."""
        argv = ["ovn-nbctl", f"--db=unix:{self.directory}/nb.sock", "--wait=hv", f"--timeout={int(_SLOW_S)}"]
        return run([*argv, *arguments], timeout_s=_SLOW_S + 5).stdout


@pytest.fixture(scope="module")
def ovn() -> Iterator[Ovn]:
    """OVN with a logical switch that has a port on each chassis."""
    if shutil.which("ovn-controller") is None or shutil.which("ovn-northd") is None:
        pytest.fail("this test needs OVN: run scripts/setup-ovn")
    top = Path(mkdtemp(prefix="xenoovs-ovn-"))
    names = [f"xoovn{os.getpid() % 100000}{end}" for end in ("h1", "h2")]
    started = list[Chassis]()
    try:
        _start_databases(top)
        for name in names:
            run(["ip", "netns", "add", name])
            run(["ip", "-n", name, "link", "set", "lo", "up"])
        run(["ip", "-n", names[0], "link", "add", "ul0", "type", "veth", "peer", "name", "ul0", "netns", names[1]])
        for i in (0, 1):
            ovs = start_private_ovs(top / f"hv{i + 1}", datapath=Datapath.USERSPACE, netns=names[i])
            found = Chassis(f"hv{i + 1}", names[i], f"192.0.2.{i + 1}", f"vm{i + 1}", ovs)
            started.append(found)
            _set_up(found, top)
        made = Ovn(top, (started[0], started[1]))
        words = ["ls-add", "sw0"]
        for each in made.chassis:
            port = f"sw0-{each.port}"
            words += ["--", "lsp-add", "sw0", port, "--", "lsp-set-addresses", port, "unknown"]
        made.nbctl(*words)
        for each in made.chassis:
            eventually(lambda each=each: _is_installed(each), f"{each.port} is installed by OVN")  # type: ignore[misc]
        yield made
    finally:
        for each in started:
            _kill(each.ovs.directory / "ovn-controller.pid")
            stop_private_ovs(each.ovs)
        for daemon in ("ovn-northd", "ovsdb-server"):
            _kill(top / f"{daemon}.pid")
        for name in names:
            try_run(["ip", "netns", "delete", name])
        shutil.rmtree(top, ignore_errors=True)


def _start_databases(top: Path) -> None:
    """Start ovsdb-server for both databases, and ovn-northd; their sockets are `nb.sock` and `sb.sock`."""
    for schema, database in (("ovn-nb", "nb"), ("ovn-sb", "sb")):
        run(["ovsdb-tool", "create", str(top / f"{database}.db"), str(_SCHEMAS / f"{schema}.ovsschema")])
    env = {"OVN_RUNDIR": str(top), "OVS_RUNDIR": str(top)}

    def options(daemon: str) -> list[str]:
        files = [f"--pidfile={top}/{daemon}.pid", f"--log-file={top}/{daemon}.log"]
        return [*files, f"--unixctl={top}/{daemon}.ctl", "-vconsole:off", "--detach", "--no-chdir"]

    remotes = [f"--remote=punix:{top}/nb.sock", f"--remote=punix:{top}/sb.sock"]
    databases = [f"--ovnnb-db=unix:{top}/nb.sock", f"--ovnsb-db=unix:{top}/sb.sock"]
    servers = ["ovsdb-server", str(top / "nb.db"), str(top / "sb.db"), *remotes, *options("ovsdb-server")]
    run(servers, env=env, timeout_s=_SLOW_S)
    run(["ovn-northd", *databases, *options("ovn-northd")], env=env, timeout_s=_SLOW_S)


def _start_controller(chassis: Chassis) -> None:
    here = chassis.ovs.directory
    options = [f"--pidfile={here}/ovn-controller.pid", f"--log-file={here}/ovn-controller.log", "-vconsole:off"]
    argv = ["ip", "netns", "exec", chassis.netns, "ovn-controller", chassis.ovs.db, *options, "--detach", "--no-chdir"]
    run(argv, env={**chassis.ovs.env, "OVN_RUNDIR": str(here)}, timeout_s=_SLOW_S)


def _kill(pid_file: Path) -> None:
    """Kill the process of a pid file, if there is one, and return when it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGKILL)
        gone = Path(f"/proc/{pid}")
        eventually(lambda: not gone.exists(), f"{pid_file.stem} ends")
        pid_file.unlink(missing_ok=True)


def _set_up(chassis: Chassis, top: Path) -> None:
    """Give a chassis its underlay, its keys for OVN, and its logical port."""
    vsctl = chassis.ovs.vsctl
    # ovn-controller(8).
    ids = {
        "system-id": chassis.name,
        "ovn-remote": f"unix:{top}/sb.sock",
        "ovn-encap-type": "geneve",
        "ovn-encap-ip": chassis.underlay,
        "ovn-bridge-datapath-type": "netdev",
    }
    pairs = [f'external_ids:{key}="{value}"' for key, value in ids.items()]
    vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000", *pairs)
    for bridge, mode in (("br-ul", "standalone"), ("br-int", "secure")):
        vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", f"fail_mode={mode}")
    vsctl("add-port", "br-ul", "ul0")
    inside = ["ip", "-n", chassis.netns]
    run([*inside, "address", "add", f"{chassis.underlay}/24", "dev", "br-ul"])
    for device in ("ul0", "br-ul"):
        run([*inside, "link", "set", device, "up"])
    iface = f"external_ids:iface-id=sw0-{chassis.port}"
    vsctl("add-port", "br-int", chassis.port, "--", "set", "Interface", chassis.port, "type=internal", iface)
    _start_controller(chassis)


def _is_installed(chassis: Chassis) -> bool:
    said = chassis.ovs.vsctl("--if-exists", "get", "Interface", chassis.port, "external_ids:ovn-installed")
    return "true" in said


def test_commands_refuse_br_int_and_it_stays_as_it_was(ovn: Ovn, config: Path, xenoovs: CommandLine) -> None:
    """The seed of this: apply worked on br-int, and a restart of ovn-controller deleted its flows without a message."""
    hv1, db = ovn.chassis[0], ("--db", ovn.chassis[0].ovs.db)
    before, row = hv1.flows(), hv1.ovs.vsctl("list", "Bridge", "br-int")
    for old, new in (("ovsbr1", "br-int"), ("[p0]", "[vm1]"), ("p1}", "ovn-hv2-0}")):
        config.write_text(config.read_text().replace(old, new))
    for words in (
        "plan",
        "apply --yes --force",
        "apply --dry-run",
        "remove --yes --force",
        "agent --once",
        "controller --attach --listen 127.0.0.1:0",
    ):
        command, *options = words.split()
        said = xenoovs(command, config, *db, *options)
        assert said.status == 1, words
        assert "bridge br-int belongs to OVN (external_ids:ovn-remote is set, and br-int is its ovn-bridge)" in said.err
    refused = xenoovs("apply", config, *db, "--yes", "-o", "json")
    assert json.loads(refused.err.splitlines()[-1])["error"]["code"] == "bridge_of_ovn"
    rows = json.loads(xenoovs("doctor", config, *db, "-o", "json").out)["checks"]
    assert [row["state"] for row in rows if row["check"] == "OVN here"] == ["wrong"]
    assert (hv1.flows(), hv1.ovs.vsctl("list", "Bridge", "br-int")) == (before, row)


def test_ovn_controller_deletes_what_others_have_written(ovn: Ovn) -> None:
    """The reason of the guard. If this fails, OVN has changed, and the guard may be too strict."""
    hv1 = ovn.chassis[0]
    hv1.add_flow("cookie=0x786f010101000001,table=0,priority=7,ip,nw_dst=203.0.113.1,actions=drop")
    assert any("203.0.113.1" in flow for flow in hv1.flows())
    _kill(hv1.ovs.directory / "ovn-controller.pid")
    _start_controller(hv1)
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


def test_megaflows_of_br_int_have_the_names_that_ovn_gives(ovn: Ovn, xenoovs: CommandLine) -> None:
    for number, each in enumerate(ovn.chassis, 1):
        run(["ip", "-n", each.netns, "address", "add", f"198.51.100.{number}/24", "dev", each.port])
        run(["ip", "-n", each.netns, "link", "set", each.port, "up"])
    hv1, _ = ovn.chassis
    client = in_namespace(hv1.netns, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    question = ("--bridge", "br-int", "--db", hv1.ovs.db, "--interval", "0s", "--tree", "-o", "json")

    def seen() -> dict[tuple[str, str | None], tuple[Any, Any]]:
        """The tunnels of datagrams, and of the errors that answer them, by port of the datapath and logical port."""
        client.sendto(b"", ("198.51.100.2", 9))
        links = json.loads(xenoovs("verify-offload", *question).out)["links"]
        ip = (link for link in links if "eth_type(0x0800)" in link["match"])
        return {(link["in_port"], link["logical_port"]): (link["tunnel_in"], link["tunnels_out"]) for link in ip}

    with client:
        eventually(lambda: len(seen()) == 2, "megaflows of both ways")
        found = seen()
    [out], back = found["vm1", "sw0-vm1"][1], found["genev_sys_6081", None][0]
    numbers = [tunnel.pop("options")[0]["ovn_logical_ports"] for tunnel in (out, back)]
    assert numbers[0] == numbers[1][::-1] != numbers[1]
    assert out == back == {"type": "geneve", "remote": "192.0.2.2", "local": "192.0.2.1", "key": out["key"]}


def test_logical_flows_come_from_the_southbound_database_and_its_silence_is_a_remark(ovn: Ovn) -> None:
    cookies = re.findall(r"cookie=(0x[0-9a-f]+)", " ".join(ovn.chassis[0].flows()))
    logical = read_logical_flows(f"unix:{ovn.directory}/sb.sock", [int(cookie, 16) for cookie in cookies])
    assert isinstance(logical, dict)
    assert {flow.datapath for flow in logical.values()} == {"sw0"}
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        said = read_logical_flows(f"tcp:127.0.0.1:{listener.getsockname()[1]}", [1], timeout_s=1)
    assert isinstance(said, Unknown)
    assert said.reason.endswith("did not answer within 1 s")


@pytest.fixture
def bridge(own_ovs: DummyOvs) -> Iterator[DummyBridge]:
    """Bridge ovsbr1 of an Open vSwitch whose database may name it as OVN's."""
    with own_ovs.bridge() as made:
        yield made


def _set(bridge: DummyBridge, **external_ids: str) -> None:
    pairs = [f'external_ids:{key.replace("_", "-")}="{value}"' for key, value in external_ids.items()]
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", *pairs)


def _chassis(bridge: DummyBridge) -> None:
    ids = {"ovn_bridge": "ovsbr1", "ovn_encap_type": "geneve", "ovn_encap_ip": "192.0.2.1", "system_id": "hv1"}
    _set(bridge, ovn_remote="tcp:192.0.2.9:6642", **ids)


def test_an_interface_that_ovn_installed_shows_its_bridge(
    bridge: DummyBridge, config: Path, on_bridge: Command
) -> None:
    bridge.ovs.vsctl("set", "Interface", "p0", "external_ids:ovn-installed=true")
    said = on_bridge("apply", config, "--yes")
    assert (said.status, "interface p0 has external_ids:ovn-installed" in said.err) == (1, True)


def test_an_agent_stops_writing_when_the_bridge_becomes_that_of_ovn(
    bridge: DummyBridge, config: Path, on_bridge: Command
) -> None:
    """ovn-controller would delete the flows again and again, and the agent would install them each time."""
    assert on_bridge("agent", config, "--once").status == 0
    _chassis(bridge)
    bridge.ofctl("del-flows")
    assert on_bridge("agent", config, "--once").status == 1
    assert bridge.dump_flows() == []


def test_a_bridge_that_ovn_shares_is_used_with_a_warning(bridge: DummyBridge, config: Path, on_bridge: Command) -> None:
    _set(bridge, ovn_remote="tcp:192.0.2.9:6642", ovn_bridge_mappings="physnet1:ovsbr1")
    text = "OVN uses ovsbr1 too (ovn-bridge-mappings maps physnet1 to it)"
    assert text in on_bridge("plan", config).out
    applied = on_bridge("apply", config, "--yes")
    assert applied.status == 0
    assert text in applied.out
    planned = json.loads(on_bridge("plan", config, "-o", "json").out)
    assert (planned["empty"], planned["shared_with_ovn"]) == (True, "ovn-bridge-mappings maps physnet1 to it")
    assert "OVN uses the bridge too" in on_bridge("agent", config, "--once").err


def test_remove_from_all_bridges_leaves_those_of_ovn_alone(bridge: DummyBridge, on_bridge: Command) -> None:
    _chassis(bridge)
    theirs = "cookie=0x786f010101000001, priority=7,ip actions=drop"
    bridge.add_flows(theirs.replace(", ", ",") + "\n")
    said = on_bridge("remove", "--all", "--yes")
    assert (said.status, len(bridge.dump_flows())) == (0, 1)
