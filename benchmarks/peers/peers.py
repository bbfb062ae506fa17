"""The register: every system that closefar is compared with, in which work, and what is known to be wrong with it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from peers.environments import ROOT

__all__ = ["PEERS", "Peer", "peers_of"]

ADAPTERS = Path(__file__).parent / "adapters"


@dataclass(frozen=True)
class Peer:
    """A system to compare with; `adapter` is a file in adapters/ whose PEERS has the name.

    A peer may have several entries, for different works.  `system` says what it is, as in the literature.  `flaws`
    are printed beside its figures.  The rows of a peer that is `ours` are measured again when closefar's code changes.
    """

    name: str
    works: tuple[str, ...]
    environment: str
    adapter: str
    system: str = ""
    packages: tuple[str, ...] = ()  # whose versions are recorded
    flaws: str = ""
    ours: bool = False

    def fingerprint(self, environment: str) -> str:
        """Return a hash of what the figures of this peer depend on, beside the data."""
        digest = hashlib.sha256(environment.encode())
        path = ADAPTERS / self.adapter
        digest.update(path.read_bytes() if path.exists() else b"")
        if self.ours:
            for source in sorted((ROOT / "src" / "closefar").rglob("*.py")):
                digest.update(source.read_bytes())
        return digest.hexdigest()[:16]


def peers_of(work: str) -> list[Peer]:
    """Return the peers of a work, in the order of the register."""
    return [peer for peer in PEERS if work in peer.works]


_METRIC_LEARN = ("metric-learn", "scikit-learn", "numpy")
_PYDML = ("pyDML", "scikit-learn", "numpy")

PEERS: tuple[Peer, ...] = (
    # pairs -----------------------------------------------------------------------------------------------------------
    Peer("closefar", ("pairs",), "closefar", "closefar_pairs.py", packages=("closefar",), ours=True),
    Peer(
        "closefar (paper's estimator)", ("pairs",), "closefar", "closefar_pairs.py", "no penalty and no flips",
        packages=("closefar",), ours=True,
    ),
    Peer("Euclidean", ("pairs",), "closefar", "scikit_learn.py", "no learning"),
    Peer(
        "LogisticRegression on products", ("pairs",), "closefar", "scikit_learn.py", packages=("scikit-learn",),
        system="logistic regression on all products of differences: the same model without M >= 0",
    ),
    Peer(
        "LogisticRegression on absolute differences", ("pairs",), "closefar", "scikit_learn.py",
        packages=("scikit-learn",),
    ),
    Peer("MMC", ("pairs",), "metric-learn", "metric_learn.py", "Xing et al. 2002", _METRIC_LEARN),
    Peer("ITML", ("pairs",), "metric-learn", "metric_learn.py", "Davis et al. 2007", _METRIC_LEARN),
    Peer("SDML", ("pairs",), "metric-learn", "metric_learn.py", "Qi et al. 2009", _METRIC_LEARN),
    Peer("DML-eig (pyDML)", ("pairs",), "pyDML", "pydml.py", "Ying and Li 2012", _PYDML),
    Peer("DML-eig (ours)", ("pairs",), "closefar", "dml_eig.py", "Ying and Li 2012, with a line search", ours=True),
    Peer("gradient descent of the paper", ("pairs",), "closefar", "gradient_descent.py", "the paper", ours=True),
    Peer("cvxpy (Clarabel)", ("pairs",), "cvxpy", "conic.py", "interior points", ("cvxpy", "clarabel")),
    Peer("cvxpy (SCS)", ("pairs",), "cvxpy", "conic.py", "ADMM", ("cvxpy", "scs")),
    Peer("PyTorch Adam", ("pairs",), "torch", "torch_loss.py", "the same loss", ("torch",)),
    Peer("PyTorch L-BFGS", ("pairs",), "torch", "torch_loss.py", "the same loss", ("torch",)),
    Peer("PyTorch Adam (GPU)", ("pairs",), "torch", "torch_loss.py", "the same loss", ("torch",)),
    Peer("PyTorch L-BFGS (GPU)", ("pairs",), "torch", "torch_loss.py", "the same loss", ("torch",)),
    # classes ---------------------------------------------------------------------------------------------------------
    # comparisons -----------------------------------------------------------------------------------------------------
    # levels ----------------------------------------------------------------------------------------------------------
    # wrong_labels ----------------------------------------------------------------------------------------------------
    # annotators ------------------------------------------------------------------------------------------------------
)  # fmt: skip
