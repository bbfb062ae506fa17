"""
Choosing the penalty
====================

Where there are few pairs, a metric with a free number for each two columns learns the noise as well.
The penalty ``alpha`` shrinks it, and cross-validation says how much.
"""

# %%
# Two hundred pairs of ten columns, so 55 free numbers.  Twenty thousand more pairs show what would have been best.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

import closefar as cf

data = cf.datasets.make_pairs(20_200, 10, rank=2, wrong_share=0.1, random_state=0)
pairs, labels = data.pairs[:200], data.labels[:200]
new_pairs, new_labels = data.pairs[200:], data.labels[200:]

search = cf.LinearMetricLearnerCV(7, alpha_scale="data", shrink_to="zero", flip_rate=0.0).fit(pairs, labels)
print(f"Chosen: alpha = {search.alpha_:.3g}")

# %%
# The loss of held-out labels by alpha, as five folds of the two hundred pairs estimate it, and as it is.

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
ax.set(xscale="log", xlabel="alpha", ylabel="loss of labels not seen")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
print(f"Loss of the folds without a penalty: {loss[0]:.2f}, least: {loss.min():.2f}")

# %%
# A penalty also makes the metric simpler: its rank falls.

for learner in learners:
    accuracy = learner.score(new_pairs, data.true_labels[200:])
    print(
        f"alpha {learner.alpha:.4f}: rank {learner.metric_.rank}, agrees with {accuracy:.1%} of the true labels",
    )
plt.show()
