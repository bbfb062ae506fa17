"""The learned metric: its directions, its model file, and its exports to other programs."""

from closefar.model.factors import Directions, loadings
from closefar.model.metric import ZERO, Metric, in_data_scale, load
from closefar.model.modelfile import ModelFileError
from closefar.model.thresholds import Scored, ScoredLevels

__all__ = ["ZERO", "Directions", "Metric", "ModelFileError", "in_data_scale", "load", "loadings"]
__all__ += ["Scored", "ScoredLevels"]
