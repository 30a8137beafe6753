"""What a dump says beside its megaflows."""

from __future__ import annotations

from xenoovs.verify.hints import Hints

_COUNTED = "in_port(p0),eth_type(0x0800),ipv4(frag=no), packets:1, bytes:60, used:0.1s"
IN_HARDWARE = f"{_COUNTED}, offloaded:yes, dp:tc, actions:p1"
REFUSED = f"{_COUNTED}, dp:ovs, actions:p1, dp-offload-info:match unsupported: ct_state=+new"


def remarks(*lines: str, some_are_absent: bool = True, is_recorded: bool = True) -> list[str]:
    hints = Hints()
    assert list(hints.watch(lines)) == list(lines)
    return list(hints.remarks(some_are_absent=some_are_absent, is_recorded=is_recorded))


def test_a_dump_of_offloaded_megaflows_alone_may_be_filtered() -> None:
    (told,) = remarks(IN_HARDWARE, IN_HARDWARE)
    assert "type=offloaded" in told


def test_nothing_is_suspected_when_all_blocks_are_there_or_the_dump_is_our_own() -> None:
    assert remarks(IN_HARDWARE, some_are_absent=False) == []
    assert remarks(IN_HARDWARE, is_recorded=False) == []
    assert remarks(IN_HARDWARE, IN_HARDWARE.replace(", offloaded:yes", "")) == []


def test_the_words_of_open_vswitch_are_shown() -> None:
    assert remarks(REFUSED, REFUSED) == ["Open vSwitch says of 2 megaflows: match unsupported: ct_state=+new"]


def test_miniflow_bits_are_no_reason() -> None:
    assert remarks(f"{REFUSED.partition(', dp-')[0]}, dp-extra-info:miniflow_bits(5,2)") == []


def test_pmd_threads_hold_copies() -> None:
    (told,) = remarks("flow-dump from pmd on cpu core: 1", "flow-dump from pmd on cpu core: 2")
    assert "2 PMD threads" in told
