"""haproxy.cfg: proxies with their servers and checks (configuration manual of HAProxy, sections 2, 4 and 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from ipaddress import ip_address
from itertools import islice

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
    words_of,
)
from xenoovs.model import values
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import PortRange, Protocol
from xenoovs.regex import regex

# Syntax: sections of lines of words; quotes and backslashes as in section 2.2 of the manual.

Line = tuple[Word, ...]


@dataclass(slots=True)
class Section:
    """A section: `listen web from common` and the lines up to the next section."""

    head: Line
    lines: list[Line] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.head[0]

    @property
    def name(self) -> str:
        return self.head[1] if len(self.head) > 1 and self.head[1] != "from" else ""

    @property
    def words(self) -> list[Word]:
        return [word for line in (self.head, *self.lines) for word in line]


_PROXIES = ("listen", "frontend", "backend", "defaults")
_SECTIONS = words_of(
    """listen frontend backend defaults global userlist peers mailers program http-errors ring resolvers cache
    log-forward log-profile fcgi-app crt-list crt-store traces acme healthcheck"""
)


def parse_sections(text: str) -> list[Section]:
    """Return the sections of a file. Raises ParseError for an open quote, or a line before the first section."""
    sections: list[Section] = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = tuple(Word(word, number) for word in _words(line, number))
        if not words:
            continue
        if words[0] in _SECTIONS or (not sections and words[0].startswith(".")):
            sections.append(Section(words))
        elif sections:
            sections[-1].lines.append(words)
        else:
            raise ParseError(text=line, offset=0, expected="a section such as global, defaults or listen", line=number)
    return sections


_PIECE = regex(r"""(#.*)|(\s+)|'([^']*)'|"((?:[^"\\]|\\.)*)"|((?:[^\s#"'\\]|\\.)+|\\$)|(.)""", re.DOTALL)
_ESCAPE = regex(r"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_UNPRINTABLE = {"n": "\n", "r": "\r", "t": "\t"}


def _words(line: str, number: int) -> Iterator[str]:
    word: str | None = None
    for comment, blanks, strong, weak, bare, quote in _PIECE.findall(line + " "):
        if quote:
            raise ParseError(text=line, offset=len(line), expected=f"a closing {quote}", line=number)
        if comment or blanks:
            yield from () if word is None else (word,)
            word = None
        else:
            word = (word or "") + strong + _ESCAPE.sub(_unescaped, weak + bare)
        if comment:
            return


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _UNPRINTABLE.get(found[2], found[2])


# Semantics.


_INTER_MS = 2000
"""The default of inter and agent-inter (section 5.2 of the manual); those of fall, rise and weight are ours too."""
_AGENT_TIMEOUT_MS = 1000
"""The default timeout of `agent_check` in the config."""
_HTTP = "xenoovs sees packets and no HTTP"
_UNLIMITED = "xenoovs has no connections to limit"
_LAYER_4 = "xenoovs forwards packets and does not end connections"
_STICKY_COOKIE = f"{_HTTP}; a client keeps its server, because bits of its address choose it"
_REASONS = reasons(
    {
        "mode redirect errorfile errorloc compression capture": _HTTP,
        "cookie": _STICKY_COOKIE,
        "balance hash-type use-server": "clients are split by bits of their address and by weight",
        "stick stick-table": "not needed: a client keeps its server, because bits of its address choose it",
        "maxconn fullconn": _UNLIMITED,
        "server-template": "write each server as a backend with a name and an address",
        "timeout": "xenoovs ends no connections",
        "retries": "packets go to the server directly: there is nothing to try again",
        "log": "xenoovs does not see single connections",
        "acl use_backend": f"{_HTTP}: a service is chosen by address, protocol and port alone",
        "tcp-check": "the tcp probe only connects; use a udp, dns or exec probe if the server must answer",
        "stats": "use `xenoovs status`, the status page or /metrics",
        "option no": _LAYER_4,
        "description": "a config has comments for it",
    }
)
_HTTP_CHECK = "the http probe sends GET in HTTP/1.1, and accepts by `status` and `body`"
_OTHER_CHECKS = ("ssl-hello-chk", "smtpchk", "mysql-check", "pgsql-check", "redis-check", "ldap-check", "spop-check")
_SWITCHES = words_of(
    """agent-check allow-0rtt backup check check-reuse-pool check-send-proxy check-sni-auto check-ssl check-via-socks4
    disabled enabled force-sslv3 force-tlsv10 force-tlsv11 force-tlsv12 force-tlsv13 non-stick renegotiate send-proxy
    send-proxy-v2 send-proxy-v2-ssl send-proxy-v2-ssl-cn sni-auto ssl ssl-reuse stick strict-maxconn tfo tls-tickets"""
)
"""Settings of a server without an argument (section 5.2 of the manual)."""
_NO_VALUE = dict.fromkeys(_SWITCHES, 0)
_OF_A_CHECK = words_of(
    """check check-ssl check-sni port inter fastinter downinter rise fall slowstart verify ca-file addr init-state
    observe error-limit on-error check-send-proxy"""
)
_SERVER_REASONS = reasons(
    {
        "ssl": "servers see the packets of clients, who have to speak TLS with them",
        "send-proxy send-proxy-v2 check-send-proxy": "servers see the addresses of clients without a PROXY protocol",
        "cookie": _STICKY_COOKIE,
        "maxconn minconn maxqueue": _UNLIMITED,
        "addr": "a probe goes to the address of its server",
        "track": "each server is probed by itself",
        "downinter": "a backend that is down is probed each `interval`",
        "agent-addr": "the agent is asked at the address of its server",
        "weight": "not a weight from 0 to 256; 1 is written",
    }
)
_TIME = regex(r"([0-9]{1,9})(us|ms|s|m|h|d)?", re.ASCII)
_UNIT_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_OF_A_RULE = {"hdr": 2, "string": 99} | dict.fromkeys(words_of("! default send-proxy via-socks4 ssl linger"), 0)
"""How many values follow a word of `http-check` and `tcp-check` (section 4.2), if it is not one."""
_HOST = regex(r"HTTP/1\.1\r\n[Hh][Oo][Ss][Tt]:\s*(\S+)")
_FAMILY = regex(r"(?:ip|ipv4|ipv6|tcp|tcp4|tcp6)@|stream\+(?:ip|ipv4|ipv6)@")
_NO_NETWORK = regex(r"/|(?:unix|abnsz?|fd|sockpair|rhttp|rev|vsock)@")


@dataclass(slots=True)
class _Proxy:
    """The settings of a section, including those inherited from its defaults section."""

    mode: str = "tcp"
    binds: list[Line] = field(default_factory=list)
    rules: list[Line] = field(default_factory=list)
    default_backend: Line = ()
    is_disabled: bool = False
    servers: list[Line] = field(default_factory=list)
    default_servers: list[Line] = field(default_factory=list)
    check: Line = ()
    check_rules: list[Line] = field(default_factory=list)
    check_timeout: Line = ()
    has_all_backups: bool = False
    omissions: Omissions = field(default_factory=Omissions)


def read_haproxy(text: str) -> Draft:
    """Convert a haproxy.cfg: services for each listen section, and for each frontend with its backend. Raises
    ParseError if the file does not have the form of a HAProxy config."""
    sections = parse_sections(text)
    draft = Draft([word for section in sections for word in section.words])
    last, named = _Proxy(), dict[str, tuple[Section, _Proxy]]()
    fronts: list[tuple[Section, _Proxy]] = []
    backs: dict[str, tuple[Section, _Proxy]] = {}
    for section in sections:
        if section.kind not in _PROXIES:
            reason = "settings of the HAProxy process" if section.kind == "global" else "no part of load balancing"
            draft.omissions.add(section.words, reason)
            continue
        base = _Proxy() if section.kind == "defaults" else last
        match section.head:
            case (_, "from", origin) | (_, _, "from", origin) if origin in named:
                base = named[origin][1]
                use((*section.head[-2:], *named[origin][0].head[1:2]))
            case (_, "from", _) | (_, _, "from", _):
                draft.omissions.add(section.head[-2:], "no defaults section above has this name")
        use(section.head[: 1 if section.kind == "defaults" else 2])
        inherited, rules = [*base.default_servers], [*base.check_rules]
        proxy = replace(base, default_servers=inherited, check_rules=rules, binds=[], rules=[], servers=[])
        proxy.omissions = Omissions()
        _read(section, proxy)
        if section.kind == "defaults":
            last, named[section.name] = proxy, (section, proxy)
            draft.omissions += proxy.omissions
        else:
            fronts += [(section, proxy)] if section.kind != "backend" else []
            backs |= {section.name: (section, proxy)} if section.kind != "frontend" else {}
    used = {_add_services(draft, section, proxy, backs) for section, proxy in fronts}
    for name, (section, proxy) in backs.items():
        if section.kind == "backend" and name not in used:
            draft.omissions += proxy.omissions
            draft.omissions.add(section.words, "left out: no frontend that was converted sends to it")
    for section in sections:
        unused = "a name that no section uses" if section.kind == "defaults" else NOTHING_LIKE_IT
        draft.omissions.rest(section.head, unused, about=section.kind)
        _name_the_rest(section, draft.omissions)
    return draft.finish()


def _name_the_rest(section: Section, omissions: Omissions) -> None:
    for line in section.lines:
        is_whole = not any(word.is_used or word.reasons for word in line)
        omissions.rest(line, _REASONS.get(line[0], NOTHING_LIKE_IT), about="" if is_whole else line[0])


def _read(section: Section, proxy: _Proxy) -> None:
    match section.head:
        case ("listen", _, address, *rest) if address != "from":
            # Before HAProxy 1.5 the address stood behind the name.
            proxy.binds.append((Word("bind", address.line), address, *rest))
    for line in section.lines:
        if _read_line(line, proxy):
            use(line)
        elif line[0] == "dispatch":
            proxy.omissions.add(line, "write it as a backend with a name and an address")
        elif line[0].startswith("."):
            proxy.omissions.add(line, "a condition: import the file without it")
        elif line[0].startswith(("http-request", "http-response", "http-after", "req", "rsp", "tcp-re")):
            proxy.omissions.add(line, _HTTP)


def _read_line(line: Line, proxy: _Proxy) -> bool:
    """Read a line. Return whether the config has all of it; lines of checks, binds and servers are marked later."""
    match line:
        case ("mode", mode):
            return mode == "tcp"
        case ("bind", _, *_):
            proxy.binds.append(line)
        case ("use_backend", _):
            proxy.rules.append(line)
        case ("default_backend", _):
            proxy.default_backend = line
        case ("disabled",):
            proxy.is_disabled = True
        case ("enabled",):
            proxy.is_disabled = False
            return True
        case ("server", _, _, *_):
            proxy.servers.append(line)
        case ("default-server", *_):
            proxy.default_servers.append(line)
        case ("timeout", "check", value):
            proxy.check_timeout = line if _milliseconds(value) else ()
            return bool(proxy.check_timeout)
        case ("option", "allbackups"):
            proxy.has_all_backups = True
            return True
        case ("no", "option", "allbackups"):
            proxy.has_all_backups = False
            return True
        case ("option", name, *_) if name in ("httpchk", "tcp-check", *_OTHER_CHECKS):
            proxy.check = line
        case ("no", "option", name) if proxy.check and name == proxy.check[1]:
            use(proxy.check)
            proxy.check = ()
            return True
        case ("http-check" | "tcp-check", _, *_):
            proxy.check_rules.append(line)
        case ("balance", "source") | ("id", _):
            return True
    return False


def _add_services(draft: Draft, section: Section, front: _Proxy, backs: dict[str, tuple[Section, _Proxy]]) -> str:
    """Add a service for each set of addresses with the same ports. Return the name of the section with its servers.

    The first use_backend without a condition wins, before default_backend (use_backend in section 4.2).
    """
    omissions, behind = front.omissions, (section, front)
    for number, line in enumerate((*front.rules, *((front.default_backend,) if front.default_backend else ()))):
        if number:
            omissions.add(line, "not reached: a use_backend without a condition stands above")
        elif line[1] in backs:
            use(line)
            behind = backs[line[1]]
        else:
            omissions.add(line, "no section has this name")
    own, back = behind
    pairs = [pair for line in front.binds for pair in _binds(line, omissions)]
    by_vips: dict[tuple[IPAddress, ...], tuple[PortRange, ...]] = {}
    for port, vips in targets(pairs).items():
        by_vips[tuple(vips)] = (*by_vips.get(tuple(vips), ()), *((port,) if port is not None else ()))
    made = DraftService("", protocol=Protocol.TCP, omissions=omissions)
    if back is not front:
        omissions += back.omissions
        back.omissions.clear()
    _add_servers(made, back, {port for _, port in pairs})
    missing = "an address to listen on" if not pairs else "" if made.backends else "a server with an address"
    if missing or front.is_disabled or back.is_disabled:
        draft.omissions += omissions
        draft.omissions.add(section.words, f"left out: a service needs {missing}" if missing else "left out: disabled")
        return ""
    for each in (section, own):
        _name_the_rest(each, omissions)
    for addresses, ports in by_vips.items():
        suffix = f"-{ports[0].first}" if len(by_vips) > 1 else ""
        draft.add_copy(made, f"{section.name}{suffix}", addresses, ports)
    return own.name


def _binds(line: Line, omissions: Omissions) -> Iterator[tuple[IPAddress | None, PortRange]]:
    """Yield the addresses of a bind line (section 4.2, bind) that can be reached from the network."""
    reason = ""
    for text in line[1].split(","):
        host, port = _endpoint(text)
        first, _, last = port.partition("-")
        ports = PortRange(_number(first, 0xFFFF), _number(last or first, 0xFFFF))
        host = "::" if host in ("", "*") else host
        if "$" in text:
            reason = "it needs a variable of the environment (section 2.3): write the address"
        elif text.startswith(("quic4@", "quic6@", "udp@", "udp4@", "udp6@")):
            reason = "it is UDP: write a service with `protocol: udp`"
        elif _NO_NETWORK.match(text):
            reason = "not an address of the network"
        elif not _is_address(host) or not 0 < ports.first <= ports.last:
            reason = "not an address with a port: write both as numbers"
        elif (address := ip_address(host)).is_loopback:
            reason = "an address of the host alone: no packet of the network has it"
        else:
            reason = reason if int(address) else "it names no address: write the `vip` that clients connect to"
            yield address if int(address) else None, ports
    if reason:
        omissions.add(line[:2], reason)
    use(line[:2])
    omissions.rest(line, "servers have to speak TLS themselves" if "ssl" in line else _LAYER_4, about="bind")


def _endpoint(text: str) -> tuple[str, str]:
    """Return address and port of `ipv6@[::1]:80`. The port is behind the last colon (section 4.2, bind)."""
    text = _FAMILY.sub("", text, count=1)
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port or (not host.startswith("[") and ":" in host and not _is_address(host)):
        host, port = text, ""
    return host.removeprefix("[").removesuffix("]"), port


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text)) or True
    except ValueError:
        return False


