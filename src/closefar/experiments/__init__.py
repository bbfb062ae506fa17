"""Every table and figure of the paper, regenerated: ``closefar paper`` or ``python -m closefar.experiments``."""
