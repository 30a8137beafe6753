"""What a dump of megaflows says beside the megaflows: how it was made, and the reasons that it gives itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

# Newer forks add `dp-offload-info:` and the like; `dp-extra-info:` tells of miniflows, not of offload.
_REASON = re.compile(r", dp-(?!extra)[a-z-]+-info:(.+)$")
_PMD = "flow-dump from pmd"
_MOST_REASONS = 5


@dataclass(slots=True)
class Hints:
    """Counts lines as they pass by on their way to the parser."""

    megaflows: int = 0
    offloaded: int = 0
    pmds: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """The same lines."""
        for line in lines:
            if " actions:" in line or ",actions:" in line:
                self.megaflows += 1
                self.offloaded += ", offloaded:yes" in line
                if ", dp-" in line and (found := _REASON.search(line.rstrip())):
                    self.reasons[found[1]] += 1
            elif line.startswith(_PMD):
                self.pmds += 1
            yield line

    def remarks(self, *, some_are_absent: bool, is_recorded: bool) -> Iterator[str]:
        """For people, in the order of their weight."""
        for reason, megaflows in self.reasons.most_common(_MOST_REASONS):
            yield f"Open vSwitch says of {megaflows} megaflows: {reason}"
        if is_recorded and some_are_absent and self.megaflows and self.offloaded == self.megaflows:
            yield (
                "every megaflow of this dump is offloaded: if it was made with type=offloaded or a filter, blocks that "
                "are ABSENT may well run in software; make one with `ovs-appctl dpctl/dump-flows -m` alone"
            )
        if self.pmds > 1:
            yield f"the dump is of {self.pmds} PMD threads, each of which holds its own copy of a megaflow"
