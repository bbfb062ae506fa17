"""What a fit will cost, before it runs: passes over the pairs, time, memory, network and the bottleneck."""

from closefar.cost.cards import H200, Card
from closefar.cost.memory import Memory
from closefar.cost.network import Network, Traffic
from closefar.cost.passes import ExpectedPasses
from closefar.cost.plan import plan_run
from closefar.cost.rates import Rates, measure_rates
from closefar.cost.run_plan import RunPlan
from closefar.cost.size import RunSize, parse_bytes, parse_count

__all__ = [
    "H200",
    "Card",
    "ExpectedPasses",
    "Memory",
    "Network",
    "Rates",
    "RunPlan",
    "RunSize",
    "Traffic",
    "measure_rates",
    "parse_bytes",
    "parse_count",
    "plan_run",
]
