"""Options of verify-offload that exclude each other, and files that are not there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.cli import verify_offload
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.switch import port_counters, tc
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.tc import FilterDump

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG, DUMP = str(GOLDEN / "dns.yaml"), str(GOLDEN / "in_hardware.dump")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "No config: name the FILE (or give --bridge NAME)"),
        ((CONFIG, "--bridge", "br0"), "dns.yaml is about bridge ovsbr1."),
        ((CONFIG, "--from-dump", DUMP, "--wait", "1s"), "--from-dump reads no switch, so --wait has no use"),
        ((CONFIG, "--from-dump", DUMP, "--watch"), "so --watch has no use"),
        ((CONFIG, "--from-dump", DUMP, "--lab", "x"), "so --lab has no use"),
        ((CONFIG, "--from-flows", DUMP), "--from-flows goes with"),
        (("-", "--from-dump", "-"), "standard input can be only one"),
        ((CONFIG, "--wait", "1s", "--watch"), "--wait and --watch exclude each other"),
        (("--bridge", "br0", "--blocks"), "--blocks needs the config FILE"),
        (("--from-dump", DUMP, "--service", "dns"), "--service needs the config FILE"),
        (("--from-dump", DUMP, "--from-flows", DUMP), "--from-flows goes with the config FILE"),
        ((CONFIG, "--from-dump", DUMP, "--service", "web"), "--service web: the config has dns"),
        ((CONFIG, "--from-dump", DUMP, "--verdict", "GOOD"), "Invalid value for '--verdict'"),
        ((CONFIG, "--wait", "soon"), "not a time"),
        ((CONFIG, "--require", "most"), "not a share"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], message: str, xenoovs: CommandLine) -> None:
    result = xenoovs("verify-offload", *options)
    assert (result.status, message in result.err) == (64, True), result.err


def test_a_dump_that_is_not_there(xenoovs: CommandLine) -> None:
    result = xenoovs("verify-offload", CONFIG, "--from-dump", "/nowhere/dump")
    assert (result.status, result.out) == (1, "")
    assert "/nowhere/dump: No such file" in result.err


def test_bytes_that_are_no_text_are_torn_lines(tmp_path: Path, xenoovs: CommandLine) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(Path(DUMP).read_bytes() + b"ufid:\xff\xfe, in_port(\x00\n")
    result = xenoovs("verify-offload", CONFIG, "--from-dump", dump)
    assert result.status == 0
    assert "lines that could not be read (1)" in result.out


@pytest.fixture
def filtered(tmp_path: Path) -> Path:
    """As `dpctl/dump-flows -m type=offloaded` prints it: six of seven blocks."""
    lines = [line for line in Path(DUMP).read_text().splitlines(keepends=True) if "offloaded:yes" in line]
    path = tmp_path / "filtered.dump"
    path.write_text("".join(lines[1:]))
    return path


@pytest.mark.parametrize("options", [(CONFIG,), (CONFIG, "--require", "95%"), ("--bridge", "ovsbr1")])
def test_a_dump_that_may_lack_software_megaflows_is_no_success(
    options: tuple[str, ...], filtered: Path, xenoovs: CommandLine
) -> None:
    result = xenoovs("verify-offload", *options, "--from-dump", filtered)
    assert result.status == 3
    assert "type=offloaded" in result.out
    assert "no conclusion" in result.out.splitlines()[-1]


@pytest.mark.parametrize("options", [(CONFIG,), ("--bridge", "ovsbr1")])
def test_json_output_reports_it_too(options: tuple[str, ...], filtered: Path, xenoovs: CommandLine) -> None:
    document = json.loads(xenoovs("verify-offload", *options, "--from-dump", filtered, "-o", "json").out)
    assert (document["exit_code"], document["conclusion"]) == (3, "nothing_seen")
    assert any("type=offloaded" in remark for remark in document["remarks"])


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
    monkeypatch.setattr(tc, "dump_filters", lambda _: FilterDump(()))
    monkeypatch.setattr(
        port_counters, "read_port_packets", lambda _: {"p0": PortPackets(next(received), CpuCounter.CPU, "rx")}
    )
    result = xenoovs("verify-offload", "--bridge", "br-int", "--interval", "10ms")
    assert "1 megaflow with recent packets expired or changed between the two samples" in result.out, result.out
    assert "CONTRADICTED" not in result.out
