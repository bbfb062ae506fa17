"""
Ratings on several levels
=========================

People rate pairs from 0, the closest, to 4.
The learner finds a metric and the four thresholds between the levels.
"""

# %%
# The same pairs are rated on five levels, and labelled close or far, by people with the same noise.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

shape = {"metric_eigenvalues": [1.0, 0.7, 0.4], "covariance_eigenvalues": np.ones(6), "random_state": 0}
ratings = cf.datasets.make_judgements(4000, 6, kind="levels", n_levels=5, **shape)
labels = cf.datasets.make_judgements(4000, 6, kind="pairs", **shape)

learner = cf.OrdinalMetricLearner().fit(ratings.tuples, ratings.labels)
print(learner.metric_)
print(learner.certificate_.status)

# %%
# Each level has its probability at each distance.  The vertical lines are the thresholds: at a threshold, the levels
# below it and those above it are equally likely.

squared = np.linspace(0.0, 1.4 * learner.thresholds_[-1], 300)
probability = np.diff(
    1.0 - learner.metric_.noise.cdf(squared[:, None] - learner.thresholds_), axis=1, prepend=0.0, append=1.0
)

fig, ax = plt.subplots(layout="constrained")
colors = plt.get_cmap("cividis")(np.linspace(0.0, 0.9, 5))
for level in range(5):
    ax.plot(squared, probability[:, level], color=colors[level], label=f"level {level}")
for threshold in learner.thresholds_:
    ax.axvline(threshold, color="#4a4f57", linewidth=0.8, linestyle=":")
ax.set(xlabel="squared distance", ylabel="probability", ylim=(0, 1))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# What are levels worth?  The error of the metric, of ratings and of labels of the same pairs:


def error(metric):
    """The distance of M from the truth, both with trace one."""
    found, true = (each.matrix / np.trace(each.matrix) for each in (metric, labels.metric))
    return np.linalg.norm(found - true)


counts = [500, 1000, 2000, 4000]
errors = np.array(
    [
        (
            error(cf.LinearMetricLearner().fit(labels.tuples[:n], labels.labels[:n]).metric_),
            error(cf.OrdinalMetricLearner().fit(ratings.tuples[:n], ratings.labels[:n]).metric_),
        )
        for n in counts
    ]
)

fig, ax = plt.subplots(layout="constrained")
ax.loglog(counts, errors[:, 0], "s--", color="#D55E00", label="close or far")
ax.loglog(counts, errors[:, 1], "o-", color="#0072B2", label="five levels")
ax.set_xticks(counts, [f"{n:,}" for n in counts])
ax.set_yticks([0.01, 0.02, 0.05, 0.1], ["0.01", "0.02", "0.05", "0.1"])
ax.minorticks_off()
ax.set(xlabel="pairs", ylabel="error of M")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
