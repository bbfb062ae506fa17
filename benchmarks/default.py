"""How good is a learner without arguments?  On new points, beside the plain distance and logistic regression.

Pairs of points of a table are close if both have the same class, and some labels are wrong.  Points are split: 70 % are
for training, and all test pairs are of the others.  Accuracy is that of the true labels; the log loss is that of labels
as noisy as the training ones.  With `--data`, also the published judgements of sentence pairs in that folder, as npz
files of `points`, `index`, `answer` (1 is far) and `split` (0 is for training, 2 for testing).

    python benchmarks/default.py --seeds 5 --out benchmarks/default_results.json

It ends with the tables of docs/few_pairs.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

import closefar as cf

SIZES = {"iris": (60, 300), "wine": (60, 300, 1000), "breast_cancer": (60, 600, 3000), "digits": (300, 2000)}
WRONG = (0.0, 0.1, 0.2, 0.3)
METHODS = ("plain", "regression", "closefar")
N_TESTED = 2000
FIRST_SEED = 1000  # the constants of the choice were set on seeds below this


def draw_pairs(classes: Any, among: Any, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """As many close as far pairs of these points, none of them twice."""
    found: dict[tuple[int, int], bool] = {}
    left = {True: n // 2, False: n - n // 2}
    while any(left.values()):
        a, b = sorted(rng.choice(among, 2, replace=False).tolist())
        is_far = bool(classes[a] != classes[b])
        if (a, b) not in found and left[is_far]:
            found[a, b] = is_far
            left[is_far] -= 1
    return np.array(list(found)), np.array(list(found.values()), dtype=int)


def scores(far: Any, truth: Any, labels: Any) -> tuple[float, float]:
    """Accuracy on the truth, and log loss on labels."""
    far = np.clip(far, 1e-12, 1.0 - 1e-12)
    return float(np.mean((far > 0.5) == truth)), float(-np.mean(np.log(np.where(labels == 1, far, 1.0 - far))))


def plain_probabilities(points: Any, index: Any, labels: Any, tested: Any) -> Any:
    """The Euclidean distance with a fitted logistic threshold."""

    def squared(pairs: Any) -> Any:
        return np.sum((points[pairs[:, 0]] - points[pairs[:, 1]]) ** 2, axis=1)[:, None]

    scale = squared(index).mean()
    model = LogisticRegression(C=1e6, max_iter=1000).fit(squared(index) / scale, labels)
    return model.predict_proba(squared(tested) / scale)[:, 1]


def regression_probabilities(points: Any, index: Any, labels: Any, tested: Any) -> Any:
    """Logistic regression on absolute differences, its penalty cross-validated."""

    def differences(pairs: Any) -> Any:
        return np.abs(points[pairs[:, 0]] - points[pairs[:, 1]])

    model = LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=2000)
    return model.fit(differences(index), labels).predict_proba(differences(tested))[:, 1]


def run_table(name: str, wrong: float, n: int, seed: int) -> dict[str, float]:
    """One split of a table: accuracy, log loss and CPU seconds of each method."""
    points, classes = getattr(datasets, f"load_{name}")(return_X_y=True)
    rng = np.random.default_rng([seed, n, round(100 * wrong), len(points)])
    order = rng.permutation(len(points))
    train, test = np.split(order, [int(0.7 * len(points))])
    index, truth = draw_pairs(classes, train, n, rng)
    tested, test_truth = draw_pairs(classes, test, min(N_TESTED, len(test) * (len(test) - 1) // 8), rng)
    labels = np.where(rng.random(n) < wrong, 1 - truth, truth)
    test_labels = np.where(rng.random(len(tested)) < wrong, 1 - test_truth, test_truth)
    standardized = StandardScaler().fit(points[train]).transform(points)
    start = time.process_time()
    learner = cf.LinearMetricLearner().fit(cf.Tuples(points, index), labels)
    seconds = time.process_time() - start
    found = {"closefar": learner.predict_proba(cf.Tuples(points, tested))[:, 1]}
    found["plain"] = plain_probabilities(standardized, index, labels, tested)
    found["regression"] = regression_probabilities(standardized, index, labels, tested)
    result = {"seconds": seconds, "flip_rate": float(learner.flip_rate_)}
    for method, far in found.items():
        result[f"{method}_accuracy"], result[f"{method}_log_loss"] = scores(far, test_truth, test_labels)
    return result


def run_judgements(path: Path) -> dict[str, Any]:
    """A published split of human judgements."""
    data = np.load(path)
    points, index, answer, split = data["points"].astype(float), data["index"], data["answer"], data["split"]
    train, test = split == 0, split == 2
    start = time.process_time()
    learner = cf.LinearMetricLearner().fit(cf.Tuples(points, index[train]), answer[train])
    result: dict[str, Any] = {"name": path.stem, "n": int(train.sum()), "seconds": time.process_time() - start}
    found = {"closefar": learner.predict_proba(cf.Tuples(points, index[test]))[:, 1]}
    found["plain"] = plain_probabilities(points, index[train], answer[train], index[test])
    for method, far in found.items():
        result[f"{method}_accuracy"], result[f"{method}_log_loss"] = scores(far, answer[test], answer[test])
        result[f"{method}_auc"] = float(roc_auc_score(answer[test], far))
    return result


def as_markdown(record: dict[str, Any]) -> str:
    """The tables of docs/few_pairs.md: accuracy and log loss, means over seeds and shares of wrong labels."""
    lines = ["| table, pairs | plain distance | logistic regression | closefar | CPU s |", "|---|---|---|---|---|"]
    for table, n in dict.fromkeys((row["table"], row["n"]) for row in record["tables"]):
        mean = mean_of([row for row in record["tables"] if (row["table"], row["n"]) == (table, n)], skipped=("table",))
        figures = [f"{mean[f'{m}_accuracy']:.3f} / {mean[f'{m}_log_loss']:.3f}" for m in METHODS]
        lines.append(f"| {table.replace('_', ' ')}, {n:,} | {' | '.join(figures)} | {mean['seconds']:.1f} |")
    lines += ["", "| judgements, training pairs | plain distance | closefar | CPU s |", "|---|---|---|---|"]
    for row in record["judgements"]:
        figures = [
            f"{row[f'{m}_accuracy']:.3f} / {row[f'{m}_log_loss']:.3f} / {row[f'{m}_auc']:.3f}"
            for m in ("plain", "closefar")
        ]
        lines.append(f"| {row['name']}, {row['n']:,} | {' | '.join(figures)} | {row['seconds']:.1f} |")
    return "\n".join(lines)


def mean_of(rows: list[dict[str, Any]], skipped: tuple[str, ...] = ()) -> dict[str, float]:
    names = [name for name in rows[0] if name not in skipped]
    return {name: round(float(np.mean([row[name] for row in rows])), 4) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", default=",".join(SIZES))
    parser.add_argument("--data", type=Path, help="a folder of judgements")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    record: dict[str, Any] = {"seeds": list(seeds), "tables": [], "judgements": []}
    for name in options.tables.split(","):
        for n in SIZES[name]:
            for wrong in WRONG:
                row = {"table": name, "n": n, "wrong": wrong, **mean_of([run_table(name, wrong, n, s) for s in seeds])}
                record["tables"].append(row)
                print(json.dumps(row), flush=True)
    for path in sorted(options.data.glob("*.npz")) if options.data else ():
        if "split" in np.load(path):
            record["judgements"].append(run_judgements(path))
            print(json.dumps(record["judgements"][-1]), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(as_markdown(record))


if __name__ == "__main__":
    main()
