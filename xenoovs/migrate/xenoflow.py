"""XenoFlow's `backends.json`, and the response to its `GET /api`."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import Draft, DraftBackend, DraftService, Word, name_from, use
from xenoovs.model.address import parse_mac
from xenoovs.regex import regex

_MOST = 4096
_KEYS = ("backends", "name", "mac_address")
_JSON = regex(r'"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+')


def _misfit(document: object) -> str:
    """Return the place in a document that has another form than a file of backends; empty if it has this form."""
    if not isinstance(document, dict):
        return "the document"
    backends = document.get("backends")
    if not isinstance(backends, list) or len(backends) > _MOST:
        return "backends"
    for number, backend in enumerate(backends):
        if not isinstance(backend, dict):
            return f"backends.{number}"
        for key, most in (("name", 1024), ("mac_address", 64)):
            if not isinstance(value := backend.get(key), str) or len(value) > most:
                return f"backends.{number}.{key}"
    return ""


def read_xenoflow(text: str) -> Draft:
    """Convert `{"backends": [{"name": ..., "mac_address": ...}, ...]}`. Raises ParseError.

    The file has neither addresses nor ports, so the service claims every IPv4 packet, as XenoFlow does. Its backends
    have equal shares, even if XenoFlow's table, whose size is a power of two, would have entries without one.
    """
    try:
        document = json.loads(text)
        where = _misfit(document)
    except json.JSONDecodeError as error:
        raise ParseError(text=text, offset=error.pos, expected="JSON as in XenoFlow's backends.json") from None
    except (RecursionError, ValueError):
        where = "the document"  # lists in lists, or a number of more digits than Python reads
    if where:
        expected = f'{{"backends": [{{"name": ..., "mac_address": ...}}]}}; {where} is not of that form'
        raise ParseError(text=text[:_MOST], offset=0, expected=expected)
    draft = Draft(is_dsr=True)
    service = DraftService("xenoflow")
    words = draft.words = _words(text)
    use(word for word in words if word in _KEYS)
    values = (value for key, value in pairwise(words) if key == "mac_address")
    names = (value for key, value in pairwise(words) if key == "name")
    for backend, name, value in zip(document["backends"], names, values, strict=False):
        try:
            mac = parse_mac(backend["mac_address"])
        except ValueError as error:
            service.omissions.add((name, value), f"{error}; the backend is left out")
            continue
        use((name, value))
        service.backends.append(DraftBackend(name_from(backend["name"], service.backends), Fraction(1), mac))
    draft.omissions += service.omissions if not service.backends else ()
    draft.services += [service] if service.backends else []
    draft.omissions.rest(words, "state of XenoFlow, and no part of its config")
    return draft.finish()


def _words(text: str) -> list[Word]:
    found = ((each[0], text.count("\n", 0, each.start()) + 1) for each in _JSON.finditer(text))
    return [Word(json.loads(word) if word.startswith('"') else word, line) for word, line in found]
