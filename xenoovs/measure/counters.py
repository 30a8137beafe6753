"""Counters of a load and of its cost for the switch: readings before and after, and their difference.

The counters of interfaces show what was sent and received. Those of Open vSwitch show how much of it the service's
flows matched, and how much of that the NIC forwarded.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from xenoovs.compile.pipeline import Stage, of_service
from xenoovs.dataclass import asdict, dataclass, field
from xenoovs.datapath.megaflow import Verdict, verdict_of
from xenoovs.datapath.parse import parse_dump
from xenoovs.errors import CommandFailed, MeasureError, ParseError
from xenoovs.lab.place import Place
from xenoovs.measure.bed import Bed, Station, last_line
from xenoovs.model.balancer import service_ids
from xenoovs.regex import regex

_MARK = "== "
_STATISTICS = ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped")
_PHYSICAL = regex(r"^\s*([rt]x_packets_phy):\s*(\d{1,20})\s*$", re.MULTILINE)
_TIME = "uptime"
_UPTIME = regex(rf"^{_TIME} (\d+\.\d+)$", re.MULTILINE)
_NUMBER = regex(r"^(\w+) (\d{1,20})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class InterfaceCounts:
    """Counters of one interface.

    `rx`, `tx`: Frames on the wire if the NIC counts them (`rx_packets_phy`), otherwise those of the kernel, which miss
    frames that the NIC itself forwards or drops. `at_s`: Time of the reading, in seconds since the machine's start
    (proc(5), /proc/uptime).
    """

    rx: int
    tx: int
    at_s: float = field(default=0.0, compare=False)


def read_counts(stations: Iterable[Station]) -> dict[str, InterfaceCounts]:
    """Return the counters of the interface of each station, by role. Raises MeasureError."""
    by_place: dict[int, tuple[Place, list[Station]]] = {}
    for station in stations:
        by_place.setdefault(id(station.place), (station.place, []))[1].append(station)
    found = {}
    for place, there in by_place.values():
        scripts = (
            f"echo {shlex.quote(_MARK + one.role)} && {shlex.join(one.argv('sh', '-c', _SCRIPT, 'sh', one.interface))}"
            for one in there
        )
        try:
            text = place.run(["sh", "-c", " && ".join(scripts)]).stdout
        except CommandFailed as failed:
            raise MeasureError(f"counters on {place.name} cannot be read: {last_line(failed)}") from None
        found.update(parse_counts(text))
    return found


_SETTLE_S, _STEP_S = 2.0, 0.05
"""Wait for the last frames, as in RFC 2544, section 23. A reading can take longer, so the last one begins after it."""


def settled_counts(stations: Collection[Station]) -> dict[str, InterfaceCounts]:
    """Return the counters once the last frames have arrived. Raises MeasureError."""
    deadline_s, counts = time.monotonic() + _SETTLE_S, read_counts(stations)
    while True:
        time.sleep(_STEP_S)
        before, is_last, counts = counts, time.monotonic() >= deadline_s, read_counts(stations)
        if is_last or all(counts[role].rx == before[role].rx for role in counts):
            return counts


# It starts few programs, as each takes an emulated processor a tenth of a second. ethtool runs only for ports of a NIC,
# which have a `device`, or as representors a `phys_switch_id`.
_SCRIPT = f"""\
cd "/sys/class/net/$1" || exit
read -r uptime idle < /proc/uptime && echo "{_TIME} $uptime"
for name in {" ".join(_STATISTICS)}; do read -r count < "statistics/$name" && echo "$name $count"; done
if [ -e device ] || read -r id < phys_switch_id; then ethtool -S "$1" | grep _packets_phy; fi 2>/dev/null
true
"""


def parse_counts(text: str) -> dict[str, InterfaceCounts]:
    """Return the counters in the output of `read_counts`' script. Raises MeasureError."""
    found = {}
    for part in text.split(f"\n{_MARK}" if text.startswith(_MARK) else _MARK):
        if not part:
            continue
        role, _, rest = part.removeprefix(_MARK).partition("\n")
        numbers = {name: int(number) for name, number in _NUMBER.findall(rest)}
        physical = {name: int(number) for name, number in _PHYSICAL.findall(rest)}
        if missing := [name for name in _STATISTICS if name not in numbers]:
            raise MeasureError(f"the interface of {role} shows no {missing[0]}; is it up, and is /sys there?")
        uptime = _UPTIME.search(rest)
        rx, tx = (
            (physical["rx_packets_phy"], physical["tx_packets_phy"])
            if len(physical) == 2
            else (numbers["rx_packets"], numbers["tx_packets"])
        )
        found[role] = InterfaceCounts(rx, tx, float(uptime[1]) if uptime else 0.0)
    return found


