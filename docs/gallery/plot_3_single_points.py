"""
Single points and a learned origin
==================================

Sometimes there are no pairs: each row is one object, and its label says whether it is close to normal or far from it.
With ``fit_origin`` the learner also finds the point from which distances are measured.
"""

# %%
# The breast cancer data have 569 tumours and thirty columns.  Benign tumours are close to the origin, malignant ones
# are far from it.  With thirty columns M has 465 free entries, nearly as many as there are tumours in the training set,
# so the learner chooses a penalty; rank 2 allows the result to be plotted.

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import closefar as cf

data = load_breast_cancer(as_frame=True)
names = data.target_names[data.target]
X_fit, X_new, y_fit, y_new = train_test_split(data.data, names, test_size=119, random_state=0)
learner = cf.LinearMetricLearner(fit_origin=True, rank=2, far_label="malignant")
learner.fit(X_fit, y_fit)
accuracy = learner.score(X_new, y_new)
print(f"Accuracy on {len(y_new)} held-out tumours: {accuracy:.1%}.")

# %%
# The circle is the threshold around the learned origin.  The farther a tumour is from the circle, the clearer its
# classification.

cf.plot.embedding(learner, X_new, y_new)

# %%
# The loadings show how much each column contributes to the two directions.  A loading is the weight of a column times
# its standard deviation, so columns in different units can be compared.

cf.plot.loadings(learner, n_features=15)
plt.show()
