"""How the DPUs of a fleet stand to the newest generation, from what they report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from fractions import Fraction

from xenoovs.dataclass import dataclass
from xenoovs.display import duration
from xenoovs.errors import counted, first_names, worded
from xenoovs.fleet.plan import FleetChange, rolling_intent
from xenoovs.fleet.rollout import hw_share, uncompared, waits_for
from xenoovs.fleet.votes import SILENT_S
from xenoovs.store.view import Dpu, DpuStatus, FleetView, Standing, standing
from xenoovs.switch.certificates import CERTIFICATE_WARNING_S, certificate_problem


class DpuState(Enum):
    """How a DPU stands to the newest generation."""

    APPLIED = Standing.APPLIED.value
    BEHIND = Standing.BEHIND.value
    AHEAD = Standing.AHEAD.value
    OTHER_STORE = Standing.OTHER_STORE.value
    FAILED = "failed"
    DRIFTED = "drifted"
    SILENT = "silent"
    UNKNOWN = "never reported"
    STRANGER = "not of the fleet"


WORST_FIRST = (
    DpuState.OTHER_STORE,
    DpuState.AHEAD,
    DpuState.FAILED,
    DpuState.DRIFTED,
    DpuState.SILENT,
    DpuState.UNKNOWN,
    DpuState.BEHIND,
    DpuState.STRANGER,
    DpuState.APPLIED,
)


@dataclass(frozen=True, slots=True)
class DpuRow:
    """A DPU in the list. `seen_s`: since its last report, timed by the DPU's clock; None: there is none.

    `is_out`: an operator took it out of service. `is_unfit`: it should get no clients, as it alone is cut off or its
    bridge is not right. `certificate_left_s`: by the reader's clock; None: not known.
    """

    name: str
    state: DpuState
    status: DpuStatus
    seen_s: float | None
    is_out: bool = False
    is_unfit: bool = False
    groups: frozenset[str] = frozenset()
    certificate_left_s: float | None = None
    rack: str = ""

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to look after."""
        is_ending = self.certificate_left_s is not None and self.certificate_left_s <= CERTIFICATE_WARNING_S
        return self.state is DpuState.APPLIED and not self.note and not is_ending

    @property
    def hw_share(self) -> Fraction | None:
        """Which share of its megaflows is in hardware, 0..1; None: there is no traffic, or it is not known."""
        return hw_share(self.status.verdicts)

    @property
    def note(self) -> str:
        """What is wrong, in words."""
        count = len(self.status.drift)
        drift = f"{counted(count, 'service')} {worded(count, 'differs', 'differ')} on the bridge: "
        drift += first_names(sorted(self.status.drift), most=3)
        drifts = drift if self.status.drift else ""
        reasons = (self._service, self.wrong_clock, self.status.error, drifts)
        return "; ".join(filter(None, reasons))

    @property
    def _service(self) -> str:
        if self.is_out:
            return "out of service by an operator"
        if self.is_unfit:
            return "not ready: it is cut off from most backends, or its bridge is not right"
        return "" if self.status.is_fit else "reports that it is not fit, but too many others do: it stays in service"

    @property
    def wrong_clock(self) -> str:
        """Why the time of its last report cannot be right, in words; an empty text: it may be."""
        if self.state is DpuState.SILENT or self.seen_s is None or abs(self.seen_s) <= SILENT_S:
            return ""
        when = f"{duration(abs(self.seen_s))} {'in the future' if self.seen_s < 0 else 'ago'}"
        return f"its last report is {when} by its clock and that of this host: set them (NTP)"


def dpu_rows(view: FleetView, statuses: Mapping[str, DpuStatus], *, now_s: float) -> list[DpuRow]:
    """Return the DPUs of the fleet by name, then those that report without being of it."""
    rows = []
    for name in (*sorted(view.dpus), *sorted(statuses.keys() - view.dpus.keys())):
        status = statuses.get(name)
        seen_s = None if status is None else now_s - status.seen_ms / 1000
        if seen_s is not None and -SILENT_S <= seen_s < 0:
            seen_s = 0.0
        state, dpu = _state(view, name, status), view.dpus.get(name, Dpu(name, frozenset()))
        found = status or DpuStatus(name)
        left_s = found.certificate_ends_s - now_s if found.certificate_ends_s else None
        rows.append(DpuRow(name, state, found, seen_s, dpu.is_out, dpu.is_unfit, dpu.groups, left_s, dpu.rack))
    return rows


