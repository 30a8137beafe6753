"""XenoFlow's `backends.json`, and the answer of its `GET /api`."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import Draft, DraftBackend, DraftService, Omission, name_from
from xenoovs.model.address import parse_mac

_MOST = 4096


class _NamedMac(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    name: Annotated[str, Field(max_length=1024)]
    mac_address: Annotated[str, Field(max_length=64)]


class _BackendsFile(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    backends: Annotated[list[_NamedMac], Field(max_length=_MOST)]


def read_xenoflow(text: str) -> Draft:
    """Return the draft of `{"backends": [{"name": ..., "mac_address": ...}, ...]}`.

    The file names neither addresses nor ports: the service takes every IPv4 packet, as XenoFlow does. Its backends have
    equal shares, also where XenoFlow's number of entries, a power of two, would leave some without a backend.

    Raises:
        ParseError: The text is not such a document.
    """
    try:
        document = _BackendsFile.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise ParseError(text=text, offset=error.pos, expected="JSON as in XenoFlow's backends.json") from None
    except (ValidationError, RecursionError) as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else "the document"
        expected = (
            f'{{"backends": [{{"name": ..., "mac_address": ...}}]}}; {where or "the document"} is not of that form'
        )
        raise ParseError(text=text[:_MOST], offset=0, expected=expected) from None
    service = DraftService("xenoflow")
    for number, backend in enumerate(document.backends):
        try:
            mac = parse_mac(backend.mac_address)
        except ValueError as error:
            quoted = f"{backend.name} {backend.mac_address}"
            service.omissions.append(Omission(_line_of(text, number), quoted, f"{error}; the backend is left out"))
            continue
        others = (other.name for other in service.backends)
        service.backends.append(DraftBackend(name_from(backend.name, others), Fraction(1), mac))
    return Draft([service], is_dsr=True)


def _line_of(text: str, number: int) -> int:
    """Return the line of the `mac_address` with this number."""
    offset = -1
    for _ in range(number + 1):
        offset = text.find('"mac_address"', offset + 1)
    return text.count("\n", 0, max(offset, 0)) + 1
