"""
Annotators who disagree
=======================

Twenty people label pairs.
They differ in how much distance they need to say "far", and two of them click without looking.
"""

# %%
# Each of them labels 200 pairs, and no pair is labelled twice.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

data = cf.datasets.make_judgements(
    4000,
    5,
    rank=2,
    covariance_eigenvalues=np.ones(5),
    n_annotators=20,
    strictness_spread=0.3,
    n_random_annotators=2,
    random_state=0,
)
learner = cf.LinearMetricLearner(flip_rate="estimate")
learner.fit(data.tuples, data.labels, annotators=data.annotators)
print(learner.annotators_)

# %%
# The strictness of an annotator is added to the threshold, and is relative to that of the typical annotator.  Estimates
# are shrunk towards zero, and come with intervals; nothing can be known about the strictness
# of those who answer at random.

table = learner.annotators_
strictness = table.strictness
low, high = table.strictness_interval().T
true = (data.panel.strictness - data.panel.strictness.mean()) / data.noise_scale
at_random = np.isin(table.names, table.named("answers at random"))

fig, ax = plt.subplots(layout="constrained")
for shown, color, label in ((~at_random, "#0072B2", "annotators"), (at_random, "#D55E00", "answer at random")):
    ends = [strictness[shown] - low[shown], high[shown] - strictness[shown]]
    ax.errorbar(true[shown], strictness[shown], ends, fmt="o", color=color, capsize=2, label=label)
ax.axline((0.0, 0.0), slope=1.0, color="#4a4f57", linewidth=0.8, linestyle=":")
ax.set(xlabel="true strictness", ylabel="estimated strictness")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# Pooling all labels, as if one person had given them, costs accuracy.

pooled = cf.LinearMetricLearner().fit(data.tuples, data.labels)


def error(metric):
    """The distance of M from the truth, both with trace one."""
    found, truth = (each.matrix / np.trace(each.matrix) for each in (metric, data.metric))
    return np.linalg.norm(found - truth)


print(f"Error of M: {error(pooled.metric_):.3f} pooled, {error(learner.metric_):.3f} with annotators.")

# %%
# Predictions are for the typical annotator, unless one is named.

strictest, most_lenient = (data.panel.names[each(strictness)] for each in (np.argmax, np.argmin))
for who in (None, strictest, most_lenient):
    share = np.mean(learner.predict(data.tuples, annotator=who) == 1)
    print(f"{who or 'the typical annotator'} would call {share:.0%} of the pairs far.")
plt.show()
