"""The table that `ovn-nbctl lb-list` prints: load balancers of OVN with their VIPs and backends."""

from __future__ import annotations

from fractions import Fraction
from ipaddress import ip_address

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import Draft, DraftBackend, DraftService, Omission, name_from
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import PortRange, Protocol

_COLUMNS = ("LB", "PROTO", "VIP", "IPs")


def read_lb_list(text: str) -> Draft:
    """Return the draft of the output of `ovn-nbctl lb-list`, `ls-lb-list` or `lr-lb-list`.

    The name of a load balancer stands in the first of its lines only, cut to 19 characters.

    Raises:
        ParseError: There is no header line, or a line has another form.
    """
    lines = text.split("\n")
    header = next((number for number, line in enumerate(lines) if all(word in line.split() for word in _COLUMNS)), None)
    if header is None:
        raise ParseError(text=text[:200], offset=0, expected="the table of `ovn-nbctl lb-list`, with its header line")
    starts = {word: lines[header].index(word) for word in _COLUMNS}
    draft, name = Draft(), ""
    for number, line in enumerate(lines[header + 1 :], start=header + 2):
        if not line.strip():
            continue
        if line[: starts["LB"]].strip():
            name = line[starts["LB"] : starts["PROTO"]].strip()
        words = line[starts["PROTO"] :].split()
        if not words or len(words) > 3:
            raise ParseError(text=line, offset=0, expected="PROTO, VIP and IPs below their headers", line=number)
        _add(draft, name or "lb", words, line, number)
    return draft


def _add(draft: Draft, name: str, words: list[str], line: str, number: int) -> None:
    try:
        vip, port = _address(words[1])
    except (IndexError, ValueError):
        raise ParseError(text=line, offset=0, expected="a VIP such as 10.0.0.10:80", line=number) from None
    service = DraftService("", (vip,), ports=() if port is None else (PortRange(port, port),))
    if port is not None:
        try:
            service.protocol = Protocol(words[0])
        except ValueError:
            expected = "a protocol: tcp, udp or sctp"
            raise ParseError(text=line, offset=line.find(words[0]), expected=expected, line=number) from None
    suffix = "" if port is None else f"-{port}"
    service.name = name_from(name.strip("-._/") + suffix, (other.name for other in draft.services))
    for text in words[2].split(",") if len(words) > 2 else ():
        _add_backend(service, text, port, line, number)
    if service.backends:
        draft.services.append(service)
    else:
        reason = "this VIP has no backend, and OVN rejects its packets; a service needs one"
        draft.omissions.append(Omission(number, " ".join(words), reason))


def _add_backend(service: DraftService, text: str, port: int | None, line: str, number: int) -> None:
    try:
        address, own_port = _address(text)
    except ValueError:
        offset = line.find(text)
        raise ParseError(text=line, offset=offset, expected="ADDRESS or ADDRESS:PORT", line=number) from None
    known = [backend for backend in service.backends if backend.address == address]
    if known:
        reason = f"{address} is a backend already; one with two ports has twice the weight"
        service.omissions.append(Omission(number, text, reason))
        known[0].weight += 1
        return
    if own_port != port:
        wanted = "every port" if port is None else f"port {port}"
        service.omissions.append(Omission(number, text, f"OVN translates ports, xenoovs does not: listen on {wanted}"))
    service.backends.append(DraftBackend(str(address).replace(":", "-"), Fraction(1), address=address))


def _address(text: str) -> tuple[IPAddress, int | None]:
    """Return address and port of `10.0.0.1:80`, `10.0.0.1`, `[fd00::1]:80` or `fd00::1`. Raises ValueError."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        if port and not port.startswith(":"):
            raise ValueError(text)
        port = port[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= 0xFFFF):
        raise ValueError(text)
    return ip_address(host), int(port) if port else None
