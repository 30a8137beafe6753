"""The bed of an experiment: the machine of each role, and the services under test."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.ovn import chassis_of, use_of
from xenoovs.errors import BridgeOfOvn, CommandFailed, MeasureError, did_you_mean, first_names
from xenoovs.lab.place import Place, RemoteCommand
from xenoovs.measure.frames import LoadProfile, load_profile
from xenoovs.measure.samples import BedKind
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import Balancer, Protocol, Service
from xenoovs.model.emit import render_config
from xenoovs.openflow.flow import Flow, is_foreign
from xenoovs.openflow.text import parse_dump, render_flow
from xenoovs.switch.process import Completed

TCPREPLAY, PKTGEN = "tcpreplay", "pktgen"
"""Programs that send a load, as in a bed file."""


@dataclass(frozen=True, slots=True)
class Station:
    """A machine in a role. `interface`: Sends and receives its packets; the first uplink of the dpu.

    `netns`: Namespace of the interface; empty for that of the machine itself. `mac`: Empty if it is not read yet."""

    role: str
    place: Place
    interface: str
    netns: str = ""
    mac: str = ""
    address: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def is_at(self, other: Station) -> bool:
        """Return whether both have the same interface of the same machine."""
        return (self.place, self.netns, self.interface) == (other.place, other.netns, other.interface)

    def argv(self, *argv: str) -> list[str]:
        """Return the command that runs in the namespace."""
        return [*(["ip", "netns", "exec", self.netns] if self.netns else []), *argv]

    def start(self, *argv: str, stdin: str | None = None) -> RemoteCommand:
        """Start a command there; see Place.start."""
        return self.place.start(self.argv(*argv), stdin=stdin, env=self.env)

    def run(self, *argv: str, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command there to its end; see Place.run."""
        return self.place.run(self.argv(*argv), stdin=stdin, timeout_s=timeout_s, env=self.env)

    def try_run(self, *argv: str, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command there to its end; see Place.try_run."""
        return self.place.try_run(self.argv(*argv), stdin=stdin, timeout_s=timeout_s, env=self.env)

    def ask(
        self, program: str, *argv: str, failure: str, hint: str = "", stdin: str = "", timeout_s: float = 30.0
    ) -> Any:
        """Run the source of a Python program there, and return the JSON that it prints.

        Raises MeasureError with `failure`, the reason and `hint`.
        """
        done = self.try_run("python3", "-I", "-c", program, *argv, stdin=stdin, timeout_s=timeout_s)
        if done.exit_code == 0:
            with suppress(ValueError, RecursionError):
                return json.loads(done.stdout)
        reason = last_line(done) if done.exit_code else f"it printed {shlex.quote(done.stdout[:80])}"
        raise MeasureError(f"{failure}: {reason}{hint}")

    def undone_at_end(self, *argv: str, stdin: str = "") -> AbstractContextManager[None]:
        """Run a command there at the end of the block, even if this process is killed before."""
        variables = [f"{name}={value}" for name, value in self.env.items()]
        return self.place.undone_at_end(["env", *variables, *self.argv(*argv)], stdin=stdin)


def last_line(ended: CommandFailed | Completed) -> str:
    """Return the last line that a command wrote to stderr, for a message."""
    return (ended.stderr.strip().splitlines() or [f"status {ended.exit_code}"])[-1]


def first_line(program: RemoteCommand, timeout_s: float, failure: str) -> str:
    """Return the first line of a program. Raises MeasureError with `failure` and the reason if it prints none."""
    for line in program.lines(timeout_s):
        return line
    raise MeasureError(f"{failure}: {' '.join(program.errors) or program.reason or 'no output'}")


@dataclass(frozen=True, slots=True)
class Bed:
    """An open bed. All that was started on its machines ends when it is closed.

    `stations`: Backends by service name, then backend name (two services may use one name for two machines); only
    services whose backends are all on the bed. `gateway_mac`: Destination MAC for a VIP without a MAC in the config.
    """

    name: str
    kind: BedKind
    datapath: str
    balancer: Balancer
    service: Service
    generator: Station
    client: Station
    dpu: Station
    stations: Mapping[str, Mapping[str, Station]]
    gateway_mac: str
    document: Mapping[str, object]
    versions: Mapping[str, str]
    driver: str = TCPREPLAY

    @property
    def backends(self) -> Mapping[str, Station]:
        """Return the machines of the service under test, by backend name."""
        return self.stations[self.service.name]

    def profile(self, *, clients: int, seed: int) -> LoadProfile:
        """Return the load for the service under test. Raises MeasureError if it serves no UDP."""
        macs = {"source_mac": self.generator.mac, "gateway_mac": self.gateway_mac}
        return load_profile(self.balancer, self.service, **macs, clients=clients, seed=seed)

    @property
    def config(self) -> str:
        return render_config(self.balancer)


def lock_bed(bed: Bed) -> None:
    """Lock the interfaces and switches of a bed: two experiments on one of them would count each other's load.

    The locks end with the connections to the machines, after all changes there are undone. Raises MeasureError.
    """
    locks = {(bed.dpu.place, f"switch {bed.dpu.env.get('OVS_RUNDIR', '')}"): bed.dpu}
    backends = (station for of_service in bed.stations.values() for station in of_service.values())
    for station in (bed.generator, bed.client, bed.dpu, *backends):
        locks.setdefault((station.place, f"{station.netns} {station.interface}"), station)
    for (place, name), station in locks.items():
        hold_lock(place, name, f"the {station.role} of {bed.name}" if bed.kind is BedKind.MACHINES else bed.name)


def hold_lock(place: Place, name: str, what: str) -> None:
    """Take a lock on a machine, or raise MeasureError if another process has it. `what`: what it protects, for the
    message."""
    if not place.lock(f"measure {name}"):
        raise MeasureError(
            f"another `xenoovs measure` uses {what} now, or what a killed one changed is being undone: wait for its "
            "end, or measure on another bed"
        )


def service_under_test(balancer: Balancer, name: str | None) -> Service:
    """Return the service of that name, or without a name the first that serves UDP. Raises MeasureError."""
    names = [service.name for service in balancer.services]
    if name is not None:
        for service in balancer.services:
            if service.name == name:
                return service
        raise MeasureError(f"the config has no service {name}, only {first_names(names)}.{did_you_mean(name, names)}")
    for service in balancer.services:
        if service.claim.protocol in (None, Protocol.UDP):
            return service
    raise MeasureError("the config has no service that serves UDP, which the generators send; add one")


# Temporary flows on the bridge of a bed: its previous flows are restored however the experiment ends.

_OFCTL = ("ovs-ofctl", "-O", "OpenFlow14")
_TIMEOUT_S = 60.0

_EXTERNAL_IDS = ("ovs-vsctl", "--format=json", "--columns=external_ids", "list", "Open_vSwitch")


def require_not_of_ovn(bed: Bed) -> None:
    """Raise BridgeOfOvn if the bridge of the bed belongs to an ovn-controller there."""
    bridge = bed.balancer.uplinks.bridge
    rows = json.loads(bed.dpu.run(*_EXTERNAL_IDS, timeout_s=_TIMEOUT_S).stdout)["data"]
    # A map is `["map", [[key, value], ...]]` (RFC 7047, 5.1).
    use = use_of(bridge, chassis_of(dict(rows[0][0][1]))) if rows else None
    if use is not None and use.is_owner:
        raise BridgeOfOvn(bridge=bridge, evidence=use.evidence)


def bridge_flows(dpu: Station, bridge: str) -> str:
    """Return all flows of a bridge, in the format of `ovs-ofctl replace-flows`. Raises MeasureError."""
    return _ofctl(dpu, bridge, "--names", "--no-stats", "dump-flows", bridge)


@contextmanager
def restored_flows(bed: Bed) -> Iterator[str]:
    """Yield the flows of the bridge; restore them at the end, even if killed. Raises MeasureError, BridgeOfOvn."""
    require_not_of_ovn(bed)
    with flows_of_switch_restored(bed.dpu, bed.balancer.uplinks.bridge) as before:
        yield before


@contextmanager
def flows_of_switch_restored(dpu: Station, bridge: str) -> Iterator[str]:
    before = bridge_flows(dpu, bridge)
    with dpu.undone_at_end(*_OFCTL, "--bundle", "replace-flows", bridge, "-", stdin=before):
        yield before


@contextmanager
def added_flows(bed: Bed, cookie: int, flows: Iterable[str]) -> Iterator[None]:
    """Add flows with a cookie that is foreign to xenoovs; delete them at the end, even if this process is killed.

    Raises MeasureError, BridgeOfOvn.
    """
    require_not_of_ovn(bed)
    bridge = bed.balancer.uplinks.bridge
    with bed.dpu.undone_at_end(*_OFCTL, "del-flows", bridge, f"cookie={cookie:#x}/-1"):
        add_flows(bed, cookie, flows)
        yield


def add_flows(bed: Bed, cookie: int, flows: Iterable[str]) -> None:
    """Add flows above all others in one bundle, or replace those with the same match. Raises MeasureError."""
    bridge, text = bed.balancer.uplinks.bridge, "".join(f"cookie={cookie:#x},priority=65535,{flow}\n" for flow in flows)
    _ofctl(bed.dpu, bridge, "--names", "--bundle", "add-flows", bridge, "-", stdin=text)


def packets_to(address: IPAddress, protocol: str) -> str:
    """Return the match of packets of `tcp` or `udp` to an address, for `add_flows`."""
    return f"{protocol},nw_dst={address}" if address.version == 4 else f"{protocol}6,ipv6_dst={address}"


def replace_flows(dpu: Station, bridge: str, text: str) -> None:
    """Replace all flows of a bridge by `text`, in one bundle. Raises MeasureError."""
    _ofctl(dpu, bridge, "--bundle", "replace-flows", bridge, "-", stdin=text)


def set_program(bed: Bed, flows: Iterable[Flow], *, before: str) -> None:
    """Replace the flows of xenoovs in one bundle; keep the foreign flows of `before`. Raises MeasureError."""
    foreign = [seen.flow for seen in parse_dump(before) if is_foreign(seen.flow.cookie)]
    text = "".join(f"{render_flow(flow)}\n" for flow in (*flows, *foreign))
    replace_flows(bed.dpu, bed.balancer.uplinks.bridge, text)


def _ofctl(dpu: Station, bridge: str, *arguments: str, stdin: str = "") -> str:
    try:
        return dpu.run(*_OFCTL, *arguments, stdin=stdin, timeout_s=_TIMEOUT_S).stdout
    except CommandFailed as failed:
        raise MeasureError(f"flows of bridge {bridge} cannot be changed: {last_line(failed)}") from None
