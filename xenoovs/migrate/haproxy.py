"""haproxy.cfg: the proxies of HAProxy (its configuration manual, sections 2, 4 and 5) with their servers and checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from ipaddress import ip_address

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import NOTHING_LIKE_IT, Draft, DraftBackend, DraftService, Omissions, duration, name_from
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import PortRange, Protocol

# The form of the file: sections of lines of words; quotes and backslashes as in section 2.2 of the manual.


@dataclass(frozen=True, slots=True)
class Line:
    """A line in words. text: as it was written."""

    number: int
    words: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Section:
    """A section: `listen web` and the lines up to the next section."""

    head: Line
    lines: list[Line] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.head.words[0]

    @property
    def name(self) -> str:
        return self.head.words[1] if len(self.head.words) > 1 else ""


_PROXIES = ("listen", "frontend", "backend", "defaults")
_OTHER_SECTIONS = (
    "global",
    "userlist",
    "peers",
    "mailers",
    "program",
    "http-errors",
    "ring",
    "resolvers",
    "cache",
    "log-forward",
    "log-profile",
    "fcgi-app",
    "crt-list",
    "crt-store",
    "traces",
    "acme",
    "healthcheck",
)


def parse_sections(text: str) -> list[Section]:
    """Return the sections of a file. Raises ParseError: a quote is open, or a line stands before the first section."""
    sections: list[Section] = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = tuple(_words(line, number))
        if not words:
            continue
        found = Line(number, words, line.strip())
        if words[0] in (*_PROXIES, *_OTHER_SECTIONS):
            sections.append(Section(found))
        elif sections:
            sections[-1].lines.append(found)
        elif not words[0].startswith("."):
            raise ParseError(text=line, offset=0, expected="a section such as global, defaults or listen", line=number)
    return sections


def _words(line: str, number: int) -> Iterator[str]:
    word, quote, has_word, offset = "", "", False, 0
    while offset < len(line):
        char = line[offset]
        if quote and char == quote:
            quote = ""
        elif char == "\\" and quote != "'" and offset + 1 < len(line):
            offset += 1
            word, has_word = word + line[offset], True
        elif quote:
            word += char
        elif char in "\"'":
            quote, has_word = char, True
        elif char == "#":
            break
        elif char.isspace():
            if has_word:
                yield word
            word, has_word = "", False
        else:
            word, has_word = word + char, True
        offset += 1
    if quote:
        raise ParseError(text=line, offset=len(line), expected=f"a closing {quote}", line=number)
    if has_word:
        yield word


# What it means.


_INTER_MS = 2000
"""Section 5.2 of the manual: inter 2s, agent-inter 2s, fall 3, rise 2, weight 1."""
_AGENT_TIMEOUT_MS = 1000
"""Of `agent_check` in the config, where it has no other one."""
_HTTP = "xenoovs sees packets and no HTTP"
_REASONS = {
    "cookie": f"{_HTTP}; a client keeps its server, because bits of its address choose it",
    "balance": "clients are split by bits of their address and by weight",
    "hash-type": "clients are split by bits of their address and by weight",
    "stick-table": "not needed: a client keeps its server, because bits of its address choose it",
    "stick": "not needed: a client keeps its server, because bits of its address choose it",
    "maxconn": "xenoovs has no connections to limit",
    "fullconn": "xenoovs has no connections to limit",
    "dispatch": "write it as a backend with a name and an address",
    "timeout": "xenoovs ends no connections",
    "retries": "packets go to the server directly: there is nothing to try again",
    "log": "xenoovs does not see single connections",
    "acl": f"{_HTTP}: a service is chosen by address, protocol and port alone",
    "use_backend": f"{_HTTP}: a service is chosen by address, protocol and port alone",
    "use-server": "clients are split by bits of their address and by weight",
    "http-check": "the http probe sends GET: use `path`, `host`, `status` and `body`",
    "tcp-check": "the tcp probe connects and sends nothing; a udp, dns or exec probe may do",
    "stats": "use `xenoovs status`, the status page or /metrics",
    "redirect": _HTTP,
    "errorfile": _HTTP,
    "errorloc": _HTTP,
    "compression": _HTTP,
    "capture": _HTTP,
    "option": "xenoovs forwards packets and does not end connections",
}
_SILENT = frozenset(("mode", "description", "id", "enabled"))
_OPTION_CHECKS = {"tcp-check": "tcp", "ssl-hello-chk": "tcp"}
_SERVER_SWITCHES = frozenset(
    (
        *("agent-check", "allow-0rtt", "backup", "check", "check-send-proxy", "check-ssl", "check-via-socks4"),
        *("disabled", "enabled", "non-stick", "send-proxy", "send-proxy-v2", "send-proxy-v2-ssl"),
        *("send-proxy-v2-ssl-cn", "ssl", "ssl-reuse", "stick", "tfo"),
    )
)
"""Options of a server without an argument (HAProxy configuration manual, 5.2)."""
_SERVER_REASONS = {
    "ssl": "servers see the packets of clients, who have to speak TLS with them",
    "send-proxy": "servers see the addresses of clients, no PROXY protocol is needed",
    "send-proxy-v2": "servers see the addresses of clients, no PROXY protocol is needed",
    "cookie": _REASONS["cookie"],
    "maxconn": _REASONS["maxconn"],
}
_TIME = re.compile(r"([0-9]{1,9})(us|ms|s|m|h|d)?", re.ASCII)
_UNIT_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_HOST_HEADER = re.compile(r"host", re.IGNORECASE)


@dataclass(slots=True)
class _Proxy:
    """The options of a section and its defaults."""

    mode: str = "tcp"
    binds: list[Line] = field(default_factory=list)
    backend: str = ""
    servers: list[Line] = field(default_factory=list)
    default_server: tuple[str, ...] = ()
    check: dict[str, str] = field(default_factory=dict)
    check_timeout: str = ""
    has_all_backups: bool = False
    omissions: Omissions = field(default_factory=Omissions)


def read_haproxy(text: str) -> Draft:
    """Return the draft of a haproxy.cfg: a service for each listen section, and for each frontend with its backend.

    Raises:
        ParseError: The file has not the form of a HAProxy config.
    """
    draft = Draft()
    defaults = _Proxy()
    frontends: list[tuple[Section, _Proxy]] = []
    backends: dict[str, tuple[Section, _Proxy]] = {}
    for section in parse_sections(text):
        if section.kind == "defaults":
            defaults = _read(section, _Proxy())
            draft.omissions += defaults.omissions
        elif section.kind not in _PROXIES:
            reason = "settings of the HAProxy process" if section.kind == "global" else "no part of load balancing"
            draft.omissions.add(section.head, reason)
        else:
            proxy = _read(section, _inherited(defaults))
            if section.kind == "backend":
                backends[section.name] = section, proxy
            else:
                frontends.append((section, proxy))
    used = set()
    for section, proxy in frontends:
        behind = backends.get(proxy.backend)
        if behind is not None:
            used.add(proxy.backend)
        _add_service(draft, section, proxy, proxy if behind is None else behind[1])
    for name, (section, _) in backends.items():
        if name not in used:
            draft.omissions.add(section.head, "no default_backend names it; left out")
    draft.omissions.sort(key=lambda omission: omission.line)
    return draft


def _inherited(defaults: _Proxy) -> _Proxy:
    return _Proxy(
        defaults.mode,
        default_server=defaults.default_server,
        check=dict(defaults.check),
        check_timeout=defaults.check_timeout,
        has_all_backups=defaults.has_all_backups,
    )


def _read(section: Section, proxy: _Proxy) -> _Proxy:
    head = section.head
    if section.kind == "listen" and len(head.words) > 2:
        # Before HAProxy 1.5 the address stood behind the name.
        proxy.binds.append(Line(head.number, ("bind", *head.words[2:]), head.text))
    for line in section.lines:
        _read_line(line, proxy)
    return proxy


def _read_line(line: Line, proxy: _Proxy) -> None:
    keyword, *rest = line.words
    match keyword, rest:
        case "mode", [mode, *_]:
            proxy.mode = mode
        case "bind", [_, *_]:
            proxy.binds.append(line)
        case "default_backend", [name, *_]:
            proxy.backend = name
        case "server", [_, _, *_]:
            proxy.servers.append(line)
        case "default-server", _:
            proxy.default_server = (*proxy.default_server, *rest)
        case "timeout", ["check", value, *_]:
            proxy.check_timeout = value
        case "option", ["allbackups", *_]:
            proxy.has_all_backups = True
        case "option", ["httpchk", *request]:
            proxy.check = _http_check(request)
        case "option", [name, *_] if name in _OPTION_CHECKS:
            proxy.check = {"probe": _OPTION_CHECKS[name]}
        case "http-check", [action, *words] if proxy.check.get("probe") == "http" and _add_http_check(
            proxy, action, words
        ):
            pass
        case _ if keyword not in _SILENT:
            reason = "a condition: import the file without it" if keyword.startswith(".") else _reason(line)
            proxy.omissions.add(line, reason)


def _reason(line: Line) -> str:
    keyword = line.words[0]
    if keyword.startswith(("http-", "req", "rsp", "tcp-re")):
        return _HTTP
    return _REASONS.get(keyword, NOTHING_LIKE_IT)


def _http_check(request: list[str]) -> dict[str, str]:
    uri = request[0] if len(request) == 1 else request[1] if len(request) > 1 else "/"
    return {"probe": "http", "path": json.dumps(uri if uri.startswith("/") else "/")}


def _add_http_check(proxy: _Proxy, action: str, words: list[str]) -> bool:
    """Return whether all of a http-check rule was carried over."""
    if action == "send":
        pairs = iter(words)
        done = True
        for word in pairs:
            value = next(pairs, "")
            if word == "uri" and value.startswith("/"):
                proxy.check["path"] = json.dumps(value)
            elif word == "hdr" and _HOST_HEADER.fullmatch(value):
                proxy.check["host"] = json.dumps(next(pairs, ""))
            elif word not in ("meth", "ver") or (word, value) == ("meth", "POST"):
                done = False
        return done
    match words:
        case ["status", status] if action == "expect" and re.fullmatch(r"[1-5][0-9]{2}(-[1-5][0-9]{2})?", status):
            proxy.check["status"] = status
        case ["string", *body] if action == "expect":
            proxy.check["body"] = json.dumps(" ".join(body))
        case _:
            return False
    return True


def _add_service(draft: Draft, section: Section, front: _Proxy, back: _Proxy) -> None:
    service = DraftService(name_from(section.name, (other.name for other in draft.services)), protocol=Protocol.TCP)
    service.omissions += front.omissions
    if back is not front:
        service.omissions += back.omissions
    for line in front.binds:
        for text in line.words[1].split(","):
            _add_bind(service, text, line)
    for server in back.servers:
        _add_server(service, server, back)
    service.vips = tuple(dict.fromkeys(service.vips))
    if not service.backends or not front.binds:
        missing = "a server with an address" if not service.backends else "an address to listen on"
        draft.omissions += service.omissions
        draft.omissions.add(section.head, f"left out: a service needs {missing}")
        return
    service.omissions.sort(key=lambda omission: omission.line)
    draft.services.append(service)


def _add_bind(service: DraftService, text: str, line: Line) -> None:
    try:
        address, ports = _bind_of(text)
    except ValueError:
        service.omissions.add(line, "not an address with a port", text=text)
        return
    if address is None:
        service.omissions.add(line, "it names no address: write the `vip` that clients connect to")
    else:
        service.vips = (*service.vips, address)
    if ports not in service.ports:
        service.ports = (*service.ports, ports)
    if "ssl" in line.words:
        service.omissions.add(line, "servers have to speak TLS themselves")


def _bare(host: str) -> str:
    """Return an address without its family prefix and brackets."""
    return host.removeprefix("ipv4@").removeprefix("ipv6@").removeprefix("[").removesuffix("]")


def _bind_of(text: str) -> tuple[IPAddress | None, PortRange]:
    """Return the address and ports of `10.0.0.1:80`, `:80-90`, `*:80`, `ipv6@[::1]:80`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    first, _, last = port.partition("-")
    ports = PortRange(int(first), int(last or first))
    if not 0 < ports.first <= ports.last <= 0xFFFF:
        raise ValueError(text)
    host = _bare(host)
    address = None if host in ("", "*") else ip_address(host)
    return None if address is None or not int(address) else address, ports


