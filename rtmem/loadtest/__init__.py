"""The load-test engine: contenders take turns in one run, and every number comes with what it is compared to.

`measure` runs, `Report` holds, `table`, `write_json` and `write_picture` show. Nothing heavy (rich, matplotlib) is
imported before it is needed.
"""

from rtmem.loadtest.machine import describe_machine, peak_rss_bytes, versions_of
from rtmem.loadtest.percentiles import percentile
from rtmem.loadtest.records import Experiment, Latency, Machine, Measured, Report, Verdict, write_json
from rtmem.loadtest.rounds import Contender, Plan, measure, turn_orders
from rtmem.loadtest.stalls import longest_stall_ms

__all__ = [
    "Contender",
    "Experiment",
    "Latency",
    "Machine",
    "Measured",
    "Plan",
    "Report",
    "Verdict",
    "describe_machine",
    "longest_stall_ms",
    "measure",
    "peak_rss_bytes",
    "percentile",
    "turn_orders",
    "versions_of",
    "write_json",
]
