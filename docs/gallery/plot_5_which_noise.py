"""
Which noise made the labels wrong?
==================================

A noise model says how often labels are wrong at each distance from the threshold.
``check_noise_model`` tests whether the labels agree with it, and says what to try where they do not.
"""

# %%
# The noise of these labels is of two kinds: logistic, which confuses pairs near the threshold, and one label in twenty
# that is turned over whatever the distance.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

data = cf.datasets.make_pairs(10_000, 4, rank=2, wrong_share=0.1, random_state=0)
flipped = np.random.default_rng(0).uniform(size=len(data.labels)) < 0.05
labels = np.where(flipped, -data.labels, data.labels)

# %%
# The default model knows nothing of such flips, and the test notices.

plain = cf.LinearMetricLearner().fit(data.pairs, labels)
print(plain.check_noise_model().advice)

# %%
# With the advice taken, no doubt is left, and the share of flips is found.

better = cf.LinearMetricLearner(flip_rate="estimate").fit(data.pairs, labels)
print(better.check_noise_model().advice)
print(f"Flipped labels: {flipped.mean():.3f}, estimated {better.flip_rate_:.3f}.")

# %%
# Side by side.  The band holds 95 % of such differences if the model is right.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
models = {"without flips": plain, "with flips": better}
for ax, (name, learner) in zip(axes, models.items(), strict=True):
    cf.plot.noise_check(learner, ax=ax)
    ax.set_title(f"{name}: {ax.get_title()}")
axes[1].set_ylabel("")

# %%
# It matters for the metric too: flips that are taken for noise make the probabilities less sharp, and the
# true labels are predicted a little worse.

for name, learner in models.items():
    agreement = learner.score(data.pairs, data.true_labels)
    print(f"{name:<13} agrees with {agreement:.1%} of the true labels")
plt.show()
