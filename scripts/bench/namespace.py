"""A network namespace for the time of a `with`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def namespace(*lines: str) -> Iterator[Sequence[str]]:
    """The words to put before a command that shall run inside. `lines`: for ip(8), as `link set lo up`."""
    name = f"xo-bench-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for line in ("link set lo up", *lines):
            subprocess.run(["ip", "-n", name, *line.split()], check=True)
        yield ("ip", "netns", "exec", name)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
