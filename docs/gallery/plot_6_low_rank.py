"""
How many directions are real?
=============================

A metric of low rank maps points to few dimensions, which is faster, and easier to understand.
Cutting off the smallest eigenvalues is one way there; refitting what is left is a better one.
"""

# %%
# Twelve columns, of which three combinations matter.

import matplotlib.pyplot as plt

import closefar as cf

data = cf.datasets.make_pairs(
    9000,
    12,
    metric_eigenvalues=[1.0, 0.6, 0.3],
    wrong_share=0.1,
    random_state=1,
)
train, test = slice(0, 4500), slice(4500, None)
pairs, labels = data.pairs[train], data.labels[train]
learner = cf.LinearMetricLearner().fit(pairs, labels)

# %%
# The spectrum is in the data's scale: an eigenvalue is the mean of the squared distance along its direction, whatever
# the units of the columns are.  Beyond the third there is little but noise.

cf.plot.spectrum(learner)

# %%
# What each rank costs, on the labels of the fit and on labels that it has not seen.  A metric that is cut off keeps
# a threshold that was made for the whole one; refitting mends that.

path = learner.truncation_path(held_out=(data.pairs[test], data.labels[test]))
cf.plot.truncation_path(path)

# %%
# ``rank="auto"`` asks held-out labels, by cross-validation.

chosen = cf.LinearMetricLearner(rank="auto").fit(pairs, labels)
print(chosen.rank_choice_)
print(chosen.metric_)
for name, each in (("whole", learner), ("rank chosen", chosen)):
    score = each.score(data.pairs[test], data.true_labels[test])
    print(f"{name:<11} agrees with {score:.1%} of the held-out true labels")
plt.show()
