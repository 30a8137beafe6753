"""The health of a fabric lab: its machines, the Open vSwitch of each DPU, the spines; and how a spine fails."""

from __future__ import annotations

import json
from collections.abc import Iterable

from xenoovs.dataclass import dataclass
from xenoovs.errors import LabError
from xenoovs.lab.fabric_topology import Fabric
from xenoovs.lab.host import LabNetns, check_root, namespaces_of
from xenoovs.lab.lab import FabricLab, sole_owner


@dataclass(frozen=True, slots=True)
class FabricMachine:
    """A machine of a fabric lab. `state`: `up`, `missing`, `Open vSwitch does not run` or `swallows all packets`. `db`:
    database of a DPU's Open vSwitch; empty if it is no DPU."""

    name: str
    namespace: str
    address: str
    state: str
    db: str


SWALLOWS = "swallows all packets"


def fabric_machines(lab: FabricLab) -> tuple[FabricMachine, ...]:
    """Return the machines of a fabric lab, in the order in which a packet passes them. Raises LabError without root."""
    check_root()
    present, fabric, far = namespaces_of(lab.name), lab.fabric, lab.fabric.receiver
    near = [name for site in fabric.senders for name in (site.host, site.dpu)]
    names = [*near, "leafa", *fabric.spines, "leafb", far.dpu, far.host, "elephant"]
    return tuple(_machine(lab, name, is_there=fabric.namespace(name) in present) for name in names)


def state_of(machines: Iterable[FabricMachine]) -> str:
    """Return `up`, `failing` if only spines that `lab fail` made fail are down, else `damaged`."""
    states = {machine.state for machine in machines} - {"up"}
    return "up" if not states else "failing" if states == {SWALLOWS} else "damaged"


def _machine(lab: FabricLab, name: str, *, is_there: bool) -> FabricMachine:
    fabric = lab.fabric
    is_dpu = any(site.dpu == name for site in fabric.sites)
    address = next((here.ip for here, _ in fabric.ports_of(name) if here.address), "")
    state = "up"
    if not is_there:
        state = "missing"
    elif is_dpu and len(lab.ovs(name).pids()) < 2:
        state = "Open vSwitch does not run"
    elif name in fabric.spines and _is_silent(lab, name):
        state = SWALLOWS
    return FabricMachine(name, fabric.namespace(name), address, state, lab.ovs(name).db if is_dpu else "")


def _is_silent(lab: FabricLab, spine: str) -> bool:
    argv = ["tc", "-j", "qdisc", "show"]
    found = json.loads(LabNetns(lab.marks).execute(lab.fabric.namespace(spine), argv).stdout or "[]")
    return any(queue["kind"] == "pfifo" for queue in found)


SILENT, FORWARDING = "pfifo limit 0", "noqueue"
"""The queues of a spine: one with limit 0 drops all packets (tc-pfifo(8))."""


def queue_lines(fabric: Fabric, spine: str, queue: str) -> str:
    """Return the input of `tc -batch -` that gives a spine the queue `SILENT` or `FORWARDING`."""
    devices = (here.interface for here, _ in fabric.ports_of(spine))
    return "".join(f"qdisc replace dev {device} root {queue}\n" for device in devices)


def silence(lab: FabricLab, spine: str) -> None:
    """Make a spine drop every packet. Raises LabError if there is no such spine."""
    _set_queues(lab, find_spine(lab, spine), SILENT)


def restore(lab: FabricLab, spines: tuple[str, ...]) -> tuple[str, ...]:
    """Make spines forward again. Return those that did not forward. Raises LabError if there is no such spine."""
    silent = tuple(name for name in spines if _is_silent(lab, find_spine(lab, name)))
    for name in silent:
        _set_queues(lab, name, FORWARDING)
    return silent


def _set_queues(lab: FabricLab, spine: str, queue: str) -> None:
    lines = queue_lines(lab.fabric, spine, queue)
    with sole_owner(lab.directory):
        LabNetns(lab.marks).execute(lab.fabric.namespace(spine), ["tc", "-batch", "-"], stdin=lines)


def find_spine(lab: FabricLab, spine: str) -> str:
    """Return the name of a spine. Raises LabError if the lab has no such spine."""
    if spine not in lab.fabric.spines:
        raise LabError(f"lab {lab.name} has no spine {spine!r}; it has {', '.join(lab.fabric.spines)}")
    return spine