Settings = dict[str, Line]
"""The settings of a server by name, each with its words. A setting without an argument has only its name."""


def _split(words: Iterable[Word], arities: Mapping[str, int]) -> Iterator[Line]:
    """Yield each name with the values that follow it: as many as `arities` has, else one, or none for `no-...`."""
    rest = iter(words)
    for word in rest:
        yield (word, *islice(rest, arities.get(word, 0 if word.startswith("no-") else 1)))


def _add_servers(service: DraftService, proxy: _Proxy, ports: set[PortRange]) -> None:
    """Add the servers of a section, and the checks that all of them get."""
    defaults = [setting for line in proxy.default_servers for setting in _split(line[1:], _NO_VALUE)]
    checks, agents, given, omissions = [], [], set[str](), service.omissions
    probe: dict[str, str] | None = None
    for line in proxy.servers:
        own = list(_split(line[3:], _NO_VALUE))
        given |= {setting[0].removeprefix("no-") for setting in own}
        settings = Settings()
        for setting in (*defaults, *own):
            name = setting[0].removeprefix("no-")
            if (former := settings.pop(name, ())) in own:
                omissions.add(former, "given again behind it", about=line[1])
            if setting[0] == name:
                settings[name] = setting
            elif name in _SWITCHES:
                use(setting)
        host, port = _endpoint(line[2])
        if not _is_address(host):
            omissions.add(line, "not an IP address: write the server's address; left out")
            continue
        use(line[:3])
        about = line[1]
        if port and ports and ports != _only(port):
            shown = ", ".join(map(str, sorted(ports, key=lambda each: each.first)))
            hint = f", or with `mode: nat` write `port: {port}`" if not _only(port) <= ports else ""
            omissions.add(line[2:3], f"packets keep their port: the server has to listen on {shown}{hint}", about=about)
        _add_backend(service, line, settings, proxy)
        if "check" in settings:
            probe = _probe(proxy, omissions) if probe is None else probe
            checks.append((about, _words_of(own, _OF_A_CHECK) or line[2:3], _health(settings, probe, port)))
        else:
            checks.append((about, _words_of(own, ("no-check",)) or line[2:3], {}))
        asked = _words_of(own, ("agent-", "no-agent-")) or line[2:3]
        agents.append((about, asked, _agent_check(settings, omissions, about)))
        for setting in own:
            omissions.rest(setting, _server_reason(setting, settings), about=about)
    service.health = omissions.one_check("check", checks)
    service.agent_check = omissions.one_check("agent_check", agents)
    if probe is None:
        for line in (proxy.check, *proxy.check_rules):
            omissions.rest(line, "no server here has `check`")
    for setting in defaults if proxy.servers else ():
        reason = "servers have one of their own" if setting[0] in given else _server_reason(setting, {"check": setting})
        omissions.rest(setting, reason, about="default-server")
    for line in proxy.default_servers:
        use(line[:1])


