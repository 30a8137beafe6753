"""The directory of a run: `run.json`, and `samples.jsonl` with a line for each sample.

A *point* is one setting of an experiment's variables, and has `repeats` samples. The names are an interface: reports
read runs of other versions.

Points, by experiment:

    rate      frame_bytes (with FCS: 64 is the shortest frame)
    latency   split ("70/30": shares of the first two backends), base_load (share of the rate of the run's basis, 0..1)
    loss      frame_bytes, offered_share (of the rate of the run's basis; 1.5 is half as much again)
    echo      bytes (of the message), offload ("on", "off", "unchanged"), target ("backend", "dpu")
    completion  case ("alone", "elephant", "later", "dead", "reverse", "steady"), flows (of each sender), bytes (of each
              flow), load (of the elephant, as a share of the rate of a link), design ("ecmp", "doca-ar", "blocks")
    designs   design ("masked", "masked_long_first", "longest_match", "dp_hash", "hash_source", "learn", "conntrack",
              "ipvs"), clients (source addresses)
    next-hops service (its name), way ("direct", "nat", or the type of a tunnel, with "+ipsec" where it is encrypted;
              several ways are joined with " and "), frame_bytes
    entries   kind ("blocks", "clients", "five-tuples"), entries (that have traffic)
    insert    entries (new ones, one after the other)
    paths     path (name of a backend), direction ("in": to it, "out": from it); of a pair also beside, beside_direction

Values are numbers, lists of numbers, texts, or numbers by name. A number has its unit at the end of its key (_s, _us,
_pps, _bps, _bytes, _share); a key without a unit is a count. All experiments use these keys for these things:

    sent, received            frames in the counted time: left the generator, reached all backends together
    received_by_backend       the same by name of backend
    seconds_s                 length of the counted time
    offered_pps, sent_pps     rate that was asked of the generator, and that it reached
    received_pps              received / seconds_s
    loss_share                1 - received / sent; not below 0
    cpu_s_by_role             CPU seconds of machines in that time, such as {"dpu": 3.1}
    matched                   packets that the service's flows matched, by their own counters (of the base load too); of
                              echo and paths those of the experiment's own flows
    megaflow_packets          those of them that a megaflow forwarded, and
    offloaded_packets         those that the NIC forwarded (`offloaded:yes`)

    rate      the counts of the trial that gave the throughput, and
              throughput_pps      highest rate that was sent and received without loss (RFC 2544, section 26.1)
              partial_drop_pps    highest rate that was sent with a loss of at most 0.1 %
              forwarding_pps      highest rate received in any trial (RFC 2285, section 3.6.2)
              generator_pps       highest rate that the generator reached in any trial
              trial_offered_pps, trial_sent_pps, trial_received_pps, trial_loss_share   lists, a value for each trial
    latency   the counts are those of the requests, answers count as received;
              rtt_us              list: round-trip time of every answer, in the order of the requests
              timestamps          "hardware", "kernel" or "program": where the time of a packet is measured
              base_offered_pps, base_sent, base_received, base_received_by_backend, base_loss_share
    loss      the counts alone
    echo      rtt_us (list: one for each message, connection open), mean_us, median_us; matched is 0 to the dpu
    completion  completion_s (of the slowest flow; the time limit where one did not end), flow_s (list: of each that
              ended), flows and completed (of all senders), disturbed_path (number of its spine, from 1);
              seed: probed (flows), probes, timeouts;
              blocks: blocks (of all senders), moves (from the disturbance to the end), moves_by_reason, moves_back (of
              the receiver), least_blocks (of the emptiest path of each sender, at the end), emptied_s (from the start
              of the disturbance until a path of each sender had no block)
    designs   forwarding_pps, forwarding_bps, cpu_cores (of the switch, meanwhile), first_packet_us (list), megaflows,
              upcalls, upcalls_pps, memory_bytes,
              cpu_us (of the switch, for each packet; vswitchd_cpu_s and softirq_cpu_s are its parts), upcalls_lost
              (packets dropped on their way to an upcall), flow_limit_hits (upcalls that got no megaflow),
              offloaded_megaflows; megaflow_packets and offloaded_packets count a packet in each megaflow that it took
    next-hops as designs but for first_packet_us
    entries   as next-hops, and packet_us (list: of single packets of known clients, in labs)
    insert    first_packet_us, rule_us (lists, in labs: until a packet of a new client arrived, and until its rule was
              in the NIC, without one in the datapath), inserts_pps (megaflows), offloads_pps (of these into the NIC),
              update_s (to change all flows under load) and update_loss_share
    paths     sent, received and lost (sent - received) are those of the whole load, sent_pps and received_pps are of
              the seconds_s in which all loads ran; the same with beside_ in front for the other path of a
              pair; of a path alone inward also rtt_us (list: without load), and the values of the switch as in designs
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from enum import Enum
from functools import cache
from io import FileIO
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from xenoovs.dataclass import asdict, dataclass, field, fields, replace
from xenoovs.errors import FileUnusable, MeasureError, counted, worded
from xenoovs.regex import regex

if TYPE_CHECKING:
    from pydantic import TypeAdapter

RUN_FILE, SAMPLES_FILE = "run.json", "samples.jsonl"

Plain = str | int | float | bool
Point = Mapping[str, Plain]
Value = str | int | float | Sequence[float] | Mapping[str, float]

_VERSION = 1
_MOST = 1e100
"""Limit of numbers in a run, so that sums of them are finite."""
_STRICT: dict[str, bool | str] = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
_MOST_SAMPLES = 1_000_000
"""Limit of samples in a run: at a millisecond each they take a quarter of an hour."""

T = TypeVar("T")


class BedKind(Enum):
    """The kind of a bed. Figures of a lab are never shown as figures of hardware."""

    LAB = "lab"
    """Namespaces of one machine, with Open vSwitch in software."""
    EMULATED = "emulated"
    """A virtual machine with an emulated NIC."""
    MACHINES = "machines"
    """Real machines, from a bed file."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one measurement of a point: values, and reasons why they may be wrong."""

    values: Mapping[str, Value]
    suspect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of one point. `at`: UTC as ISO 8601; within a session by the monotonic clock."""

    __pydantic_config__: ClassVar[dict[str, bool | str]] = _STRICT

    experiment: str
    point: Point
    repeat: int
    at: str
    values: Mapping[str, Value]
    suspect: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """Return point and repeat, which identify the sample in its run."""
        return point_key(self.point), self.repeat


@dataclass(frozen=True, slots=True)
class Run:
    """The circumstances of a run, as in `run.json`.

    `options`: Other options of the experiment that change its figures, by name. `basis`: Values that the experiment
    measured once before its points, such as the throughput on which loads are based.
    """

    experiment: str
    config: str
    bed: Mapping[str, object]
    kind: BedKind
    datapath: str
    versions: Mapping[str, str]
    command: tuple[str, ...]
    seed: int
    quick: bool
    repeats: int
    points: tuple[Point, ...]
    started: str
    options: Mapping[str, Plain] = field(default_factory=dict)
    basis: Mapping[str, Value] = field(default_factory=dict)

    def missing(self, samples: Iterable[Sample]) -> frozenset[tuple[str, int]]:
        """Return the keys of the samples that the run still lacks."""
        planned = {(point_key(point), repeat) for point in self.points for repeat in range(self.repeats)}
        return frozenset(planned - {sample.key for sample in samples})


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunFile(Run):
    """A `run.json`: a run, and the version of the format."""

    __pydantic_config__: ClassVar[dict[str, bool | str]] = _STRICT

    xenoovs_run: Literal[1]


def point_key(point: Point) -> str:
    """Return a text that is the same for equal points, whatever the order of their keys."""
    return json.dumps(dict(point), sort_keys=True)


def utc_text(seconds: float) -> str:
    """Return a time since 1970 as ISO 8601 in UTC, in milliseconds."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run and its samples, read from `directory`."""

    directory: Path
    run: Run
    samples: tuple[Sample, ...]

    @property
    def is_complete(self) -> bool:
        return not self.run.missing(self.samples)


