"""
Finding wrong labels
====================

A label may be turned over whatever the distance.
``find_label_errors`` says how probable that is for each label.
"""

# %%
# One label in ten is turned over, whatever the distance, as by somebody who clicks in the wrong place.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

data = cf.datasets.make_pairs(
    1500,
    8,
    rank=3,
    noise="flips",
    wrong_share=0.1,
    random_state=0,
)
is_wrong = data.labels != data.true_labels

learner = cf.LinearMetricLearner(flip_rate="estimate")
errors = cf.find_label_errors(learner, data.pairs, data.labels, random_state=0)
print(errors.summary())

# %%
# Look at the labels again in that order.  The dashed line is the best order there is: all wrong ones first.

looked_at = np.arange(1, len(is_wrong) + 1)
found = np.cumsum(is_wrong[errors.order])
best = np.minimum(looked_at, is_wrong.sum())
by_chance = looked_at * is_wrong.mean()

fig, ax = plt.subplots(layout="constrained")
ax.plot(looked_at, found, color="#0072B2", label="most suspicious first")
ax.plot(looked_at, best, "--", color="#4a4f57", label="all wrong ones first")
ax.plot(looked_at, by_chance, ":", color="#4a4f57", label="by chance")
ax.set(xlabel="labels looked at again", ylabel="wrong ones found", xlim=(0, 500))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# The last ones are of pairs near the threshold, where a label can hardly be judged.  Among the clearer pairs:

learner.fit(data.pairs, data.labels)
margin = learner.decision_function(data.pairs)
clear = np.abs(margin) > 0.2 * learner.metric_.threshold
called = clear & (errors.probability > 0.5)
print(f"Wrong labels of clear pairs: {np.sum(clear & is_wrong)}.")
print(f"Called wrong: {np.sum(called)}, rightly {np.sum(called & is_wrong)}.")

# %%
# The distances show why: many flipped labels lie far beyond the threshold, where no right label does.

cf.plot.margins(learner)
plt.show()
