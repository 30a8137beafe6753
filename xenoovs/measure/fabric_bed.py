"""A fabric lab as a bed: hosts send flows through their DPUs by one of several designs, and a path is disturbed."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from xenoovs.agent.control.client import Client
from xenoovs.agent.control.files import agent_paths
from xenoovs.dataclass import dataclass
from xenoovs.errors import MeasureError
from xenoovs.lab.fabric.status import FORWARDING, SILENT, queue_lines
from xenoovs.lab.fabric_topology import BRIDGE, PROBE_PORT, UPLINK, VXLAN_PORT, Fabric, Site, elephant_net
from xenoovs.lab.host import check_root
from xenoovs.lab.lab import FabricLab, open_fabric
from xenoovs.lab.place import Place, RemoteCommand, this_machine
from xenoovs.lab.topology import HOST_PORT
from xenoovs.measure.bed import Station, first_line, flows_of_switch_restored, hold_lock, replace_flows
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
def dying_spine(bed: FabricBed, path: int) -> Iterator[Callable[[float], None]]:
    """Yield the function that sets when a spine drops all packets; at the end it forwards again, even if killed."""
    spine, programs = bed.spines[path], list[RemoteCommand]()

    def die(at_s: float) -> None:
        argv = ("sh", "-c", 'sleep "$1"; exec tc -batch -', "sh", f"{max(0.0, at_s - time.monotonic()):.3f}")
        programs.append(spine.start(*argv, stdin=queue_lines(bed.fabric, spine.role, SILENT)))
        programs[0].close_input()

    with spine.undone_at_end("tc", "-batch", "-", stdin=queue_lines(bed.fabric, spine.role, FORWARDING)):
        try:
            yield die
        finally:
            for program in programs:
                program.end()


# The designs that the completion experiment compares: how a DPU chooses a path for its host's tunnel packets.

_ANSWER_PORT, _PROBE_TOS = 4788, 0x20
_READY_TIMEOUT_S, _AGENT_POLL_S = 90.0, 0.1
_WATCH_S = 0.03
"""Precision of the time at which a path has no block left."""


class RoutingDesign(Enum):
    """A way to choose paths. ECMP: the fabric alone. DOCA_AR: its published algorithm. BLOCKS: xenoovs."""

    ECMP = "ecmp"
    DOCA_AR = "doca-ar"
    BLOCKS = "blocks"


class RunningDesign:
    """A running design. The default is one that moves nothing and counts nothing."""

    def begin(self) -> None:
        """Begin to count."""

    def watch(self) -> None:
        """Read the state of the design; called repeatedly while flows are sent."""

    def values(self, disturbed_s: float) -> Mapping[str, Value]:
        """Return the values of a sample. `disturbed_s`: Start of the disturbance, by the monotonic clock."""
        return {}


class ProbesPerFlow(RunningDesign):
    """DOCA-AR's published algorithm, which runs on the DPU of each sender."""

    def __init__(self, programs: Sequence[RemoteCommand]) -> None:
        self._programs = programs

    def values(self, disturbed_s: float) -> Mapping[str, Value]:
        counts = Counter[str]()
        for program in self._programs:
            program.close_input()
            counts.update(json.loads(wait_for(program, "the published algorithm")))
        return {"probed": counts["flows"], "probes": counts["probes"], "timeouts": counts["timeouts"]}


class MovingBlocks(RunningDesign):
    """The agents of xenoovs on the DPUs of the senders and the receiver."""

    def __init__(self, fabric: Fabric, senders: Sequence[Client], receiver: Client) -> None:
        self._fabric, self._senders, self._receiver = fabric, senders, receiver
        self._before, self._before_back = Counter[str](), Counter[str]()
        self._seen = list[tuple[float, list[list[int]]]]()

    def begin(self) -> None:
        self._before, self._before_back = _moves(self._remotes), _moves(_remotes(self._receiver))

    def watch(self) -> None:
        if not self._seen or time.monotonic() > self._seen[-1][0] + _WATCH_S:
            blocks = self._blocks()
            self._seen.append((time.monotonic(), blocks))

    def values(self, disturbed_s: float) -> Mapping[str, Value]:
        moves, blocks = _moves(self._remotes) - self._before, self._blocks()
        back = _moves(_remotes(self._receiver)) - self._before_back
        self._seen.append((time.monotonic(), blocks))
        # Only a dead path loses all its blocks.
        empty_s = next((at_s for at_s, found in self._seen if at_s > disturbed_s and not any(map(min, found))), None)
        return {
            "moves": moves.total(),
            "moves_by_reason": dict(moves),
            "moves_back": back.total(),
            "blocks": sum(map(sum, blocks)),
            "least_blocks": sum(map(min, blocks)),
            **({} if empty_s is None else {"emptied_s": empty_s - disturbed_s}),
        }

    @property
    def is_ready(self) -> bool:
        """Return whether every remote has all its paths, all paths are good, and all blocks are on them."""
        return all(
            len(remote["paths"]) == self._fabric.shape.paths
            and all(path["state"] == "good" for path in remote["paths"])
            and sum(path["blocks"] for path in remote["paths"]) >= self._fabric.shape.paths
            for remote in (*self._remotes, *_remotes(self._receiver))
        )

    @property
    def _remotes(self) -> list[Mapping[str, Any]]:
        return [remote for agent in self._senders for remote in _remotes(agent)]

    def _blocks(self) -> list[list[int]]:
        return [[path["blocks"] for path in remote["paths"]] for remote in self._remotes]


