"""The solvers: each is one file, and one line in `SOLVERS`."""

from closefar.solve.loop import Solver
from closefar.solve.solvers.factor import Factor
from closefar.solve.solvers.fista import Fista
from closefar.solve.solvers.low_rank import LowRank
from closefar.solve.solvers.newton import Newton
from closefar.solve.solvers.sampled import Sampled

__all__ = ["SOLVERS", "Factor", "Fista", "LowRank", "Newton", "Sampled"]

SOLVERS: dict[str, type[Solver]] = {
    "newton": Newton,
    "fista": Fista,
    "factor": Factor,
    "lowrank": LowRank,
    "sampled": Sampled,
}
