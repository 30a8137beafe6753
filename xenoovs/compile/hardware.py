"""How many entries of the NIC's table a service takes once all its blocks have seen traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from xenoovs.compile.pipeline import Stage
from xenoovs.compile.program import ServiceProgram
from xenoovs.openflow.cookie import decode_cookie
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow


def hardware_entries(service: ServiceProgram) -> int:
    """Megaflows of a service: its flows in `classify` times its blocks.

    Every ingress port, VIP and port mask is matched exactly, so each multiplies the blocks. Counted for one client-side
    MAC (`rewrite_source_mac` needs as many again for each further one) and, where neighbour discovery has to be told
    from a service that takes any IPv6 protocol, for one IP protocol.
    """
    return len(service.classify) * len(service.decision.active.rows)


def installed_entries(ways: Counter[int | None], blocks: Iterable[Flow]) -> int:
    """The same of what is installed. `ways`: of `ways_by_service`; `blocks`: the flows that split its clients."""
    by_type = Counter(_dl_type(flow) for flow in blocks)
    return sum(count * by_type[dl_type] for dl_type, count in ways.items())


def ways_by_service(flows: Iterable[Flow]) -> dict[int, Counter[int | None]]:
    """How many flows of `classify` lead to each service, by its id, for each dl_type."""
    found: dict[int, Counter[int | None]] = {}
    for flow in flows:
        cookie = decode_cookie(flow.cookie)
        if cookie is not None and cookie.service and cookie.stage == Stage.CLASSIFY.value:
            found.setdefault(cookie.service, Counter())[_dl_type(flow)] += 1
    return found


def _dl_type(flow: Flow) -> int | None:
    condition = flow.match.get(Field.DL_TYPE)
    return None if condition is None else condition.value
