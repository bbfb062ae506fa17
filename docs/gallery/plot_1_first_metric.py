"""
A metric from noisy pairs
=========================

Fifteen thousand pairs are labelled close or far, and one label in ten is wrong.
The learner knows neither which labels are wrong nor how many, and needs no settings.
"""

# %%
# The setting is that of the paper's first experiment: points with ten columns, and a true metric of rank five.  Five
# thousand more pairs are held out.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

eigenvalues = [0.89, 0.59, 0.32, 0.14, 0.13]
data = cf.datasets.make_pairs(20_000, 10, metric_eigenvalues=eigenvalues, wrong_share=0.1, random_state=0)
train, test = slice(0, 15_000), slice(15_000, None)
learner = cf.LinearMetricLearner().fit(data.pairs[train], data.labels[train])
print(learner.metric_)
print(learner.baseline_.summary())

# %%
# The first plot shows the squared distances of held-out pairs and the threshold.  Labels on the wrong side of the
# threshold are mostly wrong labels.

cf.plot.margins(learner, data.pairs[test], data.labels[test])

noisy = learner.score(data.pairs[test], data.labels[test])
true = learner.score(data.pairs[test], data.true_labels[test])
print(f"Accuracy: {noisy:.1%} on the noisy labels, {true:.1%} on the true labels.")

wrong = np.mean(data.labels[train] != data.true_labels[train])
estimate = learner.fit_statistics_.wrong_share
print(f"Share of wrong labels {wrong:.3f}, estimated {estimate:.3f}.")

# %%
# The probabilities are calibrated as well: of the pairs with a predicted probability of 70%, about 70% are labelled
# far.

cf.plot.calibration(learner, data.pairs[test], data.labels[test])

# %%
# Five directions account for nearly all of the metric.

cf.plot.spectrum(learner)
plt.show()
