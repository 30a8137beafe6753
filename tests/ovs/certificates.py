"""Certificates for both sides of TLS, made on the spot."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import trustme

from xenoovs.lab.private_ovs import PrivateOvs
from xenoovs.switch.certificates import Certificates


def certificates(
    authority: trustme.CA, directory: Path, name: str, *, not_after: datetime | None = None
) -> Certificates:
    """Key, certificate and authority of one side, as files."""
    key, certificate, root = (directory / f"{name}-{part}.pem" for part in ("key", "cert", "ca"))
    issued = authority.issue_cert(name, common_name=name, not_after=not_after)
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(certificate)
    authority.cert_pem.write_to_path(root)
    return Certificates(key, certificate, root)


def give_to_switch(ovs: PrivateOvs, own: Certificates) -> None:
    """Let an Open vSwitch show these to its controllers."""
    ovs.vsctl("set-ssl", str(own.key), str(own.certificate), str(own.authority))
