"""What people read of verify-offload, for recorded dumps; the report stands beside the dump."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.datapath.tc import parse_tc_json, with_known_counters
from xenoovs.judge.findings import Conclusion

HERE = Path(__file__).parent / "verify"
CONFIG = HERE / "dns.yaml"

CASES = {
    "in_hardware": (Conclusion.IN_HARDWARE, ()),
    "answers": (Conclusion.IN_HARDWARE, ()),
    "answers_in_software": (Conclusion.NOT_ALL_IN_HARDWARE, ()),
    "wrapped": (Conclusion.IN_HARDWARE, ()),
    "table_full": (Conclusion.NOT_ALL_IN_HARDWARE, ("--blocks",)),
    "unsupported_action": (Conclusion.IN_HARDWARE, ()),
    "foreign_prefix": (Conclusion.NOT_ALL_IN_HARDWARE, ("--from-flows", HERE / "foreign_prefix.flows")),
    "unwildcarded_tos": (Conclusion.NOT_ALL_IN_HARDWARE, ("--from-flows", HERE / "unwildcarded_tos.flows")),
    "software": (Conclusion.NOT_ALL_IN_HARDWARE, ("--require", "95%")),
    "anomalies": (Conclusion.NOT_ALL_IN_HARDWARE, ()),
    "without_m": (Conclusion.CHECK_FAILED, ()),
    "nothing": (Conclusion.NOTHING_SEEN, ()),
    "no_dump": (Conclusion.CHECK_FAILED, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_report_on_a_dump(name: str, xenoovs: CommandLine, update_golden: bool) -> None:
    conclusion, options = CASES[name]
    result = xenoovs("verify-offload", CONFIG, "--from-dump", HERE / f"{name}.dump", *options)
    _compare(HERE / f"{name}.txt", result.out, update=update_golden)
    assert (result.status, result.err) == (conclusion, "")


PARTS = {
    "part_of_a_service": (Conclusion.IN_HARDWARE, ("--service", "dns")),
    "part_by_verdict": (Conclusion.NOT_ALL_IN_HARDWARE, ("--verdict", "TC_SW", "--verdict", "absent")),
    "tree": (Conclusion.NOT_ALL_IN_HARDWARE, ("--tree",)),
    "tree_of_software": (Conclusion.NOT_ALL_IN_HARDWARE, ("--tree", "--verdict", "TC_SW", "--blocks")),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_report_on_a_part(name: str, xenoovs: CommandLine, update_golden: bool) -> None:
    conclusion, options = PARTS[name]
    dump = "unsupported_action" if name == "part_of_a_service" else "answers_in_software"
    result = xenoovs("verify-offload", CONFIG, "--from-dump", HERE / f"{dump}.dump", *options)
    _compare(HERE / f"{name}.txt", result.out, update=update_golden)
    assert (result.status, result.err) == (conclusion, "")


def test_the_tree_for_programs(xenoovs: CommandLine, update_golden: bool) -> None:
    dump = HERE / "answers_in_software.dump"
    result = xenoovs("verify-offload", CONFIG, "--from-dump", dump, "--tree", "--verdict", "tc_sw", "-o", "json")
    _compare(HERE / "tree.json", result.out, update=update_golden)
    assert result.status == Conclusion.NOT_ALL_IN_HARDWARE


def test_a_dump_without_config_and_bridge_takes_ports_for_bridges_by_their_names(
    xenoovs: CommandLine, update_golden: bool
) -> None:
    result = xenoovs("verify-offload", "--from-dump", HERE / "unsupported_action.dump")
    _compare(HERE / "no_bridge.txt", result.out, update=update_golden)
    assert (result.status, result.err) == (Conclusion.NOT_ALL_IN_HARDWARE, "")


def test_the_report_on_any_bridge(xenoovs: CommandLine, update_golden: bool) -> None:
    result = xenoovs("verify-offload", "--bridge", "br-int", "--from-dump", HERE / "any_bridge.dump")
    _compare(HERE / "any_bridge.txt", result.out, update=update_golden)
    assert (result.status, result.err) == (Conclusion.NOT_ALL_IN_HARDWARE, "")


CHAINS = {
    "chain_without_continuation": Conclusion.NOT_ALL_IN_HARDWARE,
    "chain_of_type_offloaded": Conclusion.NOTHING_SEEN,
    "ovn_recirculation": Conclusion.NOT_ALL_IN_HARDWARE,
    "ovn_nat_in_tc": Conclusion.NOT_ALL_IN_HARDWARE,
    "ovn_stateless_nat": Conclusion.NOT_ALL_IN_HARDWARE,
    "ovn_ecmp_hash": Conclusion.NOT_ALL_IN_HARDWARE,
    "ovn_ct_tuple": Conclusion.NOT_ALL_IN_HARDWARE,
    "ovn_load_balancer": Conclusion.NOT_ALL_IN_HARDWARE,
    "ovnk_ping": Conclusion.NOT_ALL_IN_HARDWARE,
    "seed_geneve": Conclusion.NOTHING_SEEN,
    "seed_geneve_wrapped": Conclusion.NOTHING_SEEN,
    "seed_geneve_without_command": Conclusion.CHECK_FAILED,
    "vendor_counters": Conclusion.NOTHING_SEEN,
}
"""Dumps of `why`, whose README has their threads."""


@pytest.mark.parametrize("name", CHAINS)
def test_the_report_on_chains_of_ovn(name: str, xenoovs: CommandLine, update_golden: bool) -> None:
    result = xenoovs("verify-offload", "--from-dump", HERE.parent / "why" / f"{name}.dump")
    _compare(HERE / f"chains_{name}.txt", result.out, update=update_golden)
    assert (result.status, result.err) == (CHAINS[name], "")


@pytest.mark.parametrize("name", ["ovn_load_balancer", "ovn_stateless_nat", "ovnk_ping"])
def test_the_links_of_chains_of_ovn(name: str, xenoovs: CommandLine, update_golden: bool) -> None:
    command = ("verify-offload", "--from-dump", HERE.parent / "why" / f"{name}.dump", "--tree")
    _compare(HERE / f"links_{name}.txt", xenoovs(*command).out, update=update_golden)


def test_the_links_for_programs(xenoovs: CommandLine, update_golden: bool) -> None:
    dump = HERE.parent / "why" / "ovn_stateless_nat.dump"
    result = xenoovs("verify-offload", "--from-dump", dump, "--tree", "-o", "json")
    _compare(HERE / "links.json", f"{json.dumps(json.loads(result.out)['links'], indent=2)}\n", update=update_golden)


def test_links_of_chains_with_one_verdict(xenoovs: CommandLine) -> None:
    command = ("verify-offload", "--from-dump", HERE.parent / "why" / "ovn_stateless_nat.dump", "--tree", "-o", "json")
    assert json.loads(xenoovs(*command, "--verdict", "HW").out)["links"] == []
    assert len(json.loads(xenoovs(*command, "--verdict", "TC_SW").out)["links"]) == 2


def test_flows_are_named_on_a_switch_alone(xenoovs: CommandLine) -> None:
    dump = HERE.parent / "why" / "ovnk_ping.dump"
    for words in (("--from-dump", dump, "--tree"), ("--bridge", "br-int"), (CONFIG, "--tree")):
        result = xenoovs("verify-offload", *words, "--flows")
        assert (result.status, "--flows goes with --bridge and --tree" in result.err) == (64, True)


def test_blocks_behind_a_tunnel_that_the_cpu_encrypts_belong_in_software(
    xenoovs: CommandLine, tmp_path: Path, update_golden: bool
) -> None:
    config, dump = HERE / "encrypted.yaml", HERE / "encrypted.dump"
    result = xenoovs("verify-offload", config, "--from-dump", dump)
    _compare(HERE / "encrypted.txt", result.out, update=update_golden)
    assert (result.status, result.err) == (Conclusion.IN_HARDWARE, "")
    # Without `ipsec` the same is a failure, and so is the other block in software.
    plain = tmp_path / "plain.yaml"
    plain.write_text(config.read_text().replace(", ipsec: {psk_file: /etc/xenoovs/psk}", ""))
    assert xenoovs("verify-offload", plain, "--from-dump", dump).status == Conclusion.NOT_ALL_IN_HARDWARE
    software = tmp_path / "software.dump"
    software.write_text(dump.read_text().replace("offloaded:yes, ", ""))
    assert xenoovs("verify-offload", config, "--from-dump", software).status == Conclusion.NOT_ALL_IN_HARDWARE


def test_bug_all_blocks_left_to_the_cpu_are_not_in_hardware(xenoovs: CommandLine, tmp_path: Path) -> None:
    """The exit status was right, but the JSON field `conclusion` was `in_hardware`."""
    dump = tmp_path / "cpu.dump"
    first, second = (HERE / "encrypted.dump").read_text().splitlines()
    dump.write_text(f"{first}\n")
    result = xenoovs("verify-offload", HERE / "encrypted.yaml", "--from-dump", dump, "-o", "json")
    report = json.loads(result.out)
    assert (result.status, report["exit_code"], report["conclusion"]) == (0, 0, "encrypted_by_cpu")
    text = xenoovs("verify-offload", HERE / "encrypted.yaml", "--from-dump", dump).out
    assert text.splitlines()[-1] == (
        "no block that has had traffic is for the NIC: the CPU encrypts the tunnels of all of them"
    )
    # One block in the NIC is what there is to conclude about.
    dump.write_text(f"{first}\n{second}\n")
    result = xenoovs("verify-offload", HERE / "encrypted.yaml", "--from-dump", dump, "-o", "json")
    assert json.loads(result.out)["conclusion"] == "in_hardware"


def test_lint_reports_that_encapsulation_stays_with_the_cpu(xenoovs: CommandLine) -> None:
    result = xenoovs("lint", HERE / "encrypted.yaml")
    assert (result.status, result.err) == (0, "")
    assert "encapsulation stays with the CPU at gnv0-c000020b" in result.out
    # The sentence beside it said that the NIC can take all of them.
    for command in ("lint", "validate"):
        said = xenoovs(command, HERE / "encrypted.yaml").out
        assert "the NIC can take 5 of 6 flows; 1 stays with the CPU, which encrypts its tunnel" in said


@pytest.mark.parametrize("name", ["anomalies", "foreign_prefix"])
def test_the_report_for_programs(name: str, xenoovs: CommandLine, update_golden: bool) -> None:
    conclusion, options = CASES[name]
    dump = HERE / f"{name}.dump"
    result = xenoovs("verify-offload", CONFIG, "--from-dump", dump, "--output", "json", *options)
    _compare(HERE / f"{name}.json", result.out, update=update_golden)
    assert json.loads(result.out)["exit_code"] == result.status == conclusion


def test_wrapped_lines_make_no_difference() -> None:
    assert (HERE / "wrapped.txt").read_text() == (HERE / "in_hardware.txt").read_text()


@pytest.mark.parametrize("name", ["in_hardware", "table_full"])
def test_each_recorded_filter_agrees_with_its_megaflow(name: str) -> None:
    from xenoovs.datapath.tc import cookie_of_ufid

    lines = [line for line in (HERE / f"{name}.dump").read_text().splitlines() if "dp:tc" in line]
    megaflows = {cookie_of_ufid(found.ufid or ""): found for found in map(parse_megaflow, lines)}
    filters = with_known_counters(parse_tc_json((HERE / f"{name}.tc.json").read_text()))
    assert {found.cookie for found in filters} == set(megaflows)
    for found in filters:
        megaflow = megaflows[found.cookie]
        assert found.counters is not None
        assert (found.in_hw, found.counters.packets) == (megaflow.offloaded is not None, megaflow.packets)


def _compare(path: Path, text: str, *, update: bool) -> None:
    if update:
        path.write_text(text)
    assert text == path.read_text()