def find_runs(directory: Path) -> tuple[Path, ...]:
    """Return the runs in `directory`, or itself if it is a run, by name. Raises MeasureError if there is none."""
    try:
        found = [directory] if (directory / RUN_FILE).exists() else sorted(directory.iterdir())
        runs = tuple(path for path in found if (path / RUN_FILE).exists())
    except OSError as error:
        raise MeasureError(f"{error.filename or directory} cannot be read: {error.strerror}") from None
    if not runs:
        raise MeasureError(f"{directory} holds no run of `xenoovs measure`: no {RUN_FILE} in it or below it")
    return runs


def read_recorded(directory: Path) -> RecordedRun:
    """Read a run. Raises FileUnusable, with line and column of an error in the text."""
    run = parse_run(_read(directory / RUN_FILE), file=str(directory / RUN_FILE))
    path = directory / SAMPLES_FILE
    return RecordedRun(directory, run, parse_samples(_read(path), file=str(path), experiment=run.experiment))


def _read(path: Path) -> str:
    try:
        # Reading a pipe or a device might never end.
        if not S_ISREG(path.stat().st_mode):
            raise FileUnusable(file=str(path), reason="it is not a file")
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise FileUnusable(file=str(path), reason=f"byte {error.start} is not UTF-8 text") from None
    except OSError as error:
        raise FileUnusable(file=str(path), reason=f"it cannot be read: {error.strerror}") from None


