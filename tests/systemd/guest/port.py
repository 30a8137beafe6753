"""Takes the commands of the host, as a service of systemd: `python -m tests.systemd.guest.port`."""

from __future__ import annotations

from pathlib import Path

from xenoovs.lab.nic.frames import PORT_NAME
from xenoovs.lab.nic.guest.agent import serve

_PORTS = Path("/sys/class/virtio-ports")


def main() -> None:
    """Serve the first port of the machine for ever."""
    [device] = [port.name for port in _PORTS.iterdir() if (port / "name").read_text().strip() == f"{PORT_NAME}0"]
    serve(Path("/dev") / device, {})


if __name__ == "__main__":
    main()
