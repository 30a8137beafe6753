"""What systemd is told (sd_notify(3)): a datagram of `KEY=value` lines to the socket that it names."""

from __future__ import annotations

import os
import socket
import time


def notify(message: str) -> bool:
    """WATCHDOG=1, STOPPING=1, STATUS=... False: it was lost, as where systemd does not read. True without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(0)
        try:
            # A name that starts with @ stands in the abstract namespace (unix(7)).
            sock.sendto(message.encode(), "\0" + address[1:] if address[0] == "@" else address)
        except OSError:
            return False
    return True


class Readiness:
    """Tells that the service is ready, and when it reads its config again. READY=1 is said until it is heard."""

    def __init__(self) -> None:
        self._is_up = self._is_owed = False

    def up(self) -> None:
        """The bridge is right. Counts the first time."""
        if not self._is_up:
            self._is_up = self._is_owed = True

    def reloading(self) -> None:
        """The config is to be read. Nothing while the service starts: READY=1 would end that too."""
        if self._is_up:
            # Type=notify-reload (systemd.service(5), since 253) goes by the time.
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._is_owed = True

    def settled(self) -> None:
        """Everything asked for was tried."""
        if self._is_owed:
            self._is_owed = not notify("READY=1")
