"""How many packets are under way at once: enough to be quick, few enough that no socket buffer overflows."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Window:
    """At most `size` unanswered packets. Whoever is not answered within the patience no longer counts as under way.

    patience_s: how long to wait for an answer while answers come; hurried_s: once more than two windows are lost.
    """

    size: int
    patience_s: float
    hurried_s: float
    lost: int = 0
    under_way: dict[int, float] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.under_way) >= self.size

    @property
    def current_patience_s(self) -> float:
        return self.hurried_s if self.lost > 2 * self.size else self.patience_s

    def add(self, key: int, *, now_s: float) -> None:
        """A packet leaves at the monotonic time `now_s`; times never fall from call to call."""
        self.under_way[key] = now_s

    def answered(self, key: int) -> None:
        """Its answer came; nothing happens when it had been given up."""
        self.under_way.pop(key, None)

    def give_up(self, *, now_s: float) -> list[int]:
        """Those whose time is over, oldest first; they are under way no longer."""
        over = []
        for key, sent_s in self.under_way.items():
            if now_s - sent_s < self.current_patience_s:
                break
            over.append(key)
        for key in over:
            del self.under_way[key]
        self.lost += len(over)
        return over

    def rest_s(self, *, now_s: float) -> float:
        """Until the time of the oldest is over; 0 when nothing is under way."""
        oldest = next(iter(self.under_way.values()), None)
        return 0.0 if oldest is None else max(0.0, oldest + self.current_patience_s - now_s)
