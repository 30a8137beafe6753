"""What people read of verify-offload, for recorded dumps; the report stands beside the dump."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.golden.test_flows import compare
from xenoovs.judge.findings import Conclusion

HERE = Path(__file__).parent
HW, NOTHING, FAILED = Conclusion.IN_HARDWARE, Conclusion.NOTHING_SEEN, Conclusion.CHECK_FAILED
OF_OVN = ("ovn_load_balancer", "ovn_stateless_nat", "ovnk_ping")
CHAINS = {
    **dict.fromkeys((*OF_OVN, "chain_without_continuation", "ovn_recirculation"), Conclusion.NOT_ALL_IN_HARDWARE),
    **dict.fromkeys(("ovn_nat_in_tc", "ovn_ecmp_hash", "ovn_ct_tuple"), Conclusion.NOT_ALL_IN_HARDWARE),
    **dict.fromkeys(("chain_of_type_offloaded", "seed_geneve", "seed_geneve_wrapped", "vendor_counters"), NOTHING),
    "seed_geneve_without_command": FAILED,
}
"""Dumps of `why`, whose README has their threads."""
OF_DNS = {
    "in_hardware": HW,
    "answers": HW,
    "answers_in_software": Conclusion.NOT_ALL_IN_HARDWARE,
    "wrapped": HW,
    "unsupported_action": HW,
    "anomalies": Conclusion.NOT_ALL_IN_HARDWARE,
    "without_m": FAILED,
    "nothing": NOTHING,
    "no_dump": FAILED,
}
DNS, LISTED = "dns.yaml --from-dump", "dns.yaml --from-dump answers_in_software.dump"
PREFIX = f"{DNS} foreign_prefix.dump --from-flows foreign_prefix.flows"
SPECIAL = {
    "table_full.txt": f"{DNS} table_full.dump --blocks",
    "foreign_prefix.txt": PREFIX,
    "foreign_prefix.json": f"{PREFIX} -o json",
    "unwildcarded_tos.txt": f"{DNS} unwildcarded_tos.dump --from-flows unwildcarded_tos.flows",
    "software.txt": f"{DNS} software.dump --require 95%",
    "anomalies.json": f"{DNS} anomalies.dump -o json",
    "part_of_a_service.txt": f"{DNS} unsupported_action.dump --service dns",
    "part_by_verdict.txt": f"{LISTED} --verdict TC_SW --verdict absent",
    "tree.txt": f"{LISTED} --tree",
    "tree.json": f"{LISTED} --tree --verdict tc_sw -o json",
    "tree_of_software.txt": f"{LISTED} --tree --verdict TC_SW --blocks",
    # Ports are taken for bridges by their names.
    "no_bridge.txt": "--from-dump unsupported_action.dump",
    "any_bridge.txt": "--bridge br-int --from-dump any_bridge.dump",
    # Blocks behind a tunnel that the CPU encrypts belong in software.
    "encrypted.txt": "encrypted.yaml --from-dump encrypted.dump",
    **{f"links_{name}.txt": f"--from-dump ../why/{name}.dump --tree" for name in OF_OVN},
}
GOOD = ("part_of_a_service.txt", "encrypted.txt")
CASES = {
    **{f"{name}.txt": (f"{DNS} {name}.dump", ends) for name, ends in OF_DNS.items()},
    **{f"chains_{name}.txt": (f"--from-dump ../why/{name}.dump", ends) for name, ends in CHAINS.items()},
    **{file: (words, HW if file in GOOD else Conclusion.NOT_ALL_IN_HARDWARE) for file, words in SPECIAL.items()},
}


@pytest.mark.parametrize("file", CASES)
def test_the_report(file: str, xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch, update_golden: bool) -> None:
    monkeypatch.chdir(HERE / "verify")
    words, conclusion = CASES[file]
    result = xenoovs("verify-offload", *words.split())
    compare(HERE / "verify" / file, result.out, update=update_golden)
    assert (result.status, result.err) == (conclusion, "")
    assert not file.endswith(".json") or json.loads(result.out)["exit_code"] == conclusion


def test_the_links_for_programs(xenoovs: CommandLine, update_golden: bool) -> None:
    dump = HERE / "why" / "ovn_stateless_nat.dump"
    result = xenoovs("verify-offload", "--from-dump", dump, "--tree", "-o", "json")
    compare(
        HERE / "verify" / "links.json",
        f"{json.dumps(json.loads(result.out)['links'], indent=2)}\n",
        update=update_golden,
    )


def test_wrapped_lines_make_no_difference() -> None:
    assert (HERE / "verify/wrapped.txt").read_text() == (HERE / "verify/in_hardware.txt").read_text()
