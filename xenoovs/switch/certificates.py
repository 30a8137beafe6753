"""Certificates of TLS connections on which both sides have one."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import CertificateUnusable


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: our private key and certificate, and the authority whose peers are trusted."""

    key: Path
    certificate: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """For TLS 1.2 and later; a peer without a certificate is refused. Raises CertificateUnusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        pair = f"{self.certificate} with the key {self.key}"
        with _reading(pair):
            # Without a password OpenSSL prompts at the terminal.
            context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        with _reading(str(self.authority)):
            context.load_verify_locations(self.authority)
        return context

    @property
    def absolute(self) -> Certificates:
        """The same files, for processes in other directories."""
        return Certificates(self.key.absolute(), self.certificate.absolute(), self.authority.absolute())


@contextmanager
def _reading(file: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise CertificateUnusable(file=file, reason=(error.reason or str(error)).lower().replace("_", " ")) from None
    except OSError as error:
        raise CertificateUnusable(file=file, reason=error.strerror or str(error)) from None
