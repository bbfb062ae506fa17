"""
Choosing the penalty
====================

With few pairs, a metric with a free entry for every two columns overfits.
The penalty ``alpha`` shrinks it, and cross-validation chooses how much.
"""

# %%
# There are two hundred pairs and ten columns, so M has 55 free entries.  Twenty thousand more pairs show which alpha
# would have been best.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

import closefar as cf

data = cf.datasets.make_pairs(20_200, 10, rank=2, wrong_share=0.1, random_state=0)
pairs, labels = data.pairs[:200], data.labels[:200]
new_pairs, new_labels = data.pairs[200:], data.labels[200:]

fixed = {"alpha_scale": "data", "shrink_to": "zero", "relax_threshold": False, "flip_rate": 0.0}
search = cf.LinearMetricLearnerCV(7, **fixed).fit(pairs, labels)
print(f"Chosen: alpha = {search.alpha_:.3g}")

# %%
# The plot shows the log loss against alpha, as estimated by five-fold cross-validation on the two hundred pairs, and as
# measured on the new pairs.

results = search.cv_results_
alphas = results["param_alpha"].astype(float)
loss = -results["mean_test_score"]
error = results["std_test_score"] / np.sqrt(4)
learners = [cf.LinearMetricLearner(alpha=alpha).fit(pairs, labels) for alpha in alphas[1:]]
real = [log_loss(new_labels, each.predict_proba(new_pairs)) for each in learners]

fig, ax = plt.subplots(layout="constrained")
look = {"fmt": "o-", "color": "#0072B2", "capsize": 3}
ax.errorbar(alphas[1:], loss[1:], error[1:], **look, label="cross-validation")
ax.plot(alphas[1:], real, "s--", color="#D55E00", label="20,000 new pairs")
ax.axvline(search.alpha_, color="#4a4f57", linestyle=":", label="chosen")
ax.set(xscale="log", xlabel="alpha", ylabel="held-out log loss")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
print(f"Cross-validated loss without a penalty: {loss[0]:.2f}, smallest: {loss.min():.2f}")

# %%
# A penalty also makes the metric simpler by lowering its rank.

for learner in learners:
    accuracy = learner.score(new_pairs, data.true_labels[200:])
    print(
        f"alpha {learner.alpha:.4f}: rank {learner.metric_.rank}, accuracy on true labels {accuracy:.1%}",
    )
plt.show()
