"""The designs that the completion experiment compares: how a DPU chooses a path for its host's tunnel packets."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum

from xenoovs.lab.fabric.plan import BRIDGE, PROBE_PORT, UPLINK, VXLAN_PORT
from xenoovs.lab.topology import HOST_PORT
from xenoovs.measure.bridge_flows import replace_flows
from xenoovs.measure.fabric_bed import FabricBed, SitePair
from xenoovs.measure.fabric_load import wait_for
from xenoovs.measure.place import RemoteCommand
from xenoovs.measure.samples import Value

_ANSWER_PORT, _PROBE_TOS = 4788, 0x20


class RoutingDesign(Enum):
    """ECMP: the fabric alone. SEED: the published algorithm of DOCA-AR. BLOCKS: the tunnels of xenoovs."""

    ECMP = "ecmp"
    SEED = "seed"
    BLOCKS = "blocks"


class RunningDesign:
    """A design at work, and what it is asked for. One that moves nothing has nothing to say."""

    def begin(self) -> None:
        """Let what is counted begin."""

    def watch(self) -> None:
        """Look at the bridges; called all the time while flows are sent."""

    def values(self, disturbed_s: float) -> Mapping[str, Value]:
        """Return what was counted; `disturbed_s`: when the disturbance began, by the monotonic clock."""
        return {}


class ProbesPerFlow(RunningDesign):
    """The published algorithm on the DPU of each sender."""

    def __init__(self, programs: Sequence[RemoteCommand]) -> None:
        self._programs = programs

    def values(self, disturbed_s: float) -> Mapping[str, Value]:
        counts = Counter[str]()
        for program in self._programs:
            program.close_input()
            counts.update(json.loads(wait_for(program, "the published algorithm")))
        return {"probed": counts["flows"], "probes": counts["probes"], "timeouts": counts["timeouts"]}


@contextmanager
def running_design(bed: FabricBed, design: RoutingDesign) -> Iterator[RunningDesign]:
    """Let the DPUs of all senders choose paths by a design until the end of the block. Raises MeasureError."""
    replace_flows(bed.receiver.dpu, BRIDGE, "".join((*_reflector(bed.receiver), *_plain())))
    with ExitStack() as stack:
        if design is RoutingDesign.SEED:
            yield ProbesPerFlow([stack.enter_context(_probing_per_flow(pair)) for pair in bed.senders])
            return
        for pair in bed.senders:
            replace_flows(pair.dpu, BRIDGE, "".join(_plain()))
        yield RunningDesign()


def _plain() -> Iterator[str]:
    """Yield flows that let all packets pass, so that the leaf chooses paths by its hash."""
    yield f"priority=100,in_port={HOST_PORT} actions=output:{UPLINK}\n"
    yield f"priority=100,in_port={UPLINK} actions=output:{HOST_PORT}\n"


def _reflector(pair: SitePair) -> Iterator[str]:
    """Yield the flow that answers probes, the same for all designs: all answers of a remote return by one path."""
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
    argv = (sys.executable, "-P", "-m", "xenoovs.measure.probe_per_flow")
    program = pair.dpu.start(*argv, stdin=f"{json.dumps(job)}\n")
    try:
        wait_for(program, f"the published algorithm on {pair.site.dpu}")
        yield program
    finally:
        program.end()
