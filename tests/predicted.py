"""The megaflows that the simulation predicts for a set of packets."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.judge.simulate.classifier import PREFIX_FIELDS
from xenoovs.judge.simulate.headers import Headers
from xenoovs.judge.simulate.megaflows import PredictedMegaflow, pipeline_of
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field, Flow


def predict_megaflows(
    flows: Iterable[Flow],
    packets: Iterable[Packet | Headers],
    prefix_fields: Iterable[Field] = PREFIX_FIELDS,
) -> tuple[PredictedMegaflow, ...]:
    """Return the megaflows for a set of packets, sorted.

    Args:
        flows: flows of all tables, in the order in which the switch got them.
        prefix_fields: Fields with a prefix trie.

    Raises:
        SimulateError: for a condition or an action that the simulation does not support.
    """
    pipeline = pipeline_of(flows, prefix_fields)
    return tuple(sorted({pipeline.predict(packet)[0] for packet in packets}, key=_sort_key))


def _sort_key(megaflow: PredictedMegaflow) -> tuple[object, ...]:
    match = tuple((masked.field.rank, masked.mask, masked.value) for masked in megaflow.match)
    return megaflow.in_port, len(match), match, megaflow.actions
