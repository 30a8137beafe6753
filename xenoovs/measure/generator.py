"""Programs that send a load: tcpreplay, which sends at a steady rate, and the kernel's pktgen.

pktgen counts addresses up, so it serves only services that split by the low bits of an IPv4 address.
"""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import CommandFailed, MeasureError
from xenoovs.lab.place import RemoteCommand
from xenoovs.measure.bed import Station
from xenoovs.measure.frames import FCS_BYTES, SOURCE_PORT, LoadProfile, frame, pcap_file, sources
from xenoovs.model.address import Family
from xenoovs.model.balancer import KeyField
from xenoovs.regex import MULTILINE, regex

_ENDLESS = 1_000_000_000
_START_TIMEOUT_S = 20.0
_ACTUAL = regex(r"^Actual: (\d+) packets \(\d+ bytes\) sent in ([0-9.]+) seconds", MULTILINE)
_CLOCK_SLACK_S = 1.0


@dataclass(frozen=True, slots=True)
class GeneratorResult:
    """The result of a generator. `seconds_s`: Time from its first frame to its last one."""

    sent: int
    seconds_s: float
    suspect: tuple[str, ...] = ()


@dataclass(slots=True)
class PacketGenerator:
    """Sends the frames of a profile from a station with tcpreplay(1).

    trafgen(8) of netsniff-ng is no alternative: with a rate it sends each second's frames in one burst (`shaper_delay`
    of its shaper.c), so the switch would lose frames at any rate.
    """

    station: Station
    directory: str
    files: dict[tuple[LoadProfile, int], str] = field(default_factory=dict)

    def start(
        self, profile: LoadProfile, *, frame_bytes: int, offered_pps: float | None, seconds_s: float
    ) -> RunningLoad:
        """Begin to send. `offered_pps`: None for as fast as possible."""
        rate = ["--topspeed"] if offered_pps is None else [f"--pps={offered_pps:.3f}"]
        if offered_pps is None:
            amount = [f"--duration={max(1, round(seconds_s))}"]
        else:
            amount = [f"--limit={max(1, round(offered_pps * seconds_s))}"]
        interface = f"--intf1={self.station.interface}"
        file = self.prepare(profile, frame_bytes=frame_bytes)
        # Flow statistics would take tcpreplay as long as sending.
        options = ["--quiet", "--preload-pcap", "--no-flow-stats", f"--loop={_ENDLESS}"]
        command = self.station.start("tcpreplay", interface, *options, *rate, *amount, file)
        return RunningLoad(command, seconds_s, _counted)

    def prepare(self, profile: LoadProfile, *, frame_bytes: int) -> str:
        """Write the frames to the machine before measurements, which would wait for that. Return the file."""
        key = (profile, frame_bytes)
        if key not in self.files:
            name = f"{self.directory}/{len(self.files)}-{frame_bytes}.pcap"
            frames = [frame(profile, source, port, frame_bytes=frame_bytes) for source, port in sources(profile)]
            text = base64.b64encode(gzip.compress(pcap_file(frames), compresslevel=1)).decode()
            self.station.place.run(["sh", "-c", f"base64 -d | gzip -d > {name}"], stdin=text)
            self.files[key] = name
        return self.files[key]


@dataclass(slots=True)
class RunningLoad:
    """A load that is being sent. `counted`: Returns frames and seconds in the program's output, or None."""

    command: RemoteCommand
    planned_s: float
    counted: Callable[[str], tuple[int, float] | None]
    _begun_s: float = field(default_factory=time.monotonic)

    def wait(self) -> GeneratorResult:
        """Wait for the end. Raises MeasureError if the generator failed."""
        try:
            done = self.command.wait(self.planned_s * 3 + _START_TIMEOUT_S)
        except BaseException:
            self.command.end()
            raise
        took_s = time.monotonic() - self._begun_s
        if (found := self.counted(done.stdout)) is None or done.exit_code != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it gave no reason"]
            raise MeasureError(f"the generator ended with status {done.exit_code}: {lines[-1]}")
        sent, seconds_s = found
        if seconds_s <= took_s + _CLOCK_SLACK_S and seconds_s > 0:
            return GeneratorResult(sent, seconds_s)
        # The generator measures by the wall clock.
        reason = f"the generator says that it sent for {seconds_s:.1f} s, which took {took_s:.1f} s: its clock was set"
        return GeneratorResult(sent, took_s, (reason,))

    def stop(self) -> GeneratorResult:
        """End the load now, and return its result. Raises MeasureError if the generator failed."""
        # As Ctrl-C does: the programs then print their counts before they exit.
        self.command.signal(SIGINT)
        return self.wait()


def _counted(text: str) -> tuple[int, float] | None:
    # After an interrupt, tcpreplay's statistics of the device lack one frame; this line has it.
    found = _ACTUAL.search(text)
    return None if found is None else (int(found[1]), float(found[2]))


@contextmanager
def packet_generator(station: Station) -> Iterator[PacketGenerator]:
    """Prepare a generator on a station; its files are removed at the end. Raises MeasureError, CommandMissing."""
    station.place.run(["tcpreplay", "--version"])
    directory = station.place.run(["mktemp", "-d", "/tmp/xenoovs-load.XXXXXX"]).stdout.strip()  # noqa: S108
    with station.place.undone_at_end(["rm", "-rf", directory]):
        yield PacketGenerator(station, directory)


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
        return RunningLoad(command, seconds_s, _counted_by_pktgen)


def _counted_by_pktgen(text: str) -> tuple[int, float] | None:
    try:
        output = json.loads(text)
        return int(output["sent"]), float(output["seconds_s"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def pktgen_settings(profile: LoadProfile, *, frame_bytes: int) -> list[str]:
    """Return the commands for pktgen (Documentation/networking/pktgen.rst). Raises MeasureError if it lacks one."""
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
        f"udp_src_min {SOURCE_PORT}",
        f"udp_src_max {SOURCE_PORT}",
        f"udp_dst_min {profile.port}",
        f"udp_dst_max {profile.port}",
    ]


LoadGenerator = PacketGenerator | KernelGenerator


def kernel_generator(station: Station) -> KernelGenerator:
    """Return the generator of a station. Raises MeasureError if its kernel has no pktgen."""
    try:
        station.run("sh", "-c", "modprobe -q pktgen; test -d /proc/net/pktgen")
    except CommandFailed:
        raise MeasureError(
            f"the kernel of {station.place.name} has no pktgen (`modprobe pktgen`): use `driver: tcpreplay`"
        ) from None
    return KernelGenerator(station)
