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


def _causes(said_out: str) -> set[str]:
    return {reason["cause"] for row in json.loads(said_out)["megaflows"] for reason in row["reasons"]}


def test_all_in_hardware(xenoovs: CommandLine) -> None:
    said = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "in_hardware.dump")
    assert (said.status, "all in hardware" in said.out) == (0, True)


def test_what_the_driver_kept_out_is_told_without_asking_it(xenoovs: CommandLine) -> None:
    said = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "table_full.dump", "-o", "json")
    assert (said.status, _causes(said.out)) == (2, {"table-full"})


def test_the_flow_that_unwildcards_bits_is_named_from_files(xenoovs: CommandLine) -> None:
    """verify-offload named it beside the very same files."""
    dump, flows = GOLDEN / "unwildcarded_tos.dump", GOLDEN / "unwildcarded_tos.flows"
    said = xenoovs("why", CONFIG, "--from-dump", dump, "--from-flows", flows, "-o", "json")
    firsts = [row["reasons"][0] for row in json.loads(said.out)["megaflows"]]
    assert (said.status, [first["cause"] for first in firsts]) == (2, ["unwildcarded"] * 7)
    key = "priority=3000,udp,in_port=p0,nw_dst=10.3.10.45,nw_tos=184"
    assert all(first["evidence"] == [f"foreign flow on ovsbr1: {key} actions=output:pf0hpf"] for first in firsts)
    assert all(f"ovs-ofctl --strict del-flows ovsbr1 table=0,{key}" in first["fix"] for first in firsts)


def test_without_the_flows_the_reason_has_the_bits_and_asks_for_the_flows(xenoovs: CommandLine) -> None:
    said = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "unwildcarded_tos.dump")
    assert "flows that were not read un-wildcard nw_tos 0xfc" in said.out
    assert f"xenoovs why {CONFIG} --from-dump DUMP --from-flows FLOWS" in said.out


def test_notes_say_what_was_not_read(xenoovs: CommandLine) -> None:
    said = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "software.dump")
    assert "ports and devices of the dump's host were not checked" in said.out
    assert "--from-log" in said.out


def test_a_log_that_shows_no_offload_since_its_start(tmp_path: Path, xenoovs: CommandLine) -> None:
    (tmp_path / "log").write_text(OFF)
    dump = GOLDEN / "software.dump"
    said = xenoovs("why", CONFIG, "--from-dump", dump, "--from-log", tmp_path / "log", "-o", "json")
    assert (said.status, _causes(said.out)) == (2, {"hw-offload-off"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--from-log", "x"), "go with --from-dump"),
        (("--from-flows", "x"), "go with --from-dump"),
        (("--from-dump", "x", "--lab", "y"), "so --lab has no use"),
        (("--from-dump", "x", "--probe-driver"), "so --probe-driver has no use"),
        (("--from-dump", "-", "--from-log", "-"), "standard input can be only one"),
        (("--ufid", "zzz"), "is not a ufid"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], told: str, xenoovs: CommandLine) -> None:
    said = xenoovs("why", CONFIG, *options)
    assert (said.status, told in said.err) == (64, True), said.err


def test_a_ufid_that_is_not_in_the_dump(xenoovs: CommandLine) -> None:
    said = xenoovs("why", CONFIG, "--from-dump", GOLDEN / "in_hardware.dump", "--ufid", "00000000-dead")
    assert (said.status, said.out) == (3, "no megaflow has a ufid that begins with 00000000-dead in the dump\n")


@pytest.mark.parametrize("command", ["why", "verify-offload"])
def test_no_network_is_asked_about_a_recorded_dump(command: str, tmp_path: Path, xenoovs: CommandLine) -> None:
    """Backends that are given by their address alone were looked for on the networks of another host."""
    config = tmp_path / "dns.yaml"
    config.write_text(ADDRESS_ALONE)
    said = xenoovs(command, config, "--from-dump", GOLDEN / "in_hardware.dump")
    assert (said.status, said.out) == (1, "")
    assert "no MAC is known for 192.0.2.1 (web/a): a recorded dump gives no MACs" in said.err
    assert "`xenoovs plan`" in said.err


def test_what_is_no_dump_is_not_taken_for_one_without_traffic(tmp_path: Path, xenoovs: CommandLine) -> None:
    """Exit status 3 said that nothing was seen yet."""
    (tmp_path / "dump").write_bytes(b"\xff\x8b no dump\n")
    said = xenoovs("why", CONFIG, "--from-dump", tmp_path / "dump")
    assert (said.status, said.out) == (1, "")
    assert "line 1, column" in said.err
