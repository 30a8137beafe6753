"""How many backends may be out at once: probes that all fail say more about the probing than about the servers. Pure.

A backend that fell while no place was free keeps its clients. When a place gets free later, what is known of it is old:
it has failed long ago, and may be about to answer, as after an outage of all. So it is taken out only after `fall` more
failures in a row, of probes that were sent since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from xenoovs.model.health import AllDown, Health


@dataclass(frozen=True, slots=True)
class Fallen:
    """A backend that is down.

    since_s:  when it fell.
    sent:     how many probes were sent to it so far; failures: how many results in a row failed, up to the last one.
    on_way:   how many of those sent have no result yet.
    """

    name: str
    since_s: float
    sent: int
    failures: int
    on_way: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A backend that keeps its clients although it fell. `sent`: probes sent when a place got free; None: none is."""

    since_s: float
    sent: int | None


@dataclass(frozen=True, slots=True)
class Places:
    """What was decided for one service. out: backends without clients; kept: by name, those that are down with them."""

    out: frozenset[str] = frozenset()
    kept: Mapping[str, Kept] = field(default_factory=dict)


def decide(before: Places, fallen: Sequence[Fallen], *, of: int, health: Health) -> Places:
    """Who is out now. `fallen`: the first to fall first; `of`: backends of the service with a weight.

    A backend that is not known from `before`, or fell again since, has just failed `fall` times.
    """
    stale = {each.name for each in fallen if is_stale(each, before.kept.get(each.name), health)}
    out = taken_out([each.name for each in fallen], of=of, health=health, before=before.out, stale=stale)
    is_free = len(out) < most_out(of, health)
    return Places(out, {each.name: _kept(each, before, is_free=is_free) for each in fallen if each.name not in out})


def taken_out(
    fallen: Sequence[str], *, of: int, health: Health, before: Collection[str] = (), stale: Collection[str] = ()
) -> frozenset[str]:
    """Which of the backends that are down get no clients. `fallen`: their names, the first to fall first.

    At most `max_down` of `of` are out, and never all; unless all are down and `on_all_down` says to drop their packets.
    Those that were out `before` stay so; then come those that fell first, without those that are `stale`.
    """
    if len(fallen) >= of and health.on_all_down is AllDown.DROP:
        return frozenset(fallen)
    most = most_out(of, health)
    stay = [name for name in fallen if name in before][:most]
    others = [name for name in fallen if name not in before and name not in stale]
    return frozenset([*stay, *others[: most - len(stay)]])


def most_out(of: int, health: Health) -> int:
    """How many of `of` backends may be out at once, unless all are down and dropped."""
    return max(min(int(health.max_down * of), of - 1), 0)


def is_stale(fallen: Fallen, kept: Kept | None, health: Health) -> bool:
    """Whether what is known of a backend that keeps its clients is older than the free place, or than `fall` probes."""
    if kept is None or kept.since_s != fallen.since_s:
        return False
    return kept.sent is None or min(fallen.failures, fallen.sent - fallen.on_way - kept.sent) < health.fall


def _kept(fallen: Fallen, before: Places, *, is_free: bool) -> Kept:
    known = before.kept.get(fallen.name)
    if not is_free:
        return Kept(fallen.since_s, None)
    if known is not None and known.since_s == fallen.since_s and known.sent is not None:
        return known
    return Kept(fallen.since_s, fallen.sent)
