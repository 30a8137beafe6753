"""Notifies systemd of the state of the service (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time


def notify(message: str) -> bool:
    """Send lines of `KEY=value`, such as WATCHDOG=1. Return False if they were lost, as while systemd does not read.

    Without systemd, return True.
    """
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
    """Notifies systemd when the service is ready, and of reloads. READY=1 is repeated until it is delivered."""

    def __init__(self) -> None:
        self._is_ready = self._is_pending = False

    def ready(self) -> None:
        """The bridge is as configured. Only the first call counts."""
        if not self._is_ready:
            self._is_ready = self._is_pending = True

    def reloading(self) -> None:
        """The config is to be read. Ignored while the service starts: READY=1 would end the start too."""
        if self._is_ready:
            # Type=notify-reload (systemd.service(5), since 253) goes by the time.
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._is_pending = True

    def idle(self) -> None:
        """All requests so far were handled."""
        if self._is_pending:
            self._is_pending = not notify("READY=1")
