"""Options of an interface, read and written by the protocol of OVSDB itself (RFC 7047, 4.1.3, 5.2).

ovs-vsctl(8) takes values as arguments, which every user of the host can read (proc(5), cmdline). A pre-shared key must
not be there, nor in a log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xenoovs.errors import InterfaceMissing, SwitchUnreachable
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ovsdb import exchange

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
    return exchange(endpoint, json.dumps(request).encode(), lambda message, _reply: _result(message, endpoint.db))


def _result(message: Mapping[str, Any], db: str) -> dict[str, Any] | None:
    if message.get("id") != _REQUEST_ID or "result" not in message:
        return None
    results = message.get("result") or []
    errors = [each["error"] for each in results if isinstance(each, dict) and "error" in each]
    if message.get("error") is not None or errors or not results:
        # `details` may quote the value.
        reason = f"ovsdb-server refuses the change: {errors[0] if errors else 'no result'}"
        raise SwitchUnreachable(target=db, reason=reason)
    found: dict[str, Any] = results[0]
    return found
