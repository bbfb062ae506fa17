"""
A metric from noisy pairs
=========================

Fifteen thousand pairs are labelled close or far, and one label in ten is wrong.
The learner is told neither which, nor how many.
"""

# %%
# The pairs are those of the paper's first experiment: points with ten columns, of which a metric of rank five
# decides what is close.  Five thousand more are held out.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

eigenvalues = [0.89, 0.59, 0.32, 0.14, 0.13]
data = cf.datasets.make_pairs(
    20_000,
    10,
    metric_eigenvalues=eigenvalues,
    wrong_share=0.1,
    random_state=0,
)
train, test = slice(0, 15_000), slice(15_000, None)
learner = cf.LinearMetricLearner().fit(data.pairs[train], data.labels[train])
print(learner.metric_)

# %%
# Squared distances against the threshold, for pairs that the fit has not seen.  The labels that lie on the wrong side
# are mostly the wrong ones.

cf.plot.margins(learner, data.pairs[test], data.labels[test])

noisy = learner.score(data.pairs[test], data.labels[test])
true = learner.score(data.pairs[test], data.true_labels[test])
print(f"Agrees with {noisy:.1%} of the noisy labels, {true:.1%} of the true ones.")

wrong = np.mean(data.labels[train] != data.true_labels[train])
estimate = learner.fit_statistics_.wrong_share
print(f"Share of wrong labels {wrong:.3f}, estimated {estimate:.3f}.")

# %%
# The probabilities are right as well: of the pairs that are far with a probability of 70 %, about 70 % are labelled
# far.

cf.plot.calibration(learner, data.pairs[test], data.labels[test])

# %%
# Five directions carry nearly all of the metric.

cf.plot.spectrum(learner)
plt.show()
