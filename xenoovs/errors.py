"""Every deliberate exception of xenoovs. Facts are attributes; the text is made from them, never parsed back."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NoReturn

from xenoovs.dataclass import dataclass
from xenoovs.display import percent_rounded_up, span
from xenoovs.regex import regex

_UPPER = regex(r"(?<=[a-z])(?=[A-Z])")


def worded(number: int, one: str, many: str) -> str:
    """Return the form that fits a number: `is` or `are`, `entry` or `entries`."""
    return one if number == 1 else many


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return `1 block`, `0 blocks`, `2 entries`. `many`: the plural, if it is not `one` with an s."""
    return f"{number} {worded(number, one, many or f'{one}s')}"


def first_names(names: Sequence[str], most: int = 10) -> str:
    """Return `a, b and 3 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


_GUESS = " (did you mean {}?)"


def did_you_mean(name: str, names: Iterable[str], form: str = " Did you mean {}?") -> str:
    """Return `form` with the one of `names` that is near to a name; an empty text where none is."""
    # Imported here: few commands meet a mistyped name.
    from difflib import get_close_matches

    near = get_close_matches(name, tuple(names), n=1)
    return form.format(near[0]) if near else ""


SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors of this host. ENOBUFS is not among them: a device without carrier returns it."""


def fault_text(error: BaseException) -> str:
    """Return an unexpected exception, and where it was raised, for the log."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "" if at is None else f", {at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno}"
    return f"{type(error).__name__}: {error}{where}"


def assert_never(value: NoReturn) -> NoReturn:
    """Let mypy prove that a `match` has all cases; as of `typing` in Python 3.11."""
    raise AssertionError(f"no case for {value!r}")


class XenoovsError(Exception):
    """Base of all errors that a user is meant to read.

    retryable: the same call may succeed later.
    hint:      what else can be done, a sentence that the command line adds.
    commands:  those of the message in backquotes, for the Open vSwitch of the host itself; the command line adapts
               them to the Open vSwitch that was addressed.
    code:      the kind of error for programs, from the name of the class.
    """

    code: str = "failed"
    retryable: bool = False
    hint: str = ""
    commands: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        cls.code = _UPPER.sub("_", cls.__name__.replace("OpenFlow", "Openflow")).lower()


class ParseError(XenoovsError):
    """Text from a tool that does not have the form it should; `offset` counts characters into `text`."""

    def __init__(self, *, text: str, offset: int, expected: str, line: int | None = None) -> None:
        self.text, self.offset, self.expected, self.line = text, offset, expected, line
        start = text.rfind("\n", 0, offset) + 1
        first = 1 if line is None and "\n" in text else line
        column = f"column {offset - start + 1}"
        at = column if first is None else f"line {first + text.count(chr(10), 0, offset)}, {column}"
        shown = text[start:].partition("\n")[0]
        seen = shown[offset - start :][:40] or "end of line"
        super().__init__(f"{at}: expected {expected}, found {seen!r} in: {shown[:200]!r}")


class FileUnusable(XenoovsError):
    """A recorded file that is not read, or not to its end."""

    def __init__(self, *, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"{file}: {reason}")


class UnknownTableName(ParseError):
    """A dump names a table (Flow_Table of ovs-vswitchd.conf.db(5)) whose number the reader does not know."""


class WireError(ParseError):
    """Bytes of a peer are not a valid OpenFlow message; `offset` counts bytes into `data`."""

    def __init__(self, *, data: bytes, offset: int, expected: str) -> None:
        self.data = data
        XenoovsError.__init__(
            self, f"byte {offset}: expected {expected}, found {data[offset : offset + 16].hex(' ') or 'the end'}"
        )
        self.text, self.offset, self.expected, self.line = data.hex(), offset, expected, None


class NotEncodable(XenoovsError):
    """A value has no encoding in OpenFlow 1.4. `part`: what cannot be encoded; `reason`: why."""

    def __init__(self, *, part: str, reason: str) -> None:
        self.part, self.reason = part, reason
        super().__init__(f"{part[:200]} cannot be sent by OpenFlow 1.4: {reason}")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One mistake in a config: where and what. Line and column count from 1; path: `services[0].backends[1].weight`."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: "
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"


class ConfigError(XenoovsError):
    """A config that cannot be used; carries all findings at once, sorted by place, those of one place as they come."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(sorted(findings, key=lambda finding: (finding.file, finding.line, finding.column)))
        super().__init__("\n".join(map(str, self.findings)))


