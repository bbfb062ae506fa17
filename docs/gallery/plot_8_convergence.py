"""
Convergence, with a proof
=========================

The problem is convex, so every local minimum is global, and a gradient can prove how far away the minimum is.
Every fit ends with such a proof, and records its steps in ``history_``.
"""

# %%
# Three solvers minimise the same loss.  Newton's method suits few columns, L-BFGS on a factor of the metric many, and
# steps with the Hessian of a sample very many pairs.  By default the fit chooses.

import textwrap

import matplotlib.pyplot as plt

import closefar as cf

data = cf.datasets.make_pairs(15_000, 10, rank=5, wrong_share=0.1, random_state=0)
learners = {
    solver: cf.LinearMetricLearner(alpha=0, flip_rate=0, solver=solver).fit(data.pairs, data.labels)
    for solver in ("newton", "lowrank", "sampled")
}
for solver, learner in learners.items():
    loss, gap = learner.certificate_.loss, learner.certificate_.gap
    passes = learner.certificate_.n_passes
    print(f"{solver:<7} loss {loss:.5f}, proven gap {gap:.0e}, passes {passes:.0f}")

# %%
# A pass reads all pairs once, for the loss and its gradient.  The line on the right axis is the objective minus the
# final proven lower bound.  A marker is a gap that was proven at that step: a proof is attempted only when it is likely
# to succeed, because it costs passes too.

fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for ax, solver in zip(axes, ("newton", "sampled"), strict=True):
    cf.plot.convergence(learners[solver], ax=ax)
    ax.set_title(f"{solver}: {ax.get_title()}", fontsize="medium")

# %%
# The proof covers metrics of every rank.  A fit with a fixed rank starts from the convex optimum, and its gap bounds
# what the restriction costs.

learner = cf.LinearMetricLearner(rank=4, alpha=0, flip_rate=0).fit(data.pairs, data.labels)
print(textwrap.fill(learner.certificate_.status))
cf.plot.convergence(learner)
plt.show()
