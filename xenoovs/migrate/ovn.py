"""The output of `ovn-nbctl lb-list`: load balancers of OVN with their VIPs and backends."""

from __future__ import annotations

from fractions import Fraction
from ipaddress import ip_address
from itertools import pairwise

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import Draft, DraftBackend, DraftService, Word, name_from, use
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import PortRange, Protocol

_COLUMNS = ("LB", "PROTO", "VIP", "IPs")


def read_lb_list(text: str) -> Draft:
    """Convert the output of `ovn-nbctl lb-list`, `ls-lb-list` or `lr-lb-list`.

    Only the first line of a load balancer has its name, cut to 19 characters. Raises ParseError without a header line.
    """
    lines = text.split("\n")
    header = next((number for number, line in enumerate(lines) if all(word in line.split() for word in _COLUMNS)), None)
    if header is None:
        raise ParseError(text=text[:200], offset=0, expected="the table of `ovn-nbctl lb-list`, with its header line")
    starts = {word: lines[header].index(word) for word in _COLUMNS}
    draft, name = Draft(), ""
    for number, line in enumerate(lines, start=1):
        cut = (0, starts["LB"], starts["PROTO"], len(line))
        uuid, lb, row = ([Word(word, number) for word in line[a:b].split()] for a, b in pairwise(cut))
        draft.words += (*uuid, *lb, *row)
        if number - 1 <= header:
            use((*uuid, *lb, *row) if number - 1 == header else ())
            continue
        if uuid:
            name = "-".join(lb)
            draft.omissions.add(uuid, "how OVN names it: `ovn-nbctl lb-del` takes this, too")
        if row:
            _add(draft, name or "lb", row, lb)
    return draft.finish()


def _add(draft: Draft, name: str, row: list[Word], lb: list[Word]) -> None:
    protocol, vip_and_port, *rest = row if len(row) > 1 else (*row, Word("", row[0].line))
    try:
        vip, port = _address(vip_and_port)
        # ovn-nb(5), Load_Balancer, protocol: tcp where it is empty, which ovn-nbctl prints as (null).
        found = Protocol("tcp" if protocol in ("(null)", "tcp/udp") else protocol)
    except ValueError:
        reason = "left out: no VIP, such as 10.0.0.10:80, and no protocol tcp, udp or sctp"
        if "^" in vip_and_port:
            reason = "left out: a template, whose values are of each chassis (ovn-nb(5), Chassis_Template_Var)"
        draft.omissions.add((*lb, *row), reason)
        return
    service = DraftService("", (vip,))
    if port is not None:
        service.protocol, service.ports = found, (PortRange(port, port),)
    suffix = "" if port is None else f"-{port}"
    service.name = name_from(name.strip("-._/") + suffix, draft.services)
    texts = [Word(text, protocol.line) for text in rest[0].split(",")] if rest else []
    _add_backends(service, texts, port, draft.services)
    if service.backends:
        use((*lb, *row[:3]))
        draft.services.append(service)
    else:
        draft.omissions += service.omissions
        draft.omissions.add((*lb, *row), "this VIP has no backend, and OVN rejects its packets; a service needs one")


def _add_backends(service: DraftService, texts: list[Word], port: int | None, others: list[DraftService]) -> None:
    """Add the servers. If one has another port than the VIP, use NAT if the config can have it."""
    found = dict[tuple[IPAddress, int | None], tuple[Word, DraftBackend]]()
    for text in texts:
        try:
            address, own_port = _address(text)
        except ValueError:
            service.omissions.add((text,), "not ADDRESS or ADDRESS:PORT; left out")
            continue
        name = name_from(str(address).replace(":", "-"), (backend for _, backend in found.values()))
        l4_port = None if own_port == port else own_port
        found.setdefault((address, own_port), (text, DraftBackend(name, Fraction(1), address=address, l4_port=l4_port)))
    service.backends = [backend for _, backend in found.values()]
    if all(backend.l4_port is None for backend in service.backends):
        return
    reason = service.why_no_nat(others)
    service.is_nat = reason is None
    first = dict[IPAddress, DraftBackend]()
    for (address, _), (text, backend) in found.items() if reason else ():
        known = first.setdefault(address, backend)
        if known is not backend:
            service.omissions.add((text,), f"{address} is a backend already; one with two ports has twice the weight")
            known.weight += 1
        elif backend.l4_port is not None:
            wanted = "every port" if port is None else f"port {port}"
            advice = f"packets keep their port, as {reason}: the server has to listen on {wanted}"
            service.omissions.add((text,), advice)
        backend.l4_port = None
    service.backends = list(first.values()) or service.backends


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
