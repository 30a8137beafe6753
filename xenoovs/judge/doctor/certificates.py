"""Checks of the certificates by which the ends of a tunnel with IPsec authenticate each other.

The monitor and the IKE daemon report most mistakes in their logs only, and the tunnel has no SA.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from xenoovs.dataclass import dataclass
from xenoovs.datapath.certificate import AUTHORITIES, CERTIFICATE_WARNING_S, Certificate, CertificateFiles
from xenoovs.datapath.database import PortState
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.judge.doctor.check import CheckResult, DoctorCase, Fix, HostCheck, set_config

_CERTIFICATE = HostCheck("IPsec certificate", "without SAs no packet of the tunnel passes")
_DAY_S = 86400.0
_LIBRESWAN = "pluto"


@dataclass(frozen=True, slots=True)
class _Host:
    """What all ports share. `is_strongswan`: True also if unknown, as Debian's monitor tries strongSwan first."""

    files: CertificateFiles
    certificate: str | None
    private_key: str | None
    authority: str | None
    is_strongswan: bool


def check_certificates(case: DoctorCase) -> Iterator[CheckResult]:
    """Check what ports with remote_cert or remote_name need; a host without such ports has no row."""
    facts, database = case.host.tunnels, case.database
    if facts is None:
        return
    certificate, key, authority = (database.config.get(name) for name in ("certificate", "private_key", "ca_cert"))
    host = _Host(facts.files, certificate, key, authority, is_strongswan=_LIBRESWAN not in facts.programs)
    states = (case.interface(name) for name in dict.fromkeys(end.port for end in facts.ends if end.is_encrypted))
    ports = [state for state in states if state is not None]
    by_certificate = [port for port in ports if "psk" not in port.options and _remote(port)]
    yield from _check_shared_keys(host, ports)
    if not by_certificate:
        return
    if not host.certificate or not host.private_key:
        named_files = ("certificate=/etc/keys/HOST-cert.pem", "private_key=/etc/keys/HOST-privkey.pem")
        fix = Fix(tuple(set_config(*each.split("=")) for each in named_files))
        seen = f"other_config has no certificate and private_key, so {_names(by_certificate)} gets no policy"
        yield _CERTIFICATE.wrong(seen, fix=fix)
        return
    needs_authority = [port for port in by_certificate if "remote_cert" not in port.options]
    yield _own(host, host.certificate, by_authority=bool(needs_authority))
    yield _key(host, host.certificate, host.private_key)
    if needs_authority:
        yield _authority(host, needs_authority)
    yield from _check_remotes(host, by_certificate)


def _remote(port: PortState) -> str | None:
    return port.options.get("remote_cert") or port.options.get("remote_name")


def _names(ports: list[PortState]) -> str:
    return ", ".join(port.name for port in ports)


def _check_shared_keys(host: _Host, ports: list[PortState]) -> Iterator[CheckResult]:
    """Check that ports with a pre-shared key are not refused (_is_valid_tunnel_conf() of ovs-monitor-ipsec.in)."""
    if host.certificate or host.private_key or host.authority:
        for port in ports:
            if "psk" in port.options:
                seen = "ovs-monitor-ipsec takes no pre-shared key while other_config has a certificate"
                yield _CERTIFICATE.wrong(seen, port.name)


def _read(host: _Host, path: str) -> Fact[Certificate]:
    """Return a certificate; Unknown with its problem if it is not valid by itself."""
    found = host.files.certificates.get(path, Unknown("not read"))
    if isinstance(found, Unknown):
        return found
    left_s = found.ends - host.files.read_at
    if host.files.read_at < found.begins:
        return Unknown(f"not valid before {_date(found.begins)}: is the clock of this host right?")
    if left_s < 0:
        return Unknown(f"ended on {_date(found.ends)}")
    if left_s < CERTIFICATE_WARNING_S:
        return Unknown(f"ends in {int(left_s / _DAY_S)} days, on {_date(found.ends)}")
    return found