@dataclass(frozen=True, slots=True)
class CountedFrames:
    """Frames of a load between two readings.

    `switched`: Frames that reached the switch. `went_back`: Whether a counter decreased, so the numbers are invalid.
    """

    sent: int
    received_by_backend: Mapping[str, int]
    switched: int
    suspect: tuple[str, ...]
    went_back: bool = False

    @property
    def received(self) -> int:
        return sum(self.received_by_backend.values())

    @property
    def loss_share(self) -> float:
        return max(0.0, 1 - self.received / self.sent) if self.sent else 0.0


_OTHER_FRAMES = 20
_OTHER_SHARE = 0.001
"""Limit of the other frames that the counts of a load may include: ARP, LLDP, health checks."""


def slack(sent: int) -> int:
    """Return how many frames of other kinds the counts of a load may include."""
    return _OTHER_FRAMES + int(sent * _OTHER_SHARE)


def counted_frames(
    before: Mapping[str, InterfaceCounts],
    after: Mapping[str, InterfaceCounts],
    *,
    backends: Iterable[str],
    also_sent: int = 0,
) -> CountedFrames:
    """Return the frames between two readings.

    `also_sent`: Frames that another machine sent to the same service in that time; they count as part of the load.
    """
    suspect: list[str] = []

    def difference(role: str, direction: str) -> int:
        first, last = getattr(before[role], direction), getattr(after[role], direction)
        if last < first:
            suspect.append(
                f"the {direction} counter of {role} went back from {first} to {last}: it wrapped, or was reset"
            )
            return 0
        return int(last - first)

    sent = difference("generator", "tx") + also_sent
    received = {name: difference(name, "rx") for name in backends}
    switched = difference("dpu", "rx") if "dpu" in before else sent
    most, went_back = sent + slack(sent), bool(suspect)
    if not suspect and sum(received.values()) > most:
        suspect.append(
            f"the backends received {sum(received.values())} frames and the generator sent {sent}: other traffic "
            "reaches them"
        )
    if not suspect and switched > most:
        suspect.append(f"the switch received {switched} frames and the generator sent {sent}: others send to it too")
    return CountedFrames(sent, received, switched, tuple(suspect), went_back)


# The counters of Open vSwitch: packets that the service's flows matched, and packets of megaflows.

# The revalidator adds the counts of megaflows to the flows behind them.
_FLOWS_SCRIPT = """\
ovs-appctl revalidator/wait || exit
ovs-ofctl -O OpenFlow14 dump-aggregate "$1" "$2" || exit
ovs-appctl dpctl/dump-flows -m | grep -E "$3"
true
"""
_AGGREGATE = regex(r"^OFPST_AGGREGATE reply .*packet_count=(\d{1,20}) byte_count=\d+ flow_count=\d+$", re.MULTILINE)
_TIMEOUT_S = 60.0
_LATE_S = 3.0
"""Drivers read the rule counters of their NIC about once a second (mlx5_core: MLX5_FC_STATS_PERIOD)."""


@dataclass(frozen=True, slots=True)
class SwitchCounts:
    """Counters of the switch at one time. `matched`: Packets of the flows that match the service.

    `megaflows`: Packets of each megaflow from the load's ports, by ufid. `offloaded`: Only those that the NIC forwards.
    """

    matched: int
    megaflows: Mapping[str, int]
    offloaded: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SwitchedFrames:
    """The switch's counts of a load, with the keys of a sample; see `SwitchCounts`."""

    matched: int
    megaflow_packets: int
    offloaded_packets: int

    @property
    def values(self) -> dict[str, int]:
        return asdict(self)

    def doubts(self, frames: CountedFrames) -> Iterator[str]:
        """Yield the contradictions between these counts and those of the interfaces."""
        if self.matched + slack(frames.sent) < frames.received:
            yield (
                f"the backends received {frames.received} frames, and the flows of the service matched {self.matched}: "
                "others come another way"
            )
        if self.matched > frames.sent + slack(frames.sent):
            yield (
                f"the flows of the service matched {self.matched} packets, and the generator sent {frames.sent}: "
                "others send too"
            )


