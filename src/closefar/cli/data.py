"""From the options of a command to pairs, labels and predictions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closefar.cli.options import Columns, Files, Learning, NewData, WeightedFiles
from closefar.cli.session import REPORT, Session, named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from closefar.arrays import FloatArray
    from closefar.fitting import Fit, Scores
    from closefar.judgements import Judgements
    from closefar.learners import MetricLearner, Model
    from closefar.model import Metric
    from closefar.tables import Pairs, Source

# ---------------------------------------------------------------------------------------------------------------------
# Which judgements a table holds, two labels, levels or comparisons, and what is said of them on the screen.


_MOST_LEVELS = 21  # that numbers are treated as without --levels: 0 to 20
_MOST_NAMED = 5

# Labels, in lower case, that say by themselves which one is far.
_PLAIN = {("close", "far"), ("0", "1"), ("-1", "1"), ("false", "true")}


def words_in_order(labels: Any, far: str | None, levels: tuple[str, ...] | None) -> tuple[str, ...]:
    """The labels from closest to farthest: two of them, or levels.

    Parameters
    ----------
    labels : array of texts
    far : str, optional
        The one of two labels that means far.
    levels : tuple of str, optional
        All of them in order; more than two numbers are in order by themselves.
    """
    counts = _counts(labels)
    if levels is not None:
        return _ordered(counts, levels)
    if len(counts) == 2:
        return _two_sides(counts, far)
    words = sorted(counts)
    numbers = [word for word in words if _number(word) is not None]
    if len(words) < 2 or len(numbers) < len(words):
        mixed = "numbers and words, " if numbers and len(words) > 2 else ""
        words.sort(key=lambda word: _number(word) is not None)  # a few words among numbers come first
        raise ValueError(
            "there must be two labels, one for close and one for far, or levels, which are numbers or in the order of "
            f"--levels; got {mixed}{len(words)} in all: {_named(counts, words)}. Correct the label column, choose "
            "another with --label, or give all labels from closest to farthest with --levels."
        )
    levels = tuple(sorted(words, key=float))
    if len(levels) > _MOST_LEVELS:
        raise ValueError(
            f"numbers are treated as levels if there are at most {_MOST_LEVELS} different ones; got {len(levels)}: "
            f"{_named(counts, levels)}. Round them to fewer levels, or list them all with --levels."
        )
    if far is not None:
        raise ValueError(
            f"--far says which of two labels means far; got --far {far} with the {len(levels)} levels "
            f"{', '.join(levels)}. Leave it out; --levels gives an order from closest to farthest."
        )
    return levels


def _ordered(counts: dict[str, int], levels: tuple[str, ...]) -> tuple[str, ...]:
    """The levels, which must be those of the labels."""
    words = in_words(list(counts), levels)
    unknown = sorted(set(words) - set(levels))
    if unknown:
        raise ValueError(
            f"--levels must list every label, from closest to farthest; got {', '.join(levels)}, without "
            f"{_named({word: counts.get(word, 0) for word in unknown}, unknown)}. Add what is missing, or correct the "
            "labels."
        )
    unused = [level for level in levels if level not in words]
    if unused:
        raise ValueError(
            f"each level must have a judgement, or its thresholds are undetermined; nobody used "
            f"{', '.join(map(repr, unused))}. Leave it out of --levels, or merge it with the next one."
        )
    return levels


def _two_sides(counts: dict[str, int], far: str | None) -> tuple[str, str]:
    first, second = words = sorted(counts)
    if far is None:
        if tuple(sorted(map(_plainly, words))) not in _PLAIN:
            raise ValueError(
                f"it is not clear which label means far: they are {_named(counts, words)}. "
                f"Use --far {second!r} or --far {first!r}."
            )
        far = max(words, key=_plainly)
    elif far not in words:
        raise ValueError(f"--far must be one of the two labels {_named(counts, words)}; got {far!r}.")
    return (first, second) if far == second else (second, first)


def in_words(labels: Any, words: tuple[str, ...]) -> Any:
    """The labels with a number as one of these words has it: 1.0 as 1."""
    import numpy as np

    from closefar.judgements import CodedLabels

    by_number = {_number(word): word for word in words if _number(word) is not None}
    if isinstance(labels, CodedLabels):
        return CodedLabels(in_words(labels.words.tolist(), words), labels.codes)
    if isinstance(labels, list):
        return [label if label in words else by_number.get(_number(label), label) for label in labels]
    known, codes = np.unique(labels.astype(str), return_inverse=True)
    return np.array(in_words(known.tolist(), words), dtype=object)[codes]


def answers_used(labels: Any, answers: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Those of the possible answers that were given, in their order; None where fewer than two were."""
    given = set(_counts_as_written(labels))
    used = tuple(answer for answer in answers or () if answer in given)
    return used if len(used) > 1 else None


