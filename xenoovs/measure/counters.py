"""Frames that interfaces have sent and received: before and after, and the difference."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Collection, Iterable, Mapping

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import CommandFailed, MeasureError
from xenoovs.lab.place import Place
from xenoovs.measure.bed import Station

_MARK = "== "
_STATISTICS = ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped")
_PHYSICAL = re.compile(r"^\s*([rt]x_packets_phy):\s*(\d+)\s*$", re.MULTILINE)
_TIME = "uptime"
_UPTIME = re.compile(rf"^{_TIME} (\d+\.\d+)$", re.MULTILINE)
_NUMBER = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class InterfaceCounts:
    """Counters of one interface.

    `rx`, `tx`: Frames at the wire where the NIC counts them there (`rx_packets_phy`), else those of the kernel. Frames
    that the NIC forwards or drops by itself are at the wire only. `at_s`: When they were read, in seconds since their
    machine was started (proc(5), /proc/uptime).
    """

    rx: int
    tx: int
    is_physical: bool
    at_s: float = field(default=0.0, compare=False)


def read_counts(stations: Iterable[Station]) -> dict[str, InterfaceCounts]:
    """Return the counters of the interface of each station, by role. Raises MeasureError."""
    by_place: dict[int, tuple[Place, list[Station]]] = {}
    for station in stations:
        by_place.setdefault(id(station.place), (station.place, []))[1].append(station)
    found = {}
    for place, there in by_place.values():
        script = " && ".join(_script(station) for station in there)
        try:
            text = place.run(["sh", "-c", script]).stdout
        except CommandFailed as failed:
            lines = failed.stderr.strip().splitlines() or ["no reason"]
            raise MeasureError(f"counters on {place.name} cannot be read: {lines[-1]}") from None
        found.update(parse_counts(text))
    return found


_SETTLE_S, _STEP_S = 2.0, 0.05
"""RFC 2544, section 23, waits so long for the last frames."""


def settled_counts(stations: Collection[Station]) -> dict[str, InterfaceCounts]:
    """Return the counters once the last frames have arrived. Raises MeasureError."""
    deadline_s, counts = time.monotonic() + _SETTLE_S, read_counts(stations)
    while time.monotonic() < deadline_s:
        time.sleep(_STEP_S)
        before, counts = counts, read_counts(stations)
        if all(counts[role].rx == before[role].rx for role in counts):
            break
    return counts


# Few programs, as starting one takes an emulated processor a tenth of a second. Only a NIC has counters of its own; a
# representor has no device, but belongs to a switch.
_SCRIPT = f"""\
cd "/sys/class/net/$1" || exit
read -r uptime idle < /proc/uptime && echo "{_TIME} $uptime"
for name in {" ".join(_STATISTICS)}; do read -r count < "statistics/$name" && echo "$name $count"; done
if [ -e device ] || read -r id < phys_switch_id; then ethtool -S "$1" | grep _packets_phy; fi 2>/dev/null
true
"""


def _script(station: Station) -> str:
    inside = station.argv("sh", "-c", _SCRIPT, "sh", station.interface)
    return f"echo {shlex.quote(_MARK + station.role)} && {shlex.join(inside)}"


def parse_counts(text: str) -> dict[str, InterfaceCounts]:
    """Return the counters that the script of `read_counts` prints. Raises MeasureError."""
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
        is_physical = len(physical) == 2
        rx, tx = (
            (physical["rx_packets_phy"], physical["tx_packets_phy"])
            if is_physical
            else (numbers["rx_packets"], numbers["tx_packets"])
        )
        found[role] = InterfaceCounts(rx, tx, is_physical, float(uptime[1]) if uptime else 0.0)
    return found


@dataclass(frozen=True, slots=True)
class CountedFrames:
    """Frames of a load between two readings.

    `switched`: That reached the switch. `went_back`: Whether a counter did, so that they say nothing.
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
    def slack(self) -> int:
        """Frames of other kinds that may be among them."""
        return slack(self.sent)

    @property
    def loss_share(self) -> float:
        return max(0.0, 1 - self.received / self.sent) if self.sent else 0.0


_OTHER_FRAMES = 20
_OTHER_SHARE = 0.001
"""Frames of other kinds that may be among those of a load: ARP, LLDP, health checks."""


def slack(sent: int) -> int:
    """Return how many frames of other kinds may be among those of a load."""
    return _OTHER_FRAMES + int(sent * _OTHER_SHARE)


def counted_frames(
    before: Mapping[str, InterfaceCounts],
    after: Mapping[str, InterfaceCounts],
    *,
    backends: Iterable[str],
    also_sent: int = 0,
) -> CountedFrames:
    """Return what was counted between two readings.

    Args:
        also_sent: Frames that another machine sent to the same service meanwhile, which count as part of the load.
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
