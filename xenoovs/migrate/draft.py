"""The draft of a config: services as the YAML file will have them, and source lines that could not be converted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from ipaddress import IPv4Address
from itertools import groupby
from typing import Any

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.model.address import IPAddress, Mac, Vip
from xenoovs.model.balancer import OtherTraffic, PortRange, Protocol
from xenoovs.model.emit import render_flow, render_text
from xenoovs.model.form import form_of
from xenoovs.model.next_hop import UNCHANGED
from xenoovs.model.schema import BackendForm
from xenoovs.model.tunnel import Reflect, TunnelType
from xenoovs.model.values import LONGEST_MS, UNTAGGED, Parser, duration_ms, parse_plain_scalar
from xenoovs.regex import ASCII, regex

_NOT_IN_A_NAME = regex(r"[^A-Za-z0-9._-]+", ASCII)
_LONGEST_NAME = 63
_LONGEST_QUOTE = 100
_NUMBERED = "ofport "
"""The prefix of the names of ports of which only the number is known (openflow/text.py)."""

NOTHING_LIKE_IT = "xenoovs has nothing like it"
"""The default reason."""


class Word(str):
    """A word of the source. `is_used`: whether the config has it. `reasons`: the reasons of comments that name it."""

    line: int
    is_used: bool
    reasons: set[str]

    def __new__(cls, text: str, line: int) -> Word:
        made = super().__new__(cls, text)
        made.line, made.is_used, made.reasons = line, False, set()
        return made


def words_of(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def reasons(by_words: Mapping[str, str]) -> dict[str, str]:
    """Split keys of several words: return the reason of each word."""
    return {word: reason for words, reason in by_words.items() for word in words.split()}


def use(words: Iterable[Word]) -> None:
    """Mark words from which the config has a value."""
    for word in words:
        word.is_used = True


@dataclass(frozen=True, slots=True)
class Omission:
    """Words of the source on lines `line` to `last` that the config lacks. `text`: the words on the first line."""

    line: int
    text: str
    reason: str
    last: int


class Omissions(list[Omission]):
    """The words of the source that the config does not have, with the reasons."""

    def add(self, words: Iterable[Word], reason: str, *, about: str = "") -> None:
        """Add words with a reason, each once per reason. Words on several lines become one entry."""
        fresh = [word for word in words if reason not in word.reasons]
        if not fresh:
            return
        for word in fresh:
            word.reasons.add(reason)
        line, last = fresh[0].line, fresh[-1].line
        text = " ".join(word for word in fresh if word.line == line)
        prefix = f"{about}: " if about else ""
        if self and (self[-1].line, self[-1].last, self[-1].reason) == (line, last, reason) and last == line:
            before = self.pop().text
            text = f"{before}{'' if before.startswith(prefix) else f', {prefix}'} {text}"
        else:
            text = prefix + text
        self.append(Omission(line, text, reason, last))

    def rest(self, words: Iterable[Word], reason: str = NOTHING_LIKE_IT, *, about: str = "") -> None:
        """Add, line by line, the words that neither the config nor an earlier entry has."""
        left = [word for word in words if not word.is_used and not word.reasons]
        for _, same in groupby(left, key=lambda word: word.line):
            self.add(same, reason, about=about)

    def one_check(self, kind: str, servers: Iterable[tuple[str, Sequence[Word], dict[str, str]]]) -> dict[str, str]:
        """Return the check of a service: that of the first server that has one. Add the servers whose check differs.
        `servers`: name, words in the source, and check of each; the check is empty if it has none."""
        checks = list(servers)
        first = next((check for _, _, check in checks if check), {})
        for name, words, check in checks:
            if first and not check:
                self.add(words, f"it has no {kind} there; the {kind} of the service is for this server too", about=name)
            elif check != first:
                reason = f"a service has one {kind}, here that of its first server; this one differs"
                self.add(words, reason, about=name)
        return first


def targets(pairs: Iterable[tuple[IPAddress | None, PortRange | None]]) -> dict[PortRange | None, list[IPAddress]]:
    """Group addresses by port, so that no service gets an address with the port of another one.

    None stands for every address, and for every port.
    """
    found: dict[PortRange | None, list[IPAddress]] = {}
    for vip, port in pairs:
        vips = found.setdefault(port, [])
        if vip is not None and vip not in vips:
            vips.append(vip)
    return found


@dataclass(slots=True)
class DraftBackend:
    """A backend. `egress`: None for that of the switch. `mac`: None if the agent looks it up, or it stays unchanged."""

    name: str
    weight: Fraction
    mac: Mac | None = None
    address: IPAddress | None = None
    egress: str | None = None
    is_backup: bool = False
    l4_port: int | None = None
    vlan: int | None = None


@dataclass(slots=True)
class DraftService:
    """A service. `health`, `agent_check`: keys and values as in the YAML. `omissions`: those about this service.

    `is_nat`: whether packets get the backend's address, and its port if it has `l4_port`.
    """

    name: str
    vips: tuple[Vip, ...] = ()
    protocol: Protocol | None = None
    ports: tuple[PortRange, ...] = ()
    health: dict[str, str] = field(default_factory=dict)
    source_mac: Mac | None = None
    backends: list[DraftBackend] = field(default_factory=list)
    omissions: Omissions = field(default_factory=Omissions)
    agent_check: dict[str, str] = field(default_factory=dict)
    is_nat: bool = False
    vlan: int | None = None

    def why_no_nat(self, others: Iterable[DraftService]) -> str | None:
        """Return why this service cannot have NAT beside the other services; None if it can."""
        mine = self._answers()
        addresses = (*self.vips, *(backend.address for backend in self.backends if backend.address))
        if len(self.vips) != 1 or any(not isinstance(address, IPv4Address) for address in addresses):
            return "NAT is for one IPv4 address"
        if self.protocol is None or len(self.ports) != 1 or len(self.ports[0]) != 1:
            return "NAT is for one protocol and port here"
        if self.vlan is None and any(backend.vlan is not None for backend in self.backends):
            return "NAT into another VLAN needs the VLAN of clients"
        if any(mine & other._answers() for other in others if other.is_nat):
            return "NAT cannot know to which of two services a server's packets belong"
        return None

    def _answers(self) -> set[tuple[Protocol | None, IPAddress | None, int]]:
        """Return protocol, source address and source port of the backends' answers."""
        first = self.ports[0].first if self.ports else 0
        return {(self.protocol, backend.address, backend.l4_port or first) for backend in self.backends}


