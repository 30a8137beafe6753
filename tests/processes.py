"""Reads running processes, each of which may end at any moment, also between the listing and the read."""

from __future__ import annotations

from pathlib import Path


def program_of(pid: object) -> str:
    """Return the name of the program (proc(5), /proc/pid/comm); empty: the process has ended."""
    return _read(pid, "comm").decode().strip()


def command_line(pid: object) -> bytes:
    """Return the words of the command line, each ended by a zero (/proc/pid/cmdline); empty: the process has ended."""
    return _read(pid, "cmdline")


def _read(pid: object, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
