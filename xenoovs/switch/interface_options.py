"""Options of an interface, read and written by the protocol of OVSDB itself (RFC 7047, 4.1.3, 5.2).

ovs-vsctl(8) takes values as arguments, which every user of the host can read (proc(5), cmdline). A pre-shared key must
not be there, nor in a log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from xenoovs.errors import InterfaceMissing, SwitchUnreachable
from xenoovs.switch.endpoint import Endpoint, address_of, connected_to
from xenoovs.switch.ovsdb import DEFAULT_TIMEOUT_S, Messages
from xenoovs.switch.stderr import unreachable

_READ_BYTES = 1 << 16
_REQUEST_ID = 1


def has_options(endpoint: Endpoint, interface: str, options: Mapping[str, str]) -> bool:
    """Return whether an interface has these options with these values. Raises SwitchUnreachable, InterfaceMissing."""
    return options.items() <= _options_of(endpoint, interface).items()


def write_options(endpoint: Endpoint, interface: str, options: Mapping[str, str], *, without: tuple[str, ...]) -> None:
    """Set options of an interface and remove those `without`, in one transaction; it is not waited for ovs-vswitchd.
    `options` stay also if `without` names them. Raises SwitchUnreachable, InterfaceMissing: nothing was changed."""
    _options_of(endpoint, interface)
    removed = ["set", [*{*without, *options}]]
    mutations = [
        ["options", "delete", removed],
        ["options", "insert", ["map", [list(pair) for pair in options.items()]]],
    ]
    where = [["name", "==", interface]]
    _transact(endpoint, {"op": "mutate", "table": "Interface", "where": where, "mutations": mutations})


def _options_of(endpoint: Endpoint, interface: str) -> dict[str, str]:
    where = [["name", "==", interface]]
    found = _transact(endpoint, {"op": "select", "table": "Interface", "where": where, "columns": ["options"]})
    rows = found.get("rows") or []
    if not rows:
        raise InterfaceMissing(interface=interface)
    return dict(rows[0]["options"][1])


def _transact(endpoint: Endpoint, operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of one operation. Raises SwitchUnreachable; its text never has what was sent."""
    request = {"method": "transact", "id": _REQUEST_ID, "params": ["Open_vSwitch", operation]}
    deadline, problem = time.monotonic() + DEFAULT_TIMEOUT_S, ""
    for target in endpoint.db.split(","):
        try:
            with connected_to(address_of(target), max(0.001, deadline - time.monotonic())) as connection:
                connection.sendall(json.dumps(request).encode())
                messages = Messages(endpoint.db)
                while True:
                    connection.settimeout(max(0.001, deadline - time.monotonic()))
                    for message in messages.feed(connection.recv(_READ_BYTES)):
                        if message.get("id") == _REQUEST_ID and "result" in message:
                            return _result(message, endpoint.db)
        except TimeoutError:
            reason = "ovsdb-server does not answer in time; is it busy or hung?"
            raise SwitchUnreachable(target=endpoint.db, reason=reason) from None
        except OSError as error:
            problem = problem or error.strerror or str(error)
    raise unreachable(endpoint.db, problem)


def _result(message: Mapping[str, Any], db: str) -> dict[str, Any]:
    results = message.get("result") or []
    errors = [each["error"] for each in results if isinstance(each, dict) and "error" in each]
    if message.get("error") is not None or errors or not results:
        # `details` may quote the value.
        reason = f"ovsdb-server refuses the change: {errors[0] if errors else 'no result'}"
        raise SwitchUnreachable(target=db, reason=reason)
    found: dict[str, Any] = results[0]
    return found
