"""The command `xenoovs`: loads the subcommand, and turns every error into one message and an exit status."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from io import StringIO
from itertools import takewhile
from threading import Timer
from typing import TYPE_CHECKING

import click

from xenoovs import __version__
from xenoovs.errors import ConfigError, XenoovsError
from xenoovs.regex import regex
from xenoovs.terminal.command import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, LazyGroup, fail
from xenoovs.terminal.output import json_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

_JSON = regex(r"(?:^| )(?:-[a-zA-Z]*o ?|--output[ =])json(?: |$)")
"""`-o json` in all its spellings: click may find wrong usage before it has read the option."""

_REDELIVERY_S = 0.01

# The lines of `--help`, here so that help imports no command.
GROUPS = {
    "Config": {
        "new": "Print a template, or convert another balancer's config.",
        "explain": "Explain a key of the config; print its JSON Schema.",
        "validate": "Check a config and report every mistake; print its flows.",
        "tunnels": "Print the commands that make tunnel ports, at either end.",
        "lint": "Check whether the NIC can offload flows, and what they cost.",
        "decision": "Show which backend serves which clients; compare; analyse.",
        "trace": "Show which backend and which flows a client's packet meets.",
    },
    "Bridge": {
        "plan": "Show what apply would change, and how many clients move.",
        "apply": "Install the flows of a config, atomically; roll back.",
        "history": "Show what was applied to the bridge, when and by whom.",
        "status": "Show backends with their health, shares and traffic.",
        "remove": "Remove the flows of xenoovs from the bridge.",
    },
    "Offload and lab": {
        "verify-offload": "Check for each block whether the NIC forwards its packets.",
        "why": "Explain why megaflows are not in hardware; how to fix it.",
        "doctor": "Check and fix the host for offload; restart Open vSwitch.",
        "record": "Record the state of offload on this host, in one file.",
        "measure": "Measure packet rate, latency and loss; draw reports.",
        "lab": "Run a whole test network on this machine, without a NIC.",
    },
    "Agent and fleet": {
        "agent": "Run health checks and reconcile the bridge.",
        "controller": "Run as OpenFlow controller and reconcile the bridge.",
        "top": "Show backends live; drain and undrain by key.",
        "describe": "Show everything about one server.",
        "drain": "Drain a backend, or a server in all services.",
        "weight": "Override the weight of a backend.",
        "reset": "Return a backend to its configured weight; end a drain.",
        "pause": "Pause reconciliation, keep monitoring; or resume it.",
        "paths": "Show and steer the paths of tunnels.",
        "confirm": "Confirm a change, so that it is not rolled back.",
        "logs": "Print the log of the agent.",
        "fleet": "Run many DPUs with the same blocks, from one store.",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}

_MODULES = {name: f"xenoovs.cli.{name.replace('-', '_')}" for name in COMMANDS} | {
    **dict.fromkeys(("new", "validate"), "xenoovs.cli.config"),
    **dict.fromkeys(("drain", "weight", "reset", "pause", "confirm", "logs"), "xenoovs.cli.control"),
    "controller": "xenoovs.cli.agent",
    "fleet": "xenoovs.fleet.commands",
    "lab": "xenoovs.lab.commands",
    "measure": "xenoovs.measure.commands",
}


class _Root(LazyGroup):
    """The group of all commands. Its --help fits on one screen; the man page has all of `help`."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        formatter.write(f"{(self.help or '').partition('.')[0]}.\n\n")
        for title, commands in GROUPS.items():
            formatter.write(f"{title}:\n")
            formatter.write("".join(f"  {name:15} {text}\n" for name, text in commands.items()))
        formatter.write("Options: -h --help, -V --version, --completion bash|fish|zsh. More: man xenoovs.\n")


def _on_completion(context: click.Context, _parameter: click.Parameter, shell: str | None) -> None:
    if shell is not None and not context.resilient_parsing:
        from xenoovs.terminal.completion import print_completion

        print_completion(context, shell)


@click.group(
    cls=_Root,
    sections=GROUPS,
    modules=_MODULES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "-V", "--version", prog_name="xenoovs", message="%(prog)s %(version)s")
