"""What all deliberate exceptions have in common."""

from __future__ import annotations


class XenoovsError(Exception):
    """Base of all errors that a user is meant to read. `retryable`: the same call may succeed later."""

    retryable: bool = False
