"""The answer of ofproto/detrace: from which OpenFlow flows a megaflow was made (ovs-vswitchd(8), Open vSwitch 3.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xenoovs.openflow.cookie import is_ours

# ofproto_rule_stats_ds() of ofproto/ofproto.c in 3.4.0 to 3.7.0: a cookie of 0, table 0 and the default priority are
# left out; the items that are no statistics are the cookie, table_id and what follows them.
_FLOW = re.compile(
    r"\s*(?:cookie=0x([0-9a-fA-F]{1,16}), )?(?:table_id=([0-9]{1,3}), )?duration=[^,]*, (?:[a-z_]+=[^,]*, )*"
    r",?(\S.*actions=.*|actions=.*)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """One flow. `text`: priority, match and actions as Open vSwitch writes them, ports by number."""

    cookie: int
    table: int
    text: str

    @property
    def is_ours(self) -> bool:
        return is_ours(self.cookie)

    def __str__(self) -> str:
        return f"cookie={self.cookie:#x}, table={self.table}, {self.text}"


def parse_detrace(text: str) -> tuple[Origin, ...]:
    """The flows in the order in which the packet met them; lines of another form (groups, complaints) are left out."""
    found = (_FLOW.fullmatch(line.rstrip()) for line in text.splitlines())
    return tuple(Origin(int(line[1] or "0", 16), int(line[2] or 0), line[3]) for line in found if line)