@click.option(
    "--completion",
    type=click.Choice(["bash", "fish", "zsh"]),
    is_eager=True,
    expose_value=False,
    callback=_on_completion,
    help="Print the completion script of a shell.",
)
def cli() -> None:
    """Weighted load balancing on Open vSwitch that the NIC can offload, and the proof.

    \b
    Try it without a NIC, as root:
      xenoovs new quickstart > my.yaml
      xenoovs lab up my.yaml
      xenoovs apply --lab
      xenoovs lab traffic

    \b
    Environment:
      XENOOVS_CONFIG  the config FILE if a command needs one and none is given; without it, that of the lab, or
                      /etc/xenoovs/config.yaml
      XENOOVS_LAB     the lab of commands without --lab and --db

    \b
    Exit status:
      0   success
      1   failure
      2   a difference or a problem was found (plan, status, lint, doctor ...)
      3   no traffic seen yet (verify-offload, why)
      64  wrong usage

    \b
    Completion, for one of the shells:
      xenoovs --completion bash > /etc/bash_completion.d/xenoovs
      xenoovs --completion zsh > /usr/local/share/zsh/site-functions/_xenoovs
      xenoovs --completion fish > /etc/fish/completions/xenoovs.fish

    With -o json, errors are JSON on stderr: {"error": {"code": ..., "message": ..., "hint": ...}}.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; never returns."""
    status = run(list(sys.argv[1:] if arguments is None else arguments))
    # Without it, the interpreter searches all imported objects for cycles as it ends: an eighth of a command's time.
    gc.freeze()
    sys.exit(status)


@contextmanager
def _redelivering_interrupts() -> Iterator[None]:
    """Send SIGINT again if Python drops a KeyboardInterrupt, as in Popen's `__del__` or in a callback."""
    before = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            before(dropped)
            return
        # From another thread and a moment later, as this hook would drop it too. It interrupts system calls. On a busy
        # machine it comes while the thread starts.
        is_coming = False
        while not is_coming:
            with suppress(KeyboardInterrupt):
                Timer(_REDELIVERY_S, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
                is_coming = True

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status."""
    is_json = _JSON.search(" ".join(takewhile(lambda word: word != "--", arguments))) is not None
    with _redelivering_interrupts(), json_errors(chosen=is_json):
        return _run(arguments)


def _usage_text(error: click.ClickException) -> str | None:
    """Return the text of a mistake that the usage of the command explains, such as an unknown option; None for others:
    values, and what a command itself refuses, for which click does not set `cmd`."""
    if not isinstance(error, click.UsageError) or error.cmd is None or type(error) is click.BadParameter:
        return None
    shown = StringIO()
    error.show(shown)
    return shown.getvalue().removesuffix("\n")


def _run(arguments: list[str]) -> int:
    try:
        # Blocked since the start of the process; a Ctrl-C since then is raised here.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        status = cli.main(args=arguments, prog_name="xenoovs", standalone_mode=False, obj=tuple(arguments))
        sys.stdout.flush()
    except ConfigError as error:
        # No prefix in text: editors jump to `file:line:column:` only at the start of a line.
        return fail(error, text=str(error), findings=[asdict(finding) for finding in error.findings])
    except XenoovsError as error:
        return fail(error)
    except click.ClickException as error:
        is_usage = isinstance(error, click.UsageError)
        problem = XenoovsError(error.format_message())
        problem.code = "usage" if is_usage else "failed"
        return fail(problem, EXIT_USAGE if is_usage else EXIT_FAILED, text=_usage_text(error))
    except (click.Abort, KeyboardInterrupt):
        problem = XenoovsError("interrupted")
        problem.code = "interrupted"
        return fail(problem, EXIT_INTERRUPTED, text="interrupted")
    except OSError as error:
        if error.filename is None:
            # The output is closed, so nothing may be flushed to it at the end (Python docs, signal module).
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The reader (`| head`) has ended.
            return EXIT_FAILED
        problem = XenoovsError(f"{error.filename or 'output'}: {error.strerror}")
        if isinstance(error, PermissionError) and os.geteuid() != 0:
            problem.hint = "Run the same command with `sudo`."
        return fail(problem)
    return status if isinstance(status, int) else EXIT_OK