class ConfigUnreadable(XenoovsError):
    """The config file cannot be opened or read. `reason`: the message of the operating system."""

    def __init__(self, *, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(
            f"cannot read the config {file}: {reason}; name a readable YAML file, or make one: `xenoovs new`"
        )


class ToleranceUnreachable(XenoovsError):
    """Weights that no split over the given number of bits meets. `least`: the least tolerance that can be met, or None.
    `smallest`: index of the smallest positive weight, which decides; `backend`: the name of its backend, if known."""

    def __init__(
        self, *, tolerance: Fraction, least: Fraction | None, smallest: int, max_width: int, backend: str | None = None
    ) -> None:
        self.tolerance, self.least, self.smallest, self.max_width = tolerance, least, smallest, max_width
        wanted = f"a tolerance of {percent_rounded_up(tolerance)} cannot be met with {counted(max_width, 'bit')}"
        weight = f"the smallest weight (backend {smallest if backend is None else backend})"
        more = "allow more bits where they are limited"
        if least is None:
            wanted += f", which make {1 << max_width} classes of addresses, fewer than the backends; allow more bits"
        elif least > 1:
            wanted += f", nor can any tolerance up to 100%: raise {weight} or set it to 0, or {more}"
        else:
            lowest = percent_rounded_up(least)
            wanted += f"; the lowest possible is {lowest}: raise the tolerance or {weight}, or {more}"
        super().__init__(wanted)

    def naming(self, backend: str) -> ToleranceUnreachable:
        """Return the error with the name of the backend whose weight decides."""
        return ToleranceUnreachable(
            tolerance=self.tolerance,
            least=self.least,
            smallest=self.smallest,
            max_width=self.max_width,
            backend=backend,
        )


class BudgetUnreachable(XenoovsError):
    """A budget of flows that no split fits. `least`: the least number of flows possible; `service`: the name of the
    service, if known."""

    def __init__(self, *, max_flows: int, least: int, service: str | None = None) -> None:
        self.max_flows, self.least, self.service = max_flows, least, service
        whose = "" if service is None else f"service {service}: "
        super().__init__(
            f"{whose}{counted(max_flows, 'flow')} cannot serve {least} backends with a weight, of which each needs a "
            f"flow; raise `max_flows` to at least {least}"
        )

    def naming(self, service: str) -> BudgetUnreachable:
        """Return the error with the name of the service."""
        return BudgetUnreachable(max_flows=self.max_flows, least=self.least, service=service)


class CompileError(XenoovsError):
    """A valid config that no program can serve."""

    def __init__(self, *, service: str, reason: str) -> None:
        self.service, self.reason = service, reason
        super().__init__(f"service {service}: {reason}")


class FlowConflict(XenoovsError):
    """A foreign flow has the table, priority and match of a flow of xenoovs. `flow`: the foreign one, as text."""

    def __init__(self, *, flow: str) -> None:
        self.flow = flow
        super().__init__(
            f"a foreign flow has the same table, priority and match as a flow of xenoovs: {flow}; "
            "remove it or give it another priority; nothing was changed"
        )


class SimulateError(XenoovsError):
    """A flow that cannot be simulated: it matches or does something that xenoovs never writes. `unknown`: its text."""

    def __init__(self, *, flow: str, unknown: str) -> None:
        self.flow, self.unknown, self.commands = flow, unknown, ("ovs-appctl ofproto/trace",)
        super().__init__(f"{flow}: {unknown} cannot be simulated; ask the switch with `{self.commands[0]}`")


class DecisionMalformed(XenoovsError):
    """A document that is no decision. `path`: the key that is wrong."""

    def __init__(self, *, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"not a decision: {path or 'document'}: {reason}; write one with `xenoovs decision -o json`")


class SavedMalformed(XenoovsError):
    """A file that is no saved plan, and no entry of the history."""

    def __init__(self, *, file: str, line: int, column: int, reason: str) -> None:
        self.file, self.line, self.column, self.reason = file, line, column, reason
        super().__init__(
            f"{file}:{line}:{column}: not as xenoovs wrote it: {reason}; the file was edited, or is incomplete"
        )


class BridgeChanged(XenoovsError):
    """A bridge that has other flows than those that a change was planned for.

    services: Names of services, each with the number of flows that differ. again: The command that plans again.
    """

    def __init__(self, *, bridge: str, since: str, services: Mapping[str, int], example: str, again: str) -> None:
        self.bridge, self.services, self.example, self.commands = bridge, dict(services), example, (again,)
        count = ", ".join(f"{counted(flows, 'flow')} of {name}" for name, flows in services.items())
        super().__init__(
            f"bridge {bridge} has changed since {since}: {count}, such as `{example}`; nothing was applied: plan again "
            f"with {_quoted(again)}"
        )


class StalePlan(XenoovsError):
    """A saved plan that would send other flow-mods now, though the flows of the bridge are the same."""

    def __init__(self, *, file: str, made_by: str, version: str, again: str) -> None:
        self.file, self.made_by, self.version, self.commands = file, made_by, version, (again,)
        cause = "a port, or the MAC of a backend that is given by its address, has changed"
        if made_by != version:
            cause += f", or xenoovs itself (the plan is of {made_by}, this is {version})"
        super().__init__(
            f"the plan in {file} does not fit any more: {cause}; nothing was applied: plan again with {_quoted(again)}"
        )


class ChangeUnderWay(XenoovsError):
    """Another command changes a bridge at this moment."""

    retryable = True

    def __init__(self, *, bridge: str) -> None:
        self.bridge = bridge
        super().__init__(
            f"another `xenoovs apply` or `rollback` changes bridge {bridge} now, or waits for `xenoovs confirm`; try "
            "again when it has ended"
        )


class NotInHistory(XenoovsError):
    """An entry that the history of a bridge does not have. present: the numbers of those that it has."""

    def __init__(self, *, bridge: str, number: int, present: Sequence[int]) -> None:
        self.bridge, self.number, self.present = bridge, number, tuple(present)
        has = f"entries {present[0]} to {present[-1]}" if present else "no entry; `xenoovs apply` writes them"
        super().__init__(f"the history of bridge {bridge} has no entry {number}; it has {has}")


def _quoted(command: str) -> str:
    return f"`{command}`"


class SwitchError(XenoovsError):
    """A request to Open vSwitch failed."""


class SwitchUnreachable(SwitchError):
    """No process answers at the socket of Open vSwitch. `commands`: those in the reason."""

    retryable = True

    def __init__(self, *, target: str, reason: str, commands: tuple[str, ...] = ()) -> None:
        self.target, self.reason, self.commands = target, reason, commands
        super().__init__(f"cannot reach Open vSwitch at {target}: {reason}")


class SwitchUnresponsive(SwitchUnreachable):
    """A process of Open vSwitch accepts requests and answers none."""

    def __init__(self, *, target: str, reason: str, commands: tuple[str, ...]) -> None:
        advice = f"{reason}; to fix it, {' and '.join(map(_quoted, commands))}"
        super().__init__(target=target, reason=advice, commands=commands)


class MacUnknown(SwitchError):
    """Backends with an address only, for which no machine answers. `unknown`: Each address with its `service/backend`.
    `is_recorded`: Whether no machine was asked, because the input was recorded, maybe on another network."""

    retryable = True

    def __init__(self, *, unknown: Mapping[str, tuple[str, ...]], is_recorded: bool = False) -> None:
        self.unknown = dict(unknown)
        listed = first_names([f"{address} ({', '.join(names)})" for address, names in self.unknown.items()], most=5)
        if is_recorded:
            why = "a recorded dump gives no MACs; add the `mac:` that `xenoovs plan` shows on the recorded host"
        else:
            why = (
                "no machine on the networks of this host answers for that address; add `mac:`, or set health.interface "
                "or health.netns to where it can be reached"
            )
        super().__init__(f"no MAC is known for {listed}: {why}")


class NotInOpenFlow(SwitchError):
    """A controller cannot read this by OpenFlow. `wanted`: what."""

    def __init__(self, *, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(
            f"OpenFlow has no request for {wanted}: run this on the host of the switch, beside ovs-vswitchd"
        )


class BridgeMissing(SwitchError):
    """The bridge of the config does not exist."""

    def __init__(self, *, bridge: str, present: Iterable[str]) -> None:
        self.bridge, self.present = bridge, tuple(sorted(present))
        guess = did_you_mean(bridge, self.present, "; did you mean {}?")
        there = f"bridges here: {', '.join(self.present)}{guess}" if self.present else "there are no bridges"
        self.commands = (f"ovs-vsctl add-br {bridge}",)
        super().__init__(
            f"bridge {bridge} does not exist ({there}); "
            f"create it with {_quoted(*self.commands)} or name another in switch.bridge"
        )


class InterfaceMissing(SwitchError):
    """Open vSwitch has no interface of this name."""

    def __init__(self, *, interface: str) -> None:
        self.interface = interface
        super().__init__(f"Open vSwitch has no interface {interface}")


class WouldBeUnencrypted(SwitchError):
    """Packets of a tunnel would leave unencrypted, against a policy of IPsec or against the config.

    Args:
        tunnels: Each with the policy that covers it, and the reason.
        uncovered: Remotes that the config wants encrypted and no policy covers; if there are any, the message is
            about them.
        is_userspace: The datapath is in user space, so that no policy can cover them.
    """

    def __init__(
        self, *, tunnels: Iterable[str] = (), uncovered: Iterable[str] = (), is_userspace: bool = False
    ) -> None:
        self.tunnels, self.uncovered = tuple(tunnels), tuple(uncovered)
        if self.uncovered and is_userspace:
            self.commands: tuple[str, ...] = ("ovs-vsctl get bridge BRIDGE datapath_type",)
            super().__init__(
                f"nothing was changed: the config wants IPsec for packets to {first_names(self.uncovered)}, and a "
                "userspace datapath bypasses the kernel's IPsec, so they leave unencrypted. Use a bridge with "
                "datapath_type system, or remove `ipsec` from the tunnel"
            )
            return
        if self.uncovered:
            self.commands = ("ip xfrm policy", "xenoovs doctor")
            super().__init__(
                "nothing was changed: the config wants IPsec, and no policy covers packets to "
                f"{first_names(self.uncovered)}, so they leave unencrypted. openvswitch-ipsec makes the policies some "
                "seconds after the ports have their keys: wait, then see `ip xfrm policy` and `xenoovs doctor`"
            )
            return
        self.commands = ("ip xfrm policy", "ip xfrm state")
        shown = "; ".join(self.tunnels[:3]) + (f"; and {len(self.tunnels) - 3} more" if len(self.tunnels) > 3 else "")
        super().__init__(
            f"nothing was changed: a policy of IPsec covers {shown}. Whatever does not pass the kernel leaves "
            "unencrypted: what a NIC encapsulates without an SA that has `offload packet` on the device, and all of a "
            "userspace datapath. Make the SA first (see `ip xfrm policy` and `ip xfrm state`), or write `ipsec: {.., "
            "offload: none}` at the tunnel if the CPU encapsulates"
        )


class BridgeOfOvn(SwitchError):
    """The bridge belongs to OVN. `evidence`: what shows it, a clause."""

    def __init__(self, *, bridge: str, evidence: str) -> None:
        self.bridge, self.evidence = bridge, evidence
        self.commands = ("ovs-vsctl list-br",)
        super().__init__(
            f"bridge {bridge} belongs to OVN ({evidence}), and ovn-controller deletes the flows of other programs "
            f"there: nothing was changed. Name another bridge in the config, such as that of the uplink; "
            f"{_quoted(*self.commands)} lists the bridges"
        )


class OtherDatapath(SwitchError):
    """The bridge has another datapath id than the config; both as 16 hexadecimal digits."""

    def __init__(self, *, bridge: str, wanted: str, found: str | None) -> None:
        self.bridge, self.wanted, self.found = bridge, wanted, found
        super().__init__(
            f"bridge {bridge} here has the datapath id {found or '(none)'}, but the config is for {wanted}: "
            "is this the right host? Nothing was changed"
        )


_TUNNEL_COMMANDS = ("xenoovs doctor FILE --fix", "xenoovs tunnels FILE")


class PortsMissing(SwitchError):
    """Ports of the config that are not on its bridge.

    Attributes:
        elsewhere: Each such port with the bridge that has it, or None.
        present: The ports that the bridge has.
        tunnels: Those that are ports of tunnels.
    """

    def __init__(
        self, *, bridge: str, elsewhere: Mapping[str, str | None], present: Iterable[str], tunnels: Iterable[str] = ()
    ) -> None:
        self.bridge, self.elsewhere, self.present = bridge, dict(sorted(elsewhere.items())), tuple(sorted(present))
        moves = {port: self._move(port, other) for port, other in self.elsewhere.items() if other is not None}
        made = [port for port in self.elsewhere if port not in moves and port in set(tunnels)]
        self.commands = (*moves.values(), *(_TUNNEL_COMMANDS if made else ()))
        parts = [f"port {port} is on bridge {self.elsewhere[port]}; move it with `{moves[port]}`" for port in moves]
        parts += [
            f"port {port} is on no bridge{did_you_mean(port, self.present, _GUESS)}"
            for port in self.elsewhere
            if port not in moves and port not in made
        ]
        if len(parts) > len(moves):
            parts.append("correct the config, or add the port to the bridge first")
        if made:
            fix, show = _TUNNEL_COMMANDS
            named = f"tunnel {worded(len(made), 'port', 'ports')} {', '.join(made)}"
            parts.append(f"{named} must be made: `{fix}` does it, `{show}` prints the commands")
        listed = f"has the ports {first_names(self.present)}" if self.present else "has no ports"
        super().__init__(f"bridge {bridge} {listed}; {'; '.join(parts)}; nothing was changed")

    def _move(self, port: str, other: str) -> str:
        return f"ovs-vsctl del-port {other} {port} -- add-port {self.bridge} {port}"


class CommandFailed(SwitchError):
    """A tool ended with a status other than 0. stdout and stderr are separate."""

    def __init__(self, *, argv: Iterable[str], exit_code: int, stdout: str, stderr: str) -> None:
        self.argv, self.exit_code, self.stdout, self.stderr = tuple(argv), exit_code, stdout, stderr
        message = stderr.strip() or stdout.strip() or "no output"
        super().__init__(f"`{' '.join(self.argv)}` failed with status {exit_code}: {message}")


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
            f"`{' '.join(self.argv)}` did not end within {span(timeout_s)} and was stopped; is ovs-vswitchd busy or "
            "hung?"
        )


class UnusablePorts(SwitchError):
    """Ports of the bridge that flows cannot use. `reasons`: each port with what is wrong."""

    def __init__(self, *, bridge: str, reasons: dict[str, str], commands: tuple[str, ...] = ()) -> None:
        self.bridge, self.reasons, self.commands = bridge, dict(sorted(reasons.items())), commands
        listed = "; ".join(f"port {port} of bridge {bridge} {reason}" for port, reason in self.reasons.items())
        super().__init__(f"{listed}; nothing was changed")


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
    advice:  what to do. commands: those in the advice.
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
    """After a change the switch has other flows than were sent: another program changed them at the same time."""

    retryable = True
    commands = ("xenoovs plan FILE",)

    def __init__(self, *, bridge: str, flows: int) -> None:
        self.bridge, self.flows = bridge, flows
        super().__init__(
            f"bridge {bridge} accepted the change, but {counted(flows, 'flow')} of xenoovs came back different: does "
            f"another controller or xenoovs change this bridge? Run {_quoted(*self.commands)}, then apply again"
        )


class FlowsNotRestored(SwitchError):
    """After a restart of Open vSwitch flows could not be restored. By bridge: `reasons`; `files`, as bundles."""

    def __init__(self, *, reasons: dict[str, str], files: dict[str, str]) -> None:
        self.reasons, self.files = dict(sorted(reasons.items())), dict(sorted(files.items()))
        back = {bridge: f"ovs-ofctl -O OpenFlow14 bundle {bridge} {self.files[bridge]}" for bridge in self.reasons}
        self.commands = (*back.values(), "xenoovs apply FILE")
        listed = "; ".join(
            f"bridge {bridge} has lost its flows ({reason}): fix that, then run {_quoted(back[bridge])}; "
            f"{_quoted(self.commands[-1])} restores only the flows of xenoovs"
            for bridge, reason in self.reasons.items()
        )
        super().__init__(f"Open vSwitch was restarted, but {listed}")


class OffloadUnchanged(SwitchError):
    """After a restart of Open vSwitch, offload is not as it was set (`is_on`). `evidence`: what shows its state."""

    def __init__(self, *, is_on: bool, evidence: str) -> None:
        self.is_on, self.evidence, self.commands = is_on, evidence, ("xenoovs doctor FILE",)
        value, word = ("true", "on") if is_on else ("false", "off")
        super().__init__(
            f"Open vSwitch was restarted with other_config:hw-offload={value}, but offload is not {word}: {evidence}; "
            f"{_quoted(self.commands[0])} shows what is missing"
        )


class FrameworkMissing(XenoovsError):
    """Neither os-ken nor ryu can be imported, for which the application under their launchers is made."""

    def __init__(self) -> None:
        super().__init__(
            "xenoovs.ryu_app runs under the launcher of os-ken or ryu, and neither is installed; "
            "`xenoovs controller` needs neither"
        )


class MalformedOpenFlow(SwitchError):
    """A peer sent bytes that are not OpenFlow; its connection is closed. `reason`: what it sent."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"malformed OpenFlow: {reason}")


class StandingBy(SwitchError):
    """Another controller is the master of the bridge; this one changes nothing until that one is gone."""

    retryable = True

    def __init__(self, *, bridge: str) -> None:
        super().__init__(f"another controller is master of bridge {bridge}; this one stands by")


class OtherBridge(SwitchError):
    """A config names another bridge than it did at the start, and has to keep it. `mine`: the bridge at the start."""

    def __init__(self, *, mine: str, wanted: str) -> None:
        self.mine, self.wanted = mine, wanted
        super().__init__(
            f"this process manages bridge {mine} and refuses {wanted}; restart it with the config of that bridge"
        )


class SameBridge(XenoovsError):
    """Two configs are for one bridge, or cannot be distinguished. `files`: both."""

    def __init__(self, *, files: tuple[str, str], bridge: str) -> None:
        self.files, self.bridge = files, bridge
        super().__init__(
            f"{files[0]} and {files[1]} are both for bridge {bridge}: a bridge has one config. If two hosts have a "
            "bridge of that name, add `datapath_id:` under `switch:` in both"
        )


class ControllerPresent(SwitchError):
    """A bridge has other controllers; `present`: their targets."""

    def __init__(self, *, bridge: str, present: Iterable[str]) -> None:
        self.bridge, self.present = bridge, tuple(present)
        self.commands = (f"ovs-vsctl del-controller {bridge}",)
        super().__init__(
            f"bridge {bridge} has another controller ({', '.join(self.present)}) and was not changed; share "
            f"the bridge with --redundant, or remove the other controller with `{self.commands[0]}`"
        )


class CertificateUnusable(XenoovsError):
    """A file for TLS cannot be used. `reason`: the message of the system or of OpenSSL."""

    def __init__(self, *, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"cannot use {file} for TLS: {reason}; PEM files are needed, the key without a password")


class CannotListen(XenoovsError):
    """The controller cannot listen. `reason`: the message of the operating system."""

    def __init__(self, *, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"cannot listen at {address}: {reason}; name another with --listen")


class ChangesHeld(XenoovsError):
    """The agent is paused, and the bridge would have to change. `flow_mods`: how many it would take."""

    retryable = True

    def __init__(self, *, flow_mods: int) -> None:
        self.flow_mods = flow_mods
        super().__init__(f"paused: {counted(flow_mods, 'flow-mod')} held back until `xenoovs pause --end`")


class AppointmentCancelled(XenoovsError):
    """A prepared change was cancelled before its time, because something else happened: it is planned again."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("a change was cancelled before its time; it is planned again")


class RoundLate(XenoovsError):
    """A round of the agent takes too long. `after_s`: how long it has taken by now."""

    retryable = True

    def __init__(self, *, bridge: str, after_s: float) -> None:
        self.bridge, self.after_s = bridge, after_s
        super().__init__(
            f"reconciling bridge {bridge} is not finished after {span(after_s)}: Open vSwitch is stopped or very busy; "
            "until it answers, it is unknown whether the bridge was changed"
        )


class SystemFailure(SwitchError):
    """The operating system refused what a call needs, such as a descriptor or a process."""

    retryable = True

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"this host lacks resources: {reason}")


