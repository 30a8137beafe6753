"""`xenoovs record` on a real Open vSwitch: what judges say of the record is what they say of the switch."""

from __future__ import annotations

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, Command, CommandLine, CommandResult
from tests.fleet_support import EMPTY, given, settled
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_cli_verify_offload import CLIENTS
from xenoovs.agent.fleet_config import FleetCache
from xenoovs.terminal.reach import endpoint_of, find_places

_AGE = re.compile(r"\"used_s\": [0-9.]+|used [0-9.]+ m?s")
QUESTIONS = (
    ("verify-offload",),
    ("verify-offload", "--tree", "-o", "json"),
    ("why",),
    ("why", "-o", "json"),
    ("doctor",),
    ("doctor", "-o", "json"),
)


def _ageless(result: CommandResult) -> CommandResult:
    """Return a result without the age of last packets, the one thing that goes on."""
    return replace(result, out=_AGE.sub("", result.out))


def test_judges_say_of_a_record_what_they_say_of_the_switch(
    applied: Path, bridge: DummyBridge, xenoovs: CommandLine, on_bridge: Command, tmp_path: Path
) -> None:
    bridge.send("p0", CLIENTS * 2)
    record = tmp_path / "host.record"
    taken = on_bridge("record", record, "--for", "0s")
    assert (taken.status, taken.err) == (0, "")
    for command, *options in QUESTIONS:
        for subject in ([applied], [] if command == "doctor" else ["--bridge", bridge.name]):
            quiet = ["--listen", "0"] if command == "why" else []
            live = on_bridge(command, *subject, *options, *quiet)
            recorded = xenoovs(command, *subject, *options, *quiet, "--record", record)
            live, recorded = _ageless(live), _ageless(recorded)
            assert recorded == live
            assert len(live.out) > 100


def test_lint_and_trace_take_flows_groups_and_the_version_from_a_record(
    applied: Path, bridge: DummyBridge, xenoovs: CommandLine, on_bridge: Command, tmp_path: Path
) -> None:
    bridge.ofctl("add-flow", "table=0,priority=7,ip,nw_src=192.0.2.1,actions=ct(commit),p1")
    record, flows = tmp_path / "host.record", tmp_path / "flows"
    assert on_bridge("record", record, "--for", "0s").status == 0
    flows.write_text(bridge.ofctl("dump-flows"))
    version = bridge.ovs.appctl("version").split()[3]
    assert xenoovs("lint", applied, "--record", record) == xenoovs("lint", applied, "--flows", flows, "--ovs", version)
    assert xenoovs("lint", "--record", record) == xenoovs("lint", "--flows", flows, "--ovs", version)
    question = ("trace", applied, "--src", "198.18.0.9", "--dst", "10.3.10.45")
    live, recorded = on_bridge(*question), xenoovs(*question, "--record", record)
    assert live.out.splitlines()[:-1] == recorded.out.splitlines()[:-1]
    assert recorded.out.splitlines()[-1] == "switch: the recorded flows give the same"
    bridge.ofctl("add-flow", "table=0,priority=65000,ip,nw_src=198.18.0.9,actions=drop")
    assert on_bridge("record", record, "--for", "0s").status == 0
    recorded = xenoovs(*question, "--record", record)
    assert (recorded.status, recorded.out.splitlines()[-1]) == (2, "switch: the recorded flows give drop")


def test_a_record_of_a_dpu_has_the_services_that_its_agent_saved(
    bridge: DummyBridge, xenoovs: CommandLine, on_bridge: Command, tmp_path: Path
) -> None:
    """Bug: they were those of the host where the record is judged."""
    text, record, dpu = SMALL_CONFIG.replace("fips", "dpu"), tmp_path / "host.record", tmp_path / "dpu.yaml"
    cache = FleetCache(find_places(endpoint_of(bridge.ovs.db, None)).fleet(bridge.name))
    file = tmp_path / "my.yaml"
    file.write_text(text)
    assert on_bridge("apply", file, "--yes").status == 0
    bridge.settle(removed_s=0)
    bridge.send("p0", CLIENTS)
    dpu.write_text(text.partition("services:")[0])
    cache.save(settled(given(EMPTY, text)))
    live = on_bridge("verify-offload", dpu)
    assert on_bridge("record", record, "--for", "0s").status == 0
    cache.path.unlink()
    recorded = xenoovs("verify-offload", dpu, "--record", record)
    assert _ageless(recorded) == _ageless(live)
    assert (recorded.status, "dpu2" in recorded.out) == (2, True)