def _add_server(service: DraftService, line: Line, proxy: _Proxy) -> None:
    name, target, *words = line.words[1:]
    options = _options((*proxy.default_server, *words))
    address, port = _server_address(target)
    if address is None:
        service.omissions.add(line, "not an IP address: write the server's address; left out")
        return
    if port and not any(port in ports for ports in service.ports):
        ports = ", ".join(map(str, service.ports))
        reason = f"the server has to listen on {ports}, or with `mode: nat` write `port: {port}`"
        service.omissions.add(line, reason, text=f"{name} {target}")
    for option in options:
        if option in _SERVER_REASONS:
            service.omissions.add(line, _SERVER_REASONS[option], text=f"{name}: {option}")
    weight = Fraction(0) if "disabled" in options else _weight(options.get("weight", "1"))
    others = [backend.name for backend in service.backends]
    is_backup = "backup" in options
    if is_backup and not proxy.has_all_backups and any(backend.is_backup for backend in service.backends):
        reason = "backups share the clients by weight: HAProxy uses the first one alone without `option allbackups`"
        service.omissions.add(line, reason)
    service.backends.append(DraftBackend(name_from(name, others), weight, address=address, is_backup=is_backup))
    if "check" in options:
        _add_check(service, line, _health(options, proxy, port))
    _add_agent_check(service, line, options)


