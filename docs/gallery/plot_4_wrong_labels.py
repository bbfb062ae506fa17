"""
Finding wrong labels
====================

A label may be flipped regardless of distance.
``find_label_errors`` estimates the probability of that for each label.
"""

# %%
# One label in ten is flipped, regardless of distance, as if by a click on the wrong button.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

data = cf.datasets.make_pairs(1500, 8, rank=3, noise="flips", wrong_share=0.1, random_state=0)
is_wrong = data.labels != data.true_labels

learner = cf.LinearMetricLearner()
errors = cf.find_label_errors(learner, data.pairs, data.labels, random_state=0)
print(errors.summary())

# %%
# Suppose that the labels are reviewed in that order.  The dashed line is the best possible order, with all wrong labels
# first.

reviewed = np.arange(1, len(is_wrong) + 1)
found = np.cumsum(is_wrong[errors.order])
best = np.minimum(reviewed, is_wrong.sum())
random_order = reviewed * is_wrong.mean()

fig, ax = plt.subplots(layout="constrained")
ax.plot(reviewed, found, color="#0072B2", label="most suspicious first")
ax.plot(reviewed, best, "--", color="#4a4f57", label="all wrong labels first")
ax.plot(reviewed, random_order, ":", color="#4a4f57", label="random order")
ax.set(xlabel="labels reviewed", ylabel="wrong labels found", xlim=(0, 500))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# The last ones belong to pairs near the threshold, where wrong labels are hard to recognise.  Among the clearer pairs:

learner.fit(data.pairs, data.labels)
margin = learner.decision_function(data.pairs)
clear = np.abs(margin) > 0.2 * learner.metric_.threshold
called = clear & (errors.probability > 0.5)
print(f"Wrong labels among clear pairs: {np.sum(clear & is_wrong)}.")
print(f"Called wrong: {np.sum(called)}, correctly {np.sum(called & is_wrong)}.")

# %%
# The distances show why: many flipped labels lie far beyond the threshold, where there are no correct labels.

cf.plot.margins(learner)
plt.show()
