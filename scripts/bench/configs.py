"""Large configs as text."""

from __future__ import annotations

from pathlib import Path


def large_config(directory: Path, *, services: int = 1000, backends: int = 16, first_mac: int = 0) -> Path:
    """A config of `services` x `backends` equal backends, about 1 MB at the default size.

    `first_mac` is the number in the MAC of the very first backend: another one changes that backend and nothing else.
    """
    lines = ["version: 1", "switch: {bridge: ovsbr1, ingress: [p0], egress: p1}", "services:"]
    for i in range(services):
        lines += [f"  - name: service-{i}", f"    vip: 10.{i >> 8}.{i & 255}.1", "    protocol: udp", "    ports: [53]"]
        lines += ["    backends:"]
        for j in range(backends):
            number = 1 + i * backends + j if i or j or not first_mac else first_mac
            lines.append(f"      - {{name: backend-{i}-{j}, mac: {_mac(number)}, weight: 1}}")
    path = directory / f"large-{services}-{backends}-{first_mac}.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _mac(number: int) -> str:
    digits = f"{0x020000000000 + number:012x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))
