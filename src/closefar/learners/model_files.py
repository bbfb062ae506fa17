"""Model files with more than the metric: the encoding of tables, the words of the labels, and the fit in JSON."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np

from closefar.errors import command_words
from closefar.model import Metric, ModelFileError
from closefar.model.metric import contents_of, load_with_header
from closefar.model.modelfile import check, encode
from closefar.plain import to_jsonable
from closefar.tables import Encoding, Pairs, Source, labels_of, others_of

# Fits and learners need scikit-learn, which is slow to import: only functions that make one import them.
if TYPE_CHECKING:
    from closefar.fitting import Fit, Scorer, Settings
    from closefar.judgements import Columns, Judgements, Kind, Sides
    from closefar.learners.base import MetricLearner

# The roles of columns that a model remembers, as of `Source`.
_COLUMNS = ("id", "left", "right", "label", "weight", "group", "annotator", "answer")
_ROLES: dict[str, Any] = dict.fromkeys(_COLUMNS, str | None) | {
    "sides": tuple[str, str] | None,
    "compared": tuple[str, ...] | None,
    "na_values": tuple[str, ...] | None,
    "decimal": str | None,
}


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

        fit = Fit.of(learner)
        beside = {"plain": None if fit.baseline is None else fit.baseline.metric, "prior": fit.settings.prior}
        classes = () if not fit.metric.thresholds else fit.sides.classes.tolist()
        if classes and not fit.sides.is_graded:
            classes = (fit.sides.close, fit.sides.far)
        return cls(
            metric=fit.metric,
            classes=tuple(map(str, classes)),
            encoding=table.encoding,
            names={name: getattr(source, name) or None for name in _ROLES},
            is_single=table.is_single,
            fit=_stored(fit, _fingerprint(table)),
            beside={name: metric for name, metric in beside.items() if isinstance(metric, Metric)},
        )

    def to_bytes(self) -> bytes:
        """Return the content of the model file."""
        arrays, header = contents_of(self.metric, self.beside)
        header |= {name: getattr(self, name) for name in ("classes", "names", "is_single", "fit", "truncated")}
        return encode(arrays, {**header, "encoding": self.encoding.to_json()})

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read a file written by `closefar fit`, or by `Metric.save`, whose columns are then numeric."""
        metric, beside, header = load_with_header(path)
        try:
            if "encoding" not in header:
                encoding = Encoding.of_numbers(metric.column_names)
                return cls(metric, _words_of(metric), encoding, {}, metric.origin is not None, None)
            classes = _restored(tuple[str, ...], header["classes"], "classes")
            check(len(classes) == (metric.n_levels if metric.thresholds else 0), "classes")
            encoding = Encoding.from_json(header["encoding"])
            if encoding.feature_names != metric.feature_names:
                raise ValueError("its columns do not match its metric")
            names = {name: _restored(kind, header["names"].get(name), name) for name, kind in _ROLES.items()}
            check(names["compared"] is None or len(names["compared"]) in (3, 4), "compared")
            truncated = header.get("truncated")
            check(truncated is None or isinstance(truncated["rank"], int), "rank")
            is_single = bool(header["is_single"])
            model = cls(metric, classes, encoding, names, is_single, header["fit"], truncated, beside)
            if model._facts is not None:
                check(isinstance(model._facts["fingerprint"], str), "fingerprint")
                check(isinstance(model._facts["summary"], str), "summary")
                check(isinstance(model.comparison_noise, float) and model.comparison_noise > 0, "comparison_noise")
                check(all(isinstance(each, int | float) for each, _ in model.annotators.values()), "annotators")
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
        given = replace(
            given,
            sides=given.sides or self.names.get("sides"),
            na_values=given.na_values or self.names.get("na_values") or (),
            decimal=self.names.get("decimal") if given.decimal is None else given.decimal,
        )
        in_points, in_pairs, in_comparisons, in_judgements = (
            () if path is None else given.open(path).names
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
        compared = self.names.get("compared") or ()
        if given.compared is None and set(compared) <= set(in_comparisons):
            roles["compared"] = compared or None
        return replace(given, **roles)

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
    def annotators(self) -> dict[str, tuple[float, float | None]]:
        """What each known annotator adds to the thresholds, and their flip rate, if each has their own."""
        table = None if self._facts is None else self._facts.get("annotators")
        if table is None:
            return {}
        rates = table["flip_rates"] or [None] * len(table["names"])
        return dict(zip(table["names"], zip(table["strictness"], rates, strict=True), strict=True))

    def annotator(self, name: str) -> tuple[float, float | None]:
        """The strictness and the flip rate of a known annotator."""
        known = list(self.annotators)
        if name not in known:
            shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
            raise ValueError(
                f"--for-annotator must be one of those that the model knows, {shown}; got {name!r}."
                if known
                else f"the model knows no annotators; got --for-annotator {name}. Leave it out."
            )
        return self.annotators[name]

    def scorer(self, n_more: int = 0) -> Scorer:
        """What predicts judgements; `n_more` annotators beside the known ones are typical."""
        from closefar.fitting import Scorer

        if not self.annotators:
            return Scorer(self.metric, comparison_noise=self.comparison_noise)
        strictness, rates = zip(*self.annotators.values(), *[(0.0, self.metric.one_flip_rate)] * n_more, strict=True)
        own_rates = None if rates[0] is None else np.array(rates)
        return Scorer(self.metric, np.array(strictness), own_rates, self.comparison_noise)

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
        learner = _learner_of(fit.kind, fit.settings.parameters, self.classes)
        learner.fit_, learner.n_features_in_ = fit, len(self.metric.factor)
        return learner

    def fit_on(self, table: Pairs) -> Fit:
        """Return the fit, with these pairs if they are its training pairs; for a metric alone, its figures on them."""
        if self.fit is None:
            return _metric_alone(self, table)
        return self._fit(self.fit, table if self.is_fitted_to(table) else None)

    @property
    def _facts(self) -> dict[str, Any] | None:
        """The facts of the fit, or of the fit before truncation."""
        return self.truncated["fit"] if self.fit is None and self.truncated is not None else self.fit

    def _fit(self, facts: dict[str, Any], training: Pairs | None = None) -> Fit:
        """Build the fit of the metric, without the pairs that it was fitted to unless they are given."""
        from closefar.fitting import Fit, Settings
        from closefar.learners.linear import LinearMetricLearner
        from closefar.questions import describe_fit

        try:
            kinds = get_type_hints(Fit)
            stored = {name: _restored(kinds[name], facts[name], name) for name in _FACTS}
            check(len(stored["statistics"].column_scales) == len(self.metric.factor), "column_scales")
            check(set(facts["parameters"]) <= set(LinearMetricLearner().get_params()), "parameters")
            given, known = (_objects(facts[name], self.beside) for name in ("parameters", "known"))
            known["shifts"] = tuple(known["shifts"])
            numbers = (known["alpha"], known["scale"], *known["shifts"])
            check(all(isinstance(each, int | float) for each in numbers), "known")
            learner = _learner_of(stored["kind"], given, self.classes)
            settings = Settings.of(learner, **{name: known[name] for name in _OF_FIT})
            if stored["baseline"] is not None:
                stored["baseline"] = replace(stored["baseline"], metric=self.beside.get("plain"))
            sides, columns = _labels_and_columns(self)
            fit = Fit(
                **stored,
                settings=settings,
                known=settings.but(**{name: known[name] for name in _CHOSEN}),
                metric=self.metric,
                history=(),
                sides=sides,
                columns=columns,
                judgements=None,
            )
            describe_fit(fit)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"the model file does not describe a fit ({error}). Fit it again.") from error
        return fit if training is None else replace(fit, judgements=_judgements_for(columns, sides, training))


