"""
Single points and a learned origin
==================================

Sometimes there are no pairs: each row is one object, and its label says whether it is within some norm or not.
With ``fit_origin`` the learner also finds the point that distances are measured from.
"""

# %%
# The breast-cancer data have 569 tumours with thirty columns.  Benign is close to the origin, malignant is far from
# it.  Thirty columns have 465 products, nearly as many as there are tumours to fit to, so a penalty is needed; rank 2
# makes the result a picture.

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import closefar as cf

data = load_breast_cancer(as_frame=True)
names = data.target_names[data.target]
X_fit, X_new, y_fit, y_new = train_test_split(
    data.data,
    names,
    test_size=119,
    random_state=0,
)
learner = cf.LinearMetricLearner(
    fit_origin=True,
    rank=2,
    alpha=0.03,
    alpha_scale="columns",
    far_label="malignant",
)
learner.fit(X_fit, y_fit)
right = learner.score(X_new, y_new)
print(f"Right on {right:.1%} of {len(y_new)} tumours that the fit has not seen.")

# %%
# The circle is the threshold around the learned origin.  Its radius is a distance, so where a tumour lies says how
# clear its case is.

cf.plot.embedding(learner, X_new, y_new)

# %%
# What the two directions are made of.  A loading is the weight of a column times its standard deviation, so that
# columns of different units compare.

cf.plot.loadings(learner, n_features=15)
plt.show()
