"""The learned metric: its directions, its model file, and its exports to other programs."""

from closefar.model.data_scale import in_data_scale
from closefar.model.directions import Directions
from closefar.model.factors import loadings
from closefar.model.loading import contents_of, load, load_with_header
from closefar.model.metric import ZERO, Metric
from closefar.model.modelfile import ModelFileError
from closefar.model.scored import Scored
from closefar.model.scored_levels import ScoredLevels

__all__ = [
    "ZERO",
    "Directions",
    "Metric",
    "ModelFileError",
    "Scored",
    "ScoredLevels",
    "contents_of",
    "in_data_scale",
    "load",
    "load_with_header",
    "loadings",
]