def _remotes(agent: Client) -> Sequence[Mapping[str, Any]]:
    # An agent that has just started has no remotes yet.
    return agent.ask("paths")["remotes"] or ({"paths": (), "moves": {}},)


def _moves(remotes: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return the number of blocks that have moved since the agents started, by reason."""
    total = Counter[str]()
    for remote in remotes:
        total.update(remote["moves"])
    return total


@contextmanager
def running_design(bed: FabricBed, design: RoutingDesign) -> Iterator[RunningDesign]:
    """Run a design on the DPUs of all senders until the end of the block. Raises MeasureError."""
    with ExitStack() as stack:
        if design is RoutingDesign.BLOCKS:
            # Start all before waiting for one: each needs the reflector of its peer.
            agents = [stack.enter_context(_agent(bed, pair)) for pair in bed.pairs]
            blocks = MovingBlocks(bed.fabric, agents[:-1], agents[-1])
            _wait_until(lambda: blocks.is_ready, None)
            yield blocks
            return
        replace_flows(bed.receiver.dpu, BRIDGE, "".join((*_reflector(bed.receiver), *_plain())))
        if design is RoutingDesign.DOCA_AR:
            yield ProbesPerFlow([stack.enter_context(_probing_per_flow(pair)) for pair in bed.senders])
            return
        for pair in bed.senders:
            replace_flows(pair.dpu, BRIDGE, "".join(_plain()))
        yield RunningDesign()


@contextmanager
def _agent(bed: FabricBed, pair: SitePair) -> Iterator[Client]:
    """Run the agent of a DPU on an empty bridge, so that it finds its paths from the start."""
    replace_flows(pair.dpu, BRIDGE, "")
    argv = (*PYTHON_MODULE, "xenoovs", "agent", str(bed.lab.config(pair.site.dpu)))
    program = pair.dpu.start(*argv)
    client = Client(bed.agent_socket(pair))
    try:
        _wait_until(lambda: answers(client.path), program)
        yield client
    finally:
        program.end()


def _wait_until(is_so: Callable[[], bool], program: RemoteCommand | None) -> None:
    """Wait for an agent. Raises MeasureError if it ends, or does not find its paths in time."""
    deadline_s = time.monotonic() + _READY_TIMEOUT_S
    while not is_so():
        if program is not None and program.exit_code is not None:
            raise MeasureError(f"the agent does not start: {' '.join(program.errors[-3:])}")
        if time.monotonic() > deadline_s:
            raise MeasureError("the agent does not find all paths; `xenoovs paths` on a DPU shows why")
        if program is not None:
            deque(program.lines(_AGENT_POLL_S), maxlen=0)
        else:
            time.sleep(_AGENT_POLL_S)


def _plain() -> Iterator[str]:
    """Yield flows that forward all packets unchanged, so that the leaf chooses paths by its hash."""
    yield f"priority=100,in_port={HOST_PORT} actions=output:{UPLINK}\n"
    yield f"priority=100,in_port={UPLINK} actions=output:{HOST_PORT}\n"


def _reflector(pair: SitePair) -> Iterator[str]:
    """Yield the flow that answers probes, the same for all designs. All answers of a remote return by one path."""
    site = pair.site
    yield (
        f"priority=2100,udp,in_port={UPLINK},nw_dst={site.port.ip},nw_tos={_PROBE_TOS},tp_dst={VXLAN_PORT} "
        f"actions=mod_dl_dst:{site.gateway.mac},mod_dl_src:{site.port.mac},move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[],"
        f"mod_nw_src:{site.port.ip},mod_tp_src:{_ANSWER_PORT},mod_tp_dst:{_ANSWER_PORT},IN_PORT\n"
    )


@contextmanager
def _probing_per_flow(pair: SitePair) -> Iterator[RemoteCommand]:
    match = f"udp,in_port={HOST_PORT},tp_dst={VXLAN_PORT}"
    answers = f"udp,in_port={UPLINK},nw_dst={pair.site.port.ip},tp_dst={_ANSWER_PORT}"
    flows = (
        f"priority=2100,in_port={PROBE_PORT} actions=output:{UPLINK}\n",
        f"priority=2100,{answers} actions=output:{PROBE_PORT}\n",
        f"priority=1000,{match} actions=output:{PROBE_PORT}\n",
        *_plain(),
    )
    replace_flows(pair.dpu, BRIDGE, "".join(flows))
    job = {"bridge": BRIDGE, "port": PROBE_PORT, "host_port": HOST_PORT, "uplink": UPLINK}
    argv = (*PYTHON_MODULE, "xenoovs.measure.probe_per_flow")
    program = pair.dpu.start(*argv, stdin=f"{json.dumps(job)}\n")
    try:
        wait_for(program, f"the published algorithm on {pair.site.dpu}")
        yield program
    finally:
        program.end()
