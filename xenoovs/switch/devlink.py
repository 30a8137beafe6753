"""The switch of a NIC function by devlink-dev(8): its mode and the parameters that decide about offload."""

from __future__ import annotations

import json
from typing import Any

from xenoovs.datapath.host import Eswitch, Seen, Subfunction, Unknown
from xenoovs.errors import ParseError
from xenoovs.switch.json_text import read_json
from xenoovs.switch.probe import Place

PORTS = ("devlink", "-j", "port", "show")
STEERING = "flow_steering_mode"
MULTIPORT = "esw_multiport"
"""Parameters of mlx5 (kernel documentation, networking/devlink/mlx5.rst)."""


def read_eswitch(place: Place, pci: str) -> Eswitch:
    """Ask about one PCI device, `0000:03:00.0`."""
    show = ("devlink", "-j", "dev", "eswitch", "show", f"pci/{pci}")
    return Eswitch(
        pci,
        mode=place.read(show, lambda text: parse_mode(text, pci)),
        steering=_as_text(_parameter(place, pci, STEERING)),
        multiport=_as_bool(_parameter(place, pci, MULTIPORT)),
    )


def parse_mode(text: str, pci: str) -> Seen[str]:
    """`devlink -j dev eswitch show pci/PCI`. Raises ParseError."""
    mode = _device(text, "dev", pci).get("mode")
    return mode if isinstance(mode, str) else Unknown("devlink tells no mode")


def parse_parameter(text: str, pci: str, name: str) -> Seen[object]:
    """The runtime value in `devlink -j dev param show pci/PCI name NAME`; some kernels list none. Raises ParseError."""
    parameters = _device(text, "param", pci, kind=list)
    values = [value for row in parameters if row.get("name") == name for value in row.get("values", ())]
    found = next((value.get("value") for value in values if value.get("cmode") == "runtime"), None)
    return Unknown(f"devlink tells no value of {name}") if found is None else found


def parse_subfunctions(text: str) -> dict[str, Subfunction]:
    """`devlink -j port show`: representor -> what is behind it, for scalable functions. Raises ParseError."""
    expected = "'port' of `devlink -j port show`"
    document = read_json(text, expected=expected)
    ports = document.get("port") if isinstance(document, dict) else None
    if not isinstance(ports, dict) or not all(isinstance(port, dict) for port in ports.values()):
        raise ParseError(text=text, offset=0, expected=expected)
    return {
        str(port["netdev"]): Subfunction(handle, str(function.get("state")), str(function.get("opstate")))
        for handle, port in ports.items()
        if port.get("flavour") == "pcisf" and "netdev" in port and isinstance(function := port.get("function"), dict)
    }


def _parameter(place: Place, pci: str, name: str) -> Seen[object]:
    show = ("devlink", "-j", "dev", "param", "show", f"pci/{pci}", "name", name)
    return place.read(show, lambda text: parse_parameter(text, pci, name))


def _device(text: str, section: str, pci: str, *, kind: type = dict) -> Any:
    expected = f"{section!r} with pci/{pci} of `devlink -j`"
    document = read_json(text, expected=expected)
    inner = document.get(section) if isinstance(document, dict) else None
    found = inner.get(f"pci/{pci}") if isinstance(inner, dict) else None
    if not isinstance(found, kind):
        raise ParseError(text=json.dumps(document), offset=0, expected=expected)
    return found


def _as_text(value: Seen[object]) -> Seen[str]:
    return value if isinstance(value, Unknown) else str(value)


def _as_bool(value: Seen[object]) -> Seen[bool]:
    # Printed as JSON's true by newer and as text by older versions of devlink(8).
    return value if isinstance(value, Unknown) else value in (True, "true")
