"""
Choosing the rank
=================

A metric of low rank maps points to few dimensions, which is faster and easier to interpret.
Dropping the smallest eigenvalues is one way to get there; refitting the remaining directions is better.
"""

# %%
# There are twelve columns, of which three linear combinations matter.  Without a penalty, noise adds others.

import matplotlib.pyplot as plt

import closefar as cf

data = cf.datasets.make_pairs(9000, 12, metric_eigenvalues=[1.0, 0.6, 0.3], wrong_share=0.1, random_state=1)
train, test = slice(0, 4500), slice(4500, None)
pairs, labels = data.pairs[train], data.labels[train]
learner = cf.LinearMetricLearner(alpha=0, flip_rate=0).fit(pairs, labels)

# %%
# The spectrum is in the scale of the data: an eigenvalue is the mean squared distance along its direction, whatever
# the units of the columns.  Beyond the third there is little but noise.

cf.plot.spectrum(learner)

# %%
# The truncation path shows the loss at each rank, on the training labels and on held-out labels.  A truncated metric
# keeps the threshold of the full one; refitting corrects that.

path = learner.truncation_path(held_out=(data.pairs[test], data.labels[test]))
cf.plot.truncation_path(path)

# %%
# ``rank="auto"`` chooses the rank, and a penalty, by the loss of held-out pairs.

chosen = cf.LinearMetricLearner(rank="auto").fit(pairs, labels)
print(chosen.choice_)
print(chosen.metric_)
for name, each in (("full", learner), ("chosen rank", chosen)):
    score = each.score(data.pairs[test], data.true_labels[test])
    print(f"{name:<11} accuracy on held-out true labels {score:.1%}")
plt.show()
