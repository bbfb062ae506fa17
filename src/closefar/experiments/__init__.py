"""Every table and figure of the paper, regenerated: ``closefar paper`` or ``python -m closefar.experiments``."""

from closefar.experiments.registry import EXPERIMENTS
from closefar.experiments.runner import Watch, run_paper
from closefar.experiments.terminal import Terminal

__all__ = ["EXPERIMENTS", "Terminal", "Watch", "run_paper"]
