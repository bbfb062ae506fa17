"""The learned metric: its directions, its model file, and its exports to other programs."""

from closefar.model.metric import ZERO, Directions, Metric, in_data_scale, load, loadings
from closefar.model.modelfile import ModelFileError
from closefar.model.scores import Scores

__all__ = ["ZERO", "Directions", "Metric", "ModelFileError", "in_data_scale", "load", "loadings"]
__all__ += ["Scores"]
