"""A megaflow as a dump prints it: what the parser has to read back."""

from __future__ import annotations

from xenoovs.datapath.megaflow import Megaflow


def render_megaflow(megaflow: Megaflow) -> str:
    """One line as `dpctl/dump-flows -m` prints it; `parse_megaflow` reads it back to the same value."""
    head = [f"ufid:{megaflow.ufid}"] if megaflow.ufid is not None else []
    head.append(",".join(f"{key.name}({key.inner})" for key in megaflow.keys))
    head += [f"packets:{megaflow.packets}", f"bytes:{megaflow.bytes}"]
    head.append("used:never" if megaflow.used_s is None else f"used:{megaflow.used_s:.3f}s")
    optional = (
        ("flags", megaflow.flags),
        ("offloaded", megaflow.offloaded.value if megaflow.offloaded else None),
        ("dp", megaflow.layer),
    )
    head += [f"{name}:{value}" for name, value in optional if value is not None]
    head += [f"{name}:{text}" for name, text in megaflow.extra if not name.startswith("dp-")]
    tail = [f"{name}:{text}" for name, text in megaflow.extra if name.startswith("dp-")]
    return ", ".join((*head, f"actions:{','.join(megaflow.actions)}", *tail))
