"""Model files with more than the metric: the encoding of tables, the words of the labels, and the fit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from closefar.errors import command_words
from closefar.fitting import (
    AnnotatorTable,
    AnnotatorVerdict,
    Baseline,
    Choice,
    ComparisonNoise,
    Fit,
    FitStatistics,
    Scorer,
    Settings,
    Tried,
    count_parameters,
    measured_statistics,
)
from closefar.judgements import Columns, Judgements, Kind, Sides
from closefar.learners.linear import ComparisonMetricLearner, FittingLearner, LinearMetricLearner, OrdinalMetricLearner
from closefar.model import Metric, ModelFileError, contents_of, load_with_header
from closefar.model.modelfile import encode
from closefar.plain import plain
from closefar.rows import column_scales, rows_of
from closefar.solve import Certificate, Outcome
from closefar.tables import Encoding, Pairs, Source, labels_of, open_table, others_of

if TYPE_CHECKING:
    from closefar.fitting import Fit, Scorer, Settings
    from closefar.judgements import Kind
    from closefar.learners.base import MetricLearner

# ---------------------------------------------------------------------------------------------------------------------
# Fits restored from model files.


_LEARNERS: dict[Kind, type[FittingLearner]] = {
    Kind.CLOSE_FAR: LinearMetricLearner,
    Kind.LEVELS: OrdinalMetricLearner,
    Kind.COMPARISONS: ComparisonMetricLearner,
}

_OF_ANNOTATORS = ("strictness", "strictness_errors", "agreement", "kappa", "information")

# The settings that may be chosen, and arguments of `fit`.
_CHOSEN = ("noise", "alpha", "prior", "rank", "flip_rate", "scale", "shifts", "price", "whitens")
_OF_FIT = ("comparison_noise", "strictness_width")

_SEEN_BEFORE = (
    "These are the training pairs of the metric before truncation, so the figures are better than for new pairs."
)


def known_facts(settings: Settings) -> dict[str, Any]:
    """The settings of a fit that its parameters do not say."""
    return {name: getattr(settings, name) for name in (*_CHOSEN, *_OF_FIT)}


def learner_of(kind: Kind, parameters: dict[str, Any], classes: tuple[str, ...]) -> FittingLearner:
    """Build the learner of a kind of judgement, with these of its parameters that it has."""
    known = _LEARNERS[kind]().get_params()
    given = {**parameters, "levels": list(classes), "far_label": classes[-1] if classes else None}
    return _LEARNERS[kind](**{name: value for name, value in given.items() if name in known})


def judgements_for(columns: Columns, sides: Sides, table: Pairs) -> Judgements:
    """Validate the judgements of a table, which must have the columns and the labels of a fit."""
    given = (table.data, labels_of(table), table.weights)
    if table.are_comparisons:
        return Judgements.read_comparisons(columns, *given, fitting=False)
    others = others_of(table)
    compared = others.pop("comparisons", None)
    read = Judgements.read_more(columns, *given, sides=sides, **others)
    return read if compared is None else read.with_comparisons(columns, compared)


def restore_fit(metric: Metric, classes: tuple[str, ...], facts: dict[str, Any], beside: dict[str, Metric]) -> Fit:
    """Build the fit of a metric, without the pairs that it was fitted to; `beside` are other metrics of its file."""
    statistics = _restored(FitStatistics, facts["statistics"])
    _check(len(statistics.column_scales) == len(metric.factor), "column_scales")
    _check(facts["rank"] is None or isinstance(facts["rank"], int), "rank")
    kind = Kind(facts["kind"])
    _check(set(facts["parameters"]) <= set(LinearMetricLearner().get_params()), "parameters")
    settings, known = _settings(kind, facts, classes, beside)
    return Fit(
        settings=settings,
        known=known,
        metric=metric,
        certificate=_restored(Certificate, facts["certificate"]),
        history=(),
        n_iter=facts["n_iter"],
        statistics=statistics,
        problems=tuple(str(problem) for problem in facts["problems"]),
        rank=facts["rank"],
        sides=Sides.in_order(classes),
        columns=Columns(len(metric.factor), metric.feature_names),
        judgements=None,
        kind=kind,
        comparison_noise=_comparison_noise(facts["comparison_noise"]),
        annotators=_annotators(facts["annotators"]),
        choice=_choice(facts["choice"]),
        baseline=_baseline(facts["baseline"], beside.get("plain")),
        engine=str(facts["engine"]),
    )


def metric_alone(
    metric: Metric, classes: tuple[str, ...], outcome: Outcome, before: Fit | None, table: Pairs, *, is_known: bool
) -> Fit:
    """Build a fit for a metric that was truncated, or stored without its fit, from labelled pairs.

    `before` is the fit before truncation; `is_known` says whether these are its pairs.
    """
    sides, columns = Sides.in_order(classes), Columns(len(metric.factor), metric.feature_names)
    given = replace(judgements_for(columns, sides, table), annotators=None, comparisons=None).counted()
    has_origin, squared, scorer = metric.origin is not None, metric.measure(given.data), Scorer(metric)
    if before is None:
        parameters = {"noise": metric.noise, "alpha": 0.0, "fit_origin": has_origin, "flip_rate": metric.flip_rate}
        settings = known = Settings.of(learner_of(given.kind, parameters, classes))
        scales = column_scales(rows_of(given.data), given.shares, centred=has_origin)
    else:
        settings, known, scales = before.settings, before.known, np.array(before.statistics.column_scales)
    n_thresholds = len(metric.thresholds)
    n_parameters = count_parameters(len(metric.factor), metric.rank or None, n_thresholds=n_thresholds)
    return Fit(
        settings=settings,
        known=known,
        metric=metric,
        certificate=Certificate.without_fit(outcome, scorer.score(given, squared).loss, metric.rank),
        history=(),
        n_iter=0,
        statistics=measured_statistics(given, squared, scorer, scales, n_parameters),
        problems=(_SEEN_BEFORE,) if is_known else (),
        rank=metric.rank,
        sides=sides,
        columns=columns,
        judgements=None,
        kind=given.kind,
    )


def _settings(
    kind: Kind, facts: dict[str, Any], classes: tuple[str, ...], beside: dict[str, Metric]
) -> tuple[Settings, Settings]:
    """The settings as given, and with what was chosen."""
    given, known = _objects(facts["parameters"], beside), _objects(facts["known"], beside)
    numbers = (known["alpha"], known["scale"], *known["shifts"])
    _check(all(isinstance(number, int | float) for number in numbers), "known")
    known["shifts"] = tuple(known["shifts"])
    settings = Settings.of(learner_of(kind, given, classes), **{name: known[name] for name in _OF_FIT})
    return settings, settings.but(**{name: known[name] for name in _CHOSEN})


def _objects(values: dict[str, Any], beside: dict[str, Metric]) -> dict[str, Any]:
    """Settings from a file, with the objects that it names."""
    found = dict(values)
    if isinstance(found["flip_rate"], list):
        found["flip_rate"] = tuple(found["flip_rate"])
    if found["prior"] == "metric":
        found["prior"] = beside["prior"]
    return found


def _comparison_noise(values: dict[str, Any] | None) -> ComparisonNoise | None:
    if values is None:
        return None
    interval = values["interval"]
    return ComparisonNoise(float(values["value"]), interval and (float(interval[0]), float(interval[1])))


def _annotators(values: dict[str, Any] | None) -> AnnotatorTable | None:
    if values is None:
        return None
    columns = {name: np.array(values[name]) for name in ("judgements", *_OF_ANNOTATORS)}
    _check({column.shape for column in columns.values()} == {(len(values["names"]),)}, "annotators")
    rates = values["flip_rates"]
    return AnnotatorTable(
        names=tuple(values["names"]),
        flip_rates=None if rates is None else np.array(rates, dtype=np.float64),
        verdicts=tuple(map(AnnotatorVerdict, values["verdicts"])),
        width=float(values["width"]),
        **columns,
    )


def _choice(values: dict[str, Any] | None) -> Choice | None:
    if values is None:
        return None
    table = tuple(Tried(*each) for each in values["table"])
    for each in table:
        _check(all(isinstance(number, int | float) for number in (each.alpha, each.flip_rate, *each[5:])), "choice")
    choice: Choice = _restored(Choice, {**values, "table": table})
    return choice


def _baseline(values: dict[str, Any] | None, plain: Metric | None) -> Baseline | None:
    if values is None:
        return None
    baseline: Baseline = _restored(Baseline, {**values, "metric": plain})
    return baseline


_KINDS: dict[str, Any] = {
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "int": int,
    "int | None": (int, type(None)),
    "bool": bool,
    "str": str,
    "tuple[float, ...]": list,
    "Outcome": str,
    "tuple[Tried, ...]": tuple,
    "Metric | None": (Metric, type(None)),
}
_CONVERSIONS: dict[str, Any] = {"tuple[float, ...]": tuple, "Outcome": Outcome}


def _restored(kind: Any, values: dict[str, Any]) -> Any:
    """Build a dataclass of plain values from JSON; each value must have the type of its field."""
    restored = {}
    for each in fields(kind):
        value, type_name = values[each.name], str(each.type)
        _check(isinstance(value, _KINDS[type_name]), each.name)
        restored[each.name] = _CONVERSIONS.get(type_name, _as_it_is)(value)
    return kind(**restored)


def _as_it_is(value: Any) -> Any:
    return value


def _check(is_right: bool, name: str) -> None:
    if not is_right:
        raise ValueError(f"its {name} has the wrong type")


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
        from closefar.questions import summarize

        fit = Fit.of(learner)
        classes = _classes_of(fit)
        parameters = {**fit.settings.parameters, "device": None, "far_label": fit.sides.far}
        facts = {
            "kind": fit.kind,
            "parameters": parameters | _named(fit.settings),
            "known": known_facts(fit.known) | _named(fit.known),
            "certificate": {**vars(fit.certificate), "status": fit.certificate.status},
            "statistics": fit.statistics,
            "rank": fit.rank,
            "comparison_noise": fit.comparison_noise,
            "annotators": fit.annotators,
            "choice": fit.choice,
            "baseline": None if fit.baseline is None else {**vars(fit.baseline), "metric": None},
            "n_iter": fit.n_iter,
            "engine": fit.engine,
            "problems": fit.problems,
            "fingerprint": _fingerprint(table),
            "summary": command_words(summarize(fit)),
        }
        names = {name: getattr(source, name) for name in (*_REMEMBERED, *_LISTS)} | {"na_values": [*source.na_values]}
        return cls(
            fit.metric, classes, table.encoding, names, table.is_single, plain(facts), beside=_metrics_beside(fit)
        )

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
            _check(all(isinstance(word, str) for word in classes), "classes")
            _check(len(classes) == (metric.n_levels if metric.thresholds else 0), "classes")
            encoding = Encoding.from_json(header["encoding"])
            if encoding.feature_names != metric.feature_names:
                raise ValueError("its columns do not match its metric")
            names = dict(header["names"])
            _check(all(isinstance(names.get(name) or "", str) for name in _REMEMBERED), "names")
            for name, sizes in zip(_LISTS, ((2,), (3, 4)), strict=True):
                given = names.get(name)
                _check(given is None or (len(given) in sizes and all(isinstance(each, str) for each in given)), name)
            _check(all(isinstance(word, str) for word in names.get("na_values") or ()), "na_values")
            truncated = header.get("truncated")
            _check(truncated is None or isinstance(truncated["rank"], int), "rank")
            is_single = bool(header["is_single"])
            model = cls(metric, classes, encoding, names, is_single, header["fit"], truncated, beside)
            if model._facts is not None:
                _check(isinstance(model._facts["fingerprint"], str), "fingerprint")
                _check(isinstance(model._facts["summary"], str), "summary")
                _check(isinstance(model.comparison_noise, float) and model.comparison_noise > 0, "comparison_noise")
                _check(len(model.annotators) == len(model._of_annotators("strictness")), "annotators")
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

        fit = self._fit(self.fit, training)
        learner = learner_of(fit.kind, fit.settings.parameters, self.classes)
        learner.fit_, learner.n_features_in_ = fit, len(self.metric.factor)
        return learner

    def fit_on(self, table: Pairs) -> Fit:
        """Return the fit, with these pairs if they are its training pairs; for a metric alone, its figures on them."""
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
        from closefar.questions import summarize

        try:
            fit = restore_fit(self.metric, self.classes, facts, self.beside)
            summarize(fit)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"the model file does not describe a fit ({error}). Fit it again.") from error
        if training is None:
            return fit
        return replace(fit, judgements=judgements_for(fit.columns, fit.sides, training))


def _classes_of(fit: Fit) -> tuple[str, ...]:
    """The words of the labels from closest to farthest; comparisons have none."""
    if not fit.metric.thresholds:
        return ()
    levels = fit.sides.classes.tolist() if fit.sides.is_graded else (fit.sides.close, fit.sides.far)
    return tuple(map(str, levels))


def _metrics_beside(fit: Fit) -> dict[str, Metric]:
    """The plain distance, and what M was shrunk to, where it is a metric."""
    plain_distance = None if fit.baseline is None else fit.baseline.metric
    prior = fit.settings.prior
    found = {"plain": plain_distance, "prior": prior if isinstance(prior, Metric) else None}
    return {name: metric for name, metric in found.items() if metric is not None}


def _named(settings: Settings) -> dict[str, Any]:
    """The settings that may be objects, by their names; a metric is an array of the file."""
    noise, prior = settings.noise, settings.prior
    return {
        "noise": noise if isinstance(noise, str) else noise.name,
        "prior": "metric" if isinstance(prior, Metric) else prior,
    }


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
