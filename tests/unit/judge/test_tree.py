"""The tree of findings: service, block, megaflow, rule of traffic control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.compiled import compiled
from tests.judged import check_offload
from xenoovs.datapath.parse import parse_dump
from xenoovs.datapath.tc import parse_tc_json, with_known_counters
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import OffloadFindings, carry_over, part_of
from xenoovs.judge.tree import offload_tree, tree_lines, tree_to_json
from xenoovs.model.load import load_config

HERE = Path(__file__).parents[2] / "golden" / "verify"
SERVICES = expected_services(compiled(load_config(HERE / "dns.yaml")))


def _findings(dump: str) -> OffloadFindings:
    dumped = with_known_counters(parse_tc_json((HERE / "table_full.tc.json").read_text()))
    filters = {found.cookie or "": found for found in dumped}
    return check_offload(SERVICES, parse_dump(dump), Evidence(filters=filters), is_listing=True)


def _services(findings: OffloadFindings) -> list[dict[str, Any]]:
    found: Any = tree_to_json(findings)["services"]
    return list(found)


def _lines(findings: OffloadFindings) -> list[str]:
    return [before for before, _, _ in tree_lines(offload_tree(findings))]


TABLE_FULL = (HERE / "table_full.dump").read_text()


def test_every_megaflow_is_below_its_block_with_its_filter() -> None:
    findings = _findings(TABLE_FULL)
    lines = _lines(findings)
    blocks = [number for number, line in enumerate(lines) if "fips" in line and "reg0" in line]
    assert len(blocks) == 7
    assert all("megaflow" in lines[number + 1] and "tc filter of p0" in lines[number + 3] for number in blocks)
    assert sum(": not_in_hw" in line for line in lines) == 3
    assert "answers" in lines[-1]
    (service,) = _services(findings)
    filters = [found["tc"] for block in service["blocks"] for found in block["megaflow_list"]]
    assert [found["in_hw"] for found in filters].count(True) == 4
    assert sum(found["hw_packets"] for found in filters) == 300


def test_many_megaflows_of_a_block_are_counted() -> None:
    line = next(line for line in TABLE_FULL.splitlines() if "src=0.0.0.0/0.0.0.1" in line)
    findings = _findings("\n".join([line] * 12))
    assert any(line.endswith("and 2 more megaflows (all with -o json)") for line in _lines(findings))
    (service,) = _services(findings)
    assert len(service["blocks"][0]["megaflow_list"]) == 12


def test_a_megaflow_without_its_filter_is_named() -> None:
    lines = TABLE_FULL.splitlines()
    findings = _findings(f"{lines[0]}\n{lines[1].replace(lines[1][5:13], '00000000')}")
    assert any("no tc filter has its cookie" in line for line in _lines(findings))


def test_megaflows_of_an_earlier_sample_stay_with_their_blocks() -> None:
    first = next(line for line in TABLE_FULL.splitlines() if "src=0.0.0.0/0.0.0.1" in line)
    rest = TABLE_FULL.replace(first + "\n", "")
    merged = carry_over(_findings(first), _findings(rest))
    assert tree_to_json(merged) == tree_to_json(_findings(TABLE_FULL))
    assert part_of(merged, services=set()).listed == ()
