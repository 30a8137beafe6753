"""The IPsec keys of a config's tunnels, which Open vSwitch gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.tunnel import IPSEC_OPTIONS
from xenoovs.errors import FileUnusable, InterfaceMissing, SwitchError
from xenoovs.judge.doctor.check import RequiredKey
from xenoovs.model.balancer import Balancer
from xenoovs.model.tunnel import Ipsec
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ovsdb import has_options, write_options


def key_options(ipsec: Ipsec) -> dict[str, str]:
    """Return the options for IPsec of a tunnel's interface. Raises FileUnusable."""
    if ipsec.psk_file is not None:
        return {"psk": _read_key(Path(ipsec.psk_file))}
    found = {"remote_cert": ipsec.remote_cert, "remote_name": ipsec.remote_name}
    return {name: value for name, value in found.items() if value is not None}


def _read_key(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise FileUnusable(file=str(path), reason=f"the pre-shared key cannot be read: {reason}") from None
    if not text or "\n" in text:
        raise FileUnusable(file=str(path), reason="a pre-shared key is one line")
    return text


def required_keys(balancer: Balancer, endpoint: Endpoint) -> Iterator[RequiredKey]:
    """Yield the key that each tunnel port with IPsec needs, and whether Open vSwitch has it."""
    for port, ipsec in _ports_with_ipsec(balancer):
        has_key: Fact[bool]
        try:
            has_key = has_options(endpoint, port, key_options(ipsec))
        except InterfaceMissing:
            has_key = False
        except (FileUnusable, SwitchError) as error:
            has_key = Unknown(str(error))
        yield RequiredKey(port, ipsec.psk_file, has_key, is_readable_by_all=_is_readable_by_all(ipsec.psk_file))


def write_keys(balancer: Balancer, endpoint: Endpoint) -> None:
    """Write the keys that Open vSwitch lacks. Raises FileUnusable, SwitchError."""
    for port, ipsec in _ports_with_ipsec(balancer):
        options = key_options(ipsec)
        if not has_options(endpoint, port, options):
            write_options(endpoint, port, options, without=IPSEC_OPTIONS)


def _ports_with_ipsec(balancer: Balancer) -> tuple[tuple[str, Ipsec], ...]:
    found = {end.port: end.tunnel.ipsec for end in balancer.remote_ends if end.tunnel.ipsec is not None}
    return tuple(found.items())


def _is_readable_by_all(path: str | None) -> bool:
    try:
        return path is not None and bool(Path(path).stat().st_mode & 0o077)
    except OSError:
        return False