def _options(words: tuple[str, ...]) -> dict[str, str]:
    found, rest = dict[str, str](), iter(words)
    for word in rest:
        if word.startswith("no-"):
            found.pop(word.removeprefix("no-"), None)
        else:
            found[word] = "" if word in _SERVER_SWITCHES else next(rest, "")
    return found


def _server_address(text: str) -> tuple[IPAddress | None, int | None]:
    host, _, port = text.rpartition(":") if text.count(":") == 1 or "]" in text else (text, "", "")
    host = _bare(host)
    try:
        return ip_address(host), int(port) if port.isascii() and port.isdigit() else None
    except ValueError:
        return None, None


def _weight(text: str) -> Fraction:
    return Fraction(int(text)) if text.isascii() and text.isdigit() and len(text) < 4 else Fraction(1)


def _health(options: dict[str, str], proxy: _Proxy, port: int | None) -> dict[str, str]:
    health = dict(proxy.check) or {"probe": "tcp"}
    if health["probe"] == "http" and "check-ssl" in options:
        health["probe"] = "https"
    probed = options.get("port") or (str(port) if port else "")
    if probed.isascii() and probed.isdigit():
        health["port"] = probed
    every_ms = _milliseconds(options.get("inter", "")) or _INTER_MS
    health["interval"] = duration(every_ms)
    if fast_ms := _milliseconds(options.get("fastinter", "")):
        health["fast_interval"] = duration(min(fast_ms, every_ms))
    else:
        health["fast_interval"] = duration(every_ms)
    if timeout_ms := _milliseconds(proxy.check_timeout):
        health["timeout"] = duration(min(timeout_ms, every_ms))
    if ramp_ms := _milliseconds(options.get("slowstart", "")):
        health["ramp"] = duration(ramp_ms)
    health |= {key: options[key] for key in ("rise", "fall") if options.get(key, "").isdigit()}
    return health


