"""Certificates of TLS connections on which both sides have one."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from xenoovs.dataclass import dataclass
from xenoovs.datapath.certificate import (
    AUTHORITIES,
    CERTIFICATE_WARNING_S,
    PRINT_CERTIFICATE,
    PRINT_PUBLIC_KEY,
    Certificate,
    CertificateFiles,
    PrivateKey,
    parse_certificate,
    parse_public_key,
)
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.display import duration
from xenoovs.errors import CertificateUnusable, CommandMissing, CommandTimeout, ParseError, SystemFailure
from xenoovs.regex import regex
from xenoovs.switch.process import try_run
from xenoovs.switch.tape import asked, list_files, number_of, of_file


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: our private key and certificate, and the authority that signed the peers' certificates."""

    key: Path
    certificate: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """Return a context for TLS 1.2 and later that requires a certificate. Raises CertificateUnusable."""
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
        """Return the same files with absolute paths."""
        return Certificates(self.key.absolute(), self.certificate.absolute(), self.authority.absolute())


@contextmanager
def _reading(file: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise CertificateUnusable(file=file, reason=(error.reason or str(error)).lower().replace("_", " ")) from None
    except OSError as error:
        raise CertificateUnusable(file=file, reason=error.strerror or str(error)) from None


def certificate_end_s(file: Path) -> float | None:
    """Return when the certificate in a file expires, in seconds since 1970; None if unknown."""
    found = read_certificate(str(file))
    return None if isinstance(found, Unknown) else found.ends


def common_name(file: Path) -> str:
    """Return the CN of the certificate in a file, by which servers know its owner; empty if unknown."""
    found = read_certificate(str(file))
    name = None if isinstance(found, Unknown) else _COMMON_NAME.search(found.subject)
    return re.sub(r"\\(.)", r"\1", name[1]) if name else ""


_COMMON_NAME = regex(r"(?:^|[,+])CN=((?:[^,+\\]|\\.)+)")
"""The CN in a subject in the form of RFC 2253."""


def certificate_problem(left_s: float | None, *, whose: str) -> str:
    """Return the message that a certificate expires soon or has expired; empty if it does not."""
    if left_s is None or left_s > CERTIFICATE_WARNING_S:
        return ""
    when = f"ends in {duration(left_s)}" if left_s > 0 else f"ended {duration(-left_s)} ago"
    return f"the certificate of {whose} {when}: make another one, and restart what uses it"


# Certificates and private keys of IPsec by openssl(1), which ovs-monitor-ipsec(8) uses too.


_TIMEOUT_S = 10.0
_MOST = 64
"""Most files that are read; each takes some milliseconds."""


def read_certificate_files(config: Mapping[str, str], remotes: Iterable[str]) -> CertificateFiles:
    """Return the contents of all certificate files. Never raises. `config`: column other_config of table Open_vSwitch.
    `remotes`: certificates of remotes."""
    own, key, authority = (config.get(name) for name in ("certificate", "private_key", "ca_cert"))
    paths = [path for path in dict.fromkeys((own, authority, *remotes)) if path]
    trusted = [f"{AUTHORITIES}/{name}" for name in list_files(Path(AUTHORITIES))[:_MOST]]
    now = number_of((asked(("date", "+%s"), lambda: str(time.time())) or "").partition(".")[0])
    timeless = Unknown("the answer of `date +%s` is no number, so that it is unknown whether this one is valid")
    return CertificateFiles(
        read_at=now or 0,
        certificates={path: timeless if now is None else read_certificate(path) for path in paths[:_MOST]},
        private_key=read_private_key(key) if key else None,
        is_signed=_is_signed(own, authority) if own and authority else None,
        authorities=frozenset(
            found.public_key for found in map(read_certificate, trusted) if isinstance(found, Certificate)
        ),
    )


def read_certificate(path: str) -> Fact[Certificate]:
    """Return the certificate in a PEM file."""
    text = _openssl((*PRINT_CERTIFICATE, path), path, "a certificate")
    if isinstance(text, Unknown):
        return text
    try:
        return parse_certificate(text)
    except ParseError as error:
        return Unknown(f"{path} is not understood: {error}")


def read_private_key(path: str) -> Fact[PrivateKey]:
    """Return the facts about the private key in a PEM file, without the secret."""
    text = _openssl((*PRINT_PUBLIC_KEY, path), path, "a private key without a passphrase")
    if isinstance(text, Unknown):
        return text
    mode = of_file("stat", Path(path), lambda: f"{Path(path).stat().st_mode:o}")
    try:
        return PrivateKey(parse_public_key(text), is_readable_by_all=bool(int(mode or "not there", 8) & 0o077))
    except (ValueError, ParseError) as error:
        return Unknown(f"{path} cannot be read: {error}")


def _openssl(argv: tuple[str, ...], path: str, kind: str) -> Fact[str]:
    """Return what openssl(1) prints of a file: certificates and public keys, never a secret."""

    def look() -> str:
        # The path is what a database says: reading a FIFO would not end.
        if not Path(path).is_file():
            return "is no file" if Path(path).exists() else "does not exist"
        try:
            with Path(path).open("rb"):
                return ""
        except OSError as error:
            return f"cannot be read: {error.strerror}"

    try:
        if problem := asked(("test", "-r", path), look):
            return Unknown(f"{path} {problem}")
        done = try_run(argv, timeout_s=_TIMEOUT_S)
    except ValueError as error:
        return Unknown(f"{path} cannot be read: {error}")
    except CommandMissing:
        return Unknown("openssl is not installed, and ovs-monitor-ipsec needs it")
    except (CommandTimeout, SystemFailure) as error:
        return Unknown(f"{path} cannot be read: {error}")
    return done.stdout if done.exit_code == 0 else Unknown(f"{path} is not {kind} in PEM")


def _is_signed(certificate: str, authority: str) -> bool:
    """Return whether openssl-verify(1) finds that the authority signed the certificate, and that both are valid."""
    argv = ("openssl", "verify", "-no-CApath", "-no-CAstore", "-CAfile", authority, certificate)
    return not isinstance(_openssl(argv, certificate, "signed"), Unknown)