def problem_of(error: Exception) -> XenoovsError:
    """Return an exception as an error for users. One that nobody expects names its place in the code."""
    if isinstance(error, XenoovsError):
        return error
    if isinstance(error, OSError):
        # For instance too few descriptors or processes, of which the next attempt may have enough.
        return SystemFailure(reason=str(error))
    return XenoovsError(f"internal error: {fault_text(error)}")


class NotConfirmed(XenoovsError):
    """A change was not confirmed in time, and was rolled back. `after_s`: the time that it had."""

    def __init__(self, *, after_s: float) -> None:
        self.after_s = after_s
        super().__init__(
            f"the change was not confirmed within {span(after_s)} (`xenoovs confirm`) and was rolled back; the flows "
            "are those from before it"
        )


class RolledBack(XenoovsError):
    """A change that was rolled back before it was confirmed."""

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: the change was rolled back, the bridge has its old flows")


class Declined(XenoovsError):
    """The user was asked and declined."""

    def __init__(self) -> None:
        super().__init__("declined")


class NotOffloaded(XenoovsError):
    """A change that was rolled back because the NIC does not forward what it should."""

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason}, so the change was rolled back: the bridge has its old flows. `xenoovs lint` and "
            "`xenoovs doctor` show what hardware offload needs"
        )


