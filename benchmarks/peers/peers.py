"""The register: every system that closefar is compared with, in which work, and what is known to be wrong with it."""

from __future__ import annotations

import hashlib
import re
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
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        digest.update(text.encode())
        for helper in sorted(set(re.findall(r"peers\.adapters\.(\w+)", text))):
            digest.update((ADAPTERS / f"{helper}.py").read_bytes())
        if self.ours:
            for source in sorted((ROOT / "src" / "closefar").rglob("*.py")):
                digest.update(source.read_bytes())
        return digest.hexdigest()[:16]


def peers_of(work: str) -> list[Peer]:
    """Return the peers of a work, in the order of the register."""
    return [peer for peer in PEERS if work in peer.works]


_METRIC_LEARN = ("metric-learn", "scikit-learn", "numpy")
_PYDML = ("pyDML", "scikit-learn", "numpy")
_CBLEARN = ("cblearn", "scipy", "numpy")
_CLEANLAB = ("cleanlab", "scikit-learn")
_CROWD_KIT = ("crowd-kit", "closefar")
_JUDGEMENTS = ("comparisons", "levels", "wrong_labels", "annotators")
_KNOWN = "places only objects that were compared: it says nothing of new ones"
_NORTHCUTT = "Northcutt, Jiang and Chuang 2021"

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
        flaws="Its M may have negative eigenvalues: it is no distance, and maps no points.",
    ),
    Peer(
        "LogisticRegression on absolute differences", ("pairs",), "closefar", "scikit_learn.py",
        packages=("scikit-learn",),
    ),
    Peer("MMC", ("pairs",), "metric-learn", "metric_learn.py", "Xing et al. 2002", _METRIC_LEARN),
    Peer(
        "ITML", ("pairs",), "metric-learn", "metric_learn.py", "Davis et al. 2007", _METRIC_LEARN,
        "By default it holds the distances of all points, 7 GB for 15,000 pairs, and compares squared distances with "
        "bounds of distances; it has the bounds of 2,000 points here, and 500 of 1,000 passes for 15,000 pairs.",
    ),
    Peer(
        "SDML", ("pairs",), "metric-learn for SDML", "metric_learn.py", "Qi et al. 2009", _METRIC_LEARN,
        "It needs scikit-learn 1.4, because skggm can't be installed any more, and fails with its default balance; it "
        "has nine tenths of the largest that leaves its matrix positive definite.",
    ),
    Peer(
        "DML-eig (pyDML)", ("pairs",), "pyDML", "pydml.py", "Ying and Li 2012", _PYDML,
        "It returns the metric of whitened columns without transforming it back, and holds pairs x d x d numbers.",
    ),
    Peer("DML-eig (ours)", ("pairs",), "closefar", "dml_eig.py", "Ying and Li 2012, tuned smoothing", ours=True),
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
        flaws="Its M may have negative eigenvalues: it is no distance, and maps no points.",
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
        "Its steps start at 1e-7 by default, and grow by 1%; they start at 1e-3 here. There are 300 at most, to save "
        "time: its default of 1,000 is slightly better on combustion, where 300 do not reach the optimum.",
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
        "It does not learn its threshold, and visits all pairs of points in Python: it has 100 points here.",
    ),
    Peer("pyDML DMLMJ", ("classes",), "pyDML", "pydml.py", "Nguyen et al. 2017 (Jeffrey divergence)", _PYDML),
    Peer(
        "pyDML LSI", ("classes",), "pyDML", "pydml.py", "Xing et al. 2002", _PYDML,
        "It visits all pairs of points in Python: it has 100 points here.",
    ),
    Peer(
        "pyDML NCA", ("classes",), "pyDML", "pydml.py", "Goldberger et al. 2005", _PYDML,
        "It visits all pairs of points in Python: it has 300 points here.",
    ),
    Peer(
        "pyDML LMNN", ("classes",), "pyDML", "pydml.py", "Weinberger and Saul 2009", _PYDML,
        "It visits all pairs of points in Python: it has 300 points here.",
    ),
    # comparisons -----------------------------------------------------------------------------------------------------
    Peer("closefar", _JUDGEMENTS, "closefar", "closefar_judgements.py", packages=("closefar",), ours=True),
    Peer(
        "closefar, a column for each object", ("comparisons",), "closefar", "closefar_judgements.py",
        system="places of the objects alone, without their columns, as in an ordinal embedding",
        packages=("closefar",), ours=True,
    ),
    Peer("Euclidean, standardised", ("comparisons",), "closefar", "scikit_learn_judgements.py", "no learning"),
    Peer(
        "LogisticRegression on differences of products", ("comparisons",), "closefar", "scikit_learn_judgements.py",
        system="the same model without M >= 0", packages=("scikit-learn",),
    ),
    Peer(
        "SCML", ("comparisons",), "metric-learn", "metric_learn_comparisons.py", "Shi, Bellet and Sha 2014",
        _METRIC_LEARN,
        "holds triplets x 80 d numbers; takes rows of the matrix of eigenvectors for its basis instead of columns",
    ),
    Peer(
        "LSML", ("comparisons",), "metric-learn", "metric_learn_comparisons.py", "Liu et al. 2012", _METRIC_LEARN,
        "ignores weights in its gradient, so that its steps and its loss do not belong together",
    ),
    Peer("SOE", ("comparisons",), "cblearn", "cblearn_embeddings.py", "Terada and von Luxburg 2014", _CBLEARN, _KNOWN),
    Peer(
        "STE", ("comparisons",), "cblearn", "cblearn_embeddings.py", "van der Maaten and Weinberger 2012", _CBLEARN,
        _KNOWN,
    ),
    Peer("CKL", ("comparisons",), "cblearn", "cblearn_embeddings.py", "Tamuz et al. 2011", _CBLEARN, _KNOWN),
    # levels ----------------------------------------------------------------------------------------------------------
    Peer(
        "OrderedModel on products", ("levels",), "statsmodels", "ordinal_regressions.py",
        "proportional odds without M >= 0", ("statsmodels",),
    ),
    Peer(
        "LogisticAT on products", ("levels",), "mord", "ordinal_regressions.py",
        "proportional odds without M >= 0, with a ridge penalty", ("mord", "scikit-learn"),
    ),
    # wrong_labels ----------------------------------------------------------------------------------------------------
    Peer("cleanlab on products", ("wrong_labels",), "cleanlab", "cleanlab_labels.py", _NORTHCUTT, _CLEANLAB),
    Peer(
        "cleanlab on absolute differences", ("wrong_labels",), "cleanlab", "cleanlab_labels.py", _NORTHCUTT, _CLEANLAB
    ),
    Peer(
        "LogisticRegression on products", ("wrong_labels",), "closefar", "scikit_learn_judgements.py",
        "the classifier's own probabilities", ("scikit-learn",),
    ),
    Peer(
        "LogisticRegression on absolute differences", ("wrong_labels",), "closefar", "scikit_learn_judgements.py",
        "the classifier's own probabilities", ("scikit-learn",),
    ),
    # annotators ------------------------------------------------------------------------------------------------------
    Peer(
        "closefar, annotators pooled", ("annotators",), "closefar", "closefar_judgements.py",
        "as if one person had judged", ("closefar",), ours=True,
    ),
    Peer(
        "DawidSkene, then closefar", ("annotators",), "crowd-kit", "crowd_labels.py", "Dawid and Skene 1979",
        _CROWD_KIT, ours=True,
    ),
    Peer(
        "MajorityVote, then closefar", ("annotators",), "crowd-kit", "crowd_labels.py", "the most frequent label",
        _CROWD_KIT, ours=True,
    ),
)  # fmt: skip