def _server_reason(setting: Line, settings: Settings) -> str:
    of_a_check = "the probe has nothing like it" if "check" in settings else "the server has no `check`"
    return _SERVER_REASONS.get(setting[0], of_a_check if setting[0] in _OF_A_CHECK else NOTHING_LIKE_IT)


def _words_of(settings: Iterable[Line], names: Iterable[str]) -> Line:
    return tuple(word for line in settings if line[0].startswith(tuple(names)) for word in line)


def _only(port: str) -> set[PortRange]:
    return {PortRange(int(port), int(port))} if _number(port, 0xFFFF) else set()


def _number(text: str, most: int) -> int:
    """Return a whole number up to `most`; 0 if the text is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 and int(text) <= most else 0


def _take(settings: Settings, name: str, *, of_ms: bool = False, most: int = 0xFFFF) -> int:
    """Return the number, or time in ms, of a setting, and mark it as used; 0 if it is missing or unreadable."""
    line = settings.get(name, ())
    value = 0 if len(line) < 2 else _milliseconds(line[1]) if of_ms else _number(line[1], most)
    use(line if value else ())
    return value


def _add_backend(service: DraftService, line: Line, settings: Settings, proxy: _Proxy) -> None:
    weight, written = Fraction(1), settings.get("weight", ())
    if len(written) > 1 and (written[1] == "0" or _number(written[1], 256)):
        use(written)
        weight = Fraction(int(written[1]))
    for switch in ("disabled", "enabled", "backup"):
        use(settings.get(switch, ()))
    is_backup = "backup" in settings
    if is_backup and not proxy.has_all_backups and any(backend.is_backup for backend in service.backends):
        reason = "backups share the clients by weight: HAProxy uses the first one alone without `option allbackups`"
        service.omissions.add(settings["backup"], reason, about=line[1])
    name = name_from(line[1], service.backends)
    address = ip_address(_endpoint(line[2])[0])
    weight = Fraction(0) if "disabled" in settings else weight
    service.backends.append(DraftBackend(name, weight, address=address, is_backup=is_backup))


def _probe(proxy: _Proxy, omissions: Omissions) -> dict[str, str]:
    """Return the requests and accepted answers of a section's checks. Key `tls`: use TLS; `connect`: the port."""
    found, method = {"probe": "tcp"}, proxy.check[:2]
    match proxy.check[1:]:
        case ("httpchk", *request):
            found |= {"probe": "http", "path": json.dumps("/")}
            uri = request[:1] if len(request) == 1 else request[1:2]
            method = tuple(request[:1]) if len(request) > 1 else method
            set_key(found, "path", values.path, uri, "".join(uri))
            for word in request[2:]:
                # Before there was an argument for it, the host was a header behind the version.
                host = _HOST.search(word)
                if word == "HTTP/1.1":
                    use((word,))
                elif "host" not in found:
                    set_key(found, "host", values.host, (word,), host[1] if host else word)
        case (name, *_) if name != "tcp-check":
            omissions.add(proxy.check, "the tcp probe only connects; use an exec probe if the server must answer")
    use(proxy.check[:2])
    if proxy.check_timeout:
        found["timeout"] = proxy.check_timeout[2]
    is_http = found["probe"] == "http"
    for line in proxy.check_rules:
        if (line[0] == "http-check") is not is_http:
            omissions.add(line, "HAProxy ignores it: the check is another one")
            continue
        for setting in _split(line[2:], _OF_A_RULE):
            match (line[1], *setting):
                case ("send", "meth", _):
                    method = setting
                case ("send", "ver", "HTTP/1.1"):
                    use(setting)
                case ("send", "uri", path):
                    set_key(found, "path", values.path, setting, path)
                case ("send", "hdr", header, value) if header.lower() == "host":
                    set_key(found, "host", values.host, setting, value)
                case ("expect", "status", status):
                    set_key(found, "status", values.status, setting, status)
                case ("expect", "string", *body) if is_http:
                    set_key(found, "body", values.text, setting, " ".join(body))
                case ("connect", "port", number):
                    set_key(found, "connect", values.port, setting, number)
                case ("connect", "ssl"):
                    set_key(found, "tls", values.text, setting, "ssl")
                case ("connect", "sni", name):
                    set_key(found, "server_name", values.host, setting, name)
        if is_http:
            _name_method(method, omissions)
        if any(word.is_used for word in line[2:]):
            use(line[:2])
        about = line[0] if line[0].is_used else ""
        omissions.rest(line, _HTTP_CHECK if is_http else _REASONS["tcp-check"], about=about)
    if is_http:
        _name_method(method, omissions)
    return found


