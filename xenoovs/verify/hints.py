"""What a dump of megaflows says beside the megaflows: how it was made, and the reasons that it gives itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from xenoovs.errors.words import counted

# Newer forks add `dp-offload-info:` and the like; `dp-extra-info:` tells of miniflows, not of offload.
_REASON = re.compile(r", dp-(?!extra)[a-z-]+-info:(.+)$")
_PMD = re.compile(r"flow-dump from pmd on cpu core: ([0-9]{1,9})", re.ASCII)
_MOST_REASONS = 5
_MOST_KEPT = 1000


@dataclass(slots=True)
class Hints:
    """Counts lines as they pass by on their way to the parser. `cores`: of the threads that the dump is of."""

    megaflows: int = 0
    offloaded: int = 0
    cores: list[int] = field(default_factory=list)
    dummies: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """The same lines."""
        for line in lines:
            if " actions:" in line or ",actions:" in line:
                self.megaflows += 1
                self.offloaded += ", offloaded:yes" in line
                self.dummies += ", dp:dummy" in line
                if ", dp-" in line and (found := _REASON.search(line.rstrip())):
                    self._count(found[1])
            elif (found := _PMD.match(line)) and len(self.cores) < _MOST_KEPT:
                self.cores.append(int(found[1]))
            yield line

    def _count(self, reason: str) -> None:
        if reason in self.reasons or len(self.reasons) < _MOST_KEPT:
            self.reasons[reason] += 1

    @property
    def all_offloaded(self) -> bool:
        """Whether nothing but offloaded megaflows passed by, as in a dump made with type=offloaded."""
        return bool(self.megaflows) and self.offloaded == self.megaflows

    def reasons_told(self) -> Iterator[str]:
        """What the dump says of megaflows that are not offloaded, the most frequent first."""
        for reason, megaflows in self.reasons.most_common(_MOST_REASONS):
            yield f"Open vSwitch says of {counted(megaflows, 'megaflow')}: {reason}"

    def remarks(self, *, is_filtered: bool) -> Iterator[str]:
        """For people, in the order of their weight. `is_filtered`: it may lack what is not offloaded."""
        if is_filtered:
            yield (
                "every megaflow of this dump is offloaded: if it was made with type=offloaded or a filter, what is "
                "missing may well run in software; make one with `ovs-appctl dpctl/dump-flows -m` alone"
            )
        if self.dummies:
            yield (
                f"offloaded to the dummy provider of Open vSwitch, which pretends to be a NIC in tests: "
                f"{counted(self.dummies, 'megaflow')}, counted SW"
            )
        if len(self.cores) > 1:
            yield f"the dump is of {len(self.cores)} PMD threads, each of which holds its own copy of a megaflow"
