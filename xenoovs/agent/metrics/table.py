"""Every metric that there is, in the order in which they are shown. docs/reference/metrics.md is made from this."""

from __future__ import annotations

from xenoovs.agent.metrics.table_agent import ABOUT, ROUNDS
from xenoovs.agent.metrics.table_services import BACKENDS, LOOKS, SERVICES

METRICS = (*ABOUT, *ROUNDS, *SERVICES, *BACKENDS, *LOOKS)
