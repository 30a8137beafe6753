"""Doctor's rows of certificates: each mistake that otherwise only a log shows has its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.judged import assert_shown
from tests.unit.judge.doctor.facts import as_text
from xenoovs.datapath.certificate import Certificate, CertificateFiles, PrivateKey, parse_certificate
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import HostFacts
from xenoovs.datapath.tunnel_facts import TunnelFacts, tunnel_ends
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.certificates import check_certificates
from xenoovs.judge.doctor.check import CheckResult, CheckState, DoctorCase

NOW, DAY = 1_800_000_000.0, 86400.0
RSA = bytes.fromhex("300d06092a864886f70d0101010500")
OWN = Certificate("CN=dpu1,OU=Open vSwitch certifier,C=US", ("dpu1",), NOW - DAY, NOW + 400 * DAY, RSA + b"own")
AUTHORITY = Certificate("CN=CA,O=Open vSwitch", (), NOW - DAY, NOW + 400 * DAY, RSA + b"authority")
REMOTE = Certificate("CN=dpu2,O=Open vSwitch", (), NOW - DAY, NOW + 400 * DAY, RSA + b"remote")
CONFIG = {"certificate": "/k/dpu1.pem", "private_key": "/k/dpu1.key", "ca_cert": "/k/ca.pem"}
FILES = CertificateFiles(
    NOW,
    {"/k/dpu1.pem": OWN, "/k/ca.pem": AUTHORITY},
    PrivateKey(OWN.public_key),
    True,
    frozenset({AUTHORITY.public_key}),
)


def _rows(
    options: Mapping[str, str],
    *,
    config: Mapping[str, str] = CONFIG,
    files: CertificateFiles = FILES,
    programs: frozenset[str] = frozenset({"charon"}),
) -> dict[str | None, CheckResult]:
    port = PortState("gnv0-c000020c", ofport=3, type="geneve", options={"remote_ip": "192.0.2.12", **options})
    bridge = BridgeState("ovsbr1", (port,))
    facts = TunnelFacts(tuple(tunnel_ends(bridge, {})), files=files, programs=programs)
    host = HostFacts(
        is_local=True,
        database=Database(config=config, bridges=(bridge,)),
        daemon=Unknown("none"),
        devices={},
        tunnels=facts,
    )
    return {row.subject: row for row in check_certificates(DoctorCase(Evidence(host)))}


BY_NAME, BY_CERTIFICATE = {"remote_name": "dpu2"}, {"remote_cert": "/k/dpu2.pem"}


def _with(path: str, found: Fact[Certificate]) -> CertificateFiles:
    return replace(FILES, certificates={**FILES.certificates, path: found})


CERTIFICATE, KEY, CA, PORT = "/k/dpu1.pem", "/k/dpu1.key", "/k/ca.pem", "gnv0-c000020c"


def _own(found: Fact[Certificate]) -> dict[str, Any]:
    return {"files": _with(CERTIFICATE, found)}


def _key(found: Fact[PrivateKey]) -> dict[str, Any]:
    return {"files": replace(FILES, private_key=found)}


PLUTO = frozenset({"pluto"})
EC = replace(_with(CERTIFICATE, replace(OWN, public_key=b"ec")), private_key=PrivateKey(b"ec"))
UNKNOWN_AUTHORITY = replace(FILES, authorities=frozenset())
WITHOUT_CA = {key: CONFIG[key] for key in ("certificate", "private_key")}
ROWS: list[tuple[Mapping[str, str], Mapping[str, Any], str | None, str]] = [
    (BY_NAME, {}, CERTIFICATE, "ok: dpu1, until 2028-02-19"),
    (BY_NAME, {}, KEY, "ok: the key of /k/dpu1.pem"),
    (BY_NAME, {}, CA, "ok: CA, until 2028-02-19"),
    (
        {"psk": "x"},
        {},
        PORT,
        "wrong: ovs-monitor-ipsec takes no pre-shared key while other_config has a certificate",
    ),
    (
        BY_NAME,
        {"config": {}},
        None,
        "wrong: other_config has no certificate and private_key, so gnv0-c000020c gets no policy -> ...",
    ),
    (
        BY_NAME,
        {"config": WITHOUT_CA},
        None,
        "wrong: other_config has no ca_cert, so gnv0-c000020c gets no policy -> ...",
    ),
    (
        {"remote_name": "dpu1"},
        {},
        PORT,
        "wrong: remote_name dpu1 is the name of this host: write that of the remote's certificate",
    ),
    (BY_NAME, _own(Unknown("/k/dpu1.pem does not exist")), CERTIFICATE, "wrong: /k/dpu1.pem does not exist"),
    (BY_NAME, _own(replace(OWN, ends=NOW - DAY)), CERTIFICATE, "wrong: ended on 2027-01-14"),
    (BY_NAME, _own(replace(OWN, ends=NOW + 3.5 * DAY)), CERTIFICATE, "wrong: ends in 3 days, on 2027-01-18"),
    (
        BY_NAME,
        _own(replace(OWN, begins=NOW + DAY)),
        CERTIFICATE,
        "wrong: not valid before 2027-01-16: is the clock of this host right?",
    ),
    (
        BY_NAME,
        _own(replace(OWN, subject="CN=dpu1")),
        CERTIFICATE,
        "wrong: ovs-monitor-ipsec finds no common name in CN=dpu1: the subject needs...",
    ),
    (
        BY_NAME,
        _own(replace(OWN, names=())),
        CERTIFICATE,
        "wrong: has no subjectAltName DNS:dpu1, so the other end does not accept that name",
    ),
    (BY_NAME, {"files": replace(FILES, is_signed=False)}, CERTIFICATE, "wrong: /k/ca.pem did not sign it"),
    (BY_NAME, _key(Unknown("/k/dpu1.key does not exist")), KEY, "wrong: /k/dpu1.key does not exist"),
    (BY_NAME, _key(PrivateKey(b"other")), KEY, "wrong: is not the key of /k/dpu1.pem"),
    (
        BY_NAME,
        _key(PrivateKey(OWN.public_key, is_readable_by_all=True)),
        KEY,
        "wrong: other users of this host can read it => ...",
    ),
    # strongSwan gets RSA keys alone, and takes authorities from its own directory.
    (BY_NAME, {"files": EC}, KEY, "wrong: is no RSA key, and ovs-monitor-ipsec gives strongSwan no other kind"),
    (BY_NAME, {"files": EC, "programs": PLUTO}, KEY, "ok: ..."),
    (
        BY_NAME,
        {"files": UNKNOWN_AUTHORITY},
        CA,
        "wrong: is not in /etc/ipsec.d/cacerts, and strongSwan ignores... -> "
        "install -m 644 /k/ca.pem /etc/ipsec.d/cacerts/ovs-cacert.pem && ipsec rereadcacerts",
    ),
    (BY_NAME, {"files": UNKNOWN_AUTHORITY, "programs": PLUTO}, CA, "ok: ..."),
]


@pytest.mark.parametrize(("options", "facts", "subject", "row"), ROWS)
def test_the_row_of_a_certificate(
    options: Mapping[str, str], facts: Mapping[str, Any], subject: str | None, row: str
) -> None:
    assert_shown(as_text(_rows(options, **facts)[subject]), row)


def test_ends_with_certificates_that_they_signed_themselves() -> None:
    files = replace(_with("/k/dpu2.pem", REMOTE), is_signed=None)
    found = _rows(BY_CERTIFICATE, config={**CONFIG, "ca_cert": ""}, files=files)
    assert {row.state for row in found.values()} == {CheckState.OK}
    assert set(found) == {CERTIFICATE, KEY, "/k/dpu2.pem"}


@pytest.mark.parametrize("options", [{}, {"psk": "x"}])
def test_a_port_without_certificates_has_no_row(options: Mapping[str, str]) -> None:
    assert _rows(options, config={}) == {}


def test_a_certificate_as_openssl_prints_it() -> None:
    text = """\
-----BEGIN PUBLIC KEY-----
MA0GCSqGSIb3DQEBAQUA
-----END PUBLIC KEY-----
subject=CN=dpu1,OU=Open vSwitch certifier,O=Open vSwitch,ST=CA,C=US
notBefore=Nov 24 06:04:42 2026 GMT
notAfter=Nov 21 06:04:42 2036 GMT
X509v3 Subject Alternative Name:\x20
    DNS:dpu1, DNS:dpu1.example
"""
    found = parse_certificate(text)
    assert (found.name, found.names, found.begins) == ("dpu1", ("dpu1", "dpu1.example"), 1795500282.0)
    assert found.ends - found.begins == 3650 * DAY
    assert PrivateKey(found.public_key).is_rsa
