"""`xenoovs why --from-dump`: reasons from files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import CommandLine

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG = GOLDEN / "dns.yaml"

ADDRESS_ALONE = """\
version: 1
switch: {ingress: [p0], egress: p1}
services:
  - {name: web, backends: [{name: a, weight: 1, address: 192.0.2.1}]}
"""
OFF = "2026-01-02T03:04:05.678Z|00001|vlog|INFO|opened log file /var/log/openvswitch/ovs-vswitchd.log\n"


def _causes(output: str) -> set[str]:
    return {reason["cause"] for row in json.loads(output)["megaflows"] for reason in row["reasons"]}


def test_all_in_hardware(xenoovs: CommandLine) -> None:
    result = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "in_hardware.dump")
    assert (result.status, "all in hardware" in result.out) == (0, True)


def test_the_refusal_of_the_driver_is_reported_without_a_trial(xenoovs: CommandLine) -> None:
    result = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "table_full.dump", "-o", "json")
    assert (result.status, _causes(result.out)) == (2, {"table-full", "refused-by-driver"})


def test_the_flow_that_unwildcards_bits_is_named_from_files(xenoovs: CommandLine) -> None:
    """verify-offload named it for the same files."""
    dump, flows = GOLDEN / "unwildcarded_tos.dump", GOLDEN / "unwildcarded_tos.flows"
    result = xenoovs("why", CONFIG, "--from-dump", dump, "--from-flows", flows, "-o", "json")
    firsts = [row["reasons"][0] for row in json.loads(result.out)["megaflows"]]
    assert (result.status, [first["cause"] for first in firsts]) == (2, ["unwildcarded"] * 7)
    key = "priority=3000,udp,in_port=p0,nw_dst=10.3.10.45,nw_tos=184"
    assert all(first["evidence"] == [f"foreign flow on ovsbr1: {key} actions=output:pf0hpf"] for first in firsts)
    assert all(f"ovs-ofctl --strict del-flows ovsbr1 table=0,{key}" in first["fix"] for first in firsts)


def test_without_the_flows_the_reason_has_the_bits_and_suggests_from_flows(xenoovs: CommandLine) -> None:
    result = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "unwildcarded_tos.dump")
    assert "flows that were not read un-wildcard nw_tos 0xfc" in result.out
    assert f"xenoovs why {CONFIG} --from-dump DUMP --from-flows FLOWS" in result.out


def test_notes_name_what_was_not_read(xenoovs: CommandLine) -> None:
    result = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "software.dump")
    assert "ports and devices of the dump's host were not checked" in result.out
    assert "--from-log" in result.out


def test_a_log_that_shows_no_offload_since_its_start(tmp_path: Path, xenoovs: CommandLine) -> None:
    (tmp_path / "log").write_text(OFF)
    dump = GOLDEN / "software.dump"
    result = xenoovs("why", CONFIG, "--from-dump", dump, "--from-log", tmp_path / "log", "-o", "json")
    assert (result.status, _causes(result.out)) == (2, {"hw-offload-off"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--from-log", "x"), "go with --from-dump"),
        (("--from-flows", "x"), "go with --from-dump"),
        (("--from-dump", "x", "--lab", "y"), "so --lab has no use"),
        (("--from-dump", "x", "--probe-driver"), "so --probe-driver has no use"),
        (("--from-dump", "-", "--from-log", "-"), "standard input can be only one"),
        (("--ufid", "zzz"), "is not a ufid"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], message: str, xenoovs: CommandLine) -> None:
    result = xenoovs("why", CONFIG, *options)
    assert (result.status, message in result.err) == (64, True), result.err


def test_a_ufid_that_is_not_in_the_dump(xenoovs: CommandLine) -> None:
    result = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "in_hardware.dump", "--ufid", "00000000-dead")
    assert (result.status, result.out) == (3, "no megaflow has a ufid that begins with 00000000-dead in the dump\n")


@pytest.mark.parametrize("command", ["why", "verify-offload"])
def test_no_network_is_probed_for_a_recorded_dump(command: str, tmp_path: Path, xenoovs: CommandLine) -> None:
    """Backends that are given by address alone were resolved on the networks of this other host."""
    config = tmp_path / "dns.yaml"
    config.write_text(ADDRESS_ALONE)
    result = xenoovs(command, config, "--from-dump", GOLDEN / "in_hardware.dump")
    assert (result.status, result.out) == (1, "")
    assert "no MAC is known for 192.0.2.1 (web/a): a recorded dump gives no MACs" in result.err
    assert "`xenoovs plan`" in result.err


def test_what_is_no_dump_is_not_taken_for_one_without_traffic(tmp_path: Path, xenoovs: CommandLine) -> None:
    """It ended with exit status 3, `no traffic yet`."""
    (tmp_path / "dump").write_bytes(b"\xff\x8b no dump\n")
    result = xenoovs("why", CONFIG, "--from-dump", tmp_path / "dump")
    assert (result.status, result.out) == (1, "")
    assert "line 1, column" in result.err


@pytest.mark.parametrize(("service", "status"), [((), 2), (("--service", "dns"), 2)])
def test_answers_that_are_not_in_hardware_are_explained(
    xenoovs: CommandLine, service: tuple[str, ...], status: int
) -> None:
    command = ("why", CONFIG, "--from-dump", GOLDEN / "answers_in_software.dump", *service)
    result = xenoovs(*command)
    assert (result.status, result.out.splitlines()[0]) == (
        status,
        "TC_SW: 1 megaflow with answers of dns, 901 packets, in the kernel's traffic control",
    )
    (row,) = json.loads(xenoovs(*command, "-o", "json").out)["megaflows"]
    assert (row["service"], row["answers_of"], row["in_port"]) == (None, ["dns"], "p1")


def test_other_traffic_is_explained_only_on_request(xenoovs: CommandLine) -> None:
    dump = GOLDEN / "unsupported_action.dump"
    assert xenoovs("why", CONFIG, "--from-dump", dump).status == 0
    assert xenoovs("why", CONFIG, "--from-dump", dump, "--src", "198.18.0.1").status == 2


PROMPT = "[root@node ~]# ovs-appctl dpctl/dump-flows -m\n"
LENGTH = "check_pkt_len(size=1514,gt(hash(l4(0))),le(p1))"


def test_a_complete_dump_below_its_command_is_a_proof(tmp_path: Path, xenoovs: CommandLine) -> None:
    """It ended with exit status 3, because the dump might be filtered."""
    (tmp_path / "dump").write_text(PROMPT + (GOLDEN / "in_hardware.dump").read_text())
    assert xenoovs("verify-offload", "--from-dump", tmp_path / "dump").status == 0
    assert xenoovs("verify-offload", CONFIG, "--from-dump", tmp_path / "dump").status == 0


def test_a_dump_below_type_offloaded_is_no_proof(tmp_path: Path, xenoovs: CommandLine) -> None:
    text = PROMPT.replace("-m", "-m type=offloaded") + (GOLDEN / "in_hardware.dump").read_text()
    (tmp_path / "dump").write_text(text)
    assert xenoovs("verify-offload", "--from-dump", tmp_path / "dump").status == 3


def _of_all_megaflows(xenoovs: CommandLine, tmp_path: Path, line: str, *options: object) -> list[str]:
    (tmp_path / "dump").write_text(line)
    result = xenoovs("why", "--from-dump", tmp_path / "dump", *options, "-o", "json")
    return [reason["text"] for row in json.loads(result.out)["megaflows"] for reason in row["reasons"]]


def _line(actions: str, keys: str = "") -> str:
    return (
        f"ufid:11111111-0000-4000-8000-000000000001, recirc_id(0),{keys}in_port(p0),eth(src=02:00:00:00:00:01),"
        f"eth_type(0x0800),ipv4(frag=no), packets:3, bytes:294, used:0.3s, dp:ovs, actions:{actions}\n"
    )


def test_nested_actions_are_read(tmp_path: Path, xenoovs: CommandLine) -> None:
    texts = _of_all_megaflows(xenoovs, tmp_path, _line(LENGTH), "--ovs", "3.1")
    assert texts[0].startswith("Choose a bucket") or "hash" in texts[0], texts


@pytest.mark.parametrize(("version", "is_refused"), [("2.17", True), ("3.1", False)])
def test_the_version_is_given(tmp_path: Path, xenoovs: CommandLine, version: str, is_refused: bool) -> None:
    texts = _of_all_megaflows(xenoovs, tmp_path, _line("meter(0),p1"), "--ovs", version)
    assert any("meter" in text for text in texts) == is_refused, texts


def test_the_version_is_read_from_the_log(tmp_path: Path, xenoovs: CommandLine) -> None:
    (tmp_path / "log").write_text(OFF.replace("vlog|INFO|opened", "bridge|INFO|ovs-vswitchd (Open vSwitch) 2.17.7-e0"))
    texts = _of_all_megaflows(xenoovs, tmp_path, _line("meter(0),p1"), "--from-log", tmp_path / "log")
    assert any("meter" in text for text in texts), texts


@pytest.mark.parametrize(
    "line",
    [
        "|00059|netdev_offload|INFO|p0: Assigned flow API 'linux_tc'.",
        "|00007|dpif_netlink(handler1)|ERR|failed to offload flow: Operation not supported: p0",
    ],
)
def test_a_log_of_an_offloading_daemon_contradicts_hw_offload_off(
    tmp_path: Path, xenoovs: CommandLine, line: str
) -> None:
    (tmp_path / "log").write_text(f"{OFF}2026-01-02T03:04:06.000Z{line}\n")
    texts = _of_all_megaflows(xenoovs, tmp_path, _line("p1"), "--from-log", tmp_path / "log")
    assert not any("does not offload at all" in text for text in texts), texts


def test_without_a_config_a_service_is_wrong_usage(xenoovs: CommandLine) -> None:
    result = xenoovs("why", "--from-dump", GOLDEN / "in_hardware.dump", "--service", "dns")
    assert (result.status, "--service needs the config FILE" in result.err) == (64, True)


def test_an_invalid_version_is_wrong_usage(xenoovs: CommandLine) -> None:
    result = xenoovs("why", "--from-dump", GOLDEN / "in_hardware.dump", "--ovs", "new")
    assert (result.status, "is not a version of Open vSwitch" in result.err) == (64, True)


def test_without_m_the_requirements_of_connection_tracking_are_reported(tmp_path: Path, xenoovs: CommandLine) -> None:
    keys = "recirc_id(0),in_port(2),eth_type(0x0800),ipv4(frag=no), packets:3, bytes:294, used:0.3s"
    (tmp_path / "dump").write_text(f"{keys}, actions:ct(zone=1),recirc(0x1)\n{keys}, actions:3\n")
    result = xenoovs("why", "--from-dump", tmp_path / "dump")
    assert (result.status, "2 megaflows run: it was made without -m" in result.out) == (1, True), result.out
    assert "1 megaflow: Track connections (ct): the kernel needs CONFIG_NET_TC_SKB_EXT and act_ct" in result.out


def test_tagged_packets_belong_to_their_block(tmp_path: Path, xenoovs: CommandLine) -> None:
    line = (GOLDEN / "in_hardware.dump").read_text().splitlines()[0]
    begin, _, rest = line.partition("eth_type(0x0800),")
    inner, found, end = rest.partition("), packets:")
    assert found
    (tmp_path / "dump").write_text(
        f"{begin}eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800),{inner})), packets:{end}\n"
    )
    result = xenoovs("verify-offload", CONFIG, "--from-dump", tmp_path / "dump", "-o", "json")
    document = json.loads(result.out)
    assert [block["verdict"] for block in document["blocks"]].count("HW") == 1
    assert any("megaflow of tagged packets (vid=5,pcp=0)" in remark for remark in document["remarks"])


def test_the_slow_path_in_a_dump_without_m_is_judged(xenoovs: CommandLine) -> None:
    result = xenoovs("verify-offload", "--from-dump", GOLDEN.parent / "why" / "ovnk_slow_path.dump")
    assert (result.status, "slow path: ovs-vswitchd handles each packet" in result.out) == (2, True), result.out
    assert "1 megaflow more in the dump: without -m it does not say where they run" in result.out