def clocks_differ(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> bool:
    """Return whether the clocks of this host and of a DPU differ by minutes. Times of the store say nothing then."""
    return any(row.wrong_clock for row in dpu_rows(view, statuses or {}, now_s=now_s) if row.status.seen_ms)


def clocks_ms(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_ms: int) -> tuple[int, ...]:
    """Return the time by the clock of this host, and that by the reports of most DPUs if it differs by minutes."""
    seen = sorted(status.seen_ms for name, status in (statuses or {}).items() if name in view.dpus and status.seen_ms)
    most = seen[(len(seen) - 1) // 2] if seen else now_ms
    return (now_ms, most) if abs(now_ms - most) > SILENT_S * 1000 else (now_ms,)


def _state(view: FleetView, name: str, status: DpuStatus | None) -> DpuState:
    if name not in view.dpus:
        return DpuState.STRANGER
    if status is None:
        return DpuState.UNKNOWN
    if name in view.silent:
        return DpuState.SILENT
    now = DpuState(standing(view, status).value)
    if now in (DpuState.AHEAD, DpuState.OTHER_STORE):
        return now
    if status.error:
        return DpuState.FAILED
    return DpuState.DRIFTED if status.drift else now


def dpu_problems(rows: Iterable[DpuRow]) -> list[str]:
    """Return what is wrong with DPUs that follow the store: their clocks, by their reports, and their certificates."""
    rows = tuple(rows)
    names, problems = [row.name for row in rows if row.wrong_clock], list[str]()
    if names:
        problems.append(
            f"the clocks of this host and of {first_names(names, most=3)} differ by minutes: set them (NTP)"
        )
    ending = sorted((row.certificate_left_s, row.name) for row in rows if row.certificate_left_s is not None)
    ending = [(left_s, name) for left_s, name in ending if left_s <= CERTIFICATE_WARNING_S]
    if ending:
        whose = first_names([name for _, name in ending], most=3)
        problems.append(certificate_problem(ending[0][0], whose=whose))
    return problems


def fleet_problems(change: FleetChange, statuses: Mapping[str, DpuStatus] | None, *, stall: str) -> list[str]:
    """Return what is wrong with a whole fleet. `change`: what the store lacks. `stall`: of `FleetProgress.stall`."""
    problems = []
    if statuses is None:
        problems.append("the database of states does not answer: what DPUs have is not known")
    if stall:
        problems.append(f"{stall}: is `xenoovs fleet serve` running?")
    problems += [*map(str, change.unusable), *change.contested.values()]
    return problems


def roll_out_lines(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> list[str]:
    """Return what a roll-out does, and which DPUs it waits for, in words.

    `now_s`: since 1970. It is not compared where the store lacks the time of the switch to the wave, or clocks differ.
    """
    intent = rolling_intent(view)
    if intent is None or not view.wave:
        return []
    waits = [f"{name}: {reason}" for name, (reason, _) in waits_for(view, statuses).items()]
    concerned = view.concerned
    begun = sum(dpu.wave <= view.wave for dpu in concerned.values())
    soak, begun_s = duration(intent.soak_s), view.switch_at_ms / 1000
    is_known = 0 < begun_s <= now_s and not clocks_differ(view, statuses, now_s=now_s)
    watched = f"for {duration(now_s - begun_s)} of {soak}" if is_known else f"for {soak} in all"
    return [
        f"config {intent.number} is rolled out: wave {view.wave}, {begun} of {counted(len(concerned), 'DPU')}, "
        f"{'paused' if intent.is_paused else f'watched {watched}'}; `xenoovs fleet stop` takes it back"
        f"{', `xenoovs fleet resume` goes on' if intent.is_paused else ''}",
        *([f"the roll-out waits for {first_names(waits, most=3)}"] if waits else []),
        *uncompared(view),
    ]
