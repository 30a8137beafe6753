"""What the agent or a change with a way back refuses or has undone."""

from __future__ import annotations

from xenoovs.errors.base import XenoovsError
from xenoovs.errors.words import counted


class ChangesHeld(XenoovsError):
    """The agent is paused, and the bridge would have to change. `flow_mods`: how many it would take."""

    retryable = True

    def __init__(self, *, flow_mods: int) -> None:
        self.flow_mods = flow_mods
        super().__init__(f"paused: {counted(flow_mods, 'flow-mod')} held back until `xenoovs resume`")


class RoundLate(XenoovsError):
    """A round of the agent that goes on and on. `after_s`: how long it has taken by now."""

    retryable = True

    def __init__(self, *, bridge: str, after_s: float) -> None:
        self.bridge, self.after_s = bridge, after_s
        super().__init__(
            f"the look at bridge {bridge} is not over after {after_s:g} s: Open vSwitch is stopped or very busy, and "
            "until it answers nobody knows whether a change was made"
        )


class NotConfirmed(XenoovsError):
    """A change that nobody confirmed in time, and that was taken back. `after_s`: seconds that were waited."""

    def __init__(self, *, after_s: float) -> None:
        self.after_s = after_s
        super().__init__(
            f"nobody confirmed the change within {after_s:g} s (`xenoovs confirm`), so it was taken back; "
            "the flows are those of before"
        )


class TakenBack(XenoovsError):
    """A change that was taken back before anybody confirmed it."""

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: the change was taken back; the flows are those of before")


class NotOffloaded(XenoovsError):
    """A change that was taken back because the NIC does not forward what it should."""

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason}, so the change was taken back; the flows are those of before. `xenoovs lint` and "
            "`xenoovs doctor` tell what hardware offload needs"
        )


class StateUnusable(XenoovsError):
    """The file of run-time overrides cannot be used. `kept`: where it was moved to; None: it could not be read."""

    def __init__(self, *, path: str, reason: str, kept: str | None) -> None:
        self.path, self.reason, self.kept = path, reason, kept
        moved = "" if kept is None else f"; it is kept as {kept}"
        super().__init__(
            f"the overrides in {path} cannot be used: {reason}{moved}; weights and drains are those of the config now: "
            "set them again with `xenoovs drain` and `xenoovs weight`"
        )


class RequestRefused(XenoovsError):
    """An operator asked the agent for what cannot be. `status`: of HTTP (RFC 9110); `code`: the same for programs."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        self.status, self.code = status, code
        super().__init__(message)


class ListenError(XenoovsError):
    """The agent cannot listen where or as it was told."""


class AgentMissing(XenoovsError):
    """No agent answers at its socket."""

    def __init__(self, *, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(
            f"no agent answers at {where}: {reason}; start one with `xenoovs agent FILE` (or `systemctl start "
            "xenoovs-agent`), or name its socket with --control PATH"
        )


class AgentRefused(XenoovsError):
    """What an agent answered instead of doing what it was asked."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        self.status, self.code = status, code
        super().__init__(message)


class AgentRuns(XenoovsError):
    """Another agent keeps the bridge already. `holder`: the file that it holds locked."""

    def __init__(self, *, bridge: str, holder: str) -> None:
        self.bridge, self.holder = bridge, holder
        super().__init__(
            f"another agent keeps bridge {bridge} already (it holds {holder}); "
            "see `xenoovs status`, and end that one first: `systemctl stop xenoovs-agent`"
        )
