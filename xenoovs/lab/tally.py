"""What a round of traffic is made of and what came of it, as the helper program and its caller exchange it in JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Flight:
    """Packets to one destination; `sources`: the client of each of them. protocol: udp, tcp (connections) or icmp.

    fresh_ports: whether each UDP packet comes from a port of its own, as each connection of TCP does.
    """

    protocol: str
    destination: str
    port: int
    sources: tuple[str, ...]
    fresh_ports: bool = False


@dataclass(slots=True)
class Tally:
    """Counts of a round. sent: packets for each flight. answers: (flight, source, who answered) -> packets.

    who: the label of a machine, or for ICMP the MAC that the answer came from. duplicates: second answers to a packet.
    failures: why the kernel refused to send -> packets.
    """

    sent: list[int]
    answers: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    duplicates: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """Packets sent and not answered."""
        return sum(self.sent) - self.answers.total()


def packets_of(flights: Sequence[Flight], protocol: str) -> Iterator[tuple[int, str]]:
    """Flight number and source of each packet of this protocol, in order."""
    for number, flight in enumerate(flights):
        if flight.protocol == protocol:
            yield from ((number, source) for source in flight.sources)


def render_round(flights: Sequence[Flight], *, lost: int) -> str:
    """What the helper program is to do. `lost`: packets lost in earlier rounds, which make it less patient."""
    return json.dumps({"lost": lost, "flights": [asdict(flight) for flight in flights]})


def parse_round(text: str) -> tuple[list[Flight], int]:
    """The inverse of `render_round`: flights, packets lost before."""
    facts = json.loads(text)
    flights = [Flight(**{**fields, "sources": tuple(fields["sources"])}) for fields in facts["flights"]]
    return flights, facts["lost"]


def render_tally(tally: Tally) -> str:
    answers = [[*key, count] for key, count in tally.answers.items()]
    return json.dumps(
        {"sent": tally.sent, "answers": answers, "duplicates": tally.duplicates, "failures": tally.failures}
    )


def parse_tally(text: str) -> Tally:
    facts = json.loads(text)
    answers = Counter({(number, source, who): count for number, source, who, count in facts["answers"]})
    return Tally(facts["sent"], answers, facts["duplicates"], Counter(facts["failures"]))
