"""Certificates of IPsec: what ovs-monitor-ipsec(8) and the IKE daemon need of them, as openssl(1) prints it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime, timezone

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.fact import Fact
from xenoovs.errors import ParseError
from xenoovs.regex import regex

PRINT_CERTIFICATE = (
    *("openssl", "x509", "-noout", "-subject", "-nameopt", "RFC2253", "-dates", "-ext", "subjectAltName"),
    *("-pubkey", "-in"),
)
PRINT_PUBLIC_KEY = ("openssl", "pkey", "-pubout", "-passin", "pass:", "-in")
"""Prints the public key of a private one. With a passphrase it fails, as the IKE daemon would."""
CERTIFICATE_WARNING_S = 14 * 86_400.0
"""A certificate that expires sooner is a problem."""
AUTHORITIES = "/etc/ipsec.d/cacerts"
"""Where strongSwan takes certificates of authorities from (ipsec.conf(5), CA SECTIONS)."""

_COMMON_NAME = regex(r"CN=(.+?),")
"""As _get_cn_from_cert() of ovs-monitor-ipsec.in (Open vSwitch 2.11 to 3.1) finds it: behind it another attribute."""
_RSA = bytes.fromhex("06092a864886f70d010101")
"""The object identifier rsaEncryption in DER (RFC 8017, A.1)."""
_PEM = regex(r"-----BEGIN PUBLIC KEY-----\s(.*?)-----END PUBLIC KEY-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate (RFC 5280). `subject`: as RFC 2253 writes it. `names`: DNS names in subjectAltName. `begins`,
    `ends`: its validity, Unix time in seconds. `public_key`: in DER."""

    subject: str
    names: tuple[str, ...]
    begins: float
    ends: float
    public_key: bytes

    @property
    def name(self) -> str | None:
        """Return the common name, by which ovs-monitor-ipsec knows it; None if it finds none."""
        found = _COMMON_NAME.search(self.subject)
        return found[1] if found else None


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private key. `public_key`: in DER, for comparison. `is_readable_by_all`: other users may read the file."""

    public_key: bytes
    is_readable_by_all: bool = False

    @property
    def is_rsa(self) -> bool:
        return _RSA in self.public_key


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files that Open vSwitch names to ovs-monitor-ipsec(8). `read_at`: Unix time in seconds. `certificates`: by path:
    our own, the authority's, those of remotes. `is_signed`: whether the authority signed our certificate, and both are
    valid (openssl-verify(1)); None if one is not named. `authorities`: public keys of the certificates that strongSwan
    trusts."""

    read_at: float = 0.0
    certificates: Mapping[str, Fact[Certificate]] = field(default_factory=dict, hash=False)
    private_key: Fact[PrivateKey] | None = None
    is_signed: bool | None = None
    authorities: frozenset[bytes] = frozenset()


def parse_certificate(text: str) -> Certificate:
    """Parse the answer to PRINT_CERTIFICATE. Raises ParseError."""
    lines = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"(subject|notBefore|notAfter)=", line))
    try:
        return Certificate(
            subject=lines["subject"].strip(),
            names=tuple(re.findall(r"DNS:([^\s,]+)", text)),
            begins=_time(lines["notBefore"]),
            ends=_time(lines["notAfter"]),
            public_key=parse_public_key(text),
        )
    except (KeyError, ValueError):
        raise ParseError(text=text, offset=0, expected="a certificate as `openssl x509` prints it") from None


def _time(text: str) -> float:
    """Return Unix time of `Nov 24 06:04:42 2026 GMT` (ASN1_TIME_print(3))."""
    return datetime.strptime(text.strip(), "%b %d %H:%M:%S %Y GMT").replace(tzinfo=timezone.utc).timestamp()


def parse_public_key(text: str) -> bytes:
    """Return the public key that a text has in PEM. Raises ParseError."""
    found = _PEM.search(text)
    try:
        return base64.b64decode("".join(found[1].split()), validate=True) if found else b""
    except binascii.Error:
        raise ParseError(text=text, offset=0, expected="a public key in PEM") from None
