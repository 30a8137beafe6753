"""Two records compared: which traffic left the NIC, what changed, and what comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.judged import assert_recorded
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.host import Device, Feature
from xenoovs.evidence.evidence import UNREAD_HOST, Evidence
from xenoovs.judge.compare import Comparison, Side, side_of, to_json

BRIDGE = BridgeState("ovsbr1", ports=tuple(PortState(name, ofport=1, type="system") for name in ("p0", "p1")))
IN_NIC = "offloaded:yes, dp:tc"


def _line(
    number: int, where: str, packets: int, *, in_port: str = "p0", actions: str = "set(eth(dst=02::1)),p1"
) -> str:
    return (
        f"ufid:0000000{number}-0000-4000-8000-000000000000, recirc_id(0),in_port({in_port}),eth_type(0x0800),"
        f"ipv4(src=0.0.0.{number}/0.0.0.3,frag=no), packets:{packets}, bytes:{packets * 98}, used:0.1s, {where}, "
        f"actions:{actions.replace('02::1', '02:00:00:00:00:01')}\n"
    )


def _side(
    *lines: str, config: Mapping[str, str] | None = None, switch_id: str | None = "a1", versions: Mapping[str, str] = {}
) -> Side:
    devices = {
        name: Device(
            name, is_up=True, mtu=1500, switch_id=switch_id if name == "p1" else "a1", hw_tc_offload=Feature(True)
        )
        for name in ("p0", "p1")
    }
    host = replace(UNREAD_HOST, database=Database(config or {}, (BRIDGE,)), devices=devices)
    return side_of(Evidence(host, lines, bridges=(BRIDGE,)), versions)


KEPT, ANSWERS = _line(0, IN_NIC, 620), _line(1, IN_NIC, 38, in_port="p1", actions="p0")
TURNED_OFF = {"hw-offload": "false"}


def _records() -> dict[str, tuple[Side, Side]]:
    before = _side(_line(0, IN_NIC, 62), ANSWERS)
    return {
        "nothing changed": (before, before),
        "the most likely cause comes first": (
            before,
            _side(
                KEPT,
                _line(1, "dp:tc", 380, in_port="p1", actions="p0"),
                config={"max-idle": "300000"},
                switch_id=None,
                versions={"iproute2": "6.9"},
            ),
        ),
        "a setting comes before a version": (
            before,
            _side(_line(0, "dp:ovs", 100), config=TURNED_OFF, versions={"iproute2": "6.9"}),
        ),
        "without a changed fact the traffic itself is named": (
            before,
            _side(_line(0, "dp:ovs", 62, actions="hash(l4(0)),recirc(0x3)"), ANSWERS),
        ),
        # Bug: nothing can be compared, with exit status 2, as no packet was counted yet.
        "no packet yet": (_side(KEPT), _side(_line(0, "dp:ovs", 0), config=TURNED_OFF)),
        "it came back": (_side(_line(0, "dp:ovs", 10)), _side(_line(0, IN_NIC, 10))),
        "what was dropped is not missed": (_side(KEPT, _line(1, IN_NIC, 38, actions="drop")), _side(KEPT)),
        "little is not missed": (_side(KEPT, _line(1, IN_NIC, 1, in_port="p1", actions="p0")), _side(KEPT)),
        "no traffic before": (_side(), before),
        "no traffic after": (before, _side()),
        # Bug: a class that had packets and has none was shown and never counted, also where its port was gone.
        "traffic is gone": (before, _side(KEPT)),
        "traffic is idle": (before, _side(KEPT, _line(1, IN_NIC, 0, in_port="p1", actions="p0"))),
        "traffic is gone, the port drops": (
            before,
            _side(KEPT, _line(2, IN_NIC, 380, in_port="p1", actions="drop")),
        ),
        "a new class has its packets": (
            before,
            _side(KEPT, _line(2, IN_NIC, 380, in_port="p1", actions="set(eth(dst=02::1)),p0")),
        ),
    }


def test_what_got_worse_and_why(*, update_golden: bool) -> None:
    shown = {title: _shown(Comparison(before, after)) for title, (before, after) in _records().items()}
    assert_recorded("judged/compare.txt", shown, update=update_golden)


def _shown(found: Comparison) -> str:
    rows: Any = to_json(found)["classes"]
    lines = [found.headline + "; silent" * found.is_silent, *(f"changed: {change}" for change in found.changes)]
    for row in rows:
        lines.append(f"{row['in_port']} -> {row['exits'] or '-'}: {row['worse'] or 'not worse'}")
        lines += [f"  {side}: {row[side]}" for side in ("before", "after")]
    return "\n".join(lines)
