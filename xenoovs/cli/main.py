"""The command `xenoovs`: finds the subcommand, and turns every error into one readable message and an exit status."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from threading import Timer
from typing import TYPE_CHECKING

import click

from xenoovs import __version__
from xenoovs.cli.output import echo, print_error
from xenoovs.errors import ConfigError, XenoovsError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_DIFFERS = 2
EXIT_NOTHING_SEEN = 3
EXIT_USAGE = 64
"""sysexits(3), EX_USAGE."""
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""

_GC_THRESHOLD = 200_000
_REDELIVERY_S = 0.01

# Written out in the order of `--help`, with their one line, so that help imports no command.
COMMANDS = {
    "new": "Write a config to start from.",
    "import": "Turn a config of another load balancer into one of xenoovs.",
    "validate": "Check a config and say everything that is wrong with it.",
    "compile": "Print the OpenFlow flows of a config.",
    "lint": "Say whether the NIC can take flows, and what they cost.",
    "analyse": "Say how evenly real clients would spread over the backends.",
    "decision": "Show which backend has which clients; compare two decisions.",
    "plan": "Show what apply would change, and how many clients move.",
    "apply": "Make the bridge do what the config says, atomically.",
    "status": "Show backends with their shares, packets and rates.",
    "verify-offload": "Say for each block whether the NIC forwards it.",
    "why": "Say why megaflows are not in hardware, and what mends it.",
    "doctor": "Check what hardware offload needs, and mend it.",
    "trace": "Show which backend and flow a client's packet meets.",
    "agent": "Check the health of backends and keep the bridge right.",
    "controller": "Be the OpenFlow controller of the bridge and keep it right.",
    "top": "Show live who gets what; drain and undrain by key.",
    "drain": "Give a backend no clients, for now.",
    "undrain": "Give a backend its weight of the config again.",
    "weight": "Give a backend another weight than the config, for now.",
    "pause": "Let the agent look on and change nothing.",
    "resume": "End a pause.",
    "confirm": "Keep a change that waits to be confirmed.",
    "logs": "Show what the agent said.",
    "restart-ovs": "Restart Open vSwitch and put all flows back.",
    "remove": "Take our flows off the bridge; those of others stay.",
    "lab": "A whole test network on this machine, no NIC needed.",
    "schema": "Print the JSON Schema of the config, for editors.",
    "completion": "Print the completion script for a shell.",
}

_MODULES = {
    **dict.fromkeys(("new", "validate", "compile", "schema"), "config"),
    **dict.fromkeys(("drain", "undrain", "weight", "pause", "resume", "confirm", "logs"), "control"),
    "controller": "agent",
    "import": "import_",
}
"""The modules of commands that share one; all others have a module of their own name."""


class LazyGroup(click.Group):
    """Imports a command when it is used: `--help` must not wait for libraries that it does not need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = import_module(f"xenoovs.cli.{_MODULES.get(name, name)}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", prog_name="xenoovs", message="%(prog)s %(version)s")
def cli() -> None:
    """Weighted load balancing on Open vSwitch that the NIC can really offload, and the proof that it does.

    \b
    Try it without any NIC, as root:
      xenoovs new quickstart > my.yaml
      xenoovs lab up my.yaml && xenoovs apply my.yaml --lab default && xenoovs lab traffic

    Exit status: 0 all is as it should be, 1 it could not be done, 2 something differs or is wrong (plan, status, trace,
    verify-offload, why, doctor, lint), 3 nothing seen yet (verify-offload, why), 64 wrong usage.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; never returns."""
    # A command makes many small values that live to its end: looking for cycles among them costs a fifth of its time.
    gc.set_threshold(_GC_THRESHOLD)
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


@contextmanager
def _redelivering_interrupts() -> Iterator[None]:
    """Send SIGINT again where Python drops a KeyboardInterrupt: in a `__del__`, as of Popen, or a callback."""
    before = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            before(dropped)
            return
        # From another thread and a moment later, as this hook would drop it too. It interrupts system calls.
        Timer(_REDELIVERY_S, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status."""
    with _redelivering_interrupts():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        status = cli.main(args=arguments, prog_name="xenoovs", standalone_mode=False, obj=tuple(arguments))
        sys.stdout.flush()
    except ConfigError as error:
        for finding in error.findings:
            # No prefix: editors jump to `file:line:column:` only at the start of a line.
            echo(str(finding), err=True)
        return EXIT_FAILED
    except XenoovsError as error:
        print_error(str(error))
        if error.hint:
            echo(error.hint, err=True)
        return EXIT_FAILED
    except click.ClickException as error:
        shown = StringIO()
        error.show(shown)
        echo(shown.getvalue(), err=True, nl=False)
        return EXIT_USAGE if isinstance(error, click.UsageError) else EXIT_FAILED
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted; nothing may be flushed to it any more (Python docs, signal module).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        print_error(f"{error.filename or 'output'}: {error.strerror}")
        return EXIT_FAILED
    return status if isinstance(status, int) else EXIT_OK
