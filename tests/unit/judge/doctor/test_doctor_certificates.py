"""Doctor's rows of certificates: each mistake that otherwise only a log shows has its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

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


def test_ends_that_an_authority_signed() -> None:
    found = _rows(BY_NAME)
    assert {subject: (row.state, row.seen) for subject, row in found.items()} == {
        "/k/dpu1.pem": (CheckState.OK, "dpu1, until 2028-02-19"),
        "/k/dpu1.key": (CheckState.OK, "the key of /k/dpu1.pem"),
        "/k/ca.pem": (CheckState.OK, "CA, until 2028-02-19"),
    }


def test_ends_with_certificates_that_they_signed_themselves() -> None:
    files = replace(_with("/k/dpu2.pem", REMOTE), is_signed=None)
    found = _rows(BY_CERTIFICATE, config={**CONFIG, "ca_cert": ""}, files=files)
    assert {row.state for row in found.values()} == {CheckState.OK}
    assert set(found) == {"/k/dpu1.pem", "/k/dpu1.key", "/k/dpu2.pem"}


@pytest.mark.parametrize("options", [{}, {"psk": "x"}])
def test_a_port_without_certificates_has_no_row(options: Mapping[str, str]) -> None:
    assert _rows(options, config={}) == {}


def test_a_pre_shared_key_is_refused_beside_a_certificate() -> None:
    row = _rows({"psk": "x"})["gnv0-c000020c"]
    assert row.seen == "ovs-monitor-ipsec takes no pre-shared key while other_config has a certificate"


def test_without_a_certificate_of_our_own() -> None:
    row = _rows(BY_NAME, config={})[None]
    assert (row.state, row.seen) == (
        CheckState.WRONG,
        "other_config has no certificate and private_key, so gnv0-c000020c gets no policy",
    )
    assert row.fix is not None
    assert not row.has_safe_fix


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        (Unknown("/k/dpu1.pem does not exist"), "/k/dpu1.pem does not exist"),
        (replace(OWN, ends=NOW - DAY), "ended on 2027-01-14"),
        (replace(OWN, ends=NOW + 3.5 * DAY), "ends in 3 days, on 2027-01-18"),
        (replace(OWN, begins=NOW + DAY), "not valid before 2027-01-16: is the clock of this host right?"),
        (replace(OWN, subject="CN=dpu1"), "ovs-monitor-ipsec finds no common name in CN=dpu1: the subject needs"),
        (replace(OWN, names=()), "has no subjectAltName DNS:dpu1, so the other end does not accept that name"),
    ],
)
def test_our_certificate(found: Fact[Certificate], seen: str) -> None:
    row = _rows(BY_NAME, files=_with("/k/dpu1.pem", found))["/k/dpu1.pem"]
    assert row.state is CheckState.WRONG
    assert row.seen.startswith(seen)


def test_another_authority_signed_it() -> None:
    row = _rows(BY_NAME, files=replace(FILES, is_signed=False))["/k/dpu1.pem"]
    assert (row.state, row.seen) == (CheckState.WRONG, "/k/ca.pem did not sign it")


@pytest.mark.parametrize(
    ("key", "seen"),
    [
        (Unknown("/k/dpu1.key does not exist"), "/k/dpu1.key does not exist"),
        (PrivateKey(b"other"), "is not the key of /k/dpu1.pem"),
        (PrivateKey(OWN.public_key, is_readable_by_all=True), "other users of this host can read it"),
    ],
)
def test_our_private_key(key: Fact[PrivateKey], seen: str) -> None:
    row = _rows(BY_NAME, files=replace(FILES, private_key=key))["/k/dpu1.key"]
    assert (row.state, row.seen) == (CheckState.WRONG, seen)
    assert row.has_safe_fix is (isinstance(key, PrivateKey) and key.is_readable_by_all)


def test_strongswan_gets_rsa_keys_alone() -> None:
    files = replace(_with("/k/dpu1.pem", replace(OWN, public_key=b"ec")), private_key=PrivateKey(b"ec"))
    row = _rows(BY_NAME, files=files)["/k/dpu1.key"]
    assert row.seen == "is no RSA key, and ovs-monitor-ipsec gives strongSwan no other ones"
    assert _rows(BY_NAME, files=files, programs=frozenset({"pluto"}))["/k/dpu1.key"].state is CheckState.OK


def test_strongswan_takes_authorities_from_its_own_directory() -> None:
    files = replace(FILES, authorities=frozenset())
    row = _rows(BY_NAME, files=files)["/k/ca.pem"]
    assert row.seen.startswith("is not in /etc/ipsec.d/cacerts, and strongSwan ignores")
    assert row.fix is not None
    assert row.fix.commands == (
        ("install", "-m", "644", "/k/ca.pem", "/etc/ipsec.d/cacerts/ovs-cacert.pem"),
        ("ipsec", "rereadcacerts"),
    )
    assert not row.has_safe_fix
    assert _rows(BY_NAME, files=files, programs=frozenset({"pluto"}))["/k/ca.pem"].state is CheckState.OK


def test_names_need_an_authority() -> None:
    row = _rows(BY_NAME, config={key: CONFIG[key] for key in ("certificate", "private_key")})[None]
    assert row.seen == "other_config has no ca_cert, so gnv0-c000020c gets no policy"


def test_a_remote_with_the_name_of_this_host() -> None:
    row = _rows({"remote_name": "dpu1"})["gnv0-c000020c"]
    assert row.seen == "remote_name dpu1 is the name of this host: write that of the remote's certificate"


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
