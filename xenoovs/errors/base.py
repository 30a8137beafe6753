"""What all deliberate exceptions have in common."""

from __future__ import annotations


class XenoovsError(Exception):
    """Base of all errors that a user is meant to read.

    retryable: the same call may succeed later.
    hint:      what else can be done, a sentence that the command line adds.
    commands:  those that the message tells in backquotes, as they are typed for the Open vSwitch of the host itself;
               the command line leads them to the one that was asked.
    """

    retryable: bool = False
    hint: str = ""
    commands: tuple[str, ...] = ()