class StateUnusable(XenoovsError):
    """The file of run-time overrides cannot be used. `renamed`: its name now; None if it has its name."""

    def __init__(self, *, path: str, reason: str, renamed: str | None) -> None:
        self.path, self.reason, self.renamed = path, reason, renamed
        moved = "" if renamed is None else f"; it was renamed to {renamed}"
        super().__init__(
            f"the overrides in {path} cannot be used: {reason}{moved}; weights and drains are those of the config now: "
            "set them again with `xenoovs drain` and `xenoovs weight`"
        )


class StoredServiceUnusable(XenoovsError):
    """What the store of a fleet has of a service cannot be installed."""

    def __init__(self, *, service: str, reason: str) -> None:
        self.service, self.reason = service, reason
        super().__init__(
            f"service {service} of the fleet cannot be used: {reason}; `xenoovs fleet apply` writes it again"
        )


class FleetCacheUnusable(XenoovsError):
    """The file with the last view of a fleet's store cannot be used."""

    def __init__(self, *, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path} cannot be used: {reason}; the agent waits for the store")


class ExportMalformed(XenoovsError):
    """A file is no export of a fleet."""

    def __init__(self, *, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"{file} cannot be restored: {reason}")


class FleetRefused(XenoovsError):
    """A request that a fleet cannot follow; nothing was written."""


