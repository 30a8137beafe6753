"""keepalived.conf: the virtual servers of keepalived (keepalived.conf(5)) with their real servers and checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from ipaddress import ip_address

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import NOTHING_LIKE_IT, Draft, DraftBackend, DraftService, Omissions, duration, name_from
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import PortRange, Protocol

# The form of the file: words, and blocks in braces. `!` and `#` begin comments, quotes hold several words together.


@dataclass(slots=True)
class Statement:
    """One line, or the head of a block. body: None: it has no block."""

    number: int
    words: tuple[str, ...]
    body: list[Statement] | None = None

    @property
    def name(self) -> str:
        return self.words[0]

    @property
    def argument(self) -> str:
        return self.words[1] if len(self.words) > 1 else ""

    @property
    def text(self) -> str:
        return " ".join(self.words)


_DEEPEST = 16


def parse_statements(text: str) -> list[Statement]:
    """Return the statements of a file.

    Raises:
        ParseError: A brace is missing or too many, or a quote is not closed.
    """
    root: list[Statement] = []
    stack = [root]
    last: Statement | None = None
    number = 0
    for number, line in enumerate(text.split("\n"), start=1):
        words: list[str] = []
        for word, offset in _words(line, number):
            if word == "{":
                last = Statement(number, tuple(words)) if words else last
                if last is None or last.body is not None or len(stack) > _DEEPEST:
                    raise ParseError(text=line, offset=offset, expected="a keyword before '{'", line=number)
                if words:
                    stack[-1].append(last)
                last.body, words = [], []
                stack.append(last.body)
                last = None
            elif word == "}":
                if words:
                    stack[-1].append(Statement(number, tuple(words)))
                    words = []
                if len(stack) == 1:
                    raise ParseError(text=line, offset=offset, expected="no '}': no block is open", line=number)
                stack.pop()
                last = None
            else:
                words.append(word)
        if words:
            # The brace of a block may stand on the next line.
            last = Statement(number, tuple(words))
            stack[-1].append(last)
    if len(stack) > 1:
        raise ParseError(text="", offset=0, expected=f"'}}': {len(stack) - 1} blocks are open at the end", line=number)
    return root


def _words(line: str, number: int) -> Iterator[tuple[str, int]]:
    offset = 0
    while offset < len(line):
        char = line[offset]
        if char.isspace():
            offset += 1
        elif char in "!#":
            return
        elif char in "{}":
            yield char, offset
            offset += 1
        elif char in "\"'":
            end = line.find(char, offset + 1)
            if end < 0:
                raise ParseError(text=line, offset=offset, expected=f"a closing {char}", line=number)
            yield line[offset + 1 : end], offset
            offset = end + 1
        else:
            end = offset
            while end < len(line) and not line[end].isspace() and line[end] not in "{}!#":
                end += 1
            yield line[offset:end], offset
            offset = end


# What it means.


_ELSEWHERE = {
    "global_defs": "settings of keepalived itself",
    "vrrp_instance": "xenoovs does not move VIPs between hosts: keep keepalived for VRRP, or announce the VIP by BGP",
    "vrrp_sync_group": "xenoovs does not move VIPs between hosts",
    "vrrp_script": "part of VRRP",
    "vrrp_track_process": "part of VRRP",
    "include": "the other file was not read: import it too",
}
_SERVICE_REASONS = {
    "lb_algo": "clients are split by bits of their address and by weight",
    "persistence_timeout": "not needed: a client keeps its server, because bits of its address choose it",
    "persistence_granularity": "not needed: bits of the address choose the server",
    "ops": "xenoovs has no connections: every packet is balanced by itself",
    "quorum": "use max_down: the part of the backends that may be out at once",
    "hysteresis": "use rise and fall",
    "virtualhost": "set `host` in health",
    "quorum_up": "use `notify`: its program gets SERVICE, the name and UP",
    "quorum_down": "use `notify`: its program gets SERVICE, the name and DOWN or BACKUP",
}
_NOTIFY = "use `notify`: one program for both states, which it gets as its last argument"
_SERVER_REASONS = {"notify_up": _NOTIFY, "notify_down": _NOTIFY}
_SYNONYMS = {"lvs_sched": "lb_algo", "lvs_method": "lb_kind", "delay_before_retry": "retry_delay"}
_KNOWN_SERVICE = ("real_server", "protocol", "delay_loop", "lb_kind", "alpha", "omega")
_CHECKS = {
    "TCP_CHECK": "tcp",
    "HTTP_GET": "http",
    "SSL_GET": "https",
    "DNS_CHECK": "dns",
    "UDP_CHECK": "udp",
    "PING_CHECK": "icmp",
    "MISC_CHECK": "exec",
}
_DELAY_LOOP_S = 60.0
"""keepalived.conf(5), delay_loop."""


def read_keepalived(text: str) -> Draft:
    """Return the draft of a keepalived.conf: a service for each virtual_server.

    Raises:
        ParseError: The file has not the form of keepalived.conf(5).
    """
    draft = Draft(is_dsr=True)
    statements = parse_statements(text)
    groups = {one.argument: one for one in statements if one.name == "virtual_server_group"}
    for statement in statements:
        if statement.name.startswith("@"):
            draft.omissions.add(statement, "a condition: import the file without it, once for each case")
        elif statement.name == "virtual_server":
            _add_services(draft, statement, groups)
        elif statement.name != "virtual_server_group":
            draft.omissions.add(statement, _ELSEWHERE.get(statement.name, "no part of load balancing"))
    return draft


@dataclass(slots=True)
class _Target:
    """The addresses of a virtual server that share a port; None: all ports."""

    port: PortRange | None
    vips: list[IPAddress] = field(default_factory=list)


def _add_services(draft: Draft, statement: Statement, groups: dict[str, Statement]) -> None:
    made = DraftService("")
    targets = list(_targets(statement, groups, made.omissions))
    _fill(made, statement, draft)
    if not targets or all(backend.is_backup for backend in made.backends):
        missing = "an address" if not targets else "a real_server"
        draft.omissions += made.omissions
        draft.omissions.add(statement, f"left out: a service needs {missing}")
        return
    for number, target in enumerate(targets):
        port = "" if target.port is None else f"-{target.port}"
        name = name_from(f"{target.vips[0]}{port}".replace(":", "-"), (other.name for other in draft.services))
        ports = () if target.port is None or made.protocol is None else (target.port,)
        omissions = made.omissions if not number else Omissions()
        copies = [replace(backend) for backend in made.backends]
        vips = tuple(dict.fromkeys(target.vips))
        service = DraftService(name, vips, made.protocol, ports, dict(made.health), None, copies, omissions)
        _set_kind(service, statement, draft)
        draft.services.append(service)


def _targets(statement: Statement, groups: dict[str, Statement], omissions: Omissions) -> Iterator[_Target]:
    """Yield the addresses that a virtual server is for, by port."""
    words = statement.words[1:]
    if words[:1] == ("group",):
        group = groups.get(words[1] if len(words) > 1 else "")
        lines = [] if group is None or group.body is None else [(each.number, each.words) for each in group.body]
    else:
        lines = [(statement.number, words)]
    found: dict[PortRange | None, _Target] = {}
    for line, (host, *rest) in (pair for pair in lines if pair[1]):
        try:
            vips = list(_range_of(host))
            port = _ports_of(rest[0]) if rest else None
        except ValueError:
            reason = "a firewall mark is no address: write the addresses and ports that get it"
            reason = reason if host == "fwmark" else "not an address with a port"
            omissions.add(Statement(line, (host, *rest)), reason)
            continue
        found.setdefault(port, _Target(port)).vips.extend(vips)
    yield from found.values()


def _range_of(text: str) -> Iterator[IPAddress]:
    """Yield the addresses of `10.0.0.1` or `10.0.0.3-10`, where the last part counts on. Raises ValueError."""
    first, _, last = text.partition("-")
    begin = ip_address(first)
    yield begin
    if last:
        base, mask = (16, 0xFFFF) if begin.version == 6 else (10, 0xFF)
        end = int(begin) & ~mask | int(last, base)
        if not 0 <= end - int(begin) <= 1024:
            raise ValueError(text)
        yield from (begin + step for step in range(1, end - int(begin) + 1))


def _ports_of(text: str) -> PortRange | None:
    first, _, last = text.partition("-")
    ports = PortRange(int(first), int(last or first))
    if not 0 <= ports.first <= ports.last <= 0xFFFF:
        raise ValueError(text)
    return ports if ports.last else None


def _fill(service: DraftService, statement: Statement, draft: Draft) -> None:
    """Read the body of a virtual server."""
    every_s, service.protocol = _DELAY_LOOP_S, Protocol.TCP
    servers = []
    for each in statement.body or ():
        name = _SYNONYMS.get(each.name, each.name)
        if name in ("real_server", "sorry_server"):
            servers.append(each)
        elif name == "protocol":
            _set_protocol(service, each)
        elif name == "delay_loop":
            every_s = _seconds(each, service) or every_s
        elif name not in _KNOWN_SERVICE:
            service.omissions.add(each, _SERVICE_REASONS.get(name, NOTHING_LIKE_IT))
    for server in sorted(servers, key=lambda server: server.name == "sorry_server"):
        _add_server(service, server, every_s)
    if service.health and any(each.name == "alpha" for each in statement.body or ()):
        service.health["initial"] = "down"


def _set_protocol(service: DraftService, statement: Statement) -> None:
    try:
        service.protocol = Protocol(statement.argument.lower())
    except ValueError:
        service.omissions.add(statement, "not tcp, udp or sctp; tcp is assumed")


def _set_kind(service: DraftService, statement: Statement, draft: Draft) -> None:
    """Convert lb_kind, which is that of the servers' ports too: only NAT has others than the VIP."""
    kinds = [each for each in statement.body or () if _SYNONYMS.get(each.name, each.name) == "lb_kind"]
    kind = kinds[-1].argument.upper() if kinds else "DR"
    if kind == "NAT":
        reason = service.why_no_nat(draft.services)
        service.is_nat = reason is None
        if reason is not None:
            draft.is_dsr = False
            service.omissions.add(kinds[-1], f"{reason}: set the servers up for DR, with the VIP on a loopback device")
    elif kind != "DR":
        draft.is_dsr = False
        service.omissions.add(kinds[-1], "packets keep their destination, as with DR: set the servers up for DR")
    for backend in service.backends:
        is_same = bool(service.ports) and backend.l4_port == service.ports[0].first
        backend.l4_port = None if is_same or not service.is_nat else backend.l4_port


