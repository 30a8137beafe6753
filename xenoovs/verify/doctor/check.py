"""What a check answers: one row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from xenoovs.verify.commands import HERE, Where


class State(Enum):
    """UNKNOWN is neither good nor bad: the fact could not be read, and the row says why."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """Commands that mend one thing, in order.

    is_safe:       takes no packet's way and nothing from anybody: `--fix` may run it.
    needs_restart: takes effect when ovs-vswitchd starts again.
    is_elsewhere:  to be typed on another machine, as a backend.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    is_safe: bool = False
    needs_restart: bool = False
    is_elsewhere: bool = False

    def __str__(self) -> str:
        return self.text(HERE)

    def command(self, where: Where) -> str:
        """The commands alone, as one line of a shell that reaches `where`."""
        there = HERE if self.is_elsewhere else where
        return " && ".join(there.typed(command) for command in self.commands)

    def text(self, where: Where) -> str:
        """All that is to be typed, as one line of a shell that reaches `where`."""
        file = ("FILE",) if where.config else ()
        restart = [where.typed(("xenoovs", "doctor", *file, "--fix", "--restart-ovs"))] * self.needs_restart
        return " && ".join([*filter(None, [self.command(where)]), *restart])


@dataclass(frozen=True, slots=True)
class Check:
    """One row. `subject`: the port, device, bridge or backend that it is about. `why`: why it matters, one sentence."""

    name: str
    state: State
    seen: str
    why: str
    subject: str | None = None
    fix: Fix | None = None

    @property
    def is_safely_mended(self) -> bool:
        return self.state is State.WRONG and self.fix is not None and self.fix.is_safe and bool(self.fix.commands)

    @property
    def needs_restart(self) -> bool:
        return self.state is State.WRONG and self.fix is not None and self.fix.needs_restart


PURGE = ("ovs-appctl", "revalidator/purge")
"""Forget all megaflows, so that each is offered to the NIC anew: a rule that was refused, or never offered, is not
offered again by itself. Costs one packet in software a megaflow (ovs-vswitchd(8))."""


PUT_BACK = ("xenoovs", "doctor", "--fix")
"""Undo what killed runs left changed."""


def vsctl(*arguments: str) -> tuple[str, ...]:
    """A command of ovs-vsctl(8)."""
    return ("ovs-vsctl", *arguments)


def set_config(key: str, value: str) -> tuple[str, ...]:
    """Set a key of other_config of table Open_vSwitch."""
    return vsctl("set", "Open_vSwitch", ".", f"other_config:{key}={value}")


def unset_config(key: str) -> tuple[str, ...]:
    """Give a key of other_config of table Open_vSwitch its default."""
    return vsctl("remove", "Open_vSwitch", ".", "other_config", key)
