"""A fabric lab as a bed: hosts send flows through their DPUs; elephants and dead spines disturb them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xenoovs.agent.control.files import agent_paths
from xenoovs.dataclass import dataclass
from xenoovs.errors import MeasureError
from xenoovs.lab.fabric.status import FORWARDING, SILENT, queue_lines
from xenoovs.lab.fabric_topology import BRIDGE, Fabric, Site, elephant_net
from xenoovs.lab.host import check_root
from xenoovs.lab.lab import FabricLab, open_fabric
from xenoovs.lab.place import Place, RemoteCommand, this_machine
from xenoovs.measure.bed import Station, first_line, flows_of_switch_restored, hold_lock
from xenoovs.measure.machines_bed import versions_of
from xenoovs.measure.samples import BedKind, Measurement, Value
from xenoovs.switch.endpoint import Endpoint, answers
from xenoovs.switch.process import PYTHON_MODULE

_TXREHASH = "/proc/sys/net/core/txrehash"
"""Whether a TCP socket of the host takes another hash, and with it another path, after each time-out
(ip-sysctl.rst of the kernel; default 1). Those of virtual machines do not."""


@dataclass(frozen=True, slots=True)
class SitePair:
    site: Site
    host: Station
    dpu: Station


@dataclass(frozen=True, slots=True)
class FabricBed:
    """An open fabric lab. Closing it ends all that was started in it. `spines`: By number of the path, from 1."""

    lab: FabricLab
    place: Place
    senders: tuple[SitePair, ...]
    receiver: SitePair
    elephant: Station
    spines: Mapping[int, Station]
    versions: Mapping[str, str]
    kind: BedKind = BedKind.LAB

    @property
    def fabric(self) -> Fabric:
        return self.lab.fabric

    @property
    def datapath(self) -> str:
        return f"Open vSwitch {self.versions['ovs']}, userspace datapath, in a fabric lab on one machine"

    @property
    def config(self) -> str:
        return self.lab.config(self.senders[0].site.dpu).read_text()

    @property
    def document(self) -> Mapping[str, object]:
        shape = self.fabric.shape
        sizes = {"paths": shape.paths, "senders": shape.senders}
        return {"lab": self.lab.name, **sizes, "rate_bps": shape.rate_bps, "buffer_bytes": shape.buffer_bytes}

    def agent_socket(self, pair: SitePair) -> Path:
        ovs = self.lab.ovs(pair.site.dpu)
        paths = agent_paths(Endpoint(ovs.db, ovs.directory), env={}, is_root=True)
        return paths.socket(BRIDGE)

    @property
    def pairs(self) -> tuple[SitePair, ...]:
        return (*self.senders, self.receiver)


@contextmanager
def open_fabric_bed(name: str) -> Iterator[FabricBed]:
    """Open fabric lab `name`. Raises LabError, MeasureError."""
    check_root()
    lab = open_fabric(name)
    with this_machine() as place:
        bed = _bed(lab, place)
        for pair in bed.pairs:
            hold_lock(place, f"switch {pair.dpu.env['OVS_RUNDIR']}", f"lab {name}")
        yield bed


def _bed(lab: FabricLab, place: Place) -> FabricBed:
    fabric = lab.fabric

    def station(machine: str, interface: str = "", address: str = "", **env: str) -> Station:
        return Station(machine, place, interface, fabric.namespace(machine), address=address, env=env)

    def pair(site: Site) -> SitePair:
        dpu = station(site.dpu, "p0", OVS_RUNDIR=str(lab.ovs(site.dpu).directory))
        return SitePair(site, station(site.host, "vxlan0", site.overlay_ip), dpu)

    return FabricBed(
        lab=lab,
        place=place,
        senders=tuple(map(pair, fabric.senders)),
        receiver=pair(fabric.receiver),
        elephant=station("elephant"),
        spines={number: station(name) for number, name in enumerate(fabric.spines, start=1)},
        versions={**versions_of(place), "tcp": "CUBIC"},
    )


@contextmanager
def prepared(bed: FabricBed, *, txrehash: bool) -> Iterator[None]:
    """Prepare hosts and bridges for a run; restore them at the end, even if this process is killed.

    Raises MeasureError if an agent runs on a DPU: it would revert the flows of the other designs.
    """
    with ExitStack() as stack:
        for pair in bed.pairs:
            if answers(bed.agent_socket(pair)):
                raise MeasureError(f"an agent runs on {pair.site.dpu} of lab {bed.lab.name}: end it first")
            stack.enter_context(flows_of_switch_restored(pair.dpu, BRIDGE))
            before = pair.host.run("cat", _TXREHASH).stdout
            stack.enter_context(pair.host.undone_at_end("tee", _TXREHASH, stdin=before))
            pair.host.run("tee", _TXREHASH, stdin=f"{int(txrehash)}\n")
        yield


# The flows of the completion experiment, and their disturbances.

_FLOWS = Path(__file__).with_name("flows_program.py")
_START_TIMEOUT_S, _PATIENCE_S = 30.0, 60.0
_POLL_S = 0.02
_KEYS = 1_000_000
"""Difference of the flow keys of two senders."""


def wait_for(program: RemoteCommand, what: str) -> str:
    """Return the first line of a program. Raises MeasureError if it ends or times out without one."""
    return first_line(program, _START_TIMEOUT_S, f"{what} does not start")


class FlowGroup:
    """Flows that begin together, from each sender of a bed to the receiver."""

    def __init__(self, server: RemoteCommand, senders: Sequence[RemoteCommand], limit_s: float) -> None:
        self._server, self._senders, self._limit_s = server, senders, limit_s
        self._start_s = 0.0

    def begin_at(self, start_s: float) -> None:
        """Set the time at which all flows begin, by the monotonic clock."""
        self._start_s = start_s
        for sender in self._senders:
            sender.feed(f"{start_s!r}\n")

    def wait(self, meanwhile: Callable[[], None]) -> Measurement:
        """Wait for the end of all flows, or the time limit. Calls `meanwhile` repeatedly. Raises MeasureError."""
        ended = dict[int, float]()
        deadline_s = self._start_s + self._limit_s + _PATIENCE_S
        while any(sender.exit_code is None for sender in self._senders):
            meanwhile()
            for line in self._server.lines(_POLL_S):
                key, at_s = json.loads(line)
                ended[key] = at_s
            if time.monotonic() > deadline_s:
                raise MeasureError("the senders of flows do not end: the machine is too busy for this experiment")
        began = self._began()
        flow_s = [ended[key] - began_s for key, began_s in began.items() if key in ended]
        late_s = max(began.values()) - self._start_s
        suspect = (f"the flows began {late_s * 1000:.0f} ms late: the machine is too busy",) if late_s > 0.05 else ()
        values: dict[str, Value] = {
            "completion_s": max(flow_s) if len(flow_s) == len(began) else self._limit_s,
            "flow_s": flow_s,
            "completed": len(flow_s),
            "flows": len(began),
        }
        return Measurement(values, suspect)

    def _began(self) -> dict[int, float]:
        began = dict[int, float]()
        for number, sender in enumerate(self._senders):
            lines = list(sender.lines(0))
            if sender.exit_code != 0 or not lines:
                raise MeasureError(f"a sender of flows fails: {' '.join(sender.errors) or 'no output'}")
            times = json.loads(lines[-1])["began_s"]
            began.update({number * _KEYS + flow: at_s for flow, at_s in enumerate(times)})
        return began


@contextmanager
def flow_group(bed: FabricBed, *, flows: int, size: int, limit_s: float) -> Iterator[FlowGroup]:
    """Start the programs of flows, which wait for the time at which to begin. Raises MeasureError."""
    receiver, senders = bed.receiver.host, list[RemoteCommand]()
    with ExitStack() as stack:

        def start(station: Station, *arguments: str) -> RemoteCommand:
            program = station.start(sys.executable, "-I", str(_FLOWS), *arguments, stdin="")
            stack.callback(program.end)
            return program

        server = start(receiver, "serve", receiver.address)
        port = wait_for(server, "the receiver of flows")
        for number, pair in enumerate(bed.senders):
            sizes = (str(number * _KEYS), str(flows), str(size), f"{limit_s:g}")
            senders.append(start(pair.host, "send", pair.host.address, receiver.address, port, *sizes))
        for program in senders:
            wait_for(program, "a sender of flows")
        yield FlowGroup(server, senders, limit_s)


@contextmanager
def elephant(bed: FabricBed, path: int, *, load: float, is_reverse: bool) -> Iterator[Callable[[float], None]]:
    """Prepare an elephant on a path, at `load` times its link rate; yield the function that sets its start."""
    leaf = "leafb" if is_reverse else "leafa"
    address = elephant_net(leaf, path).replace(".0/24", ".2")
    argv = (*PYTHON_MODULE, "xenoovs.lab.fabric.elephant", address, f"{load * bed.fabric.shape.rate_bps}")
    program = bed.elephant.start(*argv, stdin="")
    try:
        wait_for(program, "the elephant")
        yield lambda at_s: program.feed(f"{at_s!r}\n")
    finally:
        program.end()


@contextmanager
def dying_spine(bed: FabricBed, path: int) -> Iterator[Callable[[], None]]:
    """Yield the function that makes a spine drop all packets; at the end it forwards again, even if killed."""
    spine = bed.spines[path]
    with spine.undone_at_end("tc", "-batch", "-", stdin=queue_lines(bed.fabric, spine.role, FORWARDING)):
        yield lambda: spine.start("tc", "-batch", "-", stdin=queue_lines(bed.fabric, spine.role, SILENT)).close_input()