def with_words(table: Pairs, words: tuple[str, ...]) -> Pairs:
    """The table with the labels of these levels."""
    if len(words) == 2 and len(_counts_as_written(table.labels)) == 2:
        return table
    labels: Any = in_words(table.labels, words)
    return table.with_labels(labels)


def note_levels(session: Session, words: tuple[str, ...], *, is_ordered: bool) -> None:
    """Say which levels were recognised and, unless somebody has put them in order, how to reverse them."""
    if len(words) == 2:
        return
    first, *middle, last = words
    order = f"{len(words)} levels: {', '.join([f'{first} (closest)', *middle, f'{last} (farthest)'])}."
    reverse = f" If they rate similarity, reverse them with --levels {','.join(reversed(words))}."
    session.warn(order if is_ordered else order + reverse)


def _counts(labels: Any) -> dict[str, int]:
    """How many rows have each label; numbers count as the same however they are written."""
    counts = _counts_as_written(labels)
    if len(counts) <= 2:
        return counts
    written: dict[float, str] = {}
    together: Counter[str] = Counter()
    for word, count in counts.items():
        number = _number(word)
        together[word if number is None else written.setdefault(number, f"{number:.15g}")] += count
    return dict(together)


def _counts_as_written(labels: Any) -> dict[str, int]:
    counts: dict[str, int] = labels.counts() if hasattr(labels, "counts") else Counter(labels.tolist())
    return counts


def _named(counts: dict[str, int], words: Any) -> str:
    named = ", ".join(f"{word[:60]!r} ({counts[word]})" for word in words[:_MOST_NAMED])
    return f"{named}{', ...' if len(words) > _MOST_NAMED else ''}"