@dataclass(slots=True)
class DraftTunnel:
    """A tunnel of the host whose probes are reflected by flows. `source_ports`: None if the source has none."""

    name: str
    kind: TunnelType
    local: IPv4Address
    remote: IPv4Address
    dst_port: int
    tos: int
    reflect: Reflect
    source_ports: PortRange | None = None


@dataclass(slots=True)
class DraftSwitch:
    """The bridge, its ports and its policy; None if the source does not name them. `depth`: the most next hops in a
    failover group of the switch."""

    bridge: str | None = None
    ingress: tuple[str, ...] | None = None
    egress: str | None = None
    other_traffic: OtherTraffic | None = None
    depth: int = 0


@dataclass(slots=True)
class Draft:
    """A converted config. `omissions`: those of no service. `is_dsr`: whether packets keep their destination there too.

    `own_flows`: how many flows in it xenoovs itself installed. `words`: all words of the source.
    """

    words: list[Word] = field(default_factory=list)
    services: list[DraftService] = field(default_factory=list)
    omissions: Omissions = field(default_factory=Omissions)
    is_dsr: bool = False
    own_flows: int = 0
    switch: DraftSwitch = field(default_factory=DraftSwitch)
    tunnels: list[DraftTunnel] = field(default_factory=list)

    def add_copy(
        self, made: DraftService, name: str, vips: Iterable[Vip], ports: tuple[PortRange, ...]
    ) -> DraftService:
        """Add a service as `made` for other packets, and return it. The first copy has the omissions of `made`."""
        backends = [replace(backend) for backend in made.backends]
        name = name_from(name, self.services)
        self.services.append(replace(made, name=name, vips=tuple(vips), ports=ports, backends=backends))
        made.omissions = Omissions()
        return self.services[-1]

    def finish(self) -> Draft:
        """Add the remaining words to the omissions, and sort these by line. Return the draft."""
        self.omissions.rest(self.words)
        for omissions in (self.omissions, *(service.omissions for service in self.services)):
            omissions.sort(key=lambda omission: omission.line)
        return self

    @property
    def every_omission(self) -> tuple[Omission, ...]:
        of_services = (omission for service in self.services for omission in service.omissions)
        return tuple(sorted((*self.omissions, *of_services), key=lambda omission: omission.line))


