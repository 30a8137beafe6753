"""What ovs-vswitchd logs when it does not offload a megaflow: lines to refusals, and the megaflows that they fit.

A line with the reason comes first; then, in the same thread, `failed to offload flow: ...` names the ingress port.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.compile.offloadable.sources import TC_FAILED
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.verify.why.notes import NOTES, Note
from xenoovs.verify.why.reason import Cause

_LINE = re.compile(
    r"[0-9][0-9T:.Z-]+\|(?P<number>[0-9]+)\|(?P<module>[a-z0-9_]+)(?:\((?P<thread>[^)|]*)\))?"
    r"\|(?:EMER|ERR|WARN|INFO|DBG)\|(?P<message>.*)",
    re.ASCII,
)
"""The default pattern of the log file (ovs-vswitchd(8), "Logging Options")."""

_FIRST = "00001"
"""Each thread numbers its lines; the main one, which has no name, from the start of the process (lib/vlog.c)."""

_FAILED = re.compile(r"failed to offload flow: (?P<error>.*): (?P<port>\S+)")
_SILENT = ("Operation not supported",)
"""What follows each refusal whose reason was logged just before; alone it says nothing more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was logged of a megaflow that came in by `port` (None: unknown). `line`: one such line of the log.

    note: the kind of text, which tells the megaflows that it can be about; None: of any on the port.
    """

    cause: Cause
    message: str
    port: str | None
    line: str
    note: Note | None = None

    def fits(self, megaflow: Megaflow) -> bool:
        """Whether the refusal can be about this megaflow."""
        if self.port is not None and self.port != megaflow.in_port:
            return False
        return self.note is None or self.note.fits(megaflow, self.message)

    @property
    def source(self) -> str:
        """Where Open vSwitch writes such a line."""
        return TC_FAILED if self.note is None else self.note.source

    @property
    def is_specific(self) -> bool:
        """Whether every megaflow that it fits is refused for this reason."""
        return self.note is not None and self.note.applies is not None


def parse_refusals(text: str) -> tuple[Refusal, ...]:
    """The refusals of a piece of log since the last start of ovs-vswitchd that it shows, each once, in their order.

    Lines of another form are passed over.
    """
    found: dict[tuple[str, str | None], Refusal] = {}
    pending: dict[str, list[Refusal]] = {}
    for line in text.splitlines():
        parts = _LINE.match(line)
        if parts is None:
            continue
        if parts["number"] == _FIRST and parts["thread"] is None:
            # What another process refused says nothing of the megaflows of this one.
            found.clear()
            pending.clear()
        before = pending.setdefault(parts["thread"] or "main", [])
        if failed := _FAILED.fullmatch(parts["message"]):
            _keep(found, _of_port(before, failed, line))
            before.clear()
            continue
        before[:] = [refusal for refusal in before if refusal.note is None or not refusal.note.is_fleeting]
        if note := next((note for note in NOTES if note.pattern.search(parts["message"])), None):
            before.append(Refusal(note.cause, parts["message"], None, line, note))
    for rest in pending.values():
        _keep(found, (refusal for refusal in rest if refusal.note is None or not refusal.note.is_fleeting))
    return tuple(found.values())


def _of_port(before: list[Refusal], failed: re.Match[str], line: str) -> list[Refusal]:
    """The reasons that were logged since the last failure of the thread, now with their port."""
    if before:
        return [
            Refusal(r.cause, r.message, r.note.port_of(r.message) or failed["port"], r.line, r.note)
            for r in before
            if r.note
        ]
    cause = _cause_of(failed["error"])
    return [Refusal(cause, failed[0], failed["port"], line)]


def _cause_of(error: str) -> Cause:
    if error == "No space left on device":
        return Cause.TABLE_FULL
    return Cause.REFUSED_BY_OVS if error in _SILENT else Cause.REFUSED_BY_KERNEL


def _keep(found: dict[tuple[str, str | None], Refusal], refusals: Iterable[Refusal]) -> None:
    for refusal in refusals:
        found[refusal.message, refusal.port] = refusal
