"""Open vSwitch cannot be reached, or refuses, or is not as it has to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xenoovs.errors.base import XenoovsError


def _quoted(command: str) -> str:
    return f"`{command}`"


class SwitchError(XenoovsError):
    """Open vSwitch could not do or tell what it was asked."""


class SwitchUnreachable(SwitchError):
    """Nobody answers at the socket of Open vSwitch. `commands`: those in the reason."""

    retryable = True

    def __init__(self, *, target: str, reason: str, commands: tuple[str, ...] = ()) -> None:
        self.target, self.reason, self.commands = target, reason, commands
        super().__init__(f"cannot reach Open vSwitch at {target}: {reason}")


class SwitchSilent(SwitchUnreachable):
    """A process of Open vSwitch takes questions and answers none."""

    def __init__(self, *, target: str, reason: str, commands: tuple[str, ...]) -> None:
        told = f"{reason}; to mend it, {' and '.join(map(_quoted, commands))}"
        super().__init__(target=target, reason=told, commands=commands)


class MacUnknown(SwitchError):
    """Backends given by their address alone, for which no machine answers. `unknown`: address -> service/backend.

    is_recorded: nobody was asked, as what is judged was recorded, and maybe on another network.
    """

    retryable = True

    def __init__(self, *, unknown: Mapping[str, tuple[str, ...]], is_recorded: bool = False) -> None:
        self.unknown = dict(unknown)
        listed = ", ".join(f"{address} ({', '.join(names)})" for address, names in list(self.unknown.items())[:5])
        more = f" and {len(self.unknown) - 5} more" if len(self.unknown) > 5 else ""
        if is_recorded:
            why = (
                "no network is asked about a recorded dump; add the `mac:` that `xenoovs plan` shows where it was made"
            )
        else:
            why = (
                "nobody on the networks of this host answers for that address; add `mac:`, or name by "
                "health.interface or health.netns from where it can be reached"
            )
        super().__init__(f"no MAC is known for {listed}{more}: {why}")


class NotTold(SwitchError):
    """By this way to the switch something cannot be had. `wanted`: what."""

    def __init__(self, *, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(
            f"OpenFlow cannot tell {wanted}: ask on the host of the switch, where xenoovs finds ovs-vswitchd"
        )


class BridgeMissing(SwitchError):
    """The bridge of the config is not there."""

    def __init__(self, *, bridge: str, present: Iterable[str]) -> None:
        self.bridge, self.present = bridge, tuple(sorted(present))
        there = f"bridges here: {', '.join(self.present)}" if self.present else "there is no bridge at all"
        self.commands = (f"ovs-vsctl add-br {bridge}",)
        super().__init__(
            f"bridge {bridge} does not exist ({there}); "
            f"create it with {_quoted(*self.commands)} or name another in switch.bridge"
        )


class OtherDatapath(SwitchError):
    """The bridge has another datapath id than the config says; both as 16 hexadecimal digits."""

    def __init__(self, *, bridge: str, wanted: str, found: str | None) -> None:
        self.bridge, self.wanted, self.found = bridge, wanted, found
        super().__init__(
            f"bridge {bridge} here has the datapath id {found or '(none)'}, but the config is for {wanted}: "
            "is this the right host? Nothing was changed"
        )


class PortsMissing(SwitchError):
    """Ports of the config that are not on its bridge; `elsewhere` maps a port to the bridge where it is, or None."""

    def __init__(self, *, bridge: str, elsewhere: dict[str, str | None]) -> None:
        self.bridge, self.elsewhere = bridge, dict(sorted(elsewhere.items()))
        self.commands = tuple(self._command(port, other) for port, other in self.elsewhere.items())
        told = map(self._explain, self.elsewhere.items(), self.commands)
        super().__init__(f"{'; '.join(told)}; nothing was changed")

    def _command(self, port: str, other: str | None) -> str:
        leave = "" if other is None else f"del-port {other} {port} -- "
        return f"ovs-vsctl {leave}add-port {self.bridge} {port}"

    def _explain(self, missing: tuple[str, str | None], command: str) -> str:
        port, other = missing
        if other is None:
            return f"port {port} is on no bridge; add it with {_quoted(command)}"
        return f"port {port} is on bridge {other}, not on {self.bridge}; move it with {_quoted(command)}"


class CommandFailed(SwitchError):
    """A tool ended with a status other than 0. stdout and stderr are kept apart."""

    def __init__(self, *, argv: Iterable[str], exit_code: int, stdout: str, stderr: str) -> None:
        self.argv, self.exit_code, self.stdout, self.stderr = tuple(argv), exit_code, stdout, stderr
        said = stderr.strip() or stdout.strip() or "it said nothing"
        super().__init__(f"`{' '.join(self.argv)}` failed with status {exit_code}: {said}")


class CommandMissing(SwitchError):
    """A tool is not installed."""

    def __init__(self, *, program: str, package: str) -> None:
        self.program, self.package = program, package
        super().__init__(f"{program} is not installed; on Debian: `apt-get install {package}`")


class CommandTimeout(SwitchError):
    """A tool did not end in time and was killed."""

    retryable = True

    def __init__(self, *, argv: Iterable[str], timeout_s: float) -> None:
        self.argv, self.timeout_s = tuple(argv), timeout_s
        super().__init__(
            f"`{' '.join(self.argv)}` did not end within {timeout_s:g} s and was stopped; is ovs-vswitchd busy or hung?"
        )


class UnusablePorts(SwitchError):
    """Ports that are on the bridge but that no flow can name; `reasons` maps a port to what is wrong with it.

    commands: those in the reasons.
    """

    def __init__(self, *, bridge: str, reasons: dict[str, str], commands: tuple[str, ...] = ()) -> None:
        self.bridge, self.reasons, self.commands = bridge, dict(sorted(reasons.items())), commands
        told = "; ".join(f"port {port} of bridge {bridge} {reason}" for port, reason in self.reasons.items())
        super().__init__(f"{told}; nothing was changed")


class OpenFlowVersionDisabled(SwitchError):
    """The bridge does not speak the OpenFlow version that has bundles. `spoken`: the versions that it speaks."""

    def __init__(self, *, bridge: str, version: str, spoken: Iterable[str]) -> None:
        self.bridge, self.version, self.spoken = bridge, version, tuple(spoken)
        self.commands = (f"ovs-vsctl add bridge {bridge} protocols {version}",)
        super().__init__(
            f"bridge {bridge} speaks {', '.join(self.spoken) or 'other versions'} but not {version}; "
            f"allow it with {_quoted(*self.commands)}"
        )


class BundleRejected(SwitchError):
    """A bundle was refused; the table is as it was.

    error:   OpenFlow error name, e.g. OFPFMFC_TABLE_FULL; None where the change could not be sent.
    message: the flow-mod that it is about, with the reason where there is one.
    advice:  what to do; `commands` that it tells.
    """

    def __init__(
        self, *, bridge: str, error: str | None, message: str, advice: str, commands: tuple[str, ...] = ()
    ) -> None:
        self.bridge, self.error, self.message, self.advice = bridge, error, message, advice
        self.commands = commands
        super().__init__(
            f"bridge {bridge} refused the change{f' with {error}' if error else ''} on: {message}; "
            f"no flow was changed; {advice}"
        )


class ReadBackDiffers(SwitchError):
    """After a change the switch does not hold what was sent: somebody else changed our flows at the same time."""

    retryable = True
    commands = ("xenoovs plan FILE",)

    def __init__(self, *, bridge: str, flows: int) -> None:
        self.bridge, self.flows = bridge, flows
        super().__init__(
            f"bridge {bridge} took the change, but {flows} of our flows read back differently: does another controller "
            f"or a second xenoovs change this bridge? Look at {_quoted(*self.commands)}, then apply again"
        )


class FlowsNotBack(SwitchError):
    """After a restart of Open vSwitch flows could not be put back. By bridge: `reasons`; `files`, as bundles."""

    def __init__(self, *, reasons: dict[str, str], files: dict[str, str]) -> None:
        self.reasons, self.files = dict(sorted(reasons.items())), dict(sorted(files.items()))
        back = {bridge: f"ovs-ofctl -O OpenFlow14 bundle {bridge} {self.files[bridge]}" for bridge in self.reasons}
        self.commands = (*back.values(), "xenoovs apply FILE")
        told = "; ".join(
            f"bridge {bridge} is without its flows ({reason}): mend that, then run {_quoted(back[bridge])}; "
            f"{_quoted(self.commands[-1])} brings ours alone"
            for bridge, reason in self.reasons.items()
        )
        super().__init__(f"Open vSwitch was restarted, but {told}")
