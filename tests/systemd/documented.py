"""The commands of docs/how-to/agent.md, to be run as they stand there, and a drop-in of another page."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "agent.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block_with(command: str) -> str:
    """The one block of commands in which `command` stands."""
    [block] = [found[1] for found in _BLOCK.finditer(_PAGE.read_text()) if command in found[1]]
    return block


def tun_drop_in() -> str:
    """Return the drop-in of the unit from the page on announced VIPs."""
    [block] = re.findall(r"^```ini\n(.*?)^```$", _PAGE.with_name("announce-a-vip.md").read_text(), re.M | re.DOTALL)
    return str(block)


def exposure() -> str:
    """The last line of `systemd-analyze security`."""
    [line] = [line for line in _PAGE.read_text().splitlines() if "Overall exposure level" in line]
    return line
