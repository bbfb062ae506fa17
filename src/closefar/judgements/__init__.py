"""What people said of pairs, and every check that it passes: data, labels, weights, folds."""

from closefar.judgements.columns import Columns
from closefar.judgements.folds import PairGroupKFold, Split, split_judgements
from closefar.judgements.judgements import Judgements
from closefar.judgements.labels import Sides
from closefar.judgements.pairs import check_pairs

__all__ = ["Columns", "Judgements", "PairGroupKFold", "Sides", "Split", "check_pairs", "split_judgements"]