def _words_of(metric: Metric) -> tuple[str, ...]:
    """The words for the labels of a metric that was saved without any."""
    if len(metric.thresholds) == 1:
        return ("close", "far")
    return tuple(map(str, range(metric.n_levels))) if metric.thresholds else ()


# ---------------------------------------------------------------------------------------------------------------------
# Whether judgements are those of a fit.


_WORDS_AT_ONCE = 1 << 16  # joined to one text of a few megabytes


def _fingerprint(table: Pairs) -> str:
    digest = hashlib.sha256()
    for part in (table, table.comparisons):
        if part is None:
            continue
        for points in part.point_blocks():
            digest.update(np.ascontiguousarray(points).data)
        _digest_words(digest, part.labels)
        if part.weights is not None:
            digest.update(np.ascontiguousarray(part.weights).data)
        _digest_words(digest, part.annotators)
    return digest.hexdigest()


def _digest_words(digest: Any, words: Any) -> None:
    for start in range(0, 0 if words is None else len(words), _WORDS_AT_ONCE):
        joined = "\0".join(words[start : start + _WORDS_AT_ONCE].tolist())
        digest.update(("\0" * (start > 0) + joined).encode("utf-8", "surrogatepass"))


# ---------------------------------------------------------------------------------------------------------------------
# The fit in JSON, and the fit that is restored from it.