class SwitchCounters:
    """Reads the counters of a bed's switch for the flows of its service, or of an experiment."""

    def __init__(self, bed: Bed, *, cookie: str = "", ports: Sequence[str] = ()) -> None:
        """`cookie`: Cookie and mask of the flows; empty for the service's. `ports`: Empty for the uplinks."""
        self._bed = bed
        self._ports = [*ports] or [*bed.balancer.uplinks.ingress]
        if not cookie:
            ids = service_ids(service.claim for service in bed.balancer.services)
            (of_flows,) = of_service(ids[bed.service.claim], (Stage.CLASSIFY,))
            cookie = f"{of_flows.value:#x}/{of_flows.mask:#x}"
        self._filter = f"cookie={cookie}"

    def read(self) -> SwitchCounts:
        """Return the counters. Raises MeasureError."""
        ports = "|".join(rf"in_port\({re.escape(port)}\)" for port in self._ports)
        bridge = self._bed.balancer.uplinks.bridge
        done = self._bed.dpu.try_run("sh", "-c", _FLOWS_SCRIPT, "sh", bridge, self._filter, ports, timeout_s=_TIMEOUT_S)
        if done.exit_code != 0:
            where = f"the counters of {bridge} on {self._bed.dpu.place.name}"
            raise MeasureError(f"{where} cannot be read: {last_line(done)}")
        return parse_switch_counts(done.stdout)

    def frames_since(self, before: SwitchCounts, *, received: int) -> SwitchedFrames:
        """Return the counts since `before`, once they reach `received`, or after a few seconds."""
        deadline_s = time.monotonic() + _LATE_S
        while True:
            found = switched_frames(before, self.read())
            if found.matched >= received or time.monotonic() > deadline_s:
                return found


def parse_switch_counts(text: str) -> SwitchCounts:
    """Return the counters in the script's output. Raises MeasureError."""
    aggregate = _AGGREGATE.search(text)
    if aggregate is None:
        raise MeasureError(f"ovs-ofctl dump-aggregate printed no counters: {shlex.quote(text[:80])}")
    try:
        megaflows = parse_dump(text[aggregate.end() :])
    except ParseError as error:
        raise MeasureError(f"the megaflows of the switch cannot be read: {error}") from None
    first = [flow for flow in megaflows if flow.recirc_id == 0 and flow.ufid]
    return SwitchCounts(
        int(aggregate[1]),
        {str(flow.ufid): flow.packets for flow in first},
        {str(flow.ufid): flow.packets for flow in first if verdict_of(flow) is Verdict.HW},
    )


def switched_frames(before: SwitchCounts, after: SwitchCounts) -> SwitchedFrames:
    """Return the differences. A megaflow that was deleted and made again counts from 0."""
    return SwitchedFrames(
        max(0, after.matched - before.matched),
        _grown(before.megaflows, after.megaflows),
        _grown(before.offloaded, after.offloaded),
    )


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    grown = 0
    for ufid, packets in after.items():
        known = before.get(ufid, 0)
        grown += packets - known if packets >= known else packets
    return grown


# The cost of a load for the switch: CPU time, upcalls, megaflows and memory of Open vSwitch.

# One command, so that all counters are of the same time.
_COST_SCRIPT = """\
pid=$(cat "${OVS_RUNDIR:-/var/run/openvswitch}/ovs-vswitchd.pid") || exit
getconf CLK_TCK
head -n 1 /proc/stat
cat "/proc/$pid/stat" || exit
grep VmRSS "/proc/$pid/status"
ovs-appctl dpctl/show || exit
echo "limit $(ovs-appctl coverage/read-counter upcall_flow_limit_hit)"
grep -E "^(sw_flow|nf_conntrack) " /proc/slabinfo 2>/dev/null
true
"""

_SOFTIRQ, _UTIME, _STIME = 7, 11, 12
"""Positions in the first line of /proc/stat, and in /proc/PID/stat after the name (proc(5))."""

