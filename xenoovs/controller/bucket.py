"""A token bucket as a value: how many things may be done at once, and how many a second."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Bucket:
    """rate: tokens that come in a second. size: the most that it holds. tokens: at the time `at_s`."""

    rate: float
    size: float
    tokens: float
    at_s: float


def full_bucket(*, rate: float, size: float, now_s: float) -> Bucket:
    return Bucket(rate, size, size, now_s)


def take(bucket: Bucket, now_s: float) -> tuple[Bucket, bool]:
    """The bucket without one token, and whether it had one. A clock that goes back brings nothing."""
    tokens = min(bucket.size, bucket.tokens + bucket.rate * max(0.0, now_s - bucket.at_s))
    has_one = tokens >= 1
    return replace(bucket, tokens=tokens - has_one, at_s=max(now_s, bucket.at_s)), has_one