# What is written of a fit as it is, and read and checked by the types of its fields.
_FACTS = (
    *("kind", "certificate", "statistics", "n_iter", "rank", "comparison_noise"),
    *("annotators", "choice", "baseline", "engine", "problems"),
)

# The settings that may be chosen, and arguments of `fit`.
_CHOSEN = ("noise", "alpha", "prior", "rank", "flip_rate", "scale", "shifts", "price", "whitens")
_OF_FIT = ("comparison_noise", "strictness_width")

_SEEN_BEFORE = (
    "These are the training pairs of the metric before truncation, so the figures are better than for new pairs."
)


def _stored(fit: Fit, fingerprint: str) -> dict[str, Any]:
    """Return the facts of a fit as JSON has them; its other metrics are arrays of the file."""
    from closefar.questions import describe_fit

    facts: dict[str, Any] = to_jsonable(
        {
            **{name: getattr(fit, name) for name in _FACTS},
            "baseline": None if fit.baseline is None else replace(fit.baseline, metric=None),
            "parameters": {**fit.settings.parameters, "device": None, "far_label": fit.sides.far}
            | _named(fit.settings),
            "known": {name: getattr(fit.known, name) for name in (*_CHOSEN, *_OF_FIT)} | _named(fit.known),
            "fingerprint": fingerprint,
            "summary": command_words(describe_fit(fit)),
        }
    )
    facts["certificate"]["status"] = str(fit.certificate.status)
    return facts


def _labels_and_columns(model: Model) -> tuple[Sides, Columns]:
    from closefar.judgements import Columns, Sides

    return Sides.in_order(model.classes), Columns(len(model.metric.factor), model.metric.feature_names)


def _metric_alone(model: Model, table: Pairs) -> Fit:
    """Build a fit for a metric that was truncated, or stored without its fit, from labelled pairs."""
    from closefar.fitting import Fit, Scorer, Settings, count_parameters, measured_statistics
    from closefar.rows import column_scales, rows_of
    from closefar.solve import Certificate, Outcome

    metric, (sides, columns) = model.metric, _labels_and_columns(model)
    outcome = Outcome.UNKNOWN if model.truncated is None else Outcome.TRUNCATED
    before = None if model._facts is None else model._fit(model._facts)
    given = replace(_judgements_for(columns, sides, table), annotators=None, comparisons=None).counted()
    has_origin, squared, scorer = metric.origin is not None, metric.measure(given.data), Scorer(metric)
    if before is None:
        parameters = {"noise": metric.noise, "alpha": 0.0, "fit_origin": has_origin, "flip_rate": metric.flip_rate}
        settings = known = Settings.of(_learner_of(given.kind, parameters, model.classes))
        scales = column_scales(rows_of(given.data), given.shares, centred=has_origin)
    else:
        settings, known, scales = before.settings, before.known, np.array(before.statistics.column_scales)
    n_parameters = count_parameters(len(metric.factor), metric.rank or None, n_thresholds=len(metric.thresholds))
    return Fit(
        settings=settings,
        known=known,
        metric=metric,
        certificate=Certificate.without_fit(outcome, scorer.score(given, squared).loss, metric.rank),
        history=(),
        n_iter=0,
        statistics=measured_statistics(given, squared, scorer, scales, n_parameters),
        problems=(_SEEN_BEFORE,) if model.is_fitted_to(table) else (),
        rank=metric.rank,
        sides=sides,
        columns=columns,
        judgements=None,
        kind=given.kind,
    )