def _number(word: str) -> float | None:
    """The finite number that a label is; None for other labels."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in word else None


def _plainly(word: str) -> str:
    """The label in lower case; a whole number as 1, however it is written."""
    try:
        return f"{float(word):g}"
    except ValueError:
        return word.lower()


N_FOLDS = 5
_ROWS_WRITTEN = 1 << 17  # at a time
_LARGEST_SCALE = 1e75


def read_labelled(
    session: Session, files: Files, columns: Columns, learning: Learning
) -> tuple[Pairs, tuple[str, ...], Source]:
    """Read pairs with their labels, and which labels there are from closest to farthest; or comparisons."""
    from closefar.tables import read_or_open_pairs

    source = files.source()
    with session.stage("reading"):
        table = read_or_open_pairs(source, labelled=True, **columns.encoding_options())
    session.warn(*table.notes, *(() if table.comparisons is None else table.comparisons.notes))
    if table.are_comparisons:
        return table, (), source
    recorded = None if learning.far or learning.levels else answers_used(table.labels, files.recorded_answers)
    words = words_in_order(table.labels, learning.far, learning.levels_in_order or recorded)
    note_levels(session, words, is_ordered=bool(learning.levels or recorded))
    return with_words(table, words), words, source


def read_for_model(
    session: Session, path: Path, files: Files, new_data: NewData, *, labelled: bool
) -> tuple[Model, Pairs]:
    """Read a model, and pairs or comparisons as those of its fit were read."""
    from closefar.learners import Model
    from closefar.tables import read_or_open_pairs

    model = Model.load(path)
    source = model.source(files.source())
    if files.are_single != model.is_single:
        need = "single points: use --points alone" if model.is_single else "pairs: use --pairs, usually with --points"
        if not model.is_single and not model.metric.thresholds:
            need = "comparisons: use --comparisons with --points"
        raise ValueError(f"the model was fitted to {need}.")
    with session.stage("reading"):
        table = read_or_open_pairs(source, encoding=new_data.encoding_of(model), labelled=labelled)
    session.warn(*table.notes, *(() if table.comparisons is None else table.comparisons.notes))
    return model, with_words(table, model.classes) if labelled and len(model.classes) > 2 else table


def fit_learner(session: Session, table: Pairs, words: tuple[str, ...], learning: Learning) -> MetricLearner:
    """Fit to a table of pairs or comparisons."""
    from closefar.judgements import Tuples
    from closefar.tables import labels_of, others_of

    learner = learning.learner(words, verbose=session.is_watched)
    # The learner finds points that pairs share, so that the same judgements give the same metric in Python; not those
    # that only ids tell.
    groups = None if isinstance(table.data, Tuples) else _shared_ids(table)
    if table.groups is not None:
        groups = table.groups.astype(str)
    options = {"feature_names": table.encoding.feature_names, **others_of(table), **learning.fit_options()}
    with session.stage("fitting", shows_itself=True):
        learner.fit(table.data, labels_of(table), table.weights, groups=groups, **options)
    for name, scale in zip(table.encoding.feature_names, learner.fit_statistics_.column_scales, strict=True):
        if scale != 0 and not 1 / _LARGEST_SCALE < scale < _LARGEST_SCALE:
            raise ValueError(
                f"differences in a column must be between {1 / _LARGEST_SCALE:g} and {_LARGEST_SCALE:g} in size; those "
                f"in {name!r} are about {scale:.1g}. Change its units, or leave it out with --drop."
            )
    return learner


def _shared_ids(table: Pairs, rows: Any = slice(None)) -> NDArray[Any] | None:
    """The points of these rows by their ids, where rows share points."""
    from closefar.judgements import share_points

    points: Any = None
    if len(table.id_names) > 1:
        points = table.identity.codes if isinstance(rows, slice) else table.identity.index[rows]
    return points if share_points(points) else None


def groups_of(session: Session, table: Pairs, remedy: str = "cross-validation is by point") -> NDArray[Any] | None:
    """Which pairs depend on each other: those of a group, or those that share points by their ids or values.

    A note says so, and what is done about it.
    """
    from closefar.arrays import numbered
    from closefar.judgements import find_points

    if table.groups is not None:
        return table.groups.astype(str)
    points = _shared_ids(table)
    if points is None:
        points = find_points(table.data)
    if points is not None:
        noun = "comparisons" if table.are_comparisons else "pairs"
        session.warn(
            f"these {len(points):,} {noun} have only {numbered(points)[1]:,} different points, so they are not "
            f"independent: {remedy}. If {noun} depend on each other in another way, name the column of their groups "
            "with --group."
        )
    return points


def sampled_groups(table: Pairs, used: Judgements) -> NDArray[Any]:
    """Which of some pairs of the table depend on each other, as `groups_of` has it, without a note."""
    import numpy as np

    from closefar.judgements import find_points

    if table.groups is not None:
        return table.groups[used.numbers].astype(str)
    points = _shared_ids(table, used.numbers)
    if points is None:
        points = find_points(used.data)
    return np.arange(len(used)) if points is None else points


def folds_of(
    session: Session, table: Pairs, words: tuple[str, ...], groups: NDArray[Any] | None, n_folds: int = N_FOLDS
) -> tuple[int, NDArray[Any] | None]:
    """The number of folds that the groups allow, and the groups; by pair where they allow none."""
    import numpy as np

    from closefar.judgements import most_folds

    judgements = read_judgements(table, words)
    if words:
        n_folds = max(2, min(n_folds, int(np.bincount(judgements.codes, minlength=len(words)).min())))
    if groups is None:
        return n_folds, None
    allowed = most_folds(n_folds, judgements, groups, seed=0)
    if allowed >= 2:
        return allowed, groups
    noun, labels = ("pair", "both labels" if len(words) == 2 else "all labels") if words else ("comparison", "enough")
    session.warn(
        f"cross-validation is by {noun}, as no folds that keep groups or points apart have {labels}: results hold for "
        f"new {noun}s of the same points or groups, and may be worse for others."
    )
    return n_folds, np.arange(len(table))


def squared_distances(table: Pairs, model: Model) -> FloatArray:
    """The squared distance of each pair, which must be a number."""
    import numpy as np

    with np.errstate(all="ignore"):
        squared = model.metric.measure(table.data if table.is_single else table)
    beyond = np.flatnonzero(~np.isfinite(squared))
    if len(beyond):
        first = ", ".join(np.atleast_1d(table.ids[beyond[0]]).tolist())
        raise ValueError(f"the distance of {first} is too large to compute. Look for enormous values there.")
    return squared


def directions_of(metric: Metric) -> list[dict[str, Any]]:
    """Directions 1, 2, ... of a metric for programs: how much each weighs, and its weight for each column."""
    found = metric.directions()
    value = "mean_squared_distance" if found.is_data_scale else "eigenvalue"
    rows = zip(found.values.tolist(), found.shares.tolist(), metric.components.tolist(), strict=True)
    return [
        {"direction": number, value: size, "share": share, "weights": weights}
        for number, (size, share, weights) in enumerate(rows, start=1)
    ]


def with_ids(
    table: Pairs, columns: dict[str, NDArray[Any]], order: NDArray[Any] | None = None
) -> Iterator[dict[str, NDArray[Any]]]:
    """Put the ids before the columns of a result; gives some rows at a time, in this order if there is one."""
    names = table.id_names
    clash = [name for name in names if name in columns]
    if clash:
        raise ValueError(f"the id column {clash[0]!r} has the name of a column of the result. Rename it.")
    return _blocks_with_ids(table.identity, names, columns, order)


def _blocks_with_ids(
    identity: Any, names: Sequence[str], columns: dict[str, NDArray[Any]], order: NDArray[Any] | None
) -> Iterator[dict[str, NDArray[Any]]]:
    import numpy as np

    n_rows = len(next(iter(columns.values()))) if order is None else len(order)
    for start in range(0, max(n_rows, 1), _ROWS_WRITTEN):
        rows = slice(start, start + _ROWS_WRITTEN)
        where = rows if order is None else order[rows]
        ids = identity.take(where).texts
        block = dict(zip(names, ids.reshape(len(ids), -1).T, strict=True))
        yield block | {name: np.asarray(column[where]) for name, column in columns.items()}


def read_judgements(table: Pairs, words: tuple[str, ...], **annotators: Any) -> Judgements:
    """The pairs with their labels, which must be among these words, or the comparisons."""
    from closefar.judgements import Columns, Judgements, Sides
    from closefar.tables import labels_of

    columns, labels = Columns(len(table.encoding.feature_names)), labels_of(table)
    if table.are_comparisons:
        return Judgements.read_comparisons(columns, table.data, labels, table.weights, fitting=False)
    return Judgements.read_more(columns, table.data, labels, table.weights, sides=Sides.in_order(words), **annotators)


def scored_by(model: Model, table: Pairs) -> Scores:
    """The judgements of a table, scored by the model; annotators whom it knows have their own strictness."""
    if not table.are_comparisons and not model.classes:
        raise ValueError(
            "the model was fitted to comparisons, so it has no threshold by which pairs could be called close or far. "
            "Give --comparisons, or fit a threshold with calibrate_threshold in Python."
        )
    if table.are_comparisons:
        return model.scorer().score(read_judgements(table, ()))
    squared, known = squared_distances(table, model), model.annotators
    if table.annotators is None or not known:
        return model.scorer().score(read_judgements(table, model.classes), squared)
    others = sorted(set(table.annotators) - set(known))
    names = {"annotators": table.annotators, "known_annotators": (*known, *others)}
    return model.scorer(len(others)).score(read_judgements(table, model.classes, **names), squared)


def report_of(
    session: Session,
    learner: Fit | MetricLearner,
    path: Path,
    table: Pairs,
    *judged: Any,
    files: WeightedFiles,
    model: Path,
    title: str | None,
) -> bytes:
    """The content of a report, which names the files behind it; `judged` as for `encode_report`."""
    from closefar.report import N_PARTS, Provenance, encode_report

    points, pairs, comparisons, judgements = (None if path is None else str(path) for path in files.paths)
    provenance = Provenance(points, pairs, str(model), table.encoding.categories, comparisons, judgements)
    groups = groups_of(session, table, *(["intervals are wider for it"] if judged else []))
    ids = table.ids if hasattr(table, "points") or table.id_names != ("row",) else None  # a file has many row numbers
    options = {"title": title, "provenance": provenance, "ids": ids, "groups": groups}
    with session.stage("report", n_parts=N_PARTS) as tell:
        return encode_report(learner, named(path, REPORT), *judged, **options, watch=tell)
