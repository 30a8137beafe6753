"""Which megaflows a question is about: of a service, from an address, by ufid; by default of all blocks."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.verify.diagnose import Suspect

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Question:
    """All that is given must hold; with `source` or `ufid` also of megaflows of no block. `ufid`: its first digits."""

    service: str | None = None
    source: Address | None = None
    ufid: str | None = None

    def asks_about(self, suspect: Suspect) -> bool:
        """Whether it is about this megaflow."""
        if self.service is not None and (suspect.block is None or suspect.block.service != self.service):
            return False
        if self.source is not None and not _comes_from(suspect.megaflow, self.source):
            return False
        if self.ufid is not None:
            return (suspect.megaflow.ufid or "").startswith(self.ufid.lower())
        return suspect.block is not None or self.source is not None

    def nothing_found(self, *, is_recorded: bool) -> str:
        """What to tell where no megaflow is asked about. `is_recorded`: of a dump that somebody made earlier."""
        if self.ufid is not None:
            told = f"no megaflow has a ufid that begins with {self.ufid}"
        elif self.source is not None:
            told = f"no megaflow takes packets from {self.source}"
        else:
            told = f"no megaflow of {'the services' if self.service is None else f'service {self.service}'}"
        if is_recorded:
            return f"{told} in the dump"
        return f"{told} now: no traffic yet, or idle longer than max-idle; send some and ask again"


def _comes_from(megaflow: Megaflow, source: Address) -> bool:
    """Whether packets from this address can belong to it."""
    seen = megaflow.ipv4_src if isinstance(source, IPv4Address) else megaflow.ipv6_src
    return seen is not None and int(source) & seen.mask == seen.value
