"""All planted faults: in the relay in the order of a message's life, in the audit from files to verdicts."""

from __future__ import annotations

from tests.simulation.mutants import MUTANTS

from .planted_accepting import ACCEPTING
from .planted_acknowledging import ACKNOWLEDGING
from .planted_admin import ADMIN
from .planted_admitting import ADMITTING
from .planted_asking import ASKING
from .planted_audit_comparing import COMPARING
from .planted_audit_events import EVENTS
from .planted_audit_judging import JUDGING
from .planted_audit_knowing import KNOWING
from .planted_audit_operating import OPERATED
from .planted_audit_reading import READING
from .planted_audit_replaying import REPLAYING
from .planted_audit_resubmitting import RESUBMITTING
from .planted_audit_settling import SETTLING
from .planted_audit_spark import SPARK
from .planted_audit_summary import SUMMARY
from .planted_audit_summing import SUMMING
from .planted_audit_tables import TABLES
from .planted_audit_weighing import WEIGHING
from .planted_clocks import CLOCKS
from .planted_console import CONSOLE
from .planted_damage import DAMAGE
from .planted_database import DATABASE
from .planted_delivering import DELIVERING
from .planted_documents import DOCUMENTS
from .planted_fitting import FITTING
from .planted_front import FRONT
from .planted_holding import HOLDING
from .planted_hop_shadows import HOP_SHADOWS
from .planted_hops_explored import HOPS_EXPLORED
from .planted_hops_in import HOPS_IN
from .planted_hosts import HOSTS
from .planted_indexes import INDEXES
from .planted_jobs import JOBS
from .planted_lists import LISTS, LISTS_AUDITED
from .planted_machines import MACHINES
from .planted_mailbox import MAILBOX
from .planted_measures import MEASURES
from .planted_operating import OPERATING
from .planted_operator import ORDERING
from .planted_pacing import PACING
from .planted_redirecting import REDIRECTING
from .planted_reload import RELOAD
from .planted_settled_twice import SETTLED_TWICE
from .planted_sites import SITES
from .planted_specified import SPECIFIED
from .planted_supervising import SUPERVISING
from .planted_switching import SWITCHING
from .planted_transactions import TRANSACTIONS
from .planted_unread import UNREAD
from .planted_very_many import VERY_MANY
from .planted_view import VIEWING
from .planted_workers import WORKERS
from .planted_workers_port import WORKERS_PORT
from .planting import Fault

RELAY: tuple[Fault, ...] = (
    *ACCEPTING,
    *ACKNOWLEDGING,
    *ADMITTING,
    *TRANSACTIONS,
    *WORKERS_PORT,
    *ASKING,
    *HOLDING,
    *HOPS_IN,
    *HOPS_EXPLORED,
    *MACHINES,
    *FRONT,
    *SUPERVISING,
    *WORKERS,
    *HOP_SHADOWS,
    *CLOCKS,
    *DELIVERING,
    *HOSTS,
    *FITTING,
    *JOBS,
    *MAILBOX,
    *OPERATING,
    *VIEWING,
    *ADMIN,
    *CONSOLE,
    *ORDERING,
    *PACING,
    *REDIRECTING,
    *DAMAGE,
    *INDEXES,
    *DATABASE,
    *VERY_MANY,
    *SPECIFIED,
    *SWITCHING,
    *RELOAD,
    *MEASURES,
    *LISTS,
    *DOCUMENTS,
    *SETTLED_TWICE,
    *SITES,
    *UNREAD,
)
AUDIT: tuple[Fault, ...] = (
    *READING,
    *RESUBMITTING,
    *OPERATED,
    *LISTS_AUDITED,
    *SUMMING,
    *WEIGHING,
    *KNOWING,
    *JUDGING,
    *REPLAYING,
    *SETTLING,
    *COMPARING,
    *EVENTS,
    *SPARK,
    *TABLES,
    *SUMMARY,
)
FAULTS = (*RELAY, *AUDIT, *MUTANTS)
