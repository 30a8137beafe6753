"""Cookies: whose flow this is, and which part of the program. 64 bits: owner 16, generation 8, stage 8, service 32."""

from __future__ import annotations

from dataclasses import dataclass

OWNER = 0x786F
"""ASCII "xo". Flows whose cookie starts otherwise belong to somebody else and are never touched, listed or counted."""

OWNER_MASK = 0xFFFF << 48

LEASE_OWNER, ANSWER_OWNER = 0x786C, 0x786E
"""ASCII "xl" and "xn": flows that a controller of xenoovs keeps beside the program while it runs (controller/keeper.py,
controller/answers.py). No program has them; nothing of theirs touches the packets of a service."""

_FAMILY, _FAMILY_MASK = 0x786C << 48, 0xFFFC << 48
"""All owners that are xenoovs: ASCII "xl" to "xo"."""


@dataclass(frozen=True, slots=True)
class Cookie:
    """generation: of the pipeline's layout, 0..255. stage: index in the pipeline, 0..255. service: id, 0: none."""

    generation: int
    stage: int
    service: int

    def encode(self) -> int:
        return OWNER << 48 | self.generation << 40 | self.stage << 32 | self.service


@dataclass(frozen=True, slots=True)
class CookieMask:
    """The cookies that have `value` in the bits of `mask`: a switch selects flows so (OpenFlow 1.4.0, 7.3.5.2)."""

    value: int
    mask: int

    def __contains__(self, cookie: int) -> bool:
        return cookie & self.mask == self.value


WHOLE_COOKIE = (1 << 64) - 1
"""The mask of a single cookie. Open vSwitch finds its flows by an index; for any other mask it looks at all flows
(collect_rules_loose() of ofproto/ofproto.c)."""


Cookies = tuple[CookieMask, ...]
"""Disjoint masks, so that no flow is listed twice."""

OURS: Cookies = (CookieMask(OWNER << 48, OWNER_MASK),)


def all_but(excluded: CookieMask, *, among: CookieMask) -> Cookies:
    """Return the cookies of `among` without those of `excluded`, which is a part of it.

    OpenFlow has no negated filter: there is one mask for each bit by which a cookie can differ from `excluded`.
    """
    found, mask = [], among.mask
    for bit in (1 << position for position in reversed(range(64))):
        if excluded.mask & ~among.mask & bit:
            mask |= bit
            found.append(CookieMask(excluded.value & mask ^ bit, mask))
    return tuple(found)


FOREIGN = all_but(CookieMask(_FAMILY, _FAMILY_MASK), among=CookieMask(0, 0))
"""The cookies of others, as `is_foreign` tells them."""


def is_ours(value: int) -> bool:
    """Whether a cookie is of xenoovs."""
    return value & OWNER_MASK == OWNER << 48


def is_foreign(value: int) -> bool:
    """Whether a cookie is of somebody else: neither of the program nor of what a controller keeps beside it."""
    return value & _FAMILY_MASK != _FAMILY


def decode_cookie(value: int) -> Cookie | None:
    """The parts of a cookie of ours; None for a cookie of somebody else."""
    if not is_ours(value):
        return None
    return Cookie(value >> 40 & 0xFF, value >> 32 & 0xFF, value & 0xFFFFFFFF)


def service_of(value: int) -> int:
    """The service id in a cookie of ours; 0: of no service."""
    return value & 0xFFFFFFFF
