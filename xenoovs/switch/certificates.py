"""Certificates of TLS connections on which both sides have one."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xenoovs.dataclass import dataclass
from xenoovs.datapath.fact import Unknown
from xenoovs.display import duration
from xenoovs.errors import CertificateUnusable
from xenoovs.switch.x509 import read_certificate


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


CERTIFICATE_WARNING_S = 14 * 86_400.0
"""A certificate that ends sooner is a problem."""


def certificate_end_s(file: Path) -> float | None:
    """Return when the certificate in a file ends, in seconds since 1970; None: not known."""
    found = read_certificate(str(file))
    return None if isinstance(found, Unknown) else found.ends


def common_name(file: Path) -> str:
    """Return the CN of the certificate in a file, by which servers know its owner; empty: not known."""
    found = read_certificate(str(file))
    name = None if isinstance(found, Unknown) else _COMMON_NAME.search(found.subject)
    return re.sub(r"\\(.)", r"\1", name[1]) if name else ""


_COMMON_NAME = re.compile(r"(?:^|[,+])CN=((?:[^,+\\]|\\.)+)")
"""In a subject as RFC 2253 writes it."""


def certificate_problem(left_s: float | None, *, whose: str) -> str:
    """Return in words that a certificate ends soon, or has ended; an empty text: it does not."""
    if left_s is None or left_s > CERTIFICATE_WARNING_S:
        return ""
    when = f"ends in {duration(left_s)}" if left_s > 0 else f"ended {duration(-left_s)} ago"
    return f"the certificate of {whose} {when}: make another one, and restart what uses it"
