"""How many backends may be out at once: probes that all fail say more about the probing than about the servers."""

from __future__ import annotations

from collections.abc import Sequence

from xenoovs.model.health import AllDown, Health


def taken_out(fallen: Sequence[str], *, of: int, health: Health) -> frozenset[str]:
    """Which of the backends that are down get no clients. `fallen`: their names, the first to fall first.

    `of`: backends of the service with a weight. At most `max_down` of them are out, those that fell first, and never
    all; unless all are down and `on_all_down` says to drop their packets.
    """
    if len(fallen) >= of and health.on_all_down is AllDown.DROP:
        return frozenset(fallen)
    limit = min(int(health.max_down * of), of - 1)
    return frozenset(fallen[: max(limit, 0)])
