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
    Peer(
        "SDML", ("pairs",), "metric-learn for SDML", "metric_learn.py", "Qi et al. 2009", _METRIC_LEARN,
        "It needs scikit-learn 1.4, because skggm can't be installed any more, and fails with its default balance; it "
        "has nine tenths of the largest that leaves its matrix positive definite.",
    ),
    Peer(
        "DML-eig (pyDML)", ("pairs",), "pyDML", "pydml.py", "Ying and Li 2012", _PYDML,
        "It returns the metric of whitened columns without transforming it back, and holds pairs x d x d numbers.",
    ),
    Peer("DML-eig (ours)", ("pairs",), "closefar", "dml_eig.py", "Ying and Li 2012, with a line search", ours=True),
    Peer("gradient descent of the paper", ("pairs",), "closefar", "gradient_descent.py", "the paper", ours=True),
    Peer("cvxpy (Clarabel)", ("pairs",), "cvxpy", "conic.py", "interior points", ("cvxpy", "clarabel")),
    Peer("cvxpy (SCS)", ("pairs",), "cvxpy", "conic.py", "ADMM", ("cvxpy", "scs")),
    Peer("PyTorch Adam", ("pairs",), "torch", "torch_loss.py", "the same loss", ("torch",)),
    Peer("PyTorch L-BFGS", ("pairs",), "torch", "torch_loss.py", "the same loss", ("torch",)),
    Peer("PyTorch Adam (GPU)", ("pairs",), "torch", "torch_loss.py", "the same loss", ("torch",)),
    Peer("PyTorch L-BFGS (GPU)", ("pairs",), "torch", "torch_loss.py", "the same loss", ("torch",)),
    # classes ---------------------------------------------------------------------------------------------------------
    Peer("closefar", ("classes",), "closefar", "closefar_classes.py", packages=("closefar",), ours=True),
    Peer(
        "closefar, low rank (as FLRML)", ("classes",), "closefar", "closefar_classes.py",
        "Liu et al. 2019: a metric of low rank", ("closefar",), ours=True,
    ),
    Peer(
        "closefar, fixed alpha (as Jin et al. 2009)", ("classes",), "closefar", "closefar_classes.py",
        "Jin et al. 2009: regularised empirical risk", ("closefar",), ours=True,
    ),
    Peer("Euclidean", ("classes",), "closefar", "scikit_learn_classes.py", "no learning"),
    Peer(
        "LogisticRegression on products", ("classes",), "closefar", "scikit_learn_classes.py",
        packages=("scikit-learn",),
        system="logistic regression on all products of differences: the same model without M >= 0",
    ),
    Peer(
        "LogisticRegression on absolute differences", ("classes",), "closefar", "scikit_learn_classes.py",
        packages=("scikit-learn",),
    ),
    Peer(
        "scikit-learn NCA", ("classes",), "closefar", "scikit_learn_classes.py", "Goldberger et al. 2005",
        ("scikit-learn",),
    ),
    Peer("scikit-learn LDA", ("classes",), "closefar", "scikit_learn_classes.py", "Fisher 1936", ("scikit-learn",)),
    Peer(
        "metric-learn NCA", ("classes",), "metric-learn", "metric_learn.py", "Goldberger et al. 2005", _METRIC_LEARN
    ),
    Peer(
        "metric-learn LMNN", ("classes",), "metric-learn", "metric_learn.py", "Weinberger and Saul 2009", _METRIC_LEARN,
        "Its default step of 1e-7 ends far from the optimum on larger data; it has 1e-4 here.",
    ),
    Peer(
        "metric-learn LFDA", ("classes",), "metric-learn", "metric_learn.py", "Sugiyama 2007", _METRIC_LEARN,
        "It gives NaN or noise where columns are constant or collinear; it has principal components here.",
    ),
    Peer(
        "metric-learn RCA", ("classes",), "metric-learn", "metric_learn.py", "Bar-Hillel et al. 2005", _METRIC_LEARN,
        "It gives NaN or noise where columns are constant or collinear; it has principal components here.",
    ),
    Peer(
        "pyDML LDML", ("classes",), "pyDML", "pydml.py", "Guillaumin et al. 2009", _PYDML,
        "It does not learn its threshold, and visits all pairs in a Python loop.",
    ),
    Peer("pyDML DMLMJ", ("classes",), "pyDML", "pydml.py", "Nguyen et al. 2017 (Jeffrey divergence)", _PYDML),
    Peer(
        "pyDML LSI", ("classes",), "pyDML", "pydml.py", "Xing et al. 2002", _PYDML,
        "It visits all pairs in a Python loop.",
    ),
    Peer("pyDML NCA", ("classes",), "pyDML", "pydml.py", "Goldberger et al. 2005", _PYDML),
    Peer("pyDML LMNN", ("classes",), "pyDML", "pydml.py", "Weinberger and Saul 2009", _PYDML),
    # comparisons -----------------------------------------------------------------------------------------------------
    # levels ----------------------------------------------------------------------------------------------------------
    # wrong_labels ----------------------------------------------------------------------------------------------------
    # annotators ------------------------------------------------------------------------------------------------------
)  # fmt: skip
