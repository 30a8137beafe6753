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
    DNS = "dns"
    UDP = "udp"

    @property
    def has_port(self) -> bool:
        return self in (ProbeKind.TCP, ProbeKind.HTTP, ProbeKind.DNS, ProbeKind.UDP)

    @property
    def needs_address(self) -> bool:
        """Whether only a backend with an address can be asked. ARP can also ask for the VIP."""
        return self is ProbeKind.ICMP or self.has_port


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
    path:             of an HTTP request. query: the name asked for by DNS.
    send, expect:     text of a UDP probe; expect: what the answer holds.
    interval_ms:      between the starts of two probes; fast_interval_ms: the same while results contradict the state.
    timeout_ms:       at most interval_ms; a probe without an answer by then has failed.
    rise, fall:       successes (failures) in a row that bring a backend in (take it out), 1 or more.
    max_down:         0..1; no more than this part of the backends with a weight is out at once, rounded down.
    """

    probe: ProbeKind
    port: int | None = None
    interface: str | None = None
    netns: str | None = None
    path: str = "/"
    query: str = "."
    send: str = ""
    expect: str = ""
    interval_ms: int = 1000
    fast_interval_ms: int = 250
    timeout_ms: int = 500
    rise: int = 2
    fall: int = 3
    initial: Initial = Initial.TRUSTED
    max_down: Fraction = Fraction(1, 2)
    on_all_down: AllDown = AllDown.KEEP
