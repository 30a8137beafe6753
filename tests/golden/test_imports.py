"""Configs of other load balancers beside the configs that they become (tests/golden/imports)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.test_flows import compare
from xenoovs.cli.import_ import Source
from xenoovs.config.load import parse_config
from xenoovs.migrate.draft import DraftSwitch, render

FOLDER = Path(__file__).parent / "imports"
CASES = {
    "keepalived.conf": Source.KEEPALIVED,
    "haproxy.cfg": Source.HAPROXY,
    "xenoflow.json": Source.XENOFLOW,
    "ovn.txt": Source.OVN,
    "thesis.flows": Source.FLOWS,
    "weighted.flows": Source.FLOWS,
    "blog.txt": Source.FLOWS,
}


@pytest.mark.parametrize("name", CASES)
def test_an_imported_config_is_as_recorded_and_valid(name: str, *, update_golden: bool) -> None:
    draft = CASES[name].reader()((FOLDER / name).read_text())
    text = render(draft, source=name, switch=DraftSwitch())
    compare(FOLDER / f"{name}.yaml", text, update=update_golden)
    assert len(parse_config(text, file=name).services) == len(draft.services)