def parse_run(text: str, *, file: str) -> Run:
    """Return the run of a `run.json`. Raises FileUnusable."""
    document = _valid(_RunFile, text, file=file)
    run = Run(**{each.name: getattr(document, each.name) for each in fields(Run)})
    if not 0 < run.repeats <= _MOST_SAMPLES // max(1, len(run.points)):
        most = f"above 0, and make at most {_MOST_SAMPLES:,} samples of all points"
        raise FileUnusable(file=file, reason=f"`repeats` must be {most}")
    return run


def parse_samples(text: str, *, file: str, experiment: str) -> tuple[Sample, ...]:
    """Return the samples of a `samples.jsonl`, except an incomplete last line. Raises FileUnusable with the line."""
    lines = text.split("\n")
    samples = tuple(_valid(Sample, line, file=file, number=number) for number, line in enumerate(lines[:-1], start=1))
    for number, sample in enumerate(samples, start=1):
        if sample.experiment != experiment:
            reason = f"line {number}: a sample of {sample.experiment!r} in a run of {experiment!r}"
            raise FileUnusable(file=file, reason=reason)
    twice = [key for key, times in Counter(sample.key for sample in samples).items() if times > 1]
    if twice:
        raise FileUnusable(file=file, reason=f"repeat {twice[0][1]} of point {twice[0][0]} is there twice")
    return samples


_AT = regex(r"(.*) at line (\d+) column (\d+)", re.DOTALL)
"""A message of pydantic's JSON parser."""

_EXPECTED = {
    **dict.fromkeys(("point", "points", "options"), "expected a plain value"),
    **dict.fromkeys(("values", "basis"), "expected a number, a text, a list of numbers or numbers by name"),
    "xenoovs_run": "it is from another version of xenoovs",
}
"""Replaces pydantic's messages about each alternative."""


@cache
def _adapters() -> dict[type, TypeAdapter[Any]]:
    # Imported here: commands that only measure do not need it.
    from pydantic import TypeAdapter

    return {_RunFile: TypeAdapter(_RunFile), Sample: TypeAdapter(Sample)}


def _valid(kind: type[T], text: str, *, file: str, number: int | None = None) -> T:
    """Return the value of a JSON text. `number`: Of its line; None if it is the whole file. Raises FileUnusable."""
    where = "" if number is None else f"line {number}, "
    try:
        found: T = _adapters()[kind].validate_json(text)
    except ValueError as error:
        wrong = {str(each["loc"][0]) if each["loc"] else "": each for each in reversed(error.errors())}  # type: ignore[attr-defined]
        name, first = ("xenoovs_run", wrong["xenoovs_run"]) if "xenoovs_run" in wrong else [*wrong.items()][-1]
        if at := _AT.fullmatch(str(first.get("ctx", {}).get("error", ""))):
            reason = f"line {int(at[2]) + (number or 1) - 1}, column {at[3]}: {at[1]}"
        else:
            reason = f"{where}`{'.'.join(map(str, first['loc'][:2])) or '{'}`: {_EXPECTED.get(name, first['msg'])}"
        raise FileUnusable(file=file, reason=reason) from None
    for each in fields(found):  # type: ignore[arg-type]
        if not _is_in_range(getattr(found, each.name)):
            raise FileUnusable(file=file, reason=f"{where}`{each.name}`: a number is above {_MOST:g}")
    return found


