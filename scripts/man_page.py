"""The manual page xenoovs(1), from the help texts of the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from xenoovs import __version__
from xenoovs.cli.main import COMMANDS, cli

_FILES = (
    ("/etc/xenoovs/config.yaml", "The config that xenoovs-agent.service uses."),
    ("/etc/xenoovs/fleet.env", "Options of the units of a fleet: SERVER_OPTIONS, RELAY_OPTIONS, CONTROLLER_OPTIONS."),
    ("/var/lib/xenoovs", "Drains and weights set at run time."),
    ("/run/xenoovs", "The control socket of each agent."),
)


def man_page() -> str:
    """Return the page in the macros of man(7)."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    root = click.Context(cli, info_name="xenoovs")
    yield f'.TH XENOOVS 1 "" "xenoovs {__version__}" "User Commands"'
    yield ".SH NAME"
    yield "xenoovs \\- weighted load balancing on Open vSwitch that the NIC can offload"
    yield ".SH SYNOPSIS"
    yield ".B xenoovs"
    yield "\\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]"
    yield ".SH DESCRIPTION"
    yield from _text(cli.help or "")
    yield ".SH COMMANDS"
    for name in COMMANDS:
        command = cli.get_command(root, name)
        if command is not None:
            yield from _command(f"xenoovs {name}", command, click.Context(command, info_name=name, parent=root))
    yield ".SH FILES"
    for path, text in _FILES:
        yield from (".TP", f".I {path}", _escape(text))
    yield ".SH SEE ALSO"
    yield ".BR ovs-vswitchd (8),"
    yield ".BR ovs-ofctl (8),"
    yield ".BR ovs-actions (7),"
    yield ".BR tc-flower (8)"


def _command(path: str, command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {_escape(path)}"
    yield f".B {_escape(path)}"
    yield _escape(usage)
    yield ".PP"
    yield from _text(command.help or "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            yield from (".TP", f".B {_escape(record[0])}", _escape(record[1]))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _command(f"{path} {name}", child, click.Context(child, info_name=name, parent=context))


def _text(text: str) -> Iterator[str]:
    """Yield paragraphs; those behind a line with a backspace keep their lines, as click has it."""
    for paragraph in re.split(r"\n\s*\n", text.replace("\f", "")):
        lines = [line.strip() if "\b" not in paragraph else line.rstrip() for line in paragraph.strip("\n").split("\n")]
        if lines and lines[0].strip() == "\b":
            yield from (".PP", ".nf", *map(_escape, lines[1:]), ".fi")
        else:
            yield from (".PP", _escape(" ".join(lines)))


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
