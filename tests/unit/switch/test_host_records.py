"""The database as ovs-vsctl 3.1.0 lists it (recorded, with fewer columns), and the columns of NVIDIA's fork."""

from __future__ import annotations

import pytest

from xenoovs.datapath.host import Controller, Interface, OvsBridge
from xenoovs.errors import ParseError
from xenoovs.switch.vsctl import parse_database

SWITCH = (
    '{"data":[[["uuid","30d1399f-166f-49cc-a44a-091351367caa"],["uuid","8dc9316d-e46d-411c-b442-a94958416acc"],'
    '["set",["dummy","netdev"]],["map",[["hw-offload","true"],["tc-policy","skip_sw"]]],["set",[]]]],'
    '"headings":["_uuid","bridges","datapath_types","other_config","ovs_version"]}'
)
BRIDGE = (
    '{"data":[[["uuid","8dc9316d-e46d-411c-b442-a94958416acc"],["set",[["uuid","c2"],["uuid","c1"]]],"dummy","secure",'
    '"ovsbr1",["set",[["uuid","o2"],["uuid","o1"]]]]],'
    '"headings":["_uuid","controller","datapath_type","fail_mode","name","ports"]}'
)
PORT = (
    '{"data":[[["uuid","o1"],["uuid","i1"],"p0"],[["uuid","o2"],["uuid","i2"],"p1"]],'
    '"headings":["_uuid","interfaces","name"]}'
)
INTERFACE = (
    '{"data":[[["uuid","i2"],["set",[]],"up",1500,"p1",2,"dummy"],'
    '[["uuid","i1"],"could not open network device p0 (No such device)",["set",[]],["set",[]],"p0",-1,""]],'
    '"headings":["_uuid","error","link_state","mtu","name","ofport","type"]}'
)
CONTROLLER = (
    '{"data":[[["uuid","c1"],true,"master","tcp:192.0.2.1:6653"],[["uuid","c2"],false,["set",[]],"tcp:192.0.2.2:6653"]],'
    '"headings":["_uuid","is_connected","role","target"]}'
)
LINES = [SWITCH, BRIDGE, PORT, INTERFACE, CONTROLLER]


def test_the_whole_database() -> None:
    database = parse_database("\n".join(LINES) + "\n")
    assert database.config == {"hw-offload": "true", "tc-policy": "skip_sw"}
    assert database.datapath_types == ("dummy", "netdev")
    assert database.bridges == (
        OvsBridge(
            "ovsbr1",
            "dummy",
            "secure",
            (
                Controller("tcp:192.0.2.1:6653", is_connected=True, role="master"),
                Controller("tcp:192.0.2.2:6653"),
            ),
            (
                Interface("p0", error="could not open network device p0 (No such device)"),
                Interface("p1", "dummy", 2, link_up=True, mtu=1500),
            ),
        ),
    )


def test_upstream_has_no_doca() -> None:
    assert not parse_database("\n".join(LINES)).has_doca


def test_the_columns_of_the_fork() -> None:
    fork = SWITCH.replace('["set",[]]]]', '["set",[]],true,"3.3.0040"]]').replace(
        '"ovs_version"]', '"ovs_version","doca_initialized","doca_version"]'
    )
    database = parse_database("\n".join([fork, *LINES[1:]]))
    assert (database.doca_initialized, database.doca_version, database.has_doca) == (True, "3.3.0040", True)


def test_an_empty_bridge_table() -> None:
    empty = '{"data":[],"headings":["_uuid","name"]}'
    assert parse_database("\n".join([SWITCH, empty, PORT, INTERFACE, CONTROLLER])).bridges == ()


@pytest.mark.parametrize(
    "lines",
    [
        [],
        LINES[:4],
        ["{}", *LINES[1:]],
        ["nonsense", *LINES[1:]],
        [SWITCH.replace('"ovs_version"]', '"ovs_version","more"]'), *LINES[1:]],
        ['{"data":[],"headings":[]}', *LINES[1:]],
    ],
    ids=["nothing", "a table is missing", "no table", "no JSON", "a column too many", "no row"],
)
def test_other_text_is_refused(lines: list[str]) -> None:
    with pytest.raises(ParseError):
        parse_database("\n".join(lines))
