"""What systemd is told (sd_notify(3)): a datagram of `KEY=value` lines to the socket that it names."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(message: str) -> None:
    """READY=1, WATCHDOG=1, STOPPING=1, STATUS=... Does nothing where systemd does not listen, or not any more."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock, suppress(OSError):
        sock.settimeout(0)
        # A name that starts with @ stands in the abstract namespace (unix(7)).
        sock.sendto(message.encode(), "\0" + address[1:] if address[0] == "@" else address)
