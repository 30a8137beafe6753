"""Bridges, ports and datapath ids that a config requires."""

from __future__ import annotations

import pytest

from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.errors import BridgeMissing, OtherDatapath, PortsMissing
from xenoovs.switch.api import require_ports


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch(fake_bridge("br0", ["p0", "p1"]), fake_bridge("br1", ["p2"]))


def test_ports_are_required_by_name(switch: FakeSwitch) -> None:
    assert require_ports(switch, "br0", ["p0", "p1"]).ofports == {"br0": 65534, "p0": 1, "p1": 2}
    with pytest.raises(PortsMissing) as caught:
        require_ports(switch, "br0", ["p0", "p2", "p9"])
    assert caught.value.elsewhere == {"p2": "br1", "p9": None}
    assert caught.value.present == ("p0", "p1")
    with pytest.raises(BridgeMissing):
        require_ports(switch, "br7", ["p0"])


def test_a_datapath_id_is_required_where_the_config_has_one(switch: FakeSwitch) -> None:
    with pytest.raises(OtherDatapath) as caught:
        require_ports(switch, "br0", ["p0"], datapath_id=0xAB)
    assert (caught.value.wanted, caught.value.found) == ("00000000000000ab", None)