def _judgements_for(columns: Columns, sides: Sides, table: Pairs) -> Judgements:
    """Validate the judgements of a table, which must have the columns and the labels of a fit."""
    from closefar.judgements import Judgements

    given = (table.data, labels_of(table), table.weights)
    if table.are_comparisons:
        return Judgements.read_comparisons(columns, *given, fitting=False)
    return Judgements.read(columns, *given, sides=sides, **others_of(table))


def _learner_of(kind: Kind, parameters: dict[str, Any], classes: tuple[str, ...]) -> MetricLearner:
    """Build the learner of a kind of judgement, with these of its parameters that it has."""
    from closefar.judgements import Kind
    from closefar.learners.linear import ComparisonMetricLearner, LinearMetricLearner, OrdinalMetricLearner

    learners = {Kind.LEVELS: OrdinalMetricLearner, Kind.COMPARISONS: ComparisonMetricLearner}
    learner: Any = learners.get(kind, LinearMetricLearner)
    known = learner().get_params()
    given = {**parameters, "levels": list(classes), "far_label": classes[-1] if classes else None}
    built: MetricLearner = learner(**{name: value for name, value in given.items() if name in known})
    return built


def _named(settings: Settings) -> dict[str, Any]:
    """The settings that may be objects, by their names; a metric is an array of the file."""
    noise, prior = settings.noise, settings.prior
    return {
        "noise": noise if isinstance(noise, str) else noise.name,
        "prior": "metric" if isinstance(prior, Metric) else prior,
    }


def _objects(values: dict[str, Any], beside: dict[str, Metric]) -> dict[str, Any]:
    """Settings from a file, with the objects that it names."""
    rate, prior = values["flip_rate"], values["prior"]
    rate = tuple(rate) if isinstance(rate, list) else rate
    return {**values, "flip_rate": rate, "prior": beside["prior"] if prior == "metric" else prior}


def _restored(kind: Any, value: Any, name: str) -> Any:
    """Build a value of a type from JSON, field by field; JSON that does not fit the type is refused."""
    origin, of = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if type(None) in of:
        return None if value is None else _restored(of[0], value, name)
    if origin is np.ndarray:
        array = np.array(value, dtype=get_args(of[1])[0])
        check(array.ndim == 1, name)
        return array
    if origin is tuple:
        check(isinstance(value, list), name)
        kinds = of[:1] * len(value) if of[-1] is Ellipsis else of
        return tuple(_restored(each, item, name) for each, item in zip(kinds, value, strict=True))
    if is_dataclass(kind):
        found = {field: _restored(each, value[field], field) for field, each in get_type_hints(kind).items()}
        columns = [column for column in found.values() if isinstance(column, np.ndarray)]
        check(all(len(column) == len(found["names"]) for column in columns), name)
        return kind(**found)  # type: ignore[operator]
    if issubclass(kind, tuple):
        hints = get_type_hints(kind).items()
        return kind(*(_restored(each, item, field) for (field, each), item in zip(hints, value, strict=True)))
    if issubclass(kind, Enum):
        return kind(value)
    check(isinstance(value, (int, float) if kind is float else origin or kind), name)
    return value
