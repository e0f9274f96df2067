"""Answers to FETCH: workers and parameter servers hand out the final results they keep (docs/design.md §3.5)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import MessageType, round_near
from ...wire.frames import Datagrams
from .counters import Counters
from .messages import Messages, MessageWriter
from .rounds import RoundStore

_FETCH: Final = int(MessageType.FETCH)  # a plain integer: NumPy compares it faster


def answer_fetches(
    messages: Messages,
    store: RoundStore,
    writer: MessageWriter,
    reference: int,
    members: NDArray[np.uint32],
    counters: Counters,
) -> tuple[Messages, list[Datagrams]]:
    """Answer the FETCH among received messages, for the rounds that are kept.

    Args:
        messages: Received messages of one size.
        store: Results of the last rounds.
        writer: Writer of the answers.
        reference: A round near those asked for, by which chunk numbers become rounds.
        members: Addresses that are answered, uint32; messages of others are counted as foreign.
        counters: Counters of this host, which are updated.

    Returns:
        The messages that are no FETCH, and the answers: FETCHED for rounds with lanes, SCALE_FETCHED for others.
    """
    if messages.lanes is not None or not np.count_nonzero(asking := messages.kinds == _FETCH):
        return messages, []
    asked = messages.only(asking)
    known = np.isin(asked.addresses, members)
    counters.foreign += len(known) - int(np.count_nonzero(known))
    asked = asked.only(known)
    rounds = round_near(asked.chunks, reference)
    kept = store.has_results(rounds)
    counters.unknown_round += len(rounds) - int(np.count_nonzero(kept))
    places, askers = rounds[kept] & store.mask, asked.addresses[kept]
    with_lanes = store.has_lanes[places]
    answers = []
    for kind, rows in ((MessageType.FETCHED, with_lanes), (MessageType.SCALE_FETCHED, ~with_lanes)):
        if rows.any():
            answers.append(Datagrams(askers[rows], store.write(writer, kind, places[rows], 0)))
    counters.answered += len(places)
    counters.sent += len(places)
    return messages.only(~asking), answers
