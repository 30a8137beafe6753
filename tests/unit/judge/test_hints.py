"""Remarks on a dump."""

from __future__ import annotations

from xenoovs.datapath.parse import Hints

_COUNTED = "in_port(p0),eth_type(0x0800),ipv4(frag=no), packets:1, bytes:60, used:0.1s"
IN_HARDWARE = f"{_COUNTED}, offloaded:yes, dp:tc, actions:p1"
REFUSED = f"{_COUNTED}, dp:ovs, actions:p1, dp-offload-info:match unsupported: ct_state=+new"


def watched(*lines: str) -> Hints:
    hints = Hints()
    assert list(hints.watch(lines)) == list(lines)
    return hints


def remarks(*lines: str, is_filtered: bool = False) -> list[str]:
    return list(watched(*lines).remarks(is_filtered=is_filtered))


def test_the_dummy_provider_is_a_remark() -> None:
    (remark,) = remarks(IN_HARDWARE.replace("dp:tc", "dp:dummy"))
    assert remark.startswith("1 megaflow of the dummy offload provider")


def test_the_text_of_open_vswitch_is_shown() -> None:
    assert list(watched(REFUSED, REFUSED).reason_summary()) == [
        "reported by Open vSwitch for 2 megaflows: match unsupported: ct_state=+new"
    ]


def test_pmd_threads_hold_copies() -> None:
    (remark,) = remarks("flow-dump from pmd on cpu core: 1", "flow-dump from pmd on cpu core: 2")
    assert "2 PMD threads" in remark
