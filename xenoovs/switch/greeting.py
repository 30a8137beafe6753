"""Whether ovs-vswitchd answers at all, asked before a longer question.

Each side of an OpenFlow connection says hello at once (OpenFlow 1.4.0, 6.3.1). One that is stopped does not,
nor does the ovs-vswitchd of 3.1 while ovsdb-server is away: bridge_run() of vswitchd/bridge.c serves no bridge then.
Connections are taken by the kernel all the same, so that ovs-ofctl would wait for as long as it is allowed to.
"""

from __future__ import annotations

import socket
import struct
import time

from xenoovs.errors import SwitchUnreachable

PATIENCE_S = 5.0
"""A large change keeps ovs-vswitchd busy for a second or two."""

_STEP_S = 0.05

_HELLO = struct.pack("!BBHI", 5, 0, 8, 1)
"""Version (OpenFlow 1.4), type OFPT_HELLO, length, transaction id (OpenFlow 1.4.0, 7.1)."""
_SILENT = (
    "ovs-vswitchd does not answer: it is stopped or very busy, or ovsdb-server is away, without which some versions "
    "serve no bridge; see `systemctl status ovsdb-server ovs-vswitchd`"
)


def require_greeting(target: str) -> None:
    """Wait for the hello of a bridge. `target`: its socket as ovs-ofctl takes it, `unix:PATH`.

    Where nobody takes the connection nothing is raised: whoever asks next is told why. Raises SwitchUnreachable.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        while not _greets(target.removeprefix("unix:"), max(_STEP_S, deadline_s - time.monotonic())):
            if time.monotonic() >= deadline_s:
                raise TimeoutError
            time.sleep(_STEP_S)
    except TimeoutError:
        raise SwitchUnreachable(target=target, reason=_SILENT) from None
    except OSError:
        return


def _greets(path: str, timeout_s: float) -> bool:
    """False: too many wait for an answer already, as after a long silence. Raises OSError, TimeoutError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect(path)
        except BlockingIOError:
            return False
        sock.sendall(_HELLO)
        sock.recv(len(_HELLO))
        return True
