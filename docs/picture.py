"""Draw the picture of the README: python docs/picture.py (needs matplotlib)."""

from pathlib import Path

import matplotlib as mpl
import numpy as np

import closefar as cf

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "closefar", "svg.fonttype": "path", "font.size": 9})
import matplotlib.pyplot as plt  # noqa: E402

data = cf.datasets.make_pairs(
    20_000,
    10,
    metric_eigenvalues=[0.32, 0.89, 0.59, 0.13, 0.14],
    covariance_eigenvalues=[0.73, 0.70, 0.68, 0.59, 0.47, 0.45, 0.21, 0.19, 0.11, 0.04],
    threshold=1.3,
    random_state=2023,
)
train, test = slice(0, 15_000), slice(15_000, None)
learner = cf.LinearMetricLearner().fit(data.pairs[train], data.labels[train])

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
cf.plot.margins(learner, data.pairs[test], data.labels[test], ax=left)
left.set_ylabel("held-out pairs")
agree = learner.score(data.pairs[test], data.true_labels[test])
left.set_title(f"10% of the labels are wrong; {agree:.1%} of the\ntrue ones are recovered", fontsize=9)

index = np.arange(1, 11)
right.bar(index - 0.2, data.metric.eigenvalues / data.metric.threshold, 0.4, color="#b0b0b0", label="true")
right.bar(index + 0.2, learner.metric_.eigenvalues / learner.metric_.threshold, 0.4, color="#0072B2", label="learned")
right.set(xlabel="eigenvalue number", ylabel="eigenvalue of M / threshold", xticks=index)
right.set_title(f"proven within {learner.certificate_.gap:.0e} of the global optimum", fontsize=9)
right.legend(frameon=False)
right.spines[["top", "right"]].set_visible(False)
folder = Path(__file__).parent / "images"
folder.mkdir(exist_ok=True)
figure.savefig(folder / "recovery.svg", metadata={"Date": None})