class FleetUndecided(XenoovsError):
    """A change is in the store, and no controller is known to decide about it."""

    retryable = True


class RequestRefused(XenoovsError):
    """A request to the agent is impossible. `status`: of HTTP (RFC 9110); `code`: the same for programs."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        self.status, self.code = status, code
        super().__init__(message)


class ListenError(XenoovsError):
    """The agent cannot listen at an address, or with the given files."""


class AgentMissing(XenoovsError):
    """No agent answers at its socket."""

    def __init__(self, *, where: str, reason: str) -> None:
        self.where, self.reason, self.commands = where, reason, ("xenoovs agent FILE",)
        super().__init__(
            f"no agent answers at {where}: {reason}; start one with `xenoovs agent FILE` (`systemctl start "
            "xenoovs-agent` is for this host), or name its socket with --control PATH"
        )


class AgentRefused(XenoovsError):
    """An agent refused a request."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        self.status, self.code = status, code
        super().__init__(message)


class AgentRuns(XenoovsError):
    """Another agent reconciles the bridge already. `holder`: the file that it holds locked."""

    def __init__(self, *, bridge: str, holder: str) -> None:
        self.bridge, self.holder = bridge, holder
        super().__init__(
            f"another agent reconciles bridge {bridge} already (it holds {holder}); "
            "see `xenoovs status`, and end that one first: `systemctl stop xenoovs-agent`"
        )