def _add_server(service: DraftService, statement: Statement, every_s: float) -> None:
    try:
        address = ip_address(statement.argument)
    except ValueError:
        service.omissions.add(statement, "not an IP address; left out")
        return
    weight = Fraction(1)
    for each in statement.body or ():
        if each.name == "weight":
            weight = _weight(each, service)
        elif each.name in _CHECKS:
            _add_check(service, each, every_s)
        elif each.name.endswith("_CHECK"):
            reason = (
                f"no probe like it; {'a tcp probe on that port' if 'SMTP' in each.name else 'an exec probe'} may do"
            )
            service.omissions.add(each, reason)
        else:
            service.omissions.add(each, _SERVER_REASONS.get(each.name, NOTHING_LIKE_IT))
    others = [backend.name for backend in service.backends]
    name, is_backup = name_from(str(address).replace(":", "-"), others), statement.name == "sorry_server"
    port = statement.words[2] if len(statement.words) > 2 else ""
    l4_port = int(port) if port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 0xFFFF else None
    service.backends.append(DraftBackend(name, weight, address=address, is_backup=is_backup, l4_port=l4_port))


def _weight(statement: Statement, service: DraftService) -> Fraction:
    if statement.argument.isascii() and statement.argument.isdigit():
        return Fraction(int(statement.argument[:9]))
    service.omissions.add(statement, "not a weight; 1 is written")
    return Fraction(1)