def _add_check(service: DraftService, line: Line, health: dict[str, str]) -> None:
    if not service.health:
        service.health = health
    elif service.health != health:
        service.omissions.add(line, "a service has one check, here that of its first server; this one differs")


def _add_agent_check(service: DraftService, line: Line, options: dict[str, str]) -> None:
    """Convert agent-check of a server; all servers of a service have the same one."""
    name, is_first = line.words[1], len(service.backends) == 1
    if "agent-check" not in options:
        if service.agent_check:
            service.omissions.add(line, "agent_check asks all servers of a service, also this one", text=name)
        return
    port = options.get("agent-port", "")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= 0xFFFF):
        service.omissions.add(line, "it has no agent-port to ask", text=f"{name}: agent-check")
        return
    if "agent-addr" in options:
        reason = "the agent is asked at the address of its server"
        service.omissions.add(line, reason, text=f"{name}: agent-addr")
    every_ms = _milliseconds(options.get("agent-inter", "")) or _INTER_MS
    found = {"port": port, "interval": duration(every_ms)}
    if every_ms < _AGENT_TIMEOUT_MS:
        found["timeout"] = duration(every_ms)
    if send := options.get("agent-send", ""):
        found["send"] = json.dumps(send.replace("\\n", "\n"))
    if not service.agent_check:
        service.agent_check = found
        if not is_first:
            service.omissions.add(line, "agent_check asks all servers of a service, also those above", text=name)
    elif service.agent_check != found:
        service.omissions.add(line, "a service has one agent_check, here that of its first server; this one differs")


def _milliseconds(text: str) -> int:
    """Return a time of HAProxy (section 2.5); 0: there is none."""
    found = _TIME.fullmatch(text)
    return round(int(found[1]) * _UNIT_MS[found[2]]) if found else 0
