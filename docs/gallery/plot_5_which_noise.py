"""
Checking the noise model
========================

A noise model describes how often labels are wrong at each distance from the threshold.
``check_noise_model`` tests whether the labels agree with it, and suggests what to try if they do not.
"""

# %%
# These labels have two kinds of noise: logistic noise, which affects pairs near the threshold, and one label in twenty
# that is flipped regardless of distance.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

data = cf.datasets.make_pairs(10_000, 4, rank=2, wrong_share=0.1, random_state=0)
flipped = np.random.default_rng(0).uniform(size=len(data.labels)) < 0.05
labels = np.where(flipped, -data.labels, data.labels)

# %%
# If flips are not allowed for, the test detects them.

plain = cf.LinearMetricLearner(flip_rate=0).fit(data.pairs, labels)
print(plain.check_noise_model().advice)

# %%
# By default the flip rate is estimated where that predicts held-out labels better, and the test finds no problem.

better = cf.LinearMetricLearner().fit(data.pairs, labels)
print(better.check_noise_model().advice)
print(f"Flipped labels: {flipped.mean():.3f}, estimated {better.flip_rate_:.3f}.")

# %%
# The plots show both models.  The band contains 95% of the differences if the model is correct.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
models = {"without flips": plain, "with flips": better}
for ax, (name, learner) in zip(axes, models.items(), strict=True):
    cf.plot.noise_check(learner, ax=ax)
    ax.set_title(f"{name}: {ax.get_title()}")
axes[1].set_ylabel("")

# %%
# Flips matter for the metric too: if they are treated as noise, the probabilities are less certain, and the accuracy on
# the true labels is a little lower.

for name, learner in models.items():
    accuracy = learner.score(data.pairs, data.true_labels)
    print(f"{name:<13} accuracy on true labels {accuracy:.1%}")
plt.show()
