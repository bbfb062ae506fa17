"""Where rows live, and what a solver may ask of them: one protocol for all sources."""

from closefar.rows.coordinates import Coordinates
from closefar.rows.differences import Differences
from closefar.rows.source import RowSource
from closefar.rows.unit_free import factor_in_rows, find_coordinates, unit_free

__all__ = ["Coordinates", "Differences", "RowSource", "factor_in_rows", "find_coordinates", "unit_free"]