def name_from(text: str, others: Iterable[DraftService | DraftBackend] = ()) -> str:
    """Return a valid name for a service or backend that resembles `text`, and that none of `others` has."""
    base = _NOT_IN_A_NAME.sub("-", text).strip("-._")[:_LONGEST_NAME] or "unnamed"
    known, name, number = {other.name for other in others}, base, 2
    while name in known:
        suffix = f"-{number}"
        name, number = base[: _LONGEST_NAME - len(suffix)] + suffix, number + 1
    return name


def duration(milliseconds: float) -> str:
    """Return a duration in the form of the config, limited to 1 ms to 1 h."""
    return str(duration_ms.write(round(min(LONGEST_MS, max(1, milliseconds)))))


def set_key(found: dict[str, str], key: str, reads: Parser[Any], words: Iterable[Word], text: str) -> None:
    """Set a key of a check and mark its words as used, if `reads`, the key's parser, accepts the text."""
    is_text = reads.schema.get("type") == "string"
    try:
        reads(str(text) if is_text else parse_plain_scalar(text))
    except ValueError:
        return
    found[key] = json.dumps(text) if is_text else text
    use(words)


def render(draft: Draft, *, source: str, switch: DraftSwitch) -> str:
    """Return the config as YAML, with comments that name the `source`. `switch`: bridge and ports if the draft has
    none."""
    return "".join(f"{line}\n" for line in _lines(draft, source, switch))


def _lines(draft: Draft, source: str, switch: DraftSwitch) -> Iterator[str]:
    found = draft.switch
    count = len(draft.every_omission)
    yield f"# Imported from {_quote(source)}."
    if count:
        yield "# What could not be converted is named in a comment, with the reason."
    if not draft.is_dsr:
        yield "# Packets keep their destination address, and servers answer clients directly: each server needs the VIP"
        yield "# on a loopback device, and must not answer ARP for it. `vip_mac` lets the switch answer."
    yield from _comments(draft.omissions, source, "")
    yield "version: 1"
    yield ""
    yield "switch:"
    hint = (
        ""
        if found.ingress and not any(port.startswith("ofport ") for port in found.ingress)
        else "  # check these names: `ovs-vsctl show` lists bridges and ports"
    )
    yield f"  bridge: {render_text(found.bridge or switch.bridge or 'ovsbr1')}{hint}"
    yield f"  ingress: [{', '.join(map(_port, found.ingress or switch.ingress or ('p0',)))}]"
    yield f"  egress: {_port(found.egress or switch.egress or 'p1')}"
    yield f"  other_traffic: {(found.other_traffic or OtherTraffic.PASSTHROUGH).value}"
    if found.depth > 1:
        yield "  failover: in_switch" + (f"\n  depth: {min(found.depth, 4)}" if found.depth > 2 else "")
    yield ""
    if draft.tunnels:
        yield "tunnels:"
    for tunnel in draft.tunnels:
        yield from _tunnel(tunnel, host_port=found.egress or switch.egress or "pf0hpf")
        yield ""
    yield "services:" if draft.services else "services: []"
    for number, service in enumerate(draft.services):
        if number:
            yield ""
        yield from _service(service, source)