_LOOKUPS = regex(r"lookups: hit:(\d+) missed:(\d+) lost:(\d+)")
_SLAB = regex(r"^(?:sw_flow|nf_conntrack) +(\d+) +\d+ +(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SwitchReading:
    """The counters of the switch at one time. `at_s`: By the monotonic clock of this process. `softirq_cpu_s`: CPU time
    of the whole machine in soft interrupts, in which the kernel forwards. `kernel_bytes`: Kernel memory of flows and
    connections; 0 if the kernel does not show it. `missed`: Packets without a megaflow, each of which is an upcall.
    `limit_hits`: Upcalls that installed no megaflow because of the flow limit."""

    at_s: float
    vswitchd_cpu_s: float
    softirq_cpu_s: float
    rss_bytes: int
    kernel_bytes: int
    missed: int
    lost: int
    limit_hits: int

    @property
    def memory_bytes(self) -> int:
        return self.rss_bytes + self.kernel_bytes

    def since(self, before: SwitchReading, *, packets: float) -> dict[str, float]:
        """Return the values of a sample. `packets`: Number forwarded between the readings, above 0."""
        seconds_s = self.at_s - before.at_s
        vswitchd_cpu_s = self.vswitchd_cpu_s - before.vswitchd_cpu_s
        softirq_cpu_s = self.softirq_cpu_s - before.softirq_cpu_s
        return {
            "vswitchd_cpu_s": vswitchd_cpu_s,
            "softirq_cpu_s": softirq_cpu_s,
            "cpu_us": (vswitchd_cpu_s + softirq_cpu_s) * 1e6 / packets,
            "upcalls_pps": (self.missed - before.missed) / seconds_s,
            "upcalls_lost": self.lost - before.lost,
            "flow_limit_hits": self.limit_hits - before.limit_hits,
        }


def read_switch(dpu: Station) -> SwitchReading:
    """Read the counters. Raises MeasureError if ovs-vswitchd does not run, SwitchError."""
    done = dpu.try_run("sh", "-c", _COST_SCRIPT)
    at_s = time.monotonic()
    if done.exit_code != 0:
        raise MeasureError(f"ovs-vswitchd on {dpu.place.name} cannot be read: {done.stderr.strip()}; is it running?")
    return parse_reading(done.stdout, at_s=at_s)


def parse_reading(text: str, *, at_s: float) -> SwitchReading:
    """Return the counters in the script's output. Raises MeasureError."""
    try:
        ticks, machine, process, rest = text.split("\n", 3)
        per_s, cpu = int(ticks), process.rpartition(")")[2].split()
        lookups = [tuple(map(int, numbers)) for numbers in _LOOKUPS.findall(rest)]
        resident = re.search(r"VmRSS:\s+(\d+) kB", rest)
        limit = re.search(r"^limit (\d+)$", rest, re.MULTILINE)
        return SwitchReading(
            at_s=at_s,
            vswitchd_cpu_s=(int(cpu[_UTIME]) + int(cpu[_STIME])) / per_s,
            softirq_cpu_s=int(machine.split()[_SOFTIRQ]) / per_s,
            rss_bytes=1024 * int(resident[1]) if resident else 0,
            kernel_bytes=sum(int(objects) * int(size) for objects, size in _SLAB.findall(rest)),
            missed=sum(missed for _, missed, _ in lookups),
            lost=sum(lost for *_, lost in lookups),
            limit_hits=int(limit[1]) if limit else 0,
        )
    except (ValueError, IndexError, ArithmeticError):
        raise MeasureError(f"the counters of ovs-vswitchd cannot be read: {shlex.quote(text[:80])}") from None


_TOTALS = """\
ovs-appctl dpctl/dump-flows -m --names | grep -E "$1" | awk '
  { packets = match($0, /packets:[0-9]+/) ? substr($0, RSTART + 8, RLENGTH - 8) : 0; flows++; all += packets }
  /offloaded:yes/ { nic++; by_nic += packets }
  END { printf "%.0f %.0f %.0f %.0f\\n", flows, all, nic, by_nic }'
"""


_TOTAL_KEYS = ("megaflows", "megaflow_packets", "offloaded_megaflows", "offloaded_packets")


def megaflow_totals(dpu: Station, ports: Iterable[str]) -> dict[str, int]:
    """Return the values of a sample about the megaflows from these ports of the bridge. Raises MeasureError."""
    pattern = "|".join(f"in_port\\({re.escape(port)}\\)" for port in ports)
    # The dpu counts them: a hundred thousand megaflows are 40 MB of text.
    done = dpu.try_run("sh", "-c", _TOTALS, "sh", pattern, timeout_s=120.0)
    try:
        values = dict(zip(_TOTAL_KEYS, map(int, done.stdout.split()), strict=True))
    except ValueError:
        values = {}
    if not values or done.stderr:
        why = done.stderr.strip() or shlex.quote(done.stdout[:80])
        raise MeasureError(f"the megaflows on {dpu.place.name} cannot be counted: {why}")
    return values
