"""How it is found out whether a backend serves, and how many may be taken out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction


class ProbeKind(Enum):
    """What is sent to a backend. NONE: nothing, it is taken to serve."""

    NONE = "none"
    ICMP = "icmp"
    ARP = "arp"
    TCP = "tcp"
    HTTP = "http"
    HTTPS = "https"
    DNS = "dns"
    UDP = "udp"
    EXEC = "exec"

    @property
    def has_port(self) -> bool:
        return self in (ProbeKind.TCP, ProbeKind.HTTP, ProbeKind.HTTPS, ProbeKind.DNS, ProbeKind.UDP)


class Initial(Enum):
    """A backend of which nothing is known yet: the first result decides at once, or it waits for `rise` answers."""

    TRUSTED = "trusted"
    CLOSED = "closed"


class AllDown(Enum):
    """When every backend is down: clients stay with those that were left, or are dropped."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Health:
    """The health check of a service's backends. Times in milliseconds, 1 or more.

    port:             1..65535 where the probe has a port, else None.
    interface, netns: from where to ask: a device, and a network namespace by name; None: as the system decides.
    path, host:       of an HTTP request; host: its Host header, and the name in the certificate; None: the address.
    status, body:     of the answer: first and last status that is good (100..599), text that the body holds.
    ca_file:          PEM file of authorities, in place of the system's. server_name: in the certificate, if not `host`.
    insecure:         any certificate will do.
    command:          a program and its arguments, for which status 0 is good.
    query:            the name asked for by DNS.
    send, expect:     text of a UDP probe; expect: what the answer holds.
    interval_ms:      between the starts of two probes; fast_interval_ms: the same while results contradict the state.
    timeout_ms:       at most interval_ms; a probe without an answer by then has failed.
    rise, fall:       successes (failures) in a row that bring a backend in (take it out), 1 or more.
    jitter:           0..1; each pause is shorter by up to this part, so that probes do not go all at once.
    ramp_ms:          of a slow start; None: a backend gets all of its clients at once.
    max_down:         0..1; no more than this part of the backends with a weight is out at once, rounded down.
    """

    probe: ProbeKind
    port: int | None = None
    interface: str | None = None
    netns: str | None = None
    path: str = "/"
    host: str | None = None
    status: tuple[int, int] = (200, 399)
    body: str = ""
    ca_file: str | None = None
    server_name: str | None = None
    insecure: bool = False
    command: tuple[str, ...] = ()
    query: str = "."
    send: str = ""
    expect: str = ""
    interval_ms: int = 1000
    fast_interval_ms: int = 250
    timeout_ms: int = 500
    rise: int = 2
    fall: int = 3
    jitter: Fraction = Fraction(1, 10)
    initial: Initial = Initial.TRUSTED
    ramp_ms: int | None = None
    max_down: Fraction = Fraction(1, 2)
    on_all_down: AllDown = AllDown.KEEP
