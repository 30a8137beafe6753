"""Options that the running kernel was built with."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from xenoovs.datapath.fact import Fact, Unknown

_MAX_BYTES = 4 << 20
"""Debian's has 0.3 MB."""


def read_tc_chains(*, root: Path = Path("/"), release: str | None = None) -> Fact[bool]:
    """Return whether traffic control can pass Open vSwitch the chain at which it stopped, so that chains are offloaded.

    Args:
        root: Where the files of the kernel are.
        release: As uname(2) has it; None: that of the running kernel.
    """
    name = release if release is not None else os.uname().release
    for place in (f"boot/config-{name}", f"lib/modules/{name}/config", f"lib/modules/{name}/build/.config"):
        try:
            text = (root / place).read_text(errors="replace")[:_MAX_BYTES]
        except OSError:
            continue
        return _has(text, "CONFIG_NET_TC_SKB_EXT")
    try:
        with gzip.open(root / "proc/config.gz") as file:
            return _has(file.read(_MAX_BYTES).decode(errors="replace"), "CONFIG_NET_TC_SKB_EXT")
    except (OSError, EOFError):
        return Unknown(f"neither /boot/config-{name} nor /proc/config.gz shows how the kernel was built")


def _has(text: str, option: str) -> bool:
    # It depends on NET_CLS_ACT alone, and is no module (net/sched/Kconfig).
    return f"\n{option}=y\n" in f"\n{text}\n"
