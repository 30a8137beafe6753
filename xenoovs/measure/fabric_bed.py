"""A fabric lab as a bed: hosts send flows through their DPUs, and elephants and dead spines disturb them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xenoovs.agent.control.paths import agent_paths, answers
from xenoovs.dataclass import dataclass
from xenoovs.errors import MeasureError
from xenoovs.lab.fabric.plan import BRIDGE, Fabric, Site
from xenoovs.lab.host import check_root
from xenoovs.lab.lab import FabricLab, open_fabric
from xenoovs.lab.place import Place, this_machine
from xenoovs.measure.bed import Station, hold_lock
from xenoovs.measure.bridge_flows import flows_of_switch_restored
from xenoovs.measure.lab_bed import cpu_of
from xenoovs.measure.samples import BedKind
from xenoovs.switch.endpoint import Endpoint

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
    """An open fabric lab. Everything that was started in it ends with it. `spines`: By number of the path, from 1."""

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

    ovs = place.run(["ovs-vswitchd", "--version"]).stdout.splitlines()[0].rpartition(" ")[2]
    kernel = place.run(["uname", "-r"]).stdout.strip()
    return FabricBed(
        lab=lab,
        place=place,
        senders=tuple(map(pair, fabric.senders)),
        receiver=pair(fabric.receiver),
        elephant=station("elephant"),
        spines={number: station(name) for number, name in enumerate(fabric.spines, start=1)},
        versions={"ovs": ovs, "kernel": kernel, "cpu": cpu_of(place), "tcp": "CUBIC"},
    )


@contextmanager
def prepared(bed: FabricBed, *, txrehash: bool) -> Iterator[None]:
    """Prepare hosts and bridges for a run, and restore them at the end, also if this process is killed.

    Raises MeasureError where an agent runs on a DPU: it would revert the flows of the other designs.
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