class StoreError(XenoovsError):
    """A request to the store of a fleet failed."""


class StoreUnreachable(StoreError):
    """No server of the store answers."""

    retryable = True

    def __init__(self, *, remotes: str, reason: str) -> None:
        self.remotes, self.reason = remotes, reason
        super().__init__(
            f"cannot reach the fleet's store at {remotes}: {reason}; does `xenoovs fleet server` run on its host?"
        )


class StoreRejected(StoreError):
    """The store refuses rows: a constraint of the schema, or a client that may not write. Nothing was written."""

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the fleet's store refuses this change: {reason}; nothing was written")


class StoreMalformed(StoreError):
    """A row of the store has a value that is none, so that its view is not used."""

    def __init__(self, *, table: str, row: str, column: str, reason: str) -> None:
        self.table, self.row, self.column, self.reason = table, row, column, reason
        super().__init__(
            f"the fleet's store is damaged: table {table}, row {row}, column {column}: {reason}; "
            "correct the row; until then the last good view stays in use"
        )


class StoreNewer(StoreError):
    """A row of the store has a value of a newer version, so that its view is not used."""

    def __init__(self, *, table: str, row: str, column: str, value: str) -> None:
        self.table, self.row, self.column, self.value = table, row, column, value
        super().__init__(
            f"the fleet's store is that of a newer version: table {table}, row {row}, column {column} has {value}, "
            "which this version does not know; upgrade xenoovs on this host; until then the last good view stays in use"
        )


class LabError(XenoovsError):
    """The lab could not be built, used or removed."""


class MeasureError(XenoovsError):
    """An experiment cannot begin, or cannot go on."""