@pytest.mark.usefixtures("applied")
def test_what_left_the_nic_between_two_records_is_compared(
    bridge: DummyBridge, xenoovs: CommandLine, on_bridge: Command, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    bridge.send("p0", CLIENTS)
    assert on_bridge("record", before, "--for", "0s").status == 0
    bridge.send("p0", CLIENTS)
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=500000")
    taken = on_bridge("record", after, "--for", "0s")
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000")
    assert taken.status == 0
    said = xenoovs("verify-offload", "--record", after, "--diff", before)
    # The dummy datapath has no NIC, so that nothing could leave it.
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines()[0] == "no traffic got worse: 0% of packets in hardware, before 0%"
    assert said.out.splitlines()[-1].strip() == "other_config:max-idle: 600000 -> 500000"
    assert "ovsbr1: p0 -> p1 [set(eth)]" in said.out
    shown = xenoovs("verify-offload", "--record", after, "--diff", before, "-o", "sarif")
    (run,) = json.loads(shown.out)["runs"]
    assert [each["ruleId"] for each in run["results"]] == ["comparison", "host-changed"]
    bridge.ovs.appctl("revalidator/purge")
    assert on_bridge("record", after, "--for", "0s").status == 0
    assert xenoovs("verify-offload", "--record", after, "--diff", before, "-o", "sarif").status == 3


def test_an_anonymous_record_is_judged_the_same_and_has_no_name_and_no_address_in_any_form(
    config: Path, bridge: DummyBridge, xenoovs: CommandLine, on_bridge: Command, tmp_path: Path
) -> None:
    """Bug: names of hosts, notes and names of machines stayed."""
    original = "7c:fe:90:12:34:56 192.0.2.77 2001:db8:77::5 0xc000024d 7cfe90123456 hunter2 example.com shop-7 a-note"
    tunnel = ("options:remote_ip=2001:db8:77::5", "options:psk=hunter2", "options:remote_name=a.example.com")
    bridge.ovs.vsctl("add-port", bridge.name, "gnv7", "--", "set", "interface", "gnv7", "type=geneve", *tunnel)
    targets = ("tcp:192.0.2.77:6653", "ssl:ovn.example.com:6653", "ssl:example.com:1")
    bridge.ovs.vsctl("set-controller", bridge.name, *targets)
    bridge.ovs.vsctl("set", "bridge", bridge.name, "other-config:hwaddr=7c:fe:90:12:34:56", "external_ids:why=a-note")
    ids = ("external_ids:iface-id=shop-7", "external_ids:attached-mac=7c:fe:90:12:34:56")
    bridge.ovs.vsctl("set", "interface", "p0", *ids)
    # A first controller takes all flows from a bridge, so they come after it.
    for flow in (
        "arp,arp_tpa=192.0.2.77,actions=load:0x7cfe90123456->NXM_NX_ARP_SHA[],load:0xc000024d->NXM_OF_ARP_SPA[],IN_PORT",
        "ipv6,ipv6_dst=2001:db8:77::5,actions=p1",
        "ip,nw_dst=192.0.2.78,actions=learn(table=5,eth_type=0x800,ip_dst=192.0.2.77),p1",
    ):
        bridge.ofctl("add-flow", f"table=0,priority=7,{flow}")
    assert on_bridge("apply", config, "--yes").status == 0
    bridge.settle(removed_s=0)
    bridge.send("p0", CLIENTS)
    plain, other = tmp_path / "plain", tmp_path / "anonymous"
    assert on_bridge("record", plain, "--for", "0s").status == 0
    assert on_bridge("record", other, "--for", "0s", "--anonymous").status == 0
    whole = [gzip.decompress(each.read_bytes()).decode() for each in (plain, other)]
    words = [*original.split(), "10.3.10.45", "02:00:5e:10:00:02"]
    # A key is hidden in any case.
    assert {each for each in words if each not in whole[0]} == {"hunter2"}
    assert [each for each in words if each in whole[1]] == []
    for command in ("verify-offload", "why"):
        said = [xenoovs(command, "--bridge", bridge.name, "-o", "json", "--record", each) for each in (plain, other)]
        assert said[0].status == said[1].status == 2
        assert _without_addresses(said[0].out) == _without_addresses(said[1].out)
    assert (
        xenoovs("verify-offload", "--record", other, "--diff", plain)
        .out.splitlines()[0]
        .startswith("no traffic got worse")
    )
    assert xenoovs("doctor", "--record", other).status == xenoovs("doctor", "--record", plain).status


def _without_addresses(text: str) -> str:
    names = r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|[0-9]+(?:\.[0-9]+){3}|shop-7|name-[0-9a-f]{8}"
    return re.sub(names, "ADDRESS", _AGE.sub("", text))


def test_what_cannot_be_written_is_refused_before_a_minute_of_questions(on_bridge: Command, tmp_path: Path) -> None:
    """Bug: a device was replaced by the record, and a directory that is not there was seen at the end."""
    pipe, nowhere = tmp_path / "pipe", tmp_path / "no" / "host.record"
    os.mkfifo(pipe)
    for file, status in ((pipe, 64), (nowhere, 1)):
        said = on_bridge("record", file, "--for", "5m")
        assert (said.status, str(file) in said.err) == (status, True)
    assert pipe.is_fifo()


def test_the_command_of_the_plugin_of_sos_writes_a_record(
    bridge: DummyBridge, xenoovs: CommandLine, on_bridge: Command, tmp_path: Path
) -> None:
    plugin = (Path(__file__).parents[2] / "packaging/sos/xenoovs.py").read_text()
    command = re.search(r'add_cmd_output\(f"xenoovs (.+?)"', plugin)
    assert command
    words = command[1].replace("{self.get_cmd_output_path()}", str(tmp_path)).split()
    assert on_bridge(*words).status == 0
    assert xenoovs("verify-offload", "--bridge", bridge.name, "--record", tmp_path / "record.tar.gz").status == 3
