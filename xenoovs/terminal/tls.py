"""The options of TLS where both sides have a certificate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from xenoovs.switch.certificates import Certificates

Command = TypeVar("Command", bound=Callable[..., object])

_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--tls-key", type=_FILE, metavar="FILE", help="Private key of this host, PEM, for TLS."),
    click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate of this host, PEM."),
    click.option(
        "--tls-ca",
        type=_FILE,
        metavar="FILE",
        help="Certificate authority of the fleet, PEM: clients without a certificate of it are refused.",
    ),
)


def tls_options(command: Command) -> Command:
    """Add --tls-key, --tls-cert and --tls-ca, and call a command with `tls`."""

    @functools.wraps(command)
    def run(
        *arguments: Any, tls_key: Path | None, tls_cert: Path | None, tls_ca: Path | None, **options: Any
    ) -> object:
        return command(*arguments, tls=certificates(tls_key, tls_cert, tls_ca), **options)

    made = cast(Command, run)
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


def certificates(key: Path | None, certificate: Path | None, authority: Path | None) -> Certificates | None:
    """Return the files of TLS; None: none is given. Raises click.UsageError, CertificateUnusable."""
    if key is None and certificate is None and authority is None:
        return None
    if key is None or certificate is None or authority is None:
        raise click.UsageError("TLS needs all of --tls-key, --tls-cert and --tls-ca.")
    found = Certificates(key, certificate, authority)
    found.context()
    return found
