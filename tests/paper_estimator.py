"""The settings with which each learner is the maximum-likelihood estimator of the paper: nothing is chosen."""

# The prior matters only to a test that sets another alpha.
PAPER = {"alpha": 0.0, "prior": "zero", "flip_rate": 0.0}
