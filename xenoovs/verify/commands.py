"""Commands that mend, as they have to be typed for one Open vSwitch of several: copied, they reach the right one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from shlex import join, split

_RUNDIR_TOOLS = frozenset(("ovs-appctl", "ovs-ofctl", "ovs-dpctl"))
_DEVICE_TOOLS = frozenset(("ip", "ethtool", "tc", "devlink"))
_ASKS_NO_SWITCH = "lint"
"""The command of xenoovs among those that mend that knows neither --db nor --lab."""


@dataclass(frozen=True, slots=True)
class Where:
    """How the tools are led to an Open vSwitch; without any field set to the one of the host.

    db:       for ovs-vsctl(8). rundir: for the tools that ask ovs-vswitchd (ovs-appctl(8), "ENVIRONMENT").
    options:  for xenoovs, as (`--lab`, `NAME`).
    enter:    what runs a command in the network namespace of its devices, as nsenter(1).
    config:   the file that a command of xenoovs is given; None: `FILE` stands for it.
    """

    db: str | None = None
    rundir: str | None = None
    options: tuple[str, ...] = ()
    enter: tuple[str, ...] = ()
    config: str | None = None

    def argv(self, command: Iterable[str]) -> tuple[str, ...]:
        """The words of one command, as they have to be there."""
        program, *rest = command
        if program == "ovs-vsctl" and self.db is not None:
            return (program, f"--db={self.db}", *rest)
        if program in _RUNDIR_TOOLS and self.rundir is not None:
            return (f"OVS_RUNDIR={self.rundir}", program, *rest)
        if program in _DEVICE_TOOLS:
            return (*self.enter, program, *rest)
        if program == "xenoovs":
            words = (self.config if word == "FILE" and self.config else word for word in rest)
            return (program, *words, *(self.options if rest[:1] != [_ASKS_NO_SWITCH] else ()))
        return (program, *rest)

    def typed(self, command: Iterable[str]) -> str:
        """One command as it is typed in a shell; for what no command can do here, a comment that says so."""
        program, *rest = command
        if program == "systemctl" and self.rundir is not None:
            return f"# {rest[0]} the ovs-vswitchd of {self.rundir} yourself: it is no service of this host"
        return join(self.argv((program, *rest)))

    def text(self, command: str) -> str:
        """The same for a command of the host itself; a comment (`# ..`) stays as it is."""
        return command if command.startswith("# ") else self.typed(split(command))

    def told(self, message: str, commands: Iterable[str]) -> str:
        """A message with the commands of the host itself that it tells in backquotes, as they have to be typed."""
        for command in dict.fromkeys(commands):
            message = message.replace(f"`{command}`", self._quoted(command))
        return message

    def _quoted(self, command: str) -> str:
        program, *rest = split(command)
        if program == "systemctl" and self.rundir is not None:
            return f"{rest[0]} it yourself (the Open vSwitch of {self.rundir} is no service of this host)"
        return f"`{self.text(command)}`"

    @property
    def restart(self) -> tuple[str, ...]:
        """Commands that restart Open vSwitch, which forgets all flows, and give it ours again; for `text`."""
        if "--lab" in self.options:
            return ("xenoovs doctor FILE --fix --restart-ovs",)
        return ("systemctl restart openvswitch-switch", "xenoovs apply FILE")


HERE = Where()
"""The Open vSwitch of this host."""
