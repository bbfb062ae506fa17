"""Model files with more than the metric: the encoding of tables, the words of the labels, and the fit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.model import Metric, ModelFileError
from closefar.model.metric import contents_of, load_with_header
from closefar.model.modelfile import check, encode
from closefar.tables import Encoding, Pairs, Source, open_table

# Fits and learners need scikit-learn, which is slow to import: only methods that make one import them.
if TYPE_CHECKING:
    from closefar.fitting import Fit, Scorer
    from closefar.judgements import Kind
    from closefar.learners.base import MetricLearner

_WORDS = ("close", "far")
_ROWS_AT_ONCE = 1 << 16
_REMEMBERED = ("id", "left", "right", "label", "weight", "group", "annotator", "answer")
_LISTS = ("sides", "compared")


@dataclass(frozen=True)
class Model:
    """The model that ``closefar fit`` saves; `closefar.load` reads the metric from the same file.

    Attributes
    ----------
    metric : Metric
    classes : tuple of str
        The words for close and far, or for the levels from closest to farthest; comparisons have none.
    encoding : Encoding
        The encoding of the columns of a table as columns of the metric.
    names : dict
        The names of the columns that were ids, labels and so on.
    is_single : bool
        Whether the model is for single points.
    fit : dict, optional
        Parameters, certificate and figures of the fit; None for a metric that was truncated, or
        saved without its fit.
    truncated : dict, optional
        The rank and the fit of a truncated metric before truncation.
    beside : dict of Metric
        By name: "plain", the plain distance with thresholds that were fitted to the same judgements, if the fit has a
        baseline, and "prior", the metric that M was shrunk to, if it was given.
    """

    metric: Metric
    classes: tuple[str, ...]
    encoding: Encoding
    names: dict[str, Any]
    is_single: bool
    fit: dict[str, Any] | None
    truncated: dict[str, Any] | None = None
    beside: dict[str, Metric] = field(default_factory=dict)

    @classmethod
    def of(cls, learner: MetricLearner, table: Pairs, source: Source) -> Model:
        """Build the model of a learner that was fitted to a table."""
        from closefar.fitting import Fit
        from closefar.learners.stored_fit import classes_of, metrics_beside, store_fit

        fit = Fit.of(learner)
        facts, beside = store_fit(fit, _fingerprint(table)), metrics_beside(fit)
        names = {name: getattr(source, name) for name in (*_REMEMBERED, *_LISTS)} | {"na_values": [*source.na_values]}
        return cls(fit.metric, classes_of(fit), table.encoding, names, table.is_single, facts, beside=beside)

    def to_bytes(self) -> bytes:
        """Return the content of the model file."""
        arrays, header = contents_of(self.metric, self.beside)
        return encode(
            arrays,
            {
                **header,
                "classes": list(self.classes),
                "encoding": self.encoding.to_json(),
                "names": self.names,
                "is_single": self.is_single,
                "fit": self.fit,
                **({} if self.truncated is None else {"truncated": self.truncated}),
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read a file written by `closefar fit`, or by `Metric.save`, whose columns are then numeric."""
        metric, beside, header = load_with_header(path)
        try:
            if "encoding" not in header:
                encoding = Encoding.of_numbers(metric.column_names)
                return cls(metric, _words_of(metric), encoding, {}, metric.origin is not None, None)
            classes = tuple(header["classes"])
            check(all(isinstance(word, str) for word in classes), "classes")
            check(len(classes) == (metric.n_levels if metric.thresholds else 0), "classes")
            encoding = Encoding.from_json(header["encoding"])
            if encoding.feature_names != metric.feature_names:
                raise ValueError("its columns do not match its metric")
            names = dict(header["names"])
            check(all(isinstance(names.get(name) or "", str) for name in _REMEMBERED), "names")
            for name, sizes in zip(_LISTS, ((2,), (3, 4)), strict=True):
                given = names.get(name)
                check(given is None or (len(given) in sizes and all(isinstance(each, str) for each in given)), name)
            check(all(isinstance(word, str) for word in names.get("na_values") or ()), "na_values")
            truncated = header.get("truncated")
            check(truncated is None or isinstance(truncated["rank"], int), "rank")
            is_single = bool(header["is_single"])
            model = cls(metric, classes, encoding, names, is_single, header["fit"], truncated, beside)
            if model._facts is not None:
                check(isinstance(model._facts["fingerprint"], str), "fingerprint")
                check(isinstance(model._facts["summary"], str), "summary")
                check(isinstance(model.comparison_noise, float) and model.comparison_noise > 0, "comparison_noise")
                check(len(model.annotators) == len(model._of_annotators("strictness")), "annotators")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"{path} does not describe a model ({error}). Fit it again.") from error
        return model

    def truncate(self, k: int, scale: str | None = None) -> Model:
        """Keep directions 1 to k; the figures of the fit no longer describe the metric."""
        metric = self.metric.truncate(k, scale)
        if metric is self.metric:
            return self
        rank = self.metric.rank if self.truncated is None else self.truncated["rank"]
        return replace(self, metric=metric, fit=None, truncated={"rank": rank, "fit": self._facts})

    def source(self, given: Source) -> Source:
        """The roles of columns: as in the fit, unless others are given or those columns are missing."""
        in_points, in_pairs, in_comparisons, in_judgements = (
            () if path is None else open_table(path).names
            for path in (given.points, given.pairs, given.comparisons, given.judgements)
        )
        labelled = (*(in_pairs or in_comparisons or in_points), *in_judgements)
        homes = {"id": in_points, "left": in_pairs, "right": in_pairs, "answer": in_comparisons}
        homes |= dict.fromkeys(("label", "weight", "group", "annotator"), labelled)
        found = {role: name for role, name in self.names.items() if name in homes.get(role, ())}
        if not {"left", "right"} <= found.keys():
            found = {role: name for role, name in found.items() if role not in ("left", "right")}
        roles: dict[str, Any] = {role: getattr(given, role) or found.get(role) for role in homes}
        if given.annotator is False or (not self.annotators and given.annotator is None):
            roles["annotator"] = False
        compared = self.names.get("compared")
        if compared is not None and given.compared is None and set(compared) <= set(in_comparisons):
            roles["compared"] = tuple(compared)
        sides, na_values = self.names.get("sides"), given.na_values or tuple(self.names.get("na_values") or ())
        return replace(given, sides=given.sides or (sides and tuple(sides)), na_values=na_values, **roles)

    @property
    def summary(self) -> str | None:
        """The summary of the fit in the words of the command line."""
        return None if self.fit is None else str(self.fit["summary"])

    @property
    def kind(self) -> Kind:
        """Which judgements the model was fitted to."""
        from closefar.judgements import Kind

        if not self.metric.thresholds:
            return Kind.COMPARISONS
        return Kind.LEVELS if len(self.classes) > 2 else Kind.CLOSE_FAR

    @property
    def comparison_noise(self) -> float:
        """The noise of comparisons relative to that of pairs."""
        noise = None if self._facts is None else self._facts.get("comparison_noise")
        return 1.0 if noise is None else noise["value"]

    @property
    def annotators(self) -> tuple[str, ...]:
        """The annotators whose strictness is known."""
        return tuple(self._of_annotators("names"))

    def strictness_of(self, annotator: str) -> float:
        """What a known annotator adds to the thresholds."""
        if annotator not in self.annotators:
            known = ", ".join(self.annotators[:5]) + (", ..." if len(self.annotators) > 5 else "")
            raise ValueError(
                f"--for-annotator must be one of those that the model knows, {known}; got {annotator!r}."
                if known
                else f"the model knows no annotators; got --for-annotator {annotator}. Leave it out."
            )
        return float(self._of_annotators("strictness")[self.annotators.index(annotator)])

    def flip_rate_of(self, annotator: str) -> float | None:
        """The flip rate of a known annotator, if each has their own."""
        rates = self._of_annotators("flip_rates")
        return float(rates[self.annotators.index(annotator)]) if rates else None

    def scorer(self, n_more: int = 0) -> Scorer:
        """What predicts judgements; `n_more` annotators beside the known ones are typical."""
        from closefar.fitting import Scorer

        if not self.annotators:
            return Scorer(self.metric, comparison_noise=self.comparison_noise)
        strictness, flip_rates = self._of_annotators("strictness"), self._of_annotators("flip_rates")
        return Scorer(
            self.metric,
            np.append(strictness, np.zeros(n_more)),
            np.append(flip_rates, np.full(n_more, self.metric.one_flip_rate)) if flip_rates else None,
            self.comparison_noise,
        )

    def _of_annotators(self, name: str) -> Any:
        """A column of the table of annotators."""
        table = None if self._facts is None else self._facts.get("annotators")
        return [] if table is None else table[name] or []

    def is_fitted_to(self, table: Pairs) -> bool:
        """Whether these are exactly the pairs and labels of the fit, or of the fit before truncation."""
        return self._facts is not None and self._facts["fingerprint"] == _fingerprint(table)

    def learner(self, training: Pairs | None = None) -> MetricLearner:
        """Return the fitted learner, with its training pairs if they are given."""
        if self.fit is None:
            raise ValueError(
                "this needs a model with its fit; got a metric that was truncated, or saved by Metric.save. "
                "Make the model with `closefar fit`; --rank limits its rank."
            )
        from closefar.learners.stored_fit import learner_of

        fit = self._fit(self.fit, training)
        learner = learner_of(fit.kind, fit.settings.parameters, self.classes)
        learner.fit_, learner.n_features_in_ = fit, len(self.metric.factor)
        return learner

    def fit_on(self, table: Pairs) -> Fit:
        """Return the fit, with these pairs if they are its training pairs; for a metric alone, its figures on them."""
        from closefar.learners.stored_fit import metric_alone
        from closefar.solve import Outcome

        is_known = self.is_fitted_to(table)
        if self.fit is not None:
            return self._fit(self.fit, table if is_known else None)
        outcome = Outcome.UNKNOWN if self.truncated is None else Outcome.TRUNCATED
        before = None if self._facts is None else self._fit(self._facts)
        return metric_alone(self.metric, self.classes, outcome, before, table, is_known=is_known)

    @property
    def _facts(self) -> dict[str, Any] | None:
        """The facts of the fit, or of the fit before truncation."""
        return self.truncated["fit"] if self.fit is None and self.truncated is not None else self.fit

    def _fit(self, facts: dict[str, Any], training: Pairs | None = None) -> Fit:
        from closefar.learners.stored_fit import judgements_for, restore_fit
        from closefar.questions import summarize

        try:
            fit = restore_fit(self.metric, self.classes, facts, self.beside)
            summarize(fit)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"the model file does not describe a fit ({error}). Fit it again.") from error
        if training is None:
            return fit
        return replace(fit, judgements=judgements_for(fit.columns, fit.sides, training))


def _words_of(metric: Metric) -> tuple[str, ...]:
    """The words for the labels of a metric that was saved without any."""
    if len(metric.thresholds) < 2:
        return _WORDS if metric.thresholds else ()
    return tuple(map(str, range(metric.n_levels)))


def _fingerprint(table: Pairs) -> str:
    digest = hashlib.sha256()
    _digest(digest, table)
    if table.annotators is not None:
        _digest_words(digest, table.annotators)
    if table.comparisons is not None:
        _digest(digest, table.comparisons)
    return digest.hexdigest()


def _digest(digest: Any, table: Pairs) -> None:
    for points in table.point_blocks():
        digest.update(np.ascontiguousarray(points).data)
    _digest_words(digest, [] if table.labels is None else table.labels)
    if table.weights is not None:
        digest.update(np.ascontiguousarray(table.weights).data)


def _digest_words(digest: Any, words: Any) -> None:
    for start in range(0, len(words), _ROWS_AT_ONCE):
        joined = "\0".join(words[start : start + _ROWS_AT_ONCE].tolist())
        digest.update(("\0" * (start > 0) + joined).encode("utf-8", "surrogatepass"))
