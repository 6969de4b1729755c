"""The list of deliberate defects: some run must object to each of them."""

from __future__ import annotations

from typing import Final

from tests.simulation import defects_of_orders as orders
from tests.simulation import defects_of_recovery as recovery
from tests.simulation import defects_of_the_log as log
from tests.simulation.patches import Mutation
from vystak_turns.core.effects import Fail
from vystak_turns.core.facts import ApprovalAsked

_TOOLS: Final = "plain tools"
_PRIVATE: Final = "private, removed and replaced words"
_APPROVAL: Final = "approval before a tool"
_TWO_OF_NODE: Final = "two questions of one node"
_AT_ONCE: Final = "two questions at once"

MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation("no fence", (_TOOLS,), log.no_fence, ("freeze", "late")),
    Mutation("token ignored", (_TOOLS,), log.token_ignored, ("freeze", "kill")),
    Mutation("timeout means lost", (_TOOLS,), log.timeout_means_lost, ("landed",)),
    Mutation("timeout means landed", (_TOOLS,), log.timeout_means_landed, ("lost",)),
    Mutation("seq reuse after a lost log", (_TOOLS,), log.seqs_begin_again, ("purge+kill",)),
    Mutation("seq from the journal", (_TOOLS,), log.seq_from_journal),
    Mutation("lost start unnoticed", ("run outlives the log",), log.emptied_log_unnoticed),
    Mutation("boundary by arrival time", (_TOOLS,), log.boundary_by_arrival),
    Mutation("boundary before acknowledgement", (_TOOLS,), log.boundary_too_early),
    Mutation("rewind without cutting boundaries", ("run outlives the log",), log.boundaries_stay),
    Mutation("no rewind", (_TOOLS,), log.no_rewind),
    Mutation("catch-up without rewind", (_TOOLS,), recovery.catch_up_without_rewind),
    Mutation("expired boundary", ("run outlives the log",), log.rewind_to_newest_only),
    Mutation("rollback ignored", (_PRIVATE,), log.rollback_ignored),
    Mutation("text not taken back", (_PRIVATE,), orders.text_not_taken_back),
    Mutation("terminal not read back", (_TOOLS,), recovery.terminal_not_read_back),
    Mutation(
        "finished before not started", ("second turn of a thread",), recovery.dispatch_after_finish
    ),
    Mutation(
        "middle before active", ("refused on a running thread",), recovery.middle_before_active
    ),
    Mutation("wanted end last", ("cancelled while parked",), recovery.end_wanted_last),
    Mutation("input dispatched twice", (_TOOLS,), recovery.input_twice),
    Mutation(
        "no re-probe on a moved log",
        (_TOOLS, _APPROVAL),
        recovery.no_probe_on_a_moved_log,
        ("late", "freeze"),
    ),
    Mutation("claims never count", ("poison and bystander",), recovery.claims_never_count),
    Mutation("claims counted late", ("poison for turn control",), recovery.claims_count_late),
    Mutation("progress never counts", (_TOOLS,), recovery.progress_never_counts, ("four deaths",)),
    Mutation("orderly stops cost attempts", (_TOOLS,), recovery.orderly_stops_cost, ("stop",)),
    Mutation(
        "superseded driver not stopped",
        ("refused on a running thread",),
        recovery.superseded_driver_goes_on,
        ("freeze",),
    ),
    Mutation(
        "superseded while probing", ("keep-alives",), log.superseded_unnoticed, ("two freezes",)
    ),
    Mutation(
        "emptied log taken for ours",
        ("keep-alives",),
        log.emptied_log_ours,
        ("freeze+purge",),
    ),
    Mutation("decision not stored", (_APPROVAL,), orders.decision_not_stored),
    Mutation("bare value instead of a map", (_TWO_OF_NODE,), orders.bare_value),
    Mutation("generation not compared", (_TWO_OF_NODE,), orders.generation_not_compared),
    Mutation("many voices win", ("many voices",), orders.parked_not_checked),
    Mutation("approval not matched by generation", (_AT_ONCE,), orders.approval_by_type_only),
    Mutation("park before its event", (_APPROVAL,), orders.status_before_event(ApprovalAsked)),
    Mutation("end before its event", ("cancelled while parked",), orders.status_before_event(Fail)),
    Mutation("acknowledged before journaled", (_TOOLS,), orders.acknowledged_before_journaled),
    Mutation("thread not reserved", ("refused on a running thread",), orders.thread_not_reserved),
    Mutation("cancel not stored", ("cancelled while parked",), orders.cancel_not_stored),
    Mutation(
        "failure for a retryable trouble", (_TOOLS,), recovery.failure_for_a_retryable_trouble
    ),
    Mutation("orphans left alone", (_TOOLS,), recovery.orphans_left_alone),
    Mutation("taken over without probing", (_TOOLS,), recovery.taken_over_without_probing),
    Mutation("questions used up unnoticed", (_AT_ONCE,), orders.questions_used_up_unnoticed),
    Mutation(
        "cached results told twice", ("one asks while one works",), orders.cached_results_twice
    ),
    Mutation("created again", (_TOOLS,), log.created_again),
)
