"""Model files with more than the metric: the encoding of tables, the words for close and far, and the fit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.messages import as_options
from closefar.model import Metric, ModelFileError, load_with_header
from closefar.model.modelfile import encode
from closefar.plain import plain
from closefar.tables import Encoding, Pairs, Source, open_table

if TYPE_CHECKING:  # models are shown, applied and exported without scikit-learn, which takes a second to import
    from closefar.fitting import Fit
    from closefar.learners.base import MetricLearner
    from closefar.learners.linear import LinearMetricLearner

__all__ = ["Model"]

_WORDS = ("close", "far")
_ROWS_AT_ONCE = 1 << 16
_REMEMBERED = ("id", "left", "right", "label", "weight", "group")


@dataclass(frozen=True)
class Model:
    """The model that ``closefar fit`` saves; `closefar.load` reads the metric from the same file.

    Attributes
    ----------
    metric : Metric
    classes : tuple of two str
        The words for close and far.
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
    """

    metric: Metric
    classes: tuple[str, str]
    encoding: Encoding
    names: dict[str, Any]
    is_single: bool
    fit: dict[str, Any] | None
    truncated: dict[str, Any] | None = None

    @classmethod
    def of(cls, learner: MetricLearner, table: Pairs, source: Source) -> Model:
        """Build the model of a learner that was fitted to a table."""
        from closefar.fitting import Fit
        from closefar.questions import summarize

        fit = Fit.of(learner)
        facts = {
            "parameters": {**fit.settings.parameters, "device": None, "far_label": fit.sides.far},
            "certificate": {**vars(fit.certificate), "status": fit.certificate.status},
            "statistics": fit.statistics,
            "rank": fit.rank,
            "chosen_alpha": fit.chosen_alpha,
            "penalty_choice": fit.penalty_choice,
            "n_iter": fit.n_iter,
            "engine": fit.engine,
            "problems": fit.problems,
            "fingerprint": _fingerprint(table),
            "summary": summarize(fit, as_options),
        }
        classes = (str(fit.sides.close), str(fit.sides.far))
        names = {name: getattr(source, name) for name in (*_REMEMBERED, "sides")} | {"na_values": [*source.na_values]}
        return cls(fit.metric, classes, table.encoding, names, table.is_single, plain(facts))

    def to_bytes(self) -> bytes:
        """Return the content of the model file."""
        arrays, header = self.metric.contents()
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
        metric, header = load_with_header(path)
        try:
            if "encoding" not in header:
                encoding = Encoding.of_numbers(metric.column_names)
                return cls(metric, _WORDS, encoding, {}, metric.origin is not None, None)
            close, far = header["classes"]
            _check(isinstance(close, str) and isinstance(far, str), "classes")
            encoding = Encoding.from_json(header["encoding"])
            if encoding.feature_names != metric.feature_names:
                raise ValueError("its columns do not match its metric")
            names = dict(header["names"])
            _check(all(names.get(name) is None or isinstance(names[name], str) for name in _REMEMBERED), "names")
            sides = names.get("sides")
            _check(sides is None or (len(sides) == 2 and all(isinstance(side, str) for side in sides)), "sides")
            _check(all(isinstance(word, str) for word in names.get("na_values") or ()), "na_values")
            truncated = header.get("truncated")
            _check(truncated is None or isinstance(truncated["rank"], int), "rank")
            model = cls(metric, (close, far), encoding, names, bool(header["is_single"]), header["fit"], truncated)
            if model._facts is not None:
                _check(isinstance(model._facts["fingerprint"], str), "fingerprint")
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
        in_points, in_pairs = (() if path is None else open_table(path).names for path in (given.points, given.pairs))
        labelled = in_pairs or in_points
        homes = {"id": in_points, "left": in_pairs, "right": in_pairs}
        homes |= dict.fromkeys(("label", "weight", "group"), labelled)
        found = {role: name for role, name in self.names.items() if name in homes.get(role, ())}
        if not {"left", "right"} <= found.keys():
            found = {role: name for role, name in found.items() if role not in ("left", "right")}
        sides = self.names.get("sides")
        roles: dict[str, Any] = {role: getattr(given, role) or found.get(role) for role in homes}
        na_values = given.na_values or tuple(self.names.get("na_values") or ())
        return replace(given, sides=given.sides or (sides and tuple(sides)), na_values=na_values, **roles)

    @property
    def summary(self) -> str | None:
        """The summary of the fit in the words of the command line; rebuilt for files of earlier versions."""
        if self.fit is None:
            return None
        summary = self.fit.get("summary")
        if isinstance(summary, str):
            return summary
        from closefar.questions import summarize

        return summarize(self._fit(self.fit), as_options)

    def is_fitted_to(self, table: Pairs) -> bool:
        """Whether these are exactly the pairs and labels of the fit, or of the fit before truncation."""
        return self._facts is not None and self._facts["fingerprint"] == _fingerprint(table)

    def learner(self, training: Pairs | None = None) -> LinearMetricLearner:
        """Return the fitted learner, with its training pairs if they are given."""
        if self.fit is None:
            raise ValueError(
                "this needs a model with its fit; got a metric that was truncated, or saved by Metric.save. "
                "Make the model with `closefar fit`; --rank limits its rank."
            )
        from closefar.learners.linear import LinearMetricLearner

        fit = self._fit(self.fit, training)
        learner = LinearMetricLearner(**fit.settings.parameters, far_label=self.classes[1])
        learner.fit_, learner.n_features_in_ = fit, len(self.metric.factor)
        return learner

    def fit_on(self, table: Pairs) -> Fit:
        """Return the fit, with these pairs if they are its training pairs; for a metric alone, its figures on them."""
        from closefar.learners.restored import metric_alone
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
        from closefar.judgements import Judgements
        from closefar.learners.restored import restore_fit
        from closefar.questions import summarize

        try:
            fit = restore_fit(self.metric, self.classes, facts)
            summarize(fit)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"the model file does not describe a fit ({error}). Fit it again.") from error
        if training is None:
            return fit
        given = (training.data, training.labels, training.weights)
        return replace(fit, judgements=Judgements.read_more(fit.columns, *given, sides=fit.sides))


def _check(is_right: bool, name: str) -> None:
    if not is_right:
        raise ValueError(f"its {name} has the wrong type")


def _fingerprint(table: Pairs) -> str:
    digest = hashlib.sha256()
    for points in table.point_blocks():
        digest.update(np.ascontiguousarray(points).data)
    labels: Any = [] if table.labels is None else table.labels
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        words = "\0".join(labels[start : start + _ROWS_AT_ONCE].tolist())
        digest.update(("\0" * (start > 0) + words).encode("utf-8", "surrogatepass"))
    if table.weights is not None:
        digest.update(np.ascontiguousarray(table.weights).data)
    return digest.hexdigest()
