"""The controller cannot start, or its bridge is not ours now."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.errors.base import XenoovsError
from xenoovs.errors.switch import SwitchError


class FrameworkMissing(XenoovsError):
    """Neither os-ken nor ryu can be imported."""

    def __init__(self) -> None:
        super().__init__(
            "the controller needs os-ken, which is not installed: `pip install 'xenoovs[controller]'`; "
            "all other commands work without it"
        )


class FrameworkUnusable(XenoovsError):
    """A framework is installed and does not start on this Python. `name`: with its version."""

    def __init__(self, *, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(
            f"{name} does not work on this Python ({reason}); install os-ken 4.2.2 or newer: "
            "`pip install --upgrade 'xenoovs[controller]'`"
        )


class MalformedOpenFlow(SwitchError):
    """A peer sent what is no OpenFlow; its connection is closed. `reason`: what it sent."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"malformed OpenFlow: {reason}")


class StandingBy(SwitchError):
    """Another controller is the master of the bridge; this one changes nothing until that one is gone."""

    retryable = True

    def __init__(self, *, bridge: str) -> None:
        self.bridge = bridge
        super().__init__(f"another controller is master of bridge {bridge}; this one stands by")


class OtherBridge(SwitchError):
    """A config names another bridge than it did when the controller started. `mine`: the one that is kept."""

    def __init__(self, *, mine: str, wanted: str) -> None:
        self.mine, self.wanted = mine, wanted
        super().__init__(
            f"this controller keeps bridge {mine} and lets in no {wanted}; start it anew with the config of that bridge"
        )


class SameBridge(XenoovsError):
    """Two configs are of one bridge, or cannot be told apart. `files`: both."""

    def __init__(self, *, files: tuple[str, str], bridge: str) -> None:
        self.files, self.bridge = files, bridge
        super().__init__(
            f"{files[0]} and {files[1]} are both of bridge {bridge}: a bridge has one config. If two hosts have a "
            "bridge of that name, say in both which one: `datapath_id:` under `switch:`"
        )


class ControllerTaken(SwitchError):
    """A bridge has controllers that are not ours; `present`: their targets."""

    def __init__(self, *, bridge: str, present: Iterable[str]) -> None:
        self.bridge, self.present = bridge, tuple(present)
        self.commands = (f"ovs-vsctl del-controller {bridge}",)
        super().__init__(
            f"bridge {bridge} has another controller ({', '.join(self.present)}) and was not changed; stand "
            f"beside it with --redundant, or remove it with `{self.commands[0]}`"
        )


class CertificateUnusable(XenoovsError):
    """A file for TLS that cannot be used. `file`: which; `reason`: as the system or OpenSSL says it."""

    def __init__(self, *, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"cannot use {file} for TLS: {reason}; PEM files are needed, the key without a password")


class CannotListen(XenoovsError):
    """The controller cannot listen. `reason`: as the operating system says it."""

    def __init__(self, *, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"cannot listen at {address}: {reason}; name another with --listen ADDRESS:PORT")
