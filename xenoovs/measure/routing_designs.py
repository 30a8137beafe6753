"""The designs that the completion experiment compares: how a DPU chooses a path for its host's tunnel packets."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import Any

from xenoovs.agent.control.client import Client
from xenoovs.errors import MeasureError
from xenoovs.lab.fabric_topology import BRIDGE, PROBE_PORT, UPLINK, VXLAN_PORT, Fabric
from xenoovs.lab.place import RemoteCommand
from xenoovs.lab.topology import HOST_PORT
from xenoovs.measure.bed import replace_flows
from xenoovs.measure.fabric_bed import FabricBed, SitePair, wait_for
from xenoovs.measure.samples import Value
from xenoovs.switch.endpoint import answers
from xenoovs.switch.process import PYTHON_MODULE

_ANSWER_PORT, _PROBE_TOS = 4788, 0x20
_READY_TIMEOUT_S, _POLL_S = 90.0, 0.1
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
            deque(program.lines(_POLL_S), maxlen=0)
        else:
            time.sleep(_POLL_S)


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