def _name_method(words: Line, omissions: Omissions) -> None:
    """Add an HTTP check's method to the omissions unless it is GET. `option httpchk` alone means OPTIONS."""
    method = "OPTIONS" if words[-1] == "httpchk" else words[-1]
    if method != "GET":
        omissions.add(words, f"HAProxy sends {method}, the http probe GET", about="check")
    use(words)


def _health(settings: Settings, probe: dict[str, str], port: str) -> dict[str, str]:
    """Return the check of a server. It uses TLS if the server does, unless the check has another port or address."""
    health = dict(probe)
    connect, tls = health.pop("connect", ""), health.pop("tls", None)
    is_tls = tls is not None or "check-ssl" in settings
    is_tls |= "ssl" in settings and not settings.keys() & {"port", "addr"} and not connect
    own_port = _take(settings, "port")
    if probed := int(connect or 0) or own_port or _number(port, 0xFFFF):
        health["port"] = str(probed)
    if is_tls and health["probe"] == "http":
        health["probe"] = "https"
        use(settings.get("check-ssl", ()))
        verify, ca_file, sni = (settings.get(name, ()) for name in ("verify", "ca-file", "check-sni"))
        if verify[1:] == ("none",):
            health["insecure"] = "true"
        use(verify if verify[1:] in (("none",), ("required",)) else ())
        set_key(health, "ca_file", values.file, ca_file, "".join(ca_file[1:]))
        set_key(health, "server_name", values.host, sni, "".join(sni[1:]))
    else:
        health.pop("server_name", None)
    use(settings["check"])
    every_ms = _take(settings, "inter", of_ms=True) or _INTER_MS
    health["interval"] = duration(every_ms)
    health["fast_interval"] = duration(min(_take(settings, "fastinter", of_ms=True) or every_ms, every_ms))
    if timeout_ms := _milliseconds(probe.get("timeout", "")):
        health["timeout"] = duration(min(timeout_ms, every_ms))
    if ramp_ms := _take(settings, "slowstart", of_ms=True):
        health["ramp"] = duration(ramp_ms)
    return health | {key: str(count) for key in ("rise", "fall") if (count := _take(settings, key, most=100))}


def _agent_check(settings: Settings, omissions: Omissions, about: str) -> dict[str, str]:
    """Return the agent-check of a server (section 5.2); empty without one."""
    if "agent-check" not in settings:
        return {}
    port = _take(settings, "agent-port")
    if not port:
        omissions.add(settings["agent-check"], "it has no agent-port to ask", about=about)
        return {}
    every_ms = _take(settings, "agent-inter", of_ms=True) or _INTER_MS
    found = {"port": str(port), "interval": duration(every_ms)}
    if every_ms < _AGENT_TIMEOUT_MS:
        found["timeout"] = duration(every_ms)
    use(settings["agent-check"])
    if len(send := settings.get("agent-send", ())) > 1:
        found["send"] = json.dumps(send[1].replace("\\n", "\n"))
        use(send)
    return found


def _milliseconds(text: str) -> int:
    """Return a time of HAProxy (section 2.5) in ms; 0 if the text is none."""
    found = _TIME.fullmatch(text)
    return round(int(found[1]) * _UNIT_MS[found[2]]) if found else 0
