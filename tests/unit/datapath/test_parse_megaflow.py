"""Lines of `dpctl/dump-flows`: recorded dumps of every layer and version, what is skipped, and where errors are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.judged import assert_recorded
from tests.megaflow_text import render_megaflow
from xenoovs.datapath.megaflow import MaskedValue, Megaflow, Offloaded, match_of, verdict_of
from xenoovs.datapath.parse import Hints, parse_dump, parse_megaflow, rejoin_lines, scan_dump
from xenoovs.errors import ParseError

GOLDEN = Path(__file__).parents[2] / "golden" / "megaflows"
DUMPS = sorted(GOLDEN.glob("*.txt"))


def _facts(megaflow: Megaflow) -> dict[str, Any]:
    verdict = verdict_of(megaflow)
    return {
        "in_port": megaflow.in_port,
        "recirc_id": megaflow.recirc_id,
        "match": {name: f"{field.value:#x}/{field.mask:#x}" for name, field in match_of(megaflow).items()},
        "packets": megaflow.packets,
        "bytes": megaflow.bytes,
        "used_s": megaflow.used_s,
        "verdict": verdict.value if verdict else None,
        "actions": list(megaflow.actions),
        "extra": dict(megaflow.extra),
    }


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_a_recorded_dump_is_read_as_in_its_json(path: Path) -> None:
    read = [_facts(megaflow) for megaflow in parse_dump(path.read_text())]
    assert read == json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_a_recorded_line_is_rendered_as_it_was(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if " actions:" in line]
    for megaflow, line in zip(parse_dump(path.read_text()), lines, strict=True):
        assert render_megaflow(megaflow) == line
        assert parse_megaflow(line) == megaflow


GOOD = "in_port(p0),eth_type(0x0800),ipv4(src=1.2.3.7/0.0.0.3), packets:1, bytes:98, used:0.1s, actions:p1"

IPV6 = "in_port(p0),eth_type(0x86dd),ipv6(src={}), packets:0, bytes:0, used:never, actions:drop"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        # A low-bit mask is no host mask.
        (GOOD, MaskedValue(3, 3)),
        (GOOD.replace("0.0.0.3", "0.0.0.2"), MaskedValue(2, 2)),
        (GOOD.replace("0.0.0.3", "0.0.0.5"), MaskedValue(5, 5)),
        (GOOD.replace("0.0.0.3", "0.255.0.1"), MaskedValue(0x00020001, 0x00FF0001)),
        (GOOD.replace("0.0.0.3", "248.0.0.3"), MaskedValue(3, 0xF8000003)),
        # What is left out matches anything.
        (GOOD.replace("src=1.2.3.7/0.0.0.3", "frag=no"), MaskedValue(0, 0)),
        (GOOD.replace(",ipv4(src=1.2.3.7/0.0.0.3)", ""), None),
        (IPV6.format("2001:db8::7/::3"), MaskedValue(3, 3)),
        (IPV6.format("8000::/1"), MaskedValue(1 << 127, 1 << 127)),
        (IPV6.format("::1"), MaskedValue(1, (1 << 128) - 1)),
    ],
)
def test_the_source_of_a_megaflow(line: str, found: MaskedValue | None) -> None:
    megaflow = parse_megaflow(line)
    assert megaflow.source(6 if "ipv6" in line else 4) == found


def test_statistics_may_come_in_any_order() -> None:
    head, actions = "dp:tc, bytes:9, in_port(p0), offloaded:partial, used:never, packets:3", "actions:p1"
    megaflow = parse_megaflow(f"{head}, {actions}")
    assert (megaflow.layer, megaflow.bytes, megaflow.packets) == ("tc", 9, 3)
    assert megaflow.offloaded is Offloaded.PARTIAL


def test_unknown_statistics_and_remarks_are_extra() -> None:
    line = GOOD.replace(", actions", ", color:blue, actions") + ", dp-extra-info:a(4,2), dp-offload-info:no: x, y"
    expected = (("color", "blue"), ("dp-extra-info", "a(4,2)"), ("dp-offload-info", "no: x, y"))
    assert parse_megaflow(line).extra == expected


def test_the_inner_headers_behind_a_vlan_tag_count() -> None:
    inner = "eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800),ipv4(src=0.0.0.1/0.0.0.3))"
    megaflow = parse_megaflow(f"in_port(p0),{inner}, packets:3, bytes:1, used:never, actions:p1")
    assert match_of(megaflow)["dl_type"].value == 0x0800
    assert match_of(megaflow)["nw_src"] == MaskedValue(1, 3)


OTHER = f"ufid:6dbaa396-6ce1-47de-a76c-1ee429391785, {GOOD}"
BAD = {
    **{
        f"cut off in {text!r}": GOOD.replace("actions:p1", f"actions:{text}")
        for text in ("", "set(eth(dst=02:00:00:00:00:0", "set(eth(dst=02:00:00:00:00:02)", "set(eth()),")
    },
    # They were one that sends packets elsewhere.
    **{f"two lines without a break, the second ends in {other[-4:]}": GOOD + other for other in (GOOD, OTHER[:23])},
    "two lines without a break, with a ufid": GOOD + OTHER,
    "an address": GOOD.replace("1.2.3.7", "1.2.3.700"),
    "another bracket": GOOD.replace("eth_type(", "eth_type["),
    "no closing bracket": GOOD.replace("0.0.0.3)", "0.0.0.3"),
    "no colon": GOOD.replace("bytes:98", "bytes 98"),
    "packets twice": GOOD.replace("bytes:98", "packets:1"),
    "a time": GOOD.replace("used:0.1s", "used:soon"),
    "offloaded:no": GOOD.replace("used:0.1s", "used:0.1s, offloaded:no"),
    "packets in front": f"packets:many, {GOOD.replace(' packets:1,', '')}",
    "no bytes": GOOD.replace(" bytes:98,", ""),
}


def test_bad_lines_are_refused_with_their_place(*, update_golden: bool) -> None:
    shown = {}
    for title, line in BAD.items():
        with pytest.raises(ParseError) as caught:
            list(parse_dump(f"\n{line}\n"))
        shown[title] = str(caught.value)
    assert_recorded("parsed/bad_megaflows.txt", shown, update=update_golden)


WITH_UFID = (GOLDEN / "tc_in_hardware_ovs_3.1.txt").read_text().strip()
WITHOUT = (GOLDEN / "without_m_ovs_3.1.txt").read_text().strip()


@pytest.mark.parametrize("line", [WITH_UFID, WITHOUT], ids=["with ufid", "without"])
def test_a_break_anywhere_gives_the_same_megaflow(line: str) -> None:
    (whole,) = parse_dump(line)
    # Before its first key is known, a line without ufid is no megaflow yet.
    for at in range(len("recirc_id("), len(line)):
        parts = [line[:at], line[at:]]
        assert list(parse_dump(rejoin_lines([*parts, *parts]))) == [whole, whole], parts


def test_lines_keep_their_numbers() -> None:
    lines = [WITH_UFID[:50], WITH_UFID[50:], "ufid:1, in_po", WITH_UFID]
    found = list(scan_dump(rejoin_lines(lines)))
    assert [error.line for error in found if isinstance(error, ParseError)] == [3]
    assert len(found) == 3


_COUNTED = "in_port(p0),eth_type(0x0800),ipv4(frag=no), packets:1, bytes:60, used:0.1s"
REFUSED = f"{_COUNTED}, dp:ovs, actions:p1, dp-offload-info:match unsupported: ct_state=+new"

TAGGED = "in_port(p0),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800)), actions:p1"
TWO_TAGS = "1 megaflow of frames with two tags (IEEE 802.1ad), which are not supported"


@pytest.mark.parametrize(
    ("lines", "remark"),
    [
        ([f"{_COUNTED}, offloaded:yes, dp:dummy, actions:p1"], "1 megaflow of the dummy offload provider"),
        (["flow-dump from pmd on cpu core: 1", "flow-dump from pmd on cpu core: 2"], "the dump has 2 PMD threads"),
        (
            [TAGGED, TAGGED.replace("vid=5", "vid=6"), TAGGED],
            "3 megaflows of tagged packets (vid=5,pcp=0; vid=6,pcp=0): beside untagged packets each",
        ),
        # That of the service with the outer tag has no packet of them.
        ([TAGGED.replace("0x0800", "0x8100")], TWO_TAGS),
        ([TAGGED.replace("vid=5,pcp=0", "vid=5/0x0,pcp=0/0x0").replace("0x0800", "0x88a8")], TWO_TAGS),
        # Clients of VLANs 5 and 6 share a rule of traffic control for any VLAN, but each was reported to cost entries.
        (
            [TAGGED.replace("vid=5", "vid=0").replace("actions", "packets:7, dp:tc, actions")],
            "1 megaflow of tagged packets (any VLAN): ",
        ),
    ],
    ids=["dummy provider", "PMD threads", "tags", "two tags", "two tags, wildcarded", "any VLAN"],
)
def test_remarks_on_a_dump(lines: list[str], remark: str) -> None:
    hints = Hints(vlans=frozenset({5}) if remark == TWO_TAGS else frozenset())
    assert list(hints.watch(lines)) == lines
    (found,) = hints.remarks(is_filtered=False)
    assert found.startswith(remark)


def test_the_text_of_open_vswitch_is_shown() -> None:
    hints = Hints()
    assert list(hints.watch([REFUSED, REFUSED])) == [REFUSED, REFUSED]
    (shown,) = hints.reason_summary()
    assert shown == "reported by Open vSwitch for 2 megaflows: match unsupported: ct_state=+new"


def test_bug_a_damaged_push_in_a_clone_was_no_unreadable_line() -> None:
    """`verify-offload` ended with an internal error."""
    layers = "eth(dst=02:00:00:00:00:02,src=02:00:00:00:00:01),ipv4(src=192.0.2.1,dst=192.0.2.2,proto=17)"
    header = f"size=50,type=4,{layers},udp(src=0,dst=47x,csum=0x0),vxlan(flags=0x8000000,vni=0x1)"
    action = f"clone(tnl_push(tnl_port(4),header({header}),out_port(1)),2)"
    with pytest.raises(ParseError, match="47x"):
        parse_megaflow(GOOD.replace("actions:p1", f"actions:{action}"))
    assert parse_megaflow(GOOD.replace("actions:p1", f"actions:{action.replace('47x', '4789')}")).packets == 1
