"""Findings as rows and as JSON: totals add up, names and numbers only."""

from __future__ import annotations

import json

from tests.judged import check_offload
from tests.unit.judge.programs import blocks, megaflow_of, two_services
from xenoovs.datapath.megaflow import Verdict
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import OffloadFindings
from xenoovs.judge.report import backend_rows, service_rows, to_json, total_row


def _findings() -> OffloadFindings:
    program = two_services()
    first, second, *_ = blocks(program)
    megaflows = [megaflow_of(first, packets=30), megaflow_of(second, packets=10, where=", dp:tc")]
    return check_offload(expected_services(program), megaflows)


def test_rows_add_up_to_the_total() -> None:
    findings = _findings()
    for rows in (backend_rows(findings), service_rows(findings)):
        assert sum(row.packets for row in rows) == total_row(findings).packets == 40
        assert sum(row.count(Verdict.ABSENT) for row in rows) == 2
    assert [(row.service, row.backend) for row in backend_rows(findings)] == [
        ("dns", "b1"),
        ("dns", "b2"),
        ("web", "b1"),
        ("web", "b2"),
    ]


def test_the_share_in_hardware_is_of_packets_and_none_without_any() -> None:
    dns, web = service_rows(_findings())
    assert (dns.hw_share, web.hw_share) == (0.75, None)


def test_json_has_all_values_as_names_and_numbers() -> None:
    report = json.loads(json.dumps(to_json(_findings())))
    assert (report["conclusion"], report["exit_code"]) == ("not_all_in_hardware", 2)
    assert report["total"]["blocks"] == {verdict.value: 0 for verdict in Verdict} | {"HW": 1, "TC_SW": 1, "ABSENT": 2}
    assert [block["verdict"] for block in report["blocks"]] == ["HW", "TC_SW", "ABSENT", "ABSENT"]
    assert report["blocks"][0]["flow"].startswith("cookie=0x786f")
