"""The kernel's packet generator, in place of tcpreplay.

It changes addresses by counting, so that it can send for services that split by the low bits of an IPv4 address.
"""

from __future__ import annotations

import json
from pathlib import Path

from xenoovs.dataclass import dataclass
from xenoovs.errors import CommandFailed, MeasureError
from xenoovs.measure.bed import Station
from xenoovs.measure.frames import FCS_BYTES, LoadProfile
from xenoovs.measure.generator import RunningLoad
from xenoovs.model.address import Family
from xenoovs.model.balancer import KeyField

_SOURCE = Path(__file__).with_name("pktgen_program.py").read_text()
_LEAST_BYTES = 64


@dataclass(frozen=True, slots=True)
class KernelGenerator:
    """Sends the frames of a profile from a station, on one of its CPUs."""

    station: Station

    def prepare(self, profile: LoadProfile, *, frame_bytes: int) -> None:
        """Check that pktgen can send such frames. Raises MeasureError."""
        pktgen_settings(profile, frame_bytes=frame_bytes)

    def start(
        self, profile: LoadProfile, *, frame_bytes: int, offered_pps: float | None, seconds_s: float
    ) -> RunningLoad:
        rate = ["delay 0", "count 0"]
        if offered_pps is not None:
            rate = [f"ratep {max(1, round(offered_pps))}", f"count {max(1, round(offered_pps * seconds_s))}"]
        job = {
            "interface": self.station.interface,
            "settings": [*pktgen_settings(profile, frame_bytes=frame_bytes), *rate],
            "seconds": seconds_s if offered_pps is None else None,
        }
        command = self.station.start("python3", "-I", "-c", _SOURCE, stdin=f"{json.dumps(job)}\n")
        return RunningLoad(command, seconds_s, _counted)


def _counted(text: str) -> tuple[int, float] | None:
    try:
        output = json.loads(text)
        return int(output["sent"]), float(output["seconds_s"])
    except (ValueError, KeyError, TypeError):
        return None


def pktgen_settings(profile: LoadProfile, *, frame_bytes: int) -> list[str]:
    """Return the commands for pktgen (Documentation/networking/pktgen.rst). Raises MeasureError if it cannot."""
    key = profile.service.key
    positions = tuple(key.positions or range(key.max_width))
    are_low = key.field is KeyField.SOURCE_ADDRESS and positions == tuple(range(len(positions)))
    if profile.family is not Family.IPV4 or not are_low:
        raise MeasureError(
            f"pktgen counts IPv4 addresses up, and service {profile.service.name} does not split by their lowest bits: "
            "use `driver: tcpreplay`"
        )
    first = profile.net.network_address
    return [
        "clone_skb 0",
        f"pkt_size {max(frame_bytes, _LEAST_BYTES) - FCS_BYTES}",
        f"dst_mac {profile.gateway_mac}",
        f"src_mac {profile.source_mac}",
        f"dst {profile.vip}",
        f"src_min {first}",
        f"src_max {first + profile.clients - 1}",
        f"udp_src_min {_PORT}",
        f"udp_src_max {_PORT}",
        f"udp_dst_min {profile.port}",
        f"udp_dst_max {profile.port}",
    ]


_PORT = 1024


def kernel_generator(station: Station) -> KernelGenerator:
    """Return the generator of a station. Raises MeasureError where its kernel has none."""
    try:
        station.run("sh", "-c", "modprobe -q pktgen; test -d /proc/net/pktgen")
    except CommandFailed:
        raise MeasureError(
            f"the kernel of {station.place.name} has no pktgen (`modprobe pktgen`): use `driver: tcpreplay`"
        ) from None
    return KernelGenerator(station)
