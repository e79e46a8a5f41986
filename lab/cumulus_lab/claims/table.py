"""The claims that `cumulus experiments cluster` measures, by name."""

from __future__ import annotations

from cumulus_lab.claims.claims import PaperClaim
from cumulus_lab.claims.constant import constant_updates
from cumulus_lab.claims.freshness import buffers, corrections, elision, latency
from cumulus_lab.claims.scaling import broadcast, linear_reads, linear_updates

CLAIMS = {
    "updates": PaperClaim(
        "the system scales linearly in the number of updates",
        "semester paper, section 7",
        linear_updates,
        ("nodes", "events_per_s", "mode"),
        is_log=True,
    ),
    "reads": PaperClaim(
        "… and in the number of client queries",
        "semester paper, section 7",
        linear_reads,
        ("nodes", "reads_per_s", "kind"),
        is_log=True,
    ),
    "broadcast": PaperClaim(
        "one broadcast among 10,000 nodes takes seconds",
        "semester paper, section 2",
        broadcast,
        ("peers", "ms", "how"),
        is_log=True,
    ),
    "latency": PaperClaim(
        "eventual consistency has low latency, which central protocols have not",
        "consistency paper, section 1",
        latency,
        ("visible_p50_ms", "cpu_us_per_event", "mode"),
    ),
    "buffer": PaperClaim(
        "the size of buffers trades latency for throughput",
        "consistency paper, sections 4.1 and 6",
        buffers,
        ("visible_p50_ms", "cpu_us_per_event", "buffer_ms"),
    ),
    "corrections": PaperClaim(
        "corrections are rare and cheap; order and buffers make them rarer",
        "consistency paper, section 4.2; semester paper, section 7",
        corrections,
        ("late_per_100", "cpu_us_per_event", "order"),
    ),
    "elision": PaperClaim(
        "PUSH elision is a huge gain",
        "semester paper, section 3.5",
        elision,
        ("pushes", "cpu_us_per_event", "workload"),
    ),
    "constant": PaperClaim(
        "any aggregate value is updated in constant time",
        "Cumulus introduction, section 1",
        constant_updates,
        ("rows", "us_per_event", ""),
        is_log=True,
    ),
}