def _is_in_range(value: object) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return all(map(_is_in_range, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, (int, float)) or abs(value) <= _MOST


class RunWriter:
    """Appends samples to a run; each is on disk when `append` returns. `samples`: Those of all sessions."""

    def __init__(self, directory: Path, run: Run, samples: Sequence[Sample], stream: FileIO) -> None:
        self.directory, self.run, self.samples, self._stream = directory, run, list(samples), stream

    def append(self, sample: Sample) -> None:
        """Store a sample. Raises MeasureError if it cannot be stored; earlier samples stay readable."""
        line = memoryview(f"{json.dumps(asdict(sample), allow_nan=False)}\n".encode())
        before = os.fstat(self._stream.fileno()).st_size
        try:
            while line:
                line = line[self._stream.write(line) :]
            os.fsync(self._stream.fileno())
        except OSError as error:
            self._stream.truncate(before)
            raise self._failure(error) from None
        self.samples.append(sample)

    def set_basis(self, basis: Mapping[str, Value]) -> None:
        """Store the values that the experiment measured before its points. Raises MeasureError."""
        self.run = replace(self.run, basis=dict(basis))
        try:
            _write_run(self.directory, self.run)
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> MeasureError:
        number = len(self.samples)
        stored = f"{counted(number, 'sample')} {worded(number, 'is', 'are')} stored"
        return MeasureError(
            f"{self.directory} cannot be written: {error.strerror}; {stored}: free space there and go on with --resume"
        )


def render_run(run: Run) -> str:
    return json.dumps({"xenoovs_run": _VERSION, **asdict(run), "kind": run.kind.value}, indent=1, allow_nan=False)


def _write_run(directory: Path, run: Run) -> None:
    draft = directory / f"{RUN_FILE}.new"
    with draft.open("w") as stream:
        stream.write(render_run(run) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(directory / RUN_FILE)


@contextmanager
def new_run(out: Path, run: Run) -> Iterator[RunWriter]:
    """Make a directory `EXPERIMENT-TIME` in `out` for a run, and open it for samples. Raises MeasureError."""
    stamp = re.sub(r"\.[0-9]+", "", run.started).replace("-", "").replace(":", "")
    directory: Path | None = None
    try:
        out.mkdir(parents=True, exist_ok=True)
        directory = _make_directory(out, f"{run.experiment}-{stamp}")
        (directory / SAMPLES_FILE).touch()
        _write_run(directory, run)
    except OSError as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        raise MeasureError(f"results cannot be stored in {out}: {error.strerror}; name another with --out") from None
    with _open_samples(directory) as stream:
        yield RunWriter(directory, run, (), stream)


def _make_directory(out: Path, name: str) -> Path:
    for number in range(1, 1000):
        directory = out / (name if number == 1 else f"{name}-{number}")
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        return directory
    raise FileExistsError(0, "a thousand runs of the same second are there", str(out))


@contextmanager
def resumed_run(directory: Path) -> Iterator[RunWriter]:
    """Open a run to add missing samples. Raises FileUnusable; MeasureError if another process has it open."""
    with _open_samples(directory) as stream:
        recorded = read_recorded(directory)
        # After a crash the last line may be incomplete.
        stream.truncate((directory / SAMPLES_FILE).read_bytes().rfind(b"\n") + 1)
        yield RunWriter(directory, recorded.run, recorded.samples, stream)


@contextmanager
def _open_samples(directory: Path) -> Iterator[FileIO]:
    path = directory / SAMPLES_FILE
    try:
        stream = FileIO(path, "ab")
    except OSError as error:
        raise MeasureError(f"{path} cannot be written: {error.strerror}") from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MeasureError(f"another process adds samples to {directory} now: wait for its end") from None
        yield stream
