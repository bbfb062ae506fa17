"""
Labels and comparisons together
===============================

A few experts label pairs, and many visitors of a web page compare.
One fit learns from both, and finds out how noisy the comparisons are.
"""

# %%
# Experts label 400 pairs.  Visitors answer 4,000 triplets about the same kind of things, with twice the noise.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

shape = {"metric_eigenvalues": [1.0, 0.6, 0.3], "covariance_eigenvalues": np.ones(6), "random_state": 0}
experts = cf.datasets.make_judgements(400, 6, **shape)
visitors = cf.datasets.make_judgements(4000, 6, kind="triplets", noise_scale=2 * experts.noise_scale, **shape)

# %%
# ``comparison_noise="estimate"`` maximises the profile likelihood, and reports an interval.  There are plenty of
# judgements, so no penalty is needed.

both = cf.LinearMetricLearner(alpha=0, flip_rate=0)
both.fit(experts.tuples, experts.labels, comparisons=(visitors.tuples, visitors.labels), comparison_noise="estimate")
low, high = both.comparison_noise_.interval
print(f"The comparisons' noise is {both.comparison_noise_.value:.2f} times the labels' ({low:.2f} to {high:.2f}).")
print(both.certificate_.status)

# %%
# The metric is better than that of either kind alone, and the threshold comes from the labels.

labels_alone = cf.LinearMetricLearner().fit(experts.tuples, experts.labels)
comparisons_alone = cf.ComparisonMetricLearner().fit(visitors.tuples, visitors.labels)


def error(metric):
    """The distance of M from the truth, both with trace one."""
    found, true = (each.matrix / np.trace(each.matrix) for each in (metric, experts.metric))
    return np.linalg.norm(found - true)


names = ["400 labels", "4,000 triplets", "both"]
errors = [error(learner.metric_) for learner in (labels_alone, comparisons_alone, both)]

fig, ax = plt.subplots(layout="constrained")
ax.barh(names, errors, color=["#D55E00", "#CC79A7", "#0072B2"])
ax.invert_yaxis()
ax.set(xlabel="error of M")
ax.spines[["top", "right"]].set_visible(False)

# %%
# On new pairs, the metric of both tells close from far nearly as well as the truth does.

new = cf.datasets.make_judgements(4400, 6, **shape)
new_pairs, truth = new.tuples[400:], new.true_labels[400:]
for name, learner in (("400 labels", labels_alone), ("both", both)):
    print(f"{name:<10} accuracy on true labels {learner.score(new_pairs, truth):.1%}")
plt.show()