def _read_named(host: _Host, path: str) -> Fact[Certificate]:
    """Return a certificate with a common name; Unknown with its problem otherwise."""
    found = _read(host, path)
    if isinstance(found, Unknown) or found.name is not None:
        return found
    return Unknown(
        f"ovs-monitor-ipsec finds no common name in {found.subject}: the subject needs another attribute before it, "
        "such as /O=example/CN=dpu1"
    )


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).date().isoformat()


def _judged(path: str, found: Fact[Certificate]) -> CheckResult:
    if isinstance(found, Unknown):
        return _CERTIFICATE.wrong(found.reason, path)
    return _CERTIFICATE.ok(f"{found.name or found.subject}, until {_date(found.ends)}", path)


def _own(host: _Host, path: str, *, by_authority: bool) -> CheckResult:
    found = _read_named(host, path)
    if by_authority and not isinstance(found, Unknown):
        if host.files.is_signed is False:
            found = Unknown(f"{host.authority} did not sign it")
        elif found.name not in found.names:
            # strongSwan identifies itself by its whole subject then ("not confirmed by certificate"); Libreswan refuses
            # it ("contains no subjectAltName extension to match ID_FQDN").
            found = Unknown(f"has no subjectAltName DNS:{found.name}, so the other end does not accept that name")
    return _judged(path, found)


def _key(host: _Host, certificate: str, path: str) -> CheckResult:
    key, found = host.files.private_key, host.files.certificates.get(certificate)
    if key is None or isinstance(key, Unknown):
        return _CERTIFICATE.wrong("not read" if key is None else key.reason, path)
    if isinstance(found, Certificate) and found.public_key != key.public_key:
        return _CERTIFICATE.wrong(f"is not the key of {certificate}", path)
    if host.is_strongswan and not key.is_rsa:
        # config_tunnel() of StrongSwanHelper in ovs-monitor-ipsec writes `: RSA FILE`.
        return _CERTIFICATE.wrong("is no RSA key, and ovs-monitor-ipsec gives strongSwan no other kind", path)
    if key.is_readable_by_all:
        fix = Fix((("chmod", "600", path),), is_safe=True)
        return _CERTIFICATE.wrong("other users of this host can read it", path, fix)
    return _CERTIFICATE.ok(f"the key of {certificate}", path)


def _authority(host: _Host, ports: list[PortState]) -> CheckResult:
    path = host.authority
    if not path:
        seen = f"other_config has no ca_cert, so {_names(ports)} gets no policy"
        return _CERTIFICATE.wrong(seen, fix=Fix((set_config("ca_cert", "/etc/keys/cacert.pem"),)))
    found = _read(host, path)
    is_untrusted = isinstance(found, Certificate) and found.public_key not in host.files.authorities
    if host.is_strongswan and is_untrusted:
        # The section `ca` that ovs-monitor-ipsec writes has no `auto=add`, and the default is `ignore`
        # (ipsec.conf(5)).
        copy = ("install", "-m", "644", path, f"{AUTHORITIES}/ovs-cacert.pem")
        fix = Fix((copy, ("ipsec", "rereadcacerts")))
        seen = f"is not in {AUTHORITIES}, and strongSwan ignores the entry of ovs-monitor-ipsec"
        return _CERTIFICATE.wrong(seen, path, fix)
    return _judged(path, found)


def _check_remotes(host: _Host, ports: list[PortState]) -> Iterator[CheckResult]:
    own = host.files.certificates.get(host.certificate or "")
    own_name = own.name if isinstance(own, Certificate) else None
    for path in dict.fromkeys(port.options["remote_cert"] for port in ports if "remote_cert" in port.options):
        yield _judged(path, _read_named(host, path))
    for port in ports:
        if "remote_cert" not in port.options and own_name is not None and port.options.get("remote_name") == own_name:
            seen = f"remote_name {own_name} is the name of this host: write that of the remote's certificate"
            yield _CERTIFICATE.wrong(seen, port.name)
