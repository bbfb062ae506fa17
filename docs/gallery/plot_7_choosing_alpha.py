"""
How the default chooses
=======================

With few pairs, a metric with a free entry for every two columns overfits.
The learner shrinks it, and chooses on held-out pairs how much and to what.
"""

# %%
# There are three hundred pairs and ten columns, so M has 55 free entries.  Twenty thousand more pairs show which alpha
# would have been best.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

import closefar as cf

data = cf.datasets.make_pairs(20_300, 10, rank=2, wrong_share=0.1, random_state=0)
pairs, labels = data.pairs[:300], data.labels[:300]
new_pairs, new_labels = data.pairs[300:], data.labels[300:]

learner = cf.LinearMetricLearner().fit(pairs, labels)
print(learner.choice_.summary())

# %%
# The plot shows the log loss against alpha, as estimated on held-out pairs of the three hundred, and as measured on the
# new pairs.  The dotted line is the plain distance with a fitted threshold.


def loss_of(alpha):
    """The log loss on new pairs, with the chosen prior."""
    fixed = cf.LinearMetricLearner(alpha=alpha, prior=learner.prior_, flip_rate=0)
    return log_loss(new_labels, fixed.fit(pairs, labels).predict_proba(new_pairs))


tried = learner.choice_.to_frame().query("prior == @learner.prior_ and flip_rate == 0")
path = tried[np.isfinite(tried["alpha"])].sort_values("alpha")
alphas = np.geomspace(path["alpha"].min() / 8, path["alpha"].max() * 8, 13)

fig, ax = plt.subplots(layout="constrained")
look = {"fmt": "o-", "color": "#0072B2", "capsize": 3}
ax.errorbar(path["alpha"], path["loss"], path["standard_error"], **look, label="held-out pairs")
ax.plot(alphas, [loss_of(alpha) for alpha in alphas], "s--", color="#D55E00", label="20,000 new pairs")
ax.axvline(learner.alpha_, color="#4a4f57", linewidth=0.8, label="chosen")
ax.axhline(learner.baseline_.plain_loss, color="#4a4f57", linestyle=":", label="plain distance")
ax.set(xscale="log", xlabel="alpha", ylabel="log loss")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# The plain distance and the learned metric on the same held-out pairs, and the paper's estimator on new ones.

print(learner.baseline_.summary())
paper = cf.LinearMetricLearner(alpha=0, flip_rate=0).fit(pairs, labels)
for name, each in (("default", learner), ("alpha=0", paper)):
    accuracy = each.score(new_pairs, data.true_labels[300:])
    loss = log_loss(new_labels, each.predict_proba(new_pairs))
    print(f"{name}: log loss on new pairs {loss:.2f}, accuracy on their true labels {accuracy:.1%}")
plt.show()