# Checks: each real server has its own in keepalived, a service has one.


def _add_check(service: DraftService, statement: Statement, every_s: float) -> None:
    health = {"probe": _CHECKS[statement.name], "interval": duration(every_s * 1000)}
    timeout_s = 0.0
    for each in statement.body or ():
        name = _SYNONYMS.get(each.name, each.name)
        setter = _CHECK_KEYS.get(name)
        if name == "url":
            _add_url(health, each, service)
        elif name in ("connect_timeout", "misc_timeout", "timeout"):
            timeout_s = _seconds(each, service)
        elif setter is None or not each.argument:
            service.omissions.add(each, "the probe has nothing like it")
        else:
            setter(health, each.argument)
    if timeout_s:
        health["timeout"] = duration(min(timeout_s, every_s) * 1000)
    if health["probe"] == "exec" and "command" not in health:
        service.omissions.add(statement, "a MISC_CHECK without misc_path")
        return
    if not service.health:
        service.health = health
    elif service.health != health:
        reason = "a service has one check, here that of its first real server; this one differs"
        service.omissions.add(statement, reason)


def _add_url(health: dict[str, str], statement: Statement, service: DraftService) -> None:
    for each in statement.body or ():
        if each.name == "path" and each.argument and "path" not in health:
            health["path"] = json.dumps(each.argument)
        elif each.name == "status_code" and each.argument:
            health["status"] = each.argument.replace(" ", "")
        elif each.name == "virtualhost" and each.argument:
            health["host"] = json.dumps(each.argument)
        else:
            reason = (
                "use `body`: text that the answer holds" if each.name == "digest" else "the probe has nothing like it"
            )
            service.omissions.add(each, reason)


def _set_fall(health: dict[str, str], text: str) -> None:
    if text.isascii() and text.isdigit():
        health["fall"] = str(min(100, int(text[:4]) + 1))


def _set_retry_delay(health: dict[str, str], text: str) -> None:
    if text.isascii() and text.replace(".", "", 1).isdigit():
        health["fast_interval"] = duration(float(text[:12]) * 1000)


_CHECK_KEYS: dict[str, Callable[[dict[str, str], str], None]] = {
    "connect_port": lambda health, text: health.update(port=text),
    "retry": _set_fall,
    "nb_get_retry": _set_fall,
    "retry_delay": _set_retry_delay,
    "misc_path": lambda health, text: health.update(command="[" + ", ".join(map(json.dumps, text.split())) + "]"),
    "name": lambda health, text: health.update(query=json.dumps(text)),
    "virtualhost": lambda health, text: health.update(host=json.dumps(text)),
    "payload": lambda health, text: health.update(send=json.dumps(text)),
}


def _seconds(statement: Statement, service: DraftService) -> float:
    try:
        found = float(statement.argument[:12])
        if not 0 < found < 1e6:
            raise ValueError(statement.argument)
    except ValueError:
        service.omissions.add(statement, "not a time in seconds")
        return 0.0
    return found
