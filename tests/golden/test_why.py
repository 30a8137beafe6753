"""What people read of why, for dumps and logs as users published them; the report stands beside the dump."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.golden.test_flows import compare

HERE = Path(__file__).parent / "why"

CASES = {
    "ovn_no_entry": (2, ["no-ingress-qdisc"]),
    "ovn_type_offloaded": (3, []),
    "chain_without_continuation": (2, ["recirculation", "recirculation"]),
    "chain_of_type_offloaded": (3, []),
    "ovn_recirculation": (2, ["recirculation", "recirculation"]),
    "ovn_nat_in_tc": (2, ["unsupported-match", "recirculation"]),
    "ovnk_slow_path": (2, ["slow-path"]),
    "ovnk_packet_length": (2, ["slow-path"]),
    "ovnk_without_packets": (3, []),
    "doca_internal_port": (2, ["reported-by-datapath"]),
    "doca_partial": (2, ["recirculation", "recirculation"]),
    "dpdk_representor": (0, []),
    "dpdk_vdpa_bond": (2, ["unknown"]),
    "dpdk_without_rte_flow": (2, ["refused-by-driver", "software-datapath"]),
    "dpdk_tunnel_push": (2, ["software-datapath", "unsupported-match"]),
    "dpdk_marked": (2, ["egress-not-on-eswitch"]),
    "ovn_stateless_nat": (2, ["unsupported-action"]),
    "ovn_ecmp_hash": (2, ["unsupported-action", "recirculation"]),
    "ovn_ct_tuple": (2, ["unsupported-match"]),
    "ovn_load_balancer": (2, ["recirculation", "unsupported-match", "recirculation", "recirculation"]),
    "ovnk_ping": (2, ["unsupported-action"]),
    "seed_geneve": (3, []),
    "seed_geneve_wrapped": (3, []),
    "seed_geneve_without_command": (1, []),
    "vendor_counters": (3, []),
    "vlan_in_tc": (2, ["refused-by-driver", "unsupported-match", "refused-by-driver"]),
    "vlan_in_doca": (2, ["unsupported-match", "unsupported-match"]),
    "all_software": (2, ["hw-offload-off", "hw-offload-off"]),
}
"""Dump -> exit status, and the most likely cause of each megaflow."""


def _options(name: str) -> list[object]:
    log = HERE / f"{name}.log"
    return ["why", "--from-dump", HERE / f"{name}.dump", *(["--from-log", log] if log.exists() else [])]


@pytest.mark.parametrize("name", CASES)
def test_the_reasons_in_a_dump(name: str, xenoovs: CommandLine, update_golden: bool) -> None:
    result = xenoovs(*_options(name))
    compare(HERE / f"{name}.txt", result.out, update=update_golden)
    status, causes = CASES[name]
    first = [row["reasons"][0]["cause"] for row in json.loads(xenoovs(*_options(name), "-o", "json").out)["megaflows"]]
    assert (result.status, first, result.err) == (status, causes, "")
