"""The first program of the virtual machine with the emulated NIC, `python -m MODULE KERNEL_ROOT`, with all commands."""

from __future__ import annotations

import sys

from xenoovs.cli.main import run
from xenoovs.lab.nic.guest.agent import run_guest

PRELOADED = (
    "xenoovs.cli.apply",
    "xenoovs.cli.verify_offload",
    "xenoovs.cli.why",
    "xenoovs.cli.doctor",
    "xenoovs.lab.commands.lab",
    "xenoovs.cli.status",
    "xenoovs.engine.engine",
    "xenoovs.diagnosis.offload",
    "xenoovs.evidence.collector",
    "xenoovs.cli.plan",
    "xenoovs.lab.nic.guest.lab",
    "xenoovs.lab.traffic",
    "xenoovs.lab.lifecycle",
    "xenoovs.model.load",
    "xenoovs.model.emit",
    "xenoovs.switch.management",
    "xenoovs.switch.devices",
    "xenoovs.engine.document",
    "xenoovs.agent.runtime_file",
)
"""Modules that commands import when they run."""


def read_first_config() -> None:
    """Import what configs need, and let pydantic build its validators; each command would do both again."""
    from xenoovs.model.load import parse_config
    from xenoovs.model.templates import read_template

    parse_config(read_template("quickstart").encode(), file="quickstart", for_lab=True)


if __name__ == "__main__":
    read_first_config()
    run_guest(sys.argv[1], modules=PRELOADED, commands={"xenoovs": run})
