"""Checks of the certificates by which the ends of a tunnel with IPsec authenticate each other.

The monitor and the IKE daemon report most mistakes in their logs only, and the tunnel has no SA.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from xenoovs.datapath.certificate import AUTHORITIES, CERTIFICATE_WARNING_S, Certificate, CertificateFiles
from xenoovs.datapath.database import PortState
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.tunnel_facts import TunnelFacts
from xenoovs.judge.doctor.check import CheckResult, DoctorCase, Fix, HostCheck, set_config

_CERTIFICATE = HostCheck("IPsec certificate", "without SAs no packet of the tunnel passes")
_DAY_S = 86400.0


def _is_strongswan(facts: TunnelFacts) -> bool:
    """Return False for Libreswan. True also if it is unknown, as Debian's monitor tries strongSwan first."""
    return "pluto" not in facts.programs


def check_certificates(case: DoctorCase) -> Iterator[CheckResult]:
    """Check what ports with remote_cert or remote_name need; a host without such ports has no row."""
    facts = case.host.tunnels
    if facts is None:
        return
    certificate, key, authority = map(case.database.config.get, ("certificate", "private_key", "ca_cert"))
    states = (case.interface(name) for name in dict.fromkeys(end.port for end in facts.ends if end.is_encrypted))
    ports = [state for state in states if state is not None]
    by_certificate = [port for port in ports if "psk" not in port.options and _remote(port)]
    if certificate or key or authority:
        yield from _check_shared_keys(ports)
    if not by_certificate:
        return
    if not certificate or not key:
        named_files = ("certificate=/etc/keys/HOST-cert.pem", "private_key=/etc/keys/HOST-privkey.pem")
        fix = Fix(tuple(set_config(*each.split("=")) for each in named_files))
        seen = f"other_config has no certificate and private_key, so {_names(by_certificate)} gets no policy"
        yield _CERTIFICATE.wrong(seen, fix=fix)
        return
    needs_authority = [port for port in by_certificate if "remote_cert" not in port.options]
    yield _own(facts.files, certificate, authority, by_authority=bool(needs_authority))
    yield _key(facts, certificate, key)
    if needs_authority:
        yield _authority(facts, authority, needs_authority)
    yield from _check_remotes(facts.files, certificate, by_certificate)


def _remote(port: PortState) -> str | None:
    return port.options.get("remote_cert") or port.options.get("remote_name")


def _names(ports: list[PortState]) -> str:
    return ", ".join(port.name for port in ports)


def _check_shared_keys(ports: list[PortState]) -> Iterator[CheckResult]:
    """Report ports with a pre-shared key, which are refused (_is_valid_tunnel_conf() of ovs-monitor-ipsec.in)."""
    for port in ports:
        if "psk" in port.options:
            seen = "ovs-monitor-ipsec takes no pre-shared key while other_config has a certificate"
            yield _CERTIFICATE.wrong(seen, port.name)


def _read(files: CertificateFiles, path: str) -> Fact[Certificate]:
    """Return a certificate; Unknown with its problem if it is not valid by itself."""
    found = files.certificates.get(path, Unknown("not read"))
    if isinstance(found, Unknown):
        return found
    left_s = found.ends - files.read_at
    if files.read_at < found.begins:
        return Unknown(f"not valid before {_date(found.begins)}: is the clock of this host right?")
    if left_s < 0:
        return Unknown(f"ended on {_date(found.ends)}")
    if left_s < CERTIFICATE_WARNING_S:
        return Unknown(f"ends in {int(left_s / _DAY_S)} days, on {_date(found.ends)}")
    return found


def _read_named(files: CertificateFiles, path: str) -> Fact[Certificate]:
    """Return a certificate with a common name; Unknown with its problem otherwise."""
    found = _read(files, path)
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


def _own(files: CertificateFiles, path: str, authority: str | None, *, by_authority: bool) -> CheckResult:
    found = _read_named(files, path)
    if by_authority and not isinstance(found, Unknown):
        if files.is_signed is False:
            found = Unknown(f"{authority} did not sign it")
        elif found.name not in found.names:
            # strongSwan identifies itself by its whole subject then ("not confirmed by certificate"); Libreswan refuses
            # it ("contains no subjectAltName extension to match ID_FQDN").
            found = Unknown(f"has no subjectAltName DNS:{found.name}, so the other end does not accept that name")
    return _judged(path, found)


def _key(facts: TunnelFacts, certificate: str, path: str) -> CheckResult:
    key, found = facts.files.private_key, facts.files.certificates.get(certificate)
    if key is None or isinstance(key, Unknown):
        return _CERTIFICATE.wrong("not read" if key is None else key.reason, path)
    if isinstance(found, Certificate) and found.public_key != key.public_key:
        return _CERTIFICATE.wrong(f"is not the key of {certificate}", path)
    if _is_strongswan(facts) and not key.is_rsa:
        # config_tunnel() of StrongSwanHelper in ovs-monitor-ipsec writes `: RSA FILE`.
        return _CERTIFICATE.wrong("is no RSA key, and ovs-monitor-ipsec gives strongSwan no other kind", path)
    if key.is_readable_by_all:
        fix = Fix((("chmod", "600", path),), is_safe=True)
        return _CERTIFICATE.wrong("other users of this host can read it", path, fix)
    return _CERTIFICATE.ok(f"the key of {certificate}", path)


def _authority(facts: TunnelFacts, path: str | None, ports: list[PortState]) -> CheckResult:
    if not path:
        seen = f"other_config has no ca_cert, so {_names(ports)} gets no policy"
        return _CERTIFICATE.wrong(seen, fix=Fix((set_config("ca_cert", "/etc/keys/cacert.pem"),)))
    found = _read(facts.files, path)
    is_untrusted = isinstance(found, Certificate) and found.public_key not in facts.files.authorities
    if _is_strongswan(facts) and is_untrusted:
        # The section `ca` that ovs-monitor-ipsec writes has no `auto=add`, and the default is `ignore`
        # (ipsec.conf(5)).
        copy = ("install", "-m", "644", path, f"{AUTHORITIES}/ovs-cacert.pem")
        fix = Fix((copy, ("ipsec", "rereadcacerts")))
        seen = f"is not in {AUTHORITIES}, and strongSwan ignores the entry of ovs-monitor-ipsec"
        return _CERTIFICATE.wrong(seen, path, fix)
    return _judged(path, found)


def _check_remotes(files: CertificateFiles, certificate: str, ports: list[PortState]) -> Iterator[CheckResult]:
    own = files.certificates.get(certificate)
    own_name = own.name if isinstance(own, Certificate) else None
    for path in dict.fromkeys(port.options["remote_cert"] for port in ports if "remote_cert" in port.options):
        yield _judged(path, _read_named(files, path))
    for port in ports:
        if "remote_cert" not in port.options and own_name is not None and port.options.get("remote_name") == own_name:
            seen = f"remote_name {own_name} is the name of this host: write that of the remote's certificate"
            yield _CERTIFICATE.wrong(seen, port.name)
