"""Every parameter of a ring's nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

RingMode: TypeAlias = Literal["ring", "pull", "auto"]
RING_MODES: tuple[RingMode, ...] = get_args(RingMode)
CachePolicy: TypeAlias = Literal["", "lru", "lfu", "pix", "lix"]
IntermediatePolicy: TypeAlias = Literal["", "lazy", "eager"]

MILLISECOND_US = 1_000
SECOND_US = 1_000_000
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class RingSettings:
    """How the nodes of a ring behave.

    Parameters
    ----------
    queue_bytes
        What a node's outgoing queue holds when it is full: its load is a share of this (E23), and an own chunk is
        loaded if it still fits.
    credit_bytes
        How many bytes a predecessor may have on the way or in this node's queue (E42); None for a link that never
        stops, as in the paper's simulation.
    largest_chunk
        No chunk is larger; so much credit is left when an own chunk is sent (E42).
    stall_us
        A chunk of another node that waits so long for credit is thrown away; its owner loads it again (E42, E8).
    dbms_bytes
        What queries may hold by reference, at least; None for without bounds.
    neutral_bytes
        What is given to queries, to transit or to chunks that are kept, as it comes (A7).
    copies
        Whether a pin for which there is no buffer is served by a copy (E38), or waits a cycle (E11, the paper's rule).
    count_missed_interest
        With ``copies="never"``: whether a node that could not take a chunk that it wants counts as one that has (E11).
    loit_levels
        The thresholds that a node may have; it starts with the lowest (E24).
    loit_raise_at, loit_lower_at, adapt_us
        At which load a node goes up or down one level, and how often it looks (E22).
    dwell_us
        A level is kept at least so long (E22).
    load_all_us
        How often postponed loads are tried (E26).
    load_order
        Which are tried first (E27): the oldest, or those with the most waiting time per byte.
    reserve_after_us
        A load postponed for so long keeps younger ones from being loaded before it; None for never (E27).
    direct_load
        Whether a requested chunk that fits is loaded past older ones that wait (``paper``), or not (``fair``) (E9).
    resend_floor_us, resend_cycles
        A request is sent again when its chunk has not been seen for the larger of these; the second counts cycles of
        the ring (E25).
    resend_backoff
        By how much the next time is longer, if there is still no chunk; at most eight times as long in all (E25).
    lost_floor_us, lost_cycles
        The same for an owner: its chunk is lost when it has not come back for so long (E8).
    ask_ahead
        How many batches of a scan are asked for before the first one has come, and then ahead of each pull; None for
        all of them (DC-10). What a node cannot keep until its scan gets there has come in vain.
    asks_again
        Whether a pull asks again for what has gone by while it was not taken, and not only when it has not been seen
        for long (E25). It is the other way out of E4, which costs more requests and less time.
    request_flow
        Whether requests decide which postponed load goes first and which chunk stays (section 6.1).
    forwarding, zipf_exponent
        Whether the next chunk for the successor is drawn by rank, and by which power of its rank a chunk is less
        likely (section 6.3.1).
    inner_every
        One member in so many is on the inner ring, evenly spread; 0 for no inner ring (section 6.3.1, figure 18). In
        mode ring only.
    promote_loi, promote_cycles
        A chunk goes to the inner ring if its level of interest is so high after so many cycles at least.
    cache
        Which kept chunk is replaced first: the least recently used, the least often used, or one of the two that
        weigh use by how often a chunk comes by (section 6.3.2). "" replaces none for a chunk that nobody has asked for.
    relevance
        Whether postponed loads that short and starved scans wait for go first (section 8.2).
    pulse_us
        How often a node says whether it wishes to leave the ring, or for a node behind it (section 7.3); 0 for never.
    leave_below, grow_above
        It wishes so if the share of the time in which it was in use is below, or above, these.
    delegated
        Share of its chunks that a node which loads gives to the node behind it, the most popular ones.
    nomad_hops
        How many nodes a query asks for a bid before it settles at the cheapest; 0 for none: it stays where it has come
        (section 7.1). In simulated rings only: a client of real nodes asks all of them.
    intermediates, intermediate_bytes
        Whether results enter the ring as they are made (``eager``), or stay in the memory of their node, which holds so
        many bytes of them, and enter on request (``lazy``); "" for neither (section 7.2). In other modes than ring both
        are lazy. In simulated rings only.
    updates
        Whether chunks may be updated: they have versions and locks (section 7.4). In mode ring only.
    lock_lease_us
        How long a node that has no update for a chunk any more keeps its lock.
    update_retry_us
        After how long the origin of an update, a reader of the latest version, and a node that waits for a lock ask
        again.
    open_groups
        Of how many batches a scan may hold some chunks and not all.
    mode
        How chunks reach the nodes that ask: round the ring; ``pull``, each straight from its owner; or ``auto``,
        straight while one node wants a chunk, and round the ring from the second node on (section 8.1).
    share_us
        With ``auto``: how long two nodes that have asked for one chunk are expected to ask for the same chunks.
    """

    queue_bytes: int = 200 * MEGABYTE
    credit_bytes: int | None = None
    largest_chunk: int = 16 * MEGABYTE
    stall_us: int = 2 * SECOND_US
    dbms_bytes: int | None = None
    neutral_bytes: int = 0
    copies: Literal["when-full", "never"] = "when-full"
    count_missed_interest: bool = False
    loit_levels: tuple[float, ...] = (0.1, 0.6, 1.1)
    loit_raise_at: float = 0.8
    loit_lower_at: float = 0.4
    adapt_us: int = 100 * MILLISECOND_US
    dwell_us: int = 0
    load_all_us: int = 50 * MILLISECOND_US
    load_order: Literal["oldest", "age-per-byte"] = "oldest"
    reserve_after_us: int | None = None
    direct_load: Literal["paper", "fair"] = "paper"
    resend_floor_us: int = 200 * MILLISECOND_US
    resend_cycles: float = 2.0
    resend_backoff: float = 2.0
    lost_floor_us: int = 2 * SECOND_US
    lost_cycles: float = 4.0
    ask_ahead: int | None = None
    asks_again: bool = False
    open_groups: int = 2
    mode: RingMode = "ring"
    share_us: int = 2 * SECOND_US
    request_flow: bool = False
    forwarding: bool = False
    zipf_exponent: float = 1.0
    inner_every: int = 0
    promote_loi: float = 0.5
    promote_cycles: int = 2
    cache: CachePolicy = ""
    relevance: bool = False
    pulse_us: int = 0
    leave_below: float = 0.3
    grow_above: float = 0.9
    delegated: float = 0.25
    nomad_hops: int = 0
    intermediates: IntermediatePolicy = ""
    intermediate_bytes: int = 50 * MEGABYTE

    @property
    def is_eager(self) -> bool:
        """Whether results enter the ring as they are made (section 7.2)."""
        return self.intermediates == "eager" and self.mode == "ring"

    updates: bool = False
    lock_lease_us: int = SECOND_US
    update_retry_us: int = SECOND_US // 2

    @property
    def has_updates(self) -> bool:
        """Whether chunks have versions and locks (section 7.4)."""
        return self.updates and self.mode == "ring"

    @property
    def has_inner_ring(self) -> bool:
        """Whether some chunks go round by fewer nodes (figure 18)."""
        return self.inner_every > 0 and self.mode == "ring"
