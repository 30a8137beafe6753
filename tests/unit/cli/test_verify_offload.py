"""Options of verify-offload that exclude each other, and files that are not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.cli import verify_offload
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.switch import devices, tc
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.tc import FilterDump

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG, DUMP = str(GOLDEN / "dns.yaml"), str(GOLDEN / "in_hardware.dump")


def test_bytes_that_are_no_text_are_torn_lines(tmp_path: Path, xenoovs: CommandLine) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(Path(DUMP).read_bytes() + b"ufid:\xff\xfe, in_port(\x00\n")
    result = xenoovs("verify-offload", CONFIG, "--from-dump", dump)
    assert result.status == 0
    assert "lines that could not be read (1)" in result.out


@pytest.mark.parametrize(("options", "status"), [("-m type=offloaded", 3), ("-m | grep p0", 3), ("-m", 0)])
def test_bug_a_filter_on_the_command_line_left_no_doubt(
    options: str, status: int, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """If every block had a megaflow in the NIC, it ended with exit status 0, whatever the filter left out."""
    dump = tmp_path / "dump"
    dump.write_text(f"$ ovs-appctl dpctl/dump-flows {options}\n{Path(DUMP).read_text()}")
    result = xenoovs("verify-offload", CONFIG, "--from-dump", dump)
    assert (result.status, "it may lack those that are not" in result.out) == (status, status == 3)


def test_any_bridge_is_judged_by_its_own_max_idle(monkeypatch: pytest.MonkeyPatch, xenoovs: CommandLine) -> None:
    """With a max-idle of a minute, a megaflow used 20 s ago counted as old, so its packets were ignored."""
    held = "in_port(p0),eth_type(0x0800), packets:{}, bytes:{}, used:{}s, offloaded:yes, dp:tc, actions:p1"
    gone = "in_port(p0),eth_type(0x86dd), packets:90, bytes:9000, used:20.0s, dp:ovs, actions:p1"
    dumps = [f"{held.format(10, 1000, 1.5)}\n{gone}", held.format(20, 2000, 0.5)]
    received = iter((0, 0, 500, 500))
    switch = FakeSwitch(replace(fake_bridge("br-int", ("p0", "p1")), max_idle_ms=60_000))
    switch.endpoint = Endpoint("unix:/nonexistent/db.sock", Path("/nonexistent"))  # type: ignore[attr-defined]
    monkeypatch.setattr(switch, "dump_megaflows", lambda: dumps.pop(0))
    monkeypatch.setattr(verify_offload, "reach", lambda *_: switch)
    monkeypatch.setattr(tc, "dump_filters", lambda *_, **__: FilterDump(()))
    monkeypatch.setattr(
        devices, "read_port_packets", lambda *_: {"p0": PortPackets(next(received), CpuCounter.CPU, "rx")}
    )
    result = xenoovs("verify-offload", "--bridge", "br-int", "--interval", "10ms")
    assert "1 megaflow with recent packets expired or changed between the two samples" in result.out, result.out
    assert "CONTRADICTED" not in result.out
