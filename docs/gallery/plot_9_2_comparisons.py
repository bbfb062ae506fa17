"""
Odd ones out and other comparisons
==================================

Which of three things is the odd one out?
Such answers are triplets, and triplets are enough to learn a metric.
"""

# %%
# Sixty things have five columns, of which two combinations matter to people.  They are shown three things at a time,
# and name the one that does not belong: the one opposite to the side that looks shortest to them.

import matplotlib.pyplot as plt
import numpy as np

import closefar as cf

rng = np.random.default_rng(0)
things = rng.normal(size=(60, 5))
view = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])

shown = rng.permuted(np.tile(np.arange(60), (3000, 1)), axis=1)[:, :3]
seen = things @ view
sides = [np.sum((seen[shown[:, a]] - seen[shown[:, b]]) ** 2, axis=1) for a, b in ((1, 2), (0, 2), (0, 1))]
odd = np.argmin(sides + 0.7 * rng.logistic(size=(3, 3000)), axis=0)

# %%
# Each answer is two triplets.  They refer to things by their numbers.

triplets = cf.judgements.triplets_from_odd_one_out(shown, shown[np.arange(3000), odd])
print(f"{len(shown):,} answers, {len(triplets):,} triplets, such as {triplets[0].tolist()}")

learner = cf.ComparisonMetricLearner().fit(cf.Tuples(things, triplets))
print(learner.metric_)
print(f"Share of triplets agreed with: {learner.score(cf.Tuples(things, triplets)):.1%}")

# %%
# The metric maps things to the two dimensions that people looked at, also those that nobody has seen yet.

new_things = rng.normal(size=(500, 5))
learned = learner.metric_.squared_distance(new_things[:250] - new_things[250:])
true = np.sum(((new_things[:250] - new_things[250:]) @ view) ** 2, axis=1)

fig, ax = plt.subplots(layout="constrained")
ax.scatter(np.sqrt(true), np.sqrt(learned), s=9, color="#0072B2")
ax.set(xlabel="true distance of new things", ylabel="learned distance")
ax.spines[["top", "right"]].set_visible(False)

# %%
# There is no threshold: comparisons say which distances are larger, not which are large.  A hundred labelled pairs
# give one, with an interval.

pairs = cf.Tuples(new_things, np.column_stack([np.arange(100), np.arange(250, 350)]))
labels = np.where(true[:100] + rng.logistic(size=100) > 4.0, "far", "close")
found = learner.calibrate_threshold(pairs, labels)
print(found)
plt.show()
