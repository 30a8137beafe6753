"""keepalived.conf: virtual servers with their real servers and checks (keepalived.conf(5))."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import ip_address
from typing import Any

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import (
    NOTHING_LIKE_IT,
    Draft,
    DraftBackend,
    DraftService,
    Omissions,
    Word,
    duration,
    name_from,
    reasons,
    set_key,
    targets,
    use,
)
from xenoovs.model import values
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import PortRange, Protocol
from xenoovs.model.values import Parser
from xenoovs.regex import regex

# Syntax: words, and blocks in braces. `!` and `#` begin comments, quotes hold several words together.


@dataclass(slots=True)
class Statement:
    """A line, or the head of a block with its `body`, which is None for a line."""

    head: tuple[Word, ...]
    body: list[Statement] | None = None

    @property
    def name(self) -> str:
        return _SYNONYMS.get(self.head[0], self.head[0])

    @property
    def argument(self) -> str:
        return self.head[1] if len(self.head) > 1 else ""

    @property
    def words(self) -> list[Word]:
        return [*self.head, *(word for each in self.body or () for word in each.words)]


_DEEPEST = 16
_LONGEST_LINE = 100_000


def parse_statements(text: str) -> list[Statement]:
    """Return the statements of a file. Raises ParseError for unbalanced braces or an open quote."""
    root: list[Statement] = []
    stack = [root]
    last: Statement | None = None
    number = 0
    values: dict[str, Word] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words: list[Word] = []
        if definition := _DEFINITION.fullmatch(line):
            stack[-1].append(Statement((Word(line.strip(), number),)))
            values[definition[1]] = stack[-1][-1].head[0]
            continue
        for word, offset in _words(_substituted(line, values), number):
            if word == "{":
                last = Statement(tuple(words)) if words else last
                if last is None or last.body is not None or len(stack) > _DEEPEST:
                    raise ParseError(text=line, offset=offset, expected="a keyword before '{'", line=number)
                if words:
                    stack[-1].append(last)
                last.body, words = [], []
                stack.append(last.body)
                last = None
            elif word == "}":
                if words:
                    stack[-1].append(Statement(tuple(words)))
                    words = []
                if len(stack) == 1:
                    raise ParseError(text=line, offset=offset, expected="no '}': no block is open", line=number)
                stack.pop()
                last = None
            else:
                words.append(Word(word, number))
        if words:
            # The brace of a block may stand on the next line.
            last = Statement(tuple(words))
            stack[-1].append(last)
    if len(stack) > 1:
        raise ParseError(text="", offset=0, expected=f"'}}': {len(stack) - 1} blocks are open at the end", line=number)
    return root


_DEFINITION = regex(r"\s*\$([A-Za-z_]\w*)=(?!.*\\\s*$).*", re.ASCII)
_PARAMETER = regex(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*)(?!\S))", re.ASCII)


def _substituted(line: str, values: Mapping[str, Word]) -> str:
    """Replace the parameters in a line by their values (keepalived.conf(5), Parameter substitution)."""

    def value_of(found: re.Match[str]) -> str:
        definition = values.get(found[1] or found[2])
        use(() if definition is None else (definition,))
        return found[0] if definition is None else definition.partition("=")[2].strip()

    for _ in range(_DEEPEST if "$" in line else 0):
        line = _PARAMETER.sub(value_of, line)[:_LONGEST_LINE]
    return line


_PIECE = regex(r"""([!#].*)|"([^"]*)"|'([^']*)'|([{}]|[^\s{}!#"'][^\s{}!#]*)|(["'])""")


def _words(line: str, number: int) -> Iterator[tuple[str, int]]:
    for found in _PIECE.finditer(line):
        if found[5]:
            raise ParseError(text=line, offset=found.start(), expected=f"a closing {found[5]}", line=number)
        if found[1]:
            return
        yield next(group for group in found.groups() if group is not None), found.start()


# Semantics.


_ELSEWHERE = {
    "global_defs": "settings of keepalived itself",
    "vrrp_instance": "xenoovs does not move VIPs between hosts: keep keepalived for VRRP, or announce the VIP by BGP",
    "vrrp_sync_group": "xenoovs does not move VIPs between hosts",
    "vrrp_script": "part of VRRP",
    "vrrp_track_process": "part of VRRP",
    "include": "the other file was not read: import it too",
}
_REASONS = reasons(
    {
        "lb_algo": "clients are split by bits of their address and by weight",
        "persistence_timeout": "not needed: a client keeps its server, because bits of its address choose it",
        "persistence_granularity": "not needed: bits of the address choose the server",
        "ops": "xenoovs has no connections: every packet is balanced by itself",
        "quorum": "use max_down: the part of the backends that may be out at once",
        "hysteresis": "use rise and fall",
        "quorum_up": "use `notify`: its program gets SERVICE, the name and UP",
        "quorum_down": "use `notify`: its program gets SERVICE, the name and DOWN or BACKUP",
        "notify_up notify_down": "use `notify`: one program for both states, which it gets as its last argument",
        "inhibit_on_failure": "a backend that is down gets no clients; use drain to keep its connections",
        "connect_ip": "a probe goes to the address of its backend",
        "digest regex": "use `body`: text that the answer holds",
        "misc_dynamic": "use agent_check: what it answers changes the weight",
        "payload": "it is hexadecimal; write text as `send`",
        "warmup": "probes are spread over time by `jitter`",
        "SMTP_CHECK": "no probe like it; use a tcp probe on that port if a connection proves enough",
        "BFD_CHECK FILE_CHECK": "no probe like it; use an exec probe if the server must answer",
        "url": "a service has one check, here of the first url",
        "delay_loop retry delay_before_retry connect_timeout": "not a number, or no check uses it",
        "weight": "not a weight; 1 is written",
    }
)
_SYNONYMS = {
    "lvs_sched": "lb_algo",
    "lvs_method": "lb_kind",
    "nb_get_retry": "retry",
    "misc_timeout": "connect_timeout",
}
_CHECKS = {"TCP_CHECK": "tcp", "HTTP_GET": "http", "SSL_GET": "https", "DNS_CHECK": "dns"}
_CHECKS |= {"UDP_CHECK": "udp", "PING_CHECK": "icmp", "MISC_CHECK": "exec"}
_KEYS: Mapping[str, tuple[str, Parser[Any]]] = {
    "connect_port": ("port", values.port),
    "path": ("path", values.path),
    "status_code": ("status", values.status),
    "virtualhost": ("host", values.host),
    "name": ("query", values.query),
}
"""Keys of a check, each with the key of the config and its parser."""
_ROOT = json.dumps(values.NO_QUERY)
"""The default name of a DNS_CHECK (keepalived.conf(5)), and of a config's dns probe."""
_NEEDED = {
    "exec": ("command", "a MISC_CHECK without misc_path"),
    "dns": ("query", "a DNS_CHECK of the root; write `health: {probe: dns, query: NAME}` with a name to ask for"),
}
_TIMES_S = {"delay_loop": 60.0, "connect_timeout": 5.0, "delay_before_retry": 1.0, "retry": 1.0}
"""Defaults in seconds, and the number of retries (keepalived.conf(5), Virtual server(s))."""
_TIMES_OF_S = {
    "HTTP_GET": {"delay_before_retry": 3.0},
    "SSL_GET": {"delay_before_retry": 3.0},
    "DNS_CHECK": {"delay_before_retry": 60.0, "retry": 3.0},
    "MISC_CHECK": {"retry": 0.0, "connect_timeout": 3600.0},
}
_STATUS = "200-299"
"""The default of status_code (keepalived.conf(5))."""
_NUMBER = regex(r"[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)


def read_keepalived(text: str) -> Draft:
    """Convert a keepalived.conf: a service for each port of each virtual_server. Raises ParseError if the file does not
    have the form of keepalived.conf(5)."""
    statements = parse_statements(text)
    draft = Draft([word for statement in statements for word in statement.words], is_dsr=True)
    groups = {one.argument: one for one in statements if one.name == "virtual_server_group"}
    for statement in statements:
        if statement.name.startswith("@"):
            draft.omissions.add(statement.words, "a condition: import the file without it, once for each case")
        elif statement.name.startswith("$"):
            draft.omissions.rest(
                statement.words, "no part of load balancing uses it, or it has several lines: write it out"
            )
        elif statement.name == "virtual_server":
            _add_services(draft, statement, groups)
        elif statement.name != "virtual_server_group":
            draft.omissions.add(statement.words, _ELSEWHERE.get(statement.name, "no part of load balancing"))
    return draft.finish()


def _add_services(draft: Draft, statement: Statement, groups: dict[str, Statement]) -> None:
    made = DraftService("")
    found = targets(_targets(statement, groups, made.omissions))
    _fill(made, statement)
    if not found or all(backend.is_backup for backend in made.backends):
        draft.omissions += made.omissions
        missing = "a real_server" if found else "an address"
        draft.omissions.add(statement.words, f"left out: a service needs {missing}")
        return
    for each in statement.body or ():
        _name_the_rest(each, made.omissions)
    for port, vips in found.items():
        suffix = "" if port is None else f"-{port}"
        name = f"{vips[0]}{suffix}".replace(":", "-")
        _set_kind(draft.add_copy(made, name, vips, () if port is None else (port,)), statement, draft)


def _targets(
    statement: Statement, groups: dict[str, Statement], omissions: Omissions
) -> Iterator[tuple[IPAddress, PortRange | None]]:
    kind, *words = statement.head
    use((kind,))
    lines = [tuple(words)]
    if words[:1] == ["group"] and statement.argument:
        group = groups.get("".join(words[1:2]))
        use(statement.head[:3] if group is not None else ())
        use(group.head[:2] if group is not None else ())
        lines = [each.head for each in (group.body or ())] if group is not None else lines
    for line in lines:
        try:
            vips = list(_range_of("".join(line[:1])))
            port = _ports_of(line[1]) if len(line) > 1 else None
        except ValueError:
            reason = "a firewall mark is no address: write the addresses and ports that get it"
            reason = "no such virtual_server_group" if line[:1] == ("group",) else reason
            omissions.add(line, reason if line[:1] in (("fwmark",), ("group",)) else "not an address with a port")
            continue
        use(line[:2])
        omissions.rest(line)
        yield from ((vip, port) for vip in vips)


def _range_of(text: str) -> Iterator[IPAddress]:
    """Yield the addresses of `10.0.0.1`, or of the range `10.0.0.3-10`. Raises ValueError."""
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


Settings = Mapping[str, Statement]
"""Settings by name. Real servers inherit those of the virtual server, checks those of both (keepalived.conf(5))."""


def _inner(settings: Settings, statement: Statement) -> Settings:
    names = (*_TIMES_S, "virtualhost", "alpha")
    return {**settings, **{each.name: each for each in statement.body or () if each.name in names}}


def _fill(service: DraftService, statement: Statement) -> None:
    service.protocol = Protocol.TCP
    settings = _inner({}, statement)
    servers = [each for each in statement.body or () if each.name in ("real_server", "sorry_server")]
    checks = []
    for server in sorted(servers, key=lambda server: server.name == "sorry_server"):
        address = _add_server(service, server)
        if address is not None and server.name == "real_server":
            checks.append((str(address), *_check_of(server, address, _inner(settings, server), service.omissions)))
    for each in statement.body or ():
        if each.name == "protocol" and each.argument.lower() in ("tcp", "udp", "sctp"):
            service.protocol = Protocol(each.argument.lower())
            use(each.head[:2])
        elif each.name in ("lb_kind", "omega"):
            use(each.head[:2])
    service.health = service.omissions.one_check("check", checks)


def _name_the_rest(statement: Statement, omissions: Omissions) -> None:
    """Add the unused words of a statement to the omissions: the whole statement if no word is used, else its parts."""
    reason = _REASONS.get(statement.name, NOTHING_LIKE_IT)
    if not any(word.is_used or word.reasons for word in statement.words):
        omissions.add(statement.words, reason)
        return
    omissions.rest(statement.head, reason, about=statement.name)
    for each in statement.body or ():
        _name_the_rest(each, omissions)


def _set_kind(service: DraftService, statement: Statement, draft: Draft) -> None:
    """Convert lb_kind, by default NAT. Only with NAT can servers have another port than the VIP."""
    kinds = [each for each in statement.body or () if each.name == "lb_kind"]
    words = kinds[-1].words if kinds else list(statement.head[:1])
    kind = kinds[-1].argument.upper() if kinds else "NAT"
    if kind == "NAT":
        reason = service.why_no_nat(draft.services)
        service.is_nat = reason is None
        if reason is not None:
            draft.is_dsr = False
            hint = "set the servers up for DR, with the VIP on a loopback device"
            service.omissions.add(words, f"{reason}: {hint}", about="" if kinds else "lb_kind NAT")
    elif kind != "DR":
        draft.is_dsr = False
        service.omissions.add(words, "packets keep their destination, as with DR: set the servers up for DR")
    for backend in service.backends:
        is_same = bool(service.ports) and backend.l4_port == service.ports[0].first
        if backend.l4_port is not None and not is_same and not service.is_nat:
            shown = ", ".join(map(str, service.ports)) or "every port"
            servers = [each for each in statement.body or () if each.argument == str(backend.address)]
            words = [word for each in servers for word in each.head]
            service.omissions.add(words, f"packets keep their port: the server has to listen on {shown}")
        backend.l4_port = None if is_same or not service.is_nat else backend.l4_port


def _add_server(service: DraftService, statement: Statement) -> IPAddress | None:
    """Add a real server or sorry server. Return its address; None if it was left out."""
    try:
        address = ip_address(statement.argument)
    except ValueError:
        service.omissions.add(statement.words, "not an IP address; left out")
        return None
    name, is_backup = str(address).replace(":", "-"), statement.name == "sorry_server"
    port = "".join(statement.head[2:3])
    l4_port = int(port) if port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 0xFFFF else None
    if any(each.address == address and (is_backup or each.l4_port == l4_port) for each in service.backends):
        service.omissions.add(statement.words, "this server is one of the real servers; left out")
        return None
    use(statement.head[:3] if l4_port or port == "0" else statement.head[:2])
    weight = Fraction(1)
    for each in statement.body or ():
        if each.name == "weight" and each.argument.isascii() and each.argument.isdigit():
            weight = Fraction(int(each.argument[:9]))
            use(each.head[:2])
    name = name_from(name, service.backends)
    service.backends.append(DraftBackend(name, weight, address=address, is_backup=is_backup, l4_port=l4_port))
    return address


# Checks: each real server has its own in keepalived, a service has one.


def _check_of(
    server: Statement, address: IPAddress, settings: Settings, omissions: Omissions
) -> tuple[Sequence[Word], dict[str, str]]:
    """Return the words and the keys of a server's first check; without a check, the head of the server and no keys."""
    found = [each for each in server.body or () if each.name in _CHECKS]
    for other in found[1:]:
        omissions.add(other.words, "a service has one check, here the first of its first server; this one is another")
    if not found:
        return server.head, {}
    first = found[0]
    health = {"probe": _CHECKS[first.name]}
    if "alpha" in (settings := _inner(settings, first)):
        health["initial"] = "down"
        use(settings["alpha"].head[:1])
    times = _TIMES_S | _TIMES_OF_S.get(first.name, {})
    for name in times.keys() & settings.keys():
        written = settings[name].argument
        if _NUMBER.fullmatch(written) and (float(written) or name == "retry"):
            times[name] = float(written)
            use(settings[name].head[:2])
    if first.name in ("HTTP_GET", "SSL_GET"):
        health["status"] = _STATUS
        if "virtualhost" in settings:
            set_key(health, "host", values.host, settings["virtualhost"].head[:2], settings["virtualhost"].argument)
    urls = [each for each in first.body or () if each.name == "url"]
    for each in (*(first.body or ()), *(urls[0].body or () if urls else ())):
        match each.name:
            case name if name in _KEYS:
                set_key(health, *_KEYS[name], each.head[:2], each.argument)
            case "misc_path":
                _set_command(health, each, address)
            case "url" if each is urls[0]:
                use(each.head[:1])
    use(first.head)
    needed, why = _NEEDED.get(health["probe"], ("probe", ""))
    if health.get(needed, _ROOT) == _ROOT:
        omissions.add(first.words, why)
        return server.head, {}
    every_s = times["delay_loop"]
    health |= {
        "interval": duration(every_s * 1000),
        "timeout": duration(min(times["connect_timeout"], every_s) * 1000),
        "fall": str(min(100, round(times["retry"]) + 1)),
        "fast_interval": duration(min(times["delay_before_retry"], every_s) * 1000),
    }
    return first.words, health


def _set_command(health: dict[str, str], statement: Statement, address: IPAddress) -> None:
    """Set the program of an exec probe. The server's own address in it is replaced by $XENOOVS_ADDRESS."""
    try:
        words = shlex.split(statement.argument)
    except ValueError:
        return
    if str(address) in words:
        line = " ".join('"$XENOOVS_ADDRESS"' if word == str(address) else shlex.quote(word) for word in words)
        words = ["/bin/sh", "-c", f"exec {line}"]
    health["command"] = "[" + ", ".join(map(json.dumps, words)) + "]"
    use(statement.head[:2])
