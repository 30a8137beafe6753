"""Answers of `devlink -j` in the form that devlink/devlink.c of iproute2 gives them."""

from __future__ import annotations

import pytest

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Subfunction
from xenoovs.errors import ParseError
from xenoovs.switch.devices import parse_mode, parse_parameter, parse_subfunctions

PCI = "0000:03:00.0"
MODE = '{"dev":{"pci/0000:03:00.0":{"mode":"switchdev","inline-mode":"none","encap-mode":"basic"}}}'
STEERING = (
    '{"param":{"pci/0000:03:00.0":[{"name":"flow_steering_mode","type":"driver-specific",'
    '"values":[{"cmode":"runtime","value":"smfs"}]}]}}'
)
NO_VALUE = '{"param":{"pci/0000:03:00.0":[{"name":"flow_steering_mode","type":"driver-specific","values":[]}]}}'


def test_mode() -> None:
    assert parse_mode(MODE, PCI) == "switchdev"


def test_a_device_without_a_mode() -> None:
    assert isinstance(parse_mode('{"dev":{"pci/0000:03:00.0":{}}}', PCI), Unknown)


def test_runtime_value_of_a_parameter() -> None:
    assert parse_parameter(STEERING, PCI, "flow_steering_mode") == "smfs"


def test_a_kernel_that_shows_no_value() -> None:
    """Ubuntu's kernel 5.15.0-25 lists the parameter without any value."""
    assert parse_parameter(NO_VALUE, PCI, "flow_steering_mode") == Unknown(
        "devlink reports no value of flow_steering_mode"
    )


def test_other_modes_of_configuration_do_not_count() -> None:
    later = STEERING.replace("runtime", "driverinit")
    assert isinstance(parse_parameter(later, PCI, "flow_steering_mode"), Unknown)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"dev":{}}', MODE.replace("0000:03", "0000:04")])
def test_text_without_the_device_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_mode(text, PCI)


@pytest.mark.parametrize("text", ["", "{", '{"param":{"pci/0000:03:00.0":{}}}'])
def test_text_without_the_parameter_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_parameter(text, PCI, "flow_steering_mode")


PORTS = (
    '{"port":{"pci/0000:03:00.0/262143":{"type":"eth","netdev":"p0","flavour":"physical","port":0,"splittable":false},'
    '"pci/0000:03:00.0/229408":{"type":"eth","netdev":"en3f0pf0sf0","flavour":"pcisf","controller":0,"pfnum":0,"sfnum":0,'
    '"splittable":false,"function":{"hw_addr":"02:e0:a9:05:72:9a","state":"active","opstate":"attached"}},'
    '"pci/0000:03:00.0/196608":{"type":"eth","netdev":"pf0hpf","flavour":"pcipf","controller":1,"pfnum":0,'
    '"external":true,"splittable":false,"function":{"hw_addr":"a0:88:c2:f2:30:3c"}}}}'
)
"""Ports of a BlueField: an uplink, a scalable function, the host."""


def test_subfunctions() -> None:
    function = Subfunction("pci/0000:03:00.0/229408", "active", "attached")
    assert parse_subfunctions(PORTS) == {"en3f0pf0sf0": function}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"port":{"pci/0000:03:00.0/1":7}}'])
def test_other_text_than_ports_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_subfunctions(text)
