"""What a load costs the switch: CPU time, upcalls, megaflows and memory of Open vSwitch on the dpu of a bed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from xenoovs.dataclass import dataclass, fields
from xenoovs.errors import MeasureError
from xenoovs.measure.bed import Station

# All in one command, so that the counters are of one time.
_SCRIPT = """\
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
"""Positions in the first line of /proc/stat, and in /proc/PID/stat behind the name (proc(5))."""

_LOOKUPS = re.compile(r"lookups: hit:(\d+) missed:(\d+) lost:(\d+)")
_SLAB = re.compile(r"^(?:sw_flow|nf_conntrack) +(\d+) +\d+ +(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SwitchReading:
    """The counters of the switch at one time.

    Attributes:
        at_s: By the monotonic clock of this process.
        softirq_cpu_s: CPU time of the whole machine in soft interrupts, where the kernel forwards.
        kernel_bytes: Memory of flows and connections in the kernel; 0 where it does not show it.
        missed: Packets without a megaflow, which is an upcall each.
        limit_hits: Upcalls that installed no megaflow, because there were as many as may be.
    """

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
        """Return the values of a sample; `packets`: how many were forwarded meanwhile, > 0."""
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
    """Read the counters. Raises MeasureError when ovs-vswitchd does not run, SwitchError."""
    done = dpu.try_run("sh", "-c", _SCRIPT)
    at_s = time.monotonic()
    if done.exit_code != 0:
        raise MeasureError(f"ovs-vswitchd on {dpu.place.name} cannot be read: {done.stderr.strip()}; is it running?")
    return parse_reading(done.stdout, at_s=at_s)


def parse_reading(text: str, *, at_s: float) -> SwitchReading:
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


@dataclass(frozen=True, slots=True)
class OffloadTotals:
    """Megaflows of packets that entered by some ports, and their packets; `offloaded`: those that the NIC forwards."""

    megaflows: int
    packets: int
    offloaded: int
    offloaded_packets: int

    @property
    def values(self) -> dict[str, int]:
        return {
            "megaflows": self.megaflows,
            "megaflow_packets": self.packets,
            "offloaded_megaflows": self.offloaded,
            "offloaded_packets": self.offloaded_packets,
        }


_TOTALS = """\
ovs-appctl dpctl/dump-flows -m --names | grep -E "$1" | awk '
  { packets = match($0, /packets:[0-9]+/) ? substr($0, RSTART + 8, RLENGTH - 8) : 0; flows++; all += packets }
  /offloaded:yes/ { nic++; by_nic += packets }
  END { printf "%.0f %.0f %.0f %.0f\\n", flows, all, nic, by_nic }'
"""


def megaflow_totals(dpu: Station, ports: Iterable[str]) -> OffloadTotals:
    """Return the megaflows of packets that entered by these ports of the bridge. Raises MeasureError."""
    pattern = "|".join(f"in_port\\({re.escape(port)}\\)" for port in ports)
    # Counted there: a hundred thousand of them are 40 MB of text.
    done = dpu.try_run("sh", "-c", _TOTALS, "sh", pattern, timeout_s=120.0)
    numbers = done.stdout.split()
    if len(numbers) != len(fields(OffloadTotals)) or done.stderr:
        raise MeasureError(f"the megaflows on {dpu.place.name} cannot be counted: {done.stderr.strip()}")
    return OffloadTotals(*map(int, numbers))