def _tunnel(tunnel: DraftTunnel, *, host_port: str) -> Iterator[str]:
    yield f"  - name: {render_text(tunnel.name)}"
    yield f"    type: {tunnel.kind.value}"
    yield f"    local: {tunnel.local}"
    yield f"    host_port: {_port(host_port)}"
    if tunnel.dst_port != tunnel.kind.dst_port:
        yield f"    dst_port: {tunnel.dst_port}"
    if tunnel.source_ports is not None:
        yield f"    source_ports: {tunnel.source_ports}"
    yield f"    remotes: [{{name: remote, address: {tunnel.remote}}}]"
    yield "    paths: {by: source_port, count: 4, discover: ttl}"
    yield "    # An internal port for probes:"
    yield "    # `ovs-vsctl add-port BRIDGE xoar0 -- set interface xoar0 type=internal; ip link set xoar0 up`"
    yield f"    probe: {{port: xoar0, tos: {tunnel.tos}}}"
    yield f"    reflect: {tunnel.reflect.value}"


def _service(service: DraftService, source: str) -> Iterator[str]:
    yield from _comments(service.omissions, source, "  ")
    yield f"  - name: {render_text(service.name)}"
    if service.vips:
        vips = ", ".join(render_text(str(vip)) for vip in service.vips)
        yield f"    vip: {vips if len(service.vips) == 1 else f'[{vips}]'}"
    if service.protocol is not None:
        yield f"    protocol: {service.protocol.value}"
    if service.ports:
        ports = [str(each) if each.first == each.last else f'"{each}"' for each in service.ports]
        yield f"    ports: [{', '.join(ports)}]"
    if service.vlan is not None:
        yield f"    vlan: {service.vlan or UNTAGGED}"
    if service.is_nat:
        yield "    mode: nat  # what servers send to clients has to pass the bridge: make it their default route"
    if service.source_mac is not None:
        yield f"    rewrite_source_mac: {service.source_mac}"
    if service.health:
        yield "    health:"
        yield from (f"      {key}: {value}" for key, value in service.health.items())
    if service.agent_check:
        yield f"    agent_check: {{{', '.join(f'{key}: {value}' for key, value in service.agent_check.items())}}}"
    yield "    backends:" if service.backends else "    backends: []"
    yield from map(_backend, service.backends)


def _backend(backend: DraftBackend) -> str:
    has_mac = backend.mac is not None or backend.address is None
    tree = form_of(BackendForm).write(
        backend,
        mac=backend.mac or UNCHANGED if has_mac else None,
        egress=backend.egress and backend.egress.replace(_NUMBERED, "port-"),
        port=backend.l4_port,
        backup=backend.is_backup,
    )
    return f"      - {render_flow(tree)}"


def _comments(omissions: Iterable[Omission], source: str, indent: str) -> Iterator[str]:
    for reason, same in groupby(omissions, key=lambda omission: omission.reason):
        for omission in same:
            lines = f"{omission.line}" if omission.last == omission.line else f"{omission.line}-{omission.last}"
            yield f"{indent}# {_quote(source)}:{lines}: {' '.join(_printable(omission.text).split())}"
        yield f"{indent}#   {_printable(reason)}"


def _port(name: str) -> str:
    """Return the name of a port, without a number, which the config cannot have."""
    return render_text(name.replace(_NUMBERED, "port-"))


def _quote(text: str) -> str:
    """Return the name of a source on one line, without control characters, at most _LONGEST_QUOTE characters."""
    shown = " ".join(_printable(text).split())
    return shown if len(shown) <= _LONGEST_QUOTE else shown[: _LONGEST_QUOTE - 3] + "..."


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
