"""Suggested commands for one Open vSwitch of several: a copied command reaches the right one."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import join, split

from xenoovs.dataclass import dataclass

_RUNDIR_TOOLS = frozenset(("ovs-appctl", "ovs-ofctl", "ovs-dpctl"))
_DEVICE_TOOLS = frozenset(("ip", "ethtool", "tc", "devlink", "ping", "tcpdump"))
_OFFLINE = ("lint",)
"""Suggested commands of xenoovs that have neither --db nor --lab."""
_OF_FLEET = {
    "plan": "# a changed config: xenoovs fleet plan CONFIG, on a host of its store",
    "apply": "# the agent installs the flows; a changed config: xenoovs fleet apply CONFIG, on a host of its store",
}
"""Replacements of commands that refuse the file of a DPU of a fleet. In a list they follow a change of the config or
the host."""


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """How tools reach an Open vSwitch; the one of this host if no field is set.

    Attributes:
        db: database for ovs-vsctl(8).
        rundir: directory for tools that talk to ovs-vswitchd (ovs-appctl(8), "ENVIRONMENT").
        options: options for xenoovs, such as (`--lab`, `NAME`).
        enter: prefix that runs a command in the network namespace of the devices, such as nsenter(1).
        config: the config file for commands of xenoovs; `FILE` if None.
        machine: prefix that runs a command in the virtual machine of a lab, if there is one.
        is_of_fleet: whether the config is the file of a DPU of a fleet.
    """

    db: str | None = None
    rundir: str | None = None
    options: tuple[str, ...] = ()
    enter: tuple[str, ...] = ()
    config: str | None = None
    machine: tuple[str, ...] = ()
    is_of_fleet: bool = False

    def argv(self, command: Iterable[str]) -> tuple[str, ...]:
        """Return the words of a command for this target."""
        program, *rest = command
        if self.machine and program != "xenoovs":
            # `lab exec` sets the environment for the tools of Open vSwitch.
            return (*self.machine, program, *rest)
        if program == "ovs-vsctl" and self.db is not None:
            return (program, f"--db={self.db}", *rest)
        if program in _RUNDIR_TOOLS and self.rundir is not None:
            return (f"OVS_RUNDIR={self.rundir}", program, *rest)
        if program in _DEVICE_TOOLS:
            return (*self.enter, program, *rest)
        if program == "xenoovs":
            words = (self.config or "FILE" if word == "FILE" else word for word in rest)
            return (program, *words, *(self.options if rest[0] not in _OFFLINE else ()))
        return (program, *rest)

    def shell(self, command: Iterable[str]) -> str:
        """Return a command as shell text; a comment if no command does it on this target."""
        program, *rest = command
        if program == "systemctl" and self.rundir is not None:
            return f"# {rest[0]} the ovs-vswitchd of {self.rundir} yourself: it is no service of this host"
        if self.is_of_fleet and program == "xenoovs" and rest[0] in _OF_FLEET:
            return _OF_FLEET[rest[0]]
        return join(self.argv((program, *rest)))

    def text(self, command: str) -> str:
        """Return shell text for this host in the form for this target; a comment (`# ..`) does not change."""
        return command if command.startswith("# ") else self.shell(split(command))

    def message(self, message: str, commands: Iterable[str]) -> str:
        """Return a message whose commands in backquotes are for this host with commands for this target."""
        for command in dict.fromkeys(commands):
            message = message.replace(f"`{command}`", self._quoted(command))
        return message

    def _quoted(self, command: str) -> str:
        program, *rest = split(command)
        if program == "systemctl" and self.rundir is not None:
            return f"{rest[0]} it yourself (the Open vSwitch of {self.rundir} is no service of this host)"
        if self.is_of_fleet and (program, rest[0]) == ("xenoovs", "plan"):
            return f"`{self.shell((program, 'status', *rest[1:]))}`"
        if self.is_of_fleet and (program, rest[0]) == ("xenoovs", "apply"):
            return "the agent"
        return f"`{self.text(command)}`"

    @property
    def restart(self) -> tuple[str, ...]:
        """Return commands, for `text`, that restart Open vSwitch and install our flows again."""
        if "--lab" in self.options:
            return ("xenoovs doctor FILE --fix --restart-ovs",)
        return ("systemctl restart openvswitch-switch", "xenoovs apply FILE")


THIS_HOST = CommandTarget()
