"""Proximal Newton with a dense Hessian, for few columns, so that d(d+1)/2 parameters and thresholds are cheap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from closefar import packed
from closefar.arrays import TINY, BoolArray, FloatArray
from closefar.solve.certificate import lower_bound
from closefar.solve.likelihood import Evaluation
from closefar.solve.loop import SURPRISING, Solver, State
from closefar.solve.problem import Cone, Point, Problem, moment_start, spectral_start

# ---------------------------------------------------------------------------------------------------------------------
# The quadratic model of a Newton step, minimised over the feasible (M, thresholds).


class ConeProgram:
    """min 1/2 x'Hx + h'x over the feasible x = (packed M, thresholds), where H is the Hessian plus damping.

    `damping` is relative to the mean eigenvalue of the Hessian.

    The fixed point of Douglas-Rachford splitting is found by a semismooth Newton
    method: a Newton step if it reduces the residual, and otherwise a splitting step, which
    never increases it.  One to three iterations suffice near a solution.
    """

    def __init__(self, hessian: FloatArray, damping: float, cone: Cone) -> None:
        mean = max(float(np.trace(hessian)) / len(hessian), 1e-6)
        damping = damping * mean
        rho = mean * _typical_eigenvalue(_without_annotators(hessian, cone) / mean) + damping
        self.hessian = hessian + damping * np.eye(len(hessian))
        self.damping = damping
        self.rho = rho
        self.cone = cone
        self.resolvent = np.linalg.inv(self.hessian + rho * np.eye(len(hessian)))

    def solve(self, linear: FloatArray, start: FloatArray, tol: float, max_iter: int = 60) -> FloatArray:
        """Return the splitting variable t; the minimiser is ``project(t)``, its slack rho (project(t) - t)."""
        t = start
        residual, spectrum = self._residual(t, linear)
        for _ in range(max_iter):
            size = np.abs(residual).max()
            if self.rho * size <= tol or size <= 1e-14 * np.abs(t).max():
                break
            step = self._newton_step(t, residual, spectrum)
            for length in (1.0, 0.5, 0.2):
                trial = t + length * step
                trial_residual, trial_spectrum = self._residual(trial, linear)
                if np.linalg.norm(trial_residual) <= (1.0 - 0.1 * length) * np.linalg.norm(residual):
                    break
            else:
                trial = t - residual
                trial_residual, trial_spectrum = self._residual(trial, linear)
            t, residual, spectrum = trial, trial_residual, trial_spectrum
        return t

    def project(self, t: FloatArray) -> FloatArray:
        return self._project(t)[0]

    def _project(self, t: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        core = self.cone.core
        matrix, thresholds = packed.split(t, self.cone.size)
        values, vectors = np.linalg.eigh(matrix[core, core])
        matrix[core, core] = (vectors * np.maximum(values, 0.0)) @ vectors.T
        if self.cone.has_constant:
            matrix[-1, -1] = 0.0
        return packed.join(matrix, np.maximum(thresholds, self.cone.least)), (values, vectors)

    def _residual(self, t: FloatArray, linear: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        inside, spectrum = self._project(t)
        return inside - self.resolvent @ (self.rho * (2.0 * inside - t) - linear), spectrum

    def _newton_step(self, t: FloatArray, residual: FloatArray, spectrum: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Solve J step = -residual for the Jacobian J, after multiplying both sides by H + rho.

        In the eigenbasis of M the projection has a diagonal derivative D, and (H + rho) J = H D + rho (1 - D).
        """
        values, vectors = spectrum
        core = self.cone.core
        turn, slopes = np.eye(self.cone.size), np.ones((self.cone.size, self.cone.size))
        turn[core, core] = vectors
        slopes[core, core] = _projection_slopes(values)
        if self.cone.has_constant:
            slopes[-1, -1] = 0.0
        size = packed.packed_size(self.cone.size)
        rotation = np.eye(len(t))
        rotation[:size, :size] = packed.packed_rotation(turn)
        diagonal = np.concatenate([packed.pack_plain(slopes), t[size:] > self.cone.least])
        regular = 1e-4 * self.damping / self.rho
        system = (rotation.T @ self.hessian @ rotation) * (diagonal + regular)
        system[np.diag_indices(len(t))] += self.rho * (1.0 + regular - diagonal)
        right = rotation.T @ (self.hessian @ residual + self.rho * residual)
        return rotation @ np.linalg.solve(system, -right)


def _without_annotators(hessian: FloatArray, cone: Cone) -> FloatArray:
    """The Hessian in M and thresholds with a bound: many free ones, with little curvature each, would set the scale."""
    n_free = int(np.sum(np.isneginf(cone.least)))
    return hessian[:-n_free, :-n_free] if n_free > 1 else hessian


def _typical_eigenvalue(hessian: FloatArray) -> float:
    """The geometric mean of the eigenvalues, whose arithmetic mean is one; small ones are raised to a thousandth.

    Outliers make the arithmetic mean useless as a scale; neither mean depends on the basis.
    """
    log_determinant = np.linalg.slogdet(hessian + 1e-3 * np.eye(len(hessian)))[1]
    return float(np.exp(log_determinant / len(hessian)))


def _projection_slopes(values: FloatArray) -> FloatArray:
    """Divided differences of max(x, 0) at each pair of eigenvalues."""
    positive = np.maximum(values, 0.0)
    total = np.abs(values)[:, None] + np.abs(values)
    return np.where(total > 0.0, (positive[:, None] + positive) / np.where(total > 0.0, total, 1.0), 0.5)


# ---------------------------------------------------------------------------------------------------------------------
# The judgements that matter for a Hessian: a sample of them stands for all.


# Of the mean importance of a judgement: without those below it, a Hessian differs by less than its damping.
_NEGLIGIBLE_IMPORTANCE = 1e-6


class HessianSampler:
    """Hessians of samples of the judgements of a problem.

    A judgement adds c f f' to the Hessian, with f of length 1 + |z|^2.  Half of a sample is drawn in proportion to
    c (1 + |z|^2)^2: many judgements are nearly certain, and add next to nothing.  The other half is drawn evenly,
    so that a rare direction is not missed.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.problem = problem
        self.rng = rng

    def hessian(self, matrix: FloatArray, thresholds: FloatArray, evaluation: Evaluation, number: int) -> FloatArray:
        """The Hessian of about this many judgements, in single precision; of all if there are not many more.

        Judgements that are so certain that all of them add next to nothing are left out, if they are many.
        """
        problem, curvature = self.problem, evaluation.curvature
        curved = problem.rows.gather(curvature.distance)
        importance = curved * self.lengths**2
        matter = np.flatnonzero(importance > _NEGLIGIBLE_IMPORTANCE * float(importance.mean()))
        if len(matter) <= min(number, problem.n_judgements // 2):
            return problem.sampled_hessian(matrix, thresholds, matter, np.ones(len(matter)))
        if 2 * number >= problem.n_judgements:
            return problem.hessian(curvature, rough=True)
        chances = self._chances(importance, number)
        indices = np.flatnonzero(self.rng.random(len(chances)) < chances)
        return problem.sampled_hessian(matrix, thresholds, indices, 1.0 / chances[indices])

    @cached_property
    def lengths(self) -> FloatArray:
        """1 + |z|^2 of each judgement."""
        rows = self.problem.rows
        return 1.0 + rows.gather(rows.squared_distances(np.eye(rows.n_columns)))

    def _chances(self, importance: FloatArray, number: int) -> FloatArray:
        """The probability with which each judgement is drawn."""
        total = float(importance.sum())
        chances: FloatArray = np.full(len(importance), 0.5 * number / len(importance))
        if 0.0 < total < np.inf:
            chances += (0.5 * number / total) * importance
        return np.minimum(chances, 1.0, out=chances)


# Below this decrement the Hessian changes by at most one percent: keep it, and its inverse.
_FREEZE_BELOW = 1e-5

# Relative to the mean eigenvalue of the Hessian: enough that undetermined directions do not amplify rounding errors.
_DAMPING = 3e-4

# Single precision is enough for steps, unless one direction has so many times the usual curvature, as with a pair in
# another unit, or unless the directions that matter are nearly flat, so that there is little damping.
_UNEVEN = 1e3

_MOST_IDLE_STEPS = 10  # in a row, with almost no improvement

# With so small a decrement of the next step, the minimiser is accurate.
_ACCURATE_DECREMENT = 1e-11

# Steps with the same Hessian shrink the decrement by no more, as far as one knows; the first step tells nothing.
_LEAST_SHRINKING = 1e-5

# Decrements below this may be rounding errors.
_DECREMENT_ROUNDING = 1e-12

_NO_DECREMENT = 1e-15  # a decrement that rounding hides

# With so few judgements and multiplications for a Hessian, it takes next to no time: it is computed exactly, and steps
# continue down to rounding errors.  Few judgements may not determine all directions, and the others must not depend on
# rounding errors of single precision.
_EXACT_JUDGEMENTS = 4096
_EXACT_MULTIPLICATIONS = 1e7  # milliseconds
_MOST_POLISHING = 5  # steps with the same Hessian, of a pass each
_ROUNDING_OF_FEW = 1e-17  # a decrement that further steps do not shrink

# The first steps use one judgement in this many, and at most this many bytes of them.
_SCOUTED_FRACTION = 8
_MOST_SCOUTED_BYTES = 1 << 26  # 64 MiB, which are copied

# The first steps are taken on a sample if a step on all, of so many multiplications, takes longer than the overhead.
_LONG_SCOUTED_PASS = 1e7
_ENORMOUS_SQUARE = 1e3  # times the usual squared length of a difference

# The Hessian is that of a sample of this many judgements per parameter; near the optimum of more, if they can be had
# for so many passes.
_CURVED_FAR, _CURVED_NEAR = 64, 512
_NEAR_DECREMENT = 1e-3  # from which on a better Hessian is worth some passes
_WORTH_PASSES = 10.0  # that it may take at most


@dataclass(frozen=True)
class _Memory:
    point: Point
    splitting: FloatArray | None  # the variable of the last cone program, which preserves the active set
    decrement: float
    damping: float  # added to the Hessian, relative to its mean eigenvalue
    program: ConeProgram | None
    idle: int = 0  # consecutive steps with almost no improvement
    samples: bool = True  # whether the Hessian of a sample is enough


class Newton(Solver):
    """Minimise the quadratic model over the cone exactly in each step; a line search ensures descent.

    With many judgements, the first steps use an eighth of them, and so on recursively, and Hessians are
    those of a sample, as long as steps with them are good.  If it `proves` nothing, the tolerance is a share of
    the objective, and a step that should gain less is the last one; if it `is_rough`, so is the first of them.
    """

    def __init__(self, problem: Problem, tol: float, rng: np.random.Generator) -> None:
        super().__init__(problem, tol, rng)
        # Few judgements do not determine all directions, and the residual of a model is never reduced in the others.
        n, size = problem.n_judgements, packed.packed_size(problem.n_directions)
        self.is_small = n <= _EXACT_JUDGEMENTS and n * size**2 <= _EXACT_MULTIPLICATIONS
        self.inexactness = 1e-5 if self._has_many() and not self.is_small else 1e-9
        self.sampler = HessianSampler(problem, rng)
        self.scout: Newton | None = None
        self.proves = True
        self.is_rough = False

    def start(self) -> State:
        begun, scouted = None, self._scout()
        if scouted is not None:
            # Their Hessian is close enough to that of all for the first step.
            state, program = scouted
            begun = self._begin(state.matrix, state.thresholds, program)
            begun = begun if begun.objective <= SURPRISING * (1.0 + state.objective) else None
        if begun is None and self.is_small:
            # Eigenvectors of few judgements may depend on rounding errors, and so would what these do not determine.
            begun = self._begin(*moment_start(self.problem))
        elif begun is None:
            begun = self._begin(*spectral_start(self.problem, self.rng))
        if self.problem.alpha == 0.0:
            return begun
        # Moments do not know the penalty, and if an enormous difference is close, they are far too large.
        nothing = np.zeros_like(begun.matrix)
        squared = self.problem.forms(nothing)
        thresholds, evaluation = self.problem.minimise_threshold(squared, self.problem.cone.lowest, 1e-6)
        is_surprising = begun.objective > SURPRISING * (1.0 + evaluation.loss)
        return self._begin(nothing, thresholds) if is_surprising else begun

    def resume(self, state: State) -> State:
        return self._begin(state.matrix, state.thresholds)

    def step(self, state: State) -> State:
        last: _Memory = state.memory
        try:
            moved, program = self._advance(state)
        except np.linalg.LinAlgError:
            # With flips, a level may be left with no width between its thresholds, where the curvature is infinite.
            if self.proves:
                raise
            return replace(state, stuck=True)
        memory: _Memory = moved.memory
        if self.is_rough:
            # Far from the optimum a penalty may be most of the objective.
            settled = self.tol * min(moved.objective, 1.0)
            return replace(moved, stuck=moved.stuck or memory.decrement <= settled)
        if not self.proves:
            # The model of a first step is rough, and steps that do not shrink are short because of damping.
            has_shrunk = memory.decrement <= max(0.25 * last.decrement, _NO_DECREMENT) and last.decrement < 1.0
            return replace(moved, stuck=moved.stuck or (has_shrunk and memory.decrement <= self.tol * moved.objective))
        shrinks = min(max(memory.decrement / max(last.decrement, TINY), _LEAST_SHRINKING), 1.0)
        if moved.stuck or (memory.damping <= last.damping and self._is_near(moved, shrinks)):
            # An almost undamped Hessian takes fewer rounds, a damped one is used if it is singular.
            for relief in (0.999, 0.0):
                hessian = program.hessian - relief * program.damping * np.eye(len(program.hessian))
                bound = lower_bound(memory.point, partial(_solve_dense, hessian), self.tol)
                moved = replace(moved, bound=max(moved.bound, bound))
                if moved.gap <= self.tol:
                    break
            if moved.gap <= self.tol and not moved.stuck:
                moved = self._polish(moved, memory.decrement * shrinks)
        return moved

    def _polish(self, state: State, next_decrement: float) -> State:
        """Make the minimiser itself accurate: steps with the same Hessian cost one pass each."""
        accurate, most = (_ROUNDING_OF_FEW, _MOST_POLISHING) if self.is_small else (_ACCURATE_DECREMENT, 1)
        for _ in range(most):
            if next_decrement <= accurate:
                break
            before = state.memory.decrement
            moved, _ = self._advance(state)
            if moved.stuck:
                break
            state, next_decrement = moved, moved.memory.decrement
            if next_decrement >= before:
                break
        return state

    def _is_near(self, state: State, shrinks: float) -> bool:
        """Whether to try a proof after a step whose decrement was this share of the one before.

        The rounds of a proof converge as steps do, so a proof is tried once they can reach the dual cone, and no
        step is due that would follow anyway; or at once if steps hardly shrink.
        """
        decrement = float(state.memory.decrement)
        if shrinks > 0.25 or decrement < 1e-13:
            return decrement < max(1e2 * self.tol, 1e-9)
        inside = self.tol / (2.0 * max(self.problem.cone.trace(state.matrix), 1.0))
        is_accurate = decrement * shrinks <= max(1e-5 * self.tol, _ACCURATE_DECREMENT)
        return is_accurate and decrement * shrinks**5 <= 10.0 * inside**2

    def advance(self, state: State) -> State:
        """Take a step without proving a bound, for a risk that is not convex."""
        return self._advance(state)[0]

    def renew(self, state: State) -> State:
        """Evaluate the same point again after the risk has changed a little."""
        if not isinstance(state.memory, _Memory):  # new, or from another solver
            return self.resume(state)
        point = self.problem.at(state.matrix, state.thresholds)
        return State.of(point, 0.0, replace(state.memory, point=point))

    def _advance(self, state: State) -> tuple[State, ConeProgram]:
        last: _Memory = state.memory
        point = last.point
        program = last.program
        if program is None:
            hessian = self._rough_hessian(last) if last.damping >= _DAMPING and not self.is_small else None
            # With curvatures so many times the median, single precision is not enough for the others.
            if hessian is None or np.diag(hessian).max() > _UNEVEN * np.sort(np.diag(hessian))[len(hessian) // 2]:
                hessian = self.problem.hessian(point.evaluation.curvature)
            program = ConeProgram(hessian, last.damping, self.problem.cone)
        x = packed.join(point.matrix, point.thresholds)
        gradient = packed.join(point.gradient, point.slopes)
        accuracy = max(self.inexactness * last.decrement, 1e-15)
        begin = x - gradient / program.rho if last.splitting is None else last.splitting
        splitting = program.solve(gradient - program.hessian @ x, begin, accuracy)
        direction = program.project(splitting) - x
        decrement = max(-float(gradient @ direction + 0.5 * direction @ program.hessian @ direction), 0.0)
        new, length = self._search(point, x, direction, decrement)
        if new is None:
            is_best = last.program is None and not last.samples
            damping = max(1e-3, 100.0 * last.damping) if is_best else last.damping
            memory = replace(last, program=None, decrement=1.0, damping=damping, splitting=None, samples=False)
            return replace(state, memory=memory, stuck=damping > 1e6), program
        slow = length == 1.0 and decrement > 0.1 * last.decrement
        crawling = length == 1.0 and decrement > 0.5 * last.decrement
        keep = 0.0 < decrement < _FREEZE_BELOW and not slow
        idle = last.idle + 1 if point.value - new.value <= max(0.1 * self.tol, 1e-15) else 0
        damping = _damping(last.damping, length, crawling)
        samples = last.samples and _is_good(decrement, last.decrement, length)
        memory = _Memory(new, splitting, decrement, damping, program if keep else None, idle, samples)
        return replace(State.of(new, state.bound, memory), stuck=idle >= _MOST_IDLE_STEPS), program

    def _begin(self, matrix: FloatArray, thresholds: FloatArray, program: ConeProgram | None = None) -> State:
        x = packed.join(matrix, thresholds)
        point = self._evaluate(x)
        return State.of(point, 0.0, _Memory(point, splitting=None, decrement=1.0, damping=_DAMPING, program=program))

    def _has_many(self) -> bool:
        """Whether a sample of the judgements is enough for the first steps."""
        return self.problem.n_judgements >= _SCOUTED_FRACTION * 8 * packed.packed_size(self.problem.n_directions)

    def _scouts(self) -> bool:
        """Whether to begin with a sample: to save time, or as an enormous one is hardly in it and spoils moments."""
        n, d = self.problem.n_judgements, self.problem.n_directions
        if not self._has_many():
            return False
        is_long = 4.0 * n * d**2 >= _LONG_SCOUTED_PASS
        return is_long or float(self.sampler.lengths.max()) > _ENORMOUS_SQUARE * d

    def _scout(self) -> tuple[State, ConeProgram] | None:
        """Take the first steps on an eighth of the judgements, if these are enough."""
        most = _MOST_SCOUTED_BYTES / (8 * self.problem.n_directions * self.problem.n_judgements)
        few = self.problem.sample(min(1.0 / _SCOUTED_FRACTION, most), self.rng) if self._scouts() else None
        if few is None:
            return None
        self.scout = scout = Newton(few, tol=0.0, rng=self.rng)
        scout.inexactness = 1e-3
        size = packed.packed_size(few.n_directions)
        state = scout.start()
        for _ in range(15):
            state, program = scout._advance(state)
            if state.stuck or state.least_margin > 0.0 or state.memory.decrement < size / few.n_judgements:
                break
        return state, program

    def _evaluate(self, x: FloatArray) -> Point:
        return self.problem.at(*packed.split(x, self.problem.cone.size))

    def _rough_hessian(self, last: _Memory) -> FloatArray:
        """The Hessian in single precision, and of a sample if that is enough: that of the scouts, if they are."""
        matrix, thresholds, here = last.point.matrix, last.point.thresholds, last.point.evaluation
        if not last.samples:
            return self.sampler.hessian(matrix, thresholds, here, self.problem.n_judgements)
        number, scout = self._number_curved(last.decrement), self.scout
        if scout is None or scout.problem.n_judgements < number:
            return self.sampler.hessian(matrix, thresholds, here, number)
        few = scout.problem
        there = few.evaluate(few.forms(matrix), thresholds, order=2)
        return scout.sampler.hessian(matrix, thresholds, there, number)

    def _number_curved(self, decrement: float) -> int:
        """The number of judgements whose Hessian is used after a step with this decrement."""
        size = packed.packed_size(self.problem.n_directions)
        least, most = _CURVED_FAR * size, _CURVED_NEAR * size
        if decrement >= _NEAR_DECREMENT:
            return least
        share = _WORTH_PASSES * 4.0 * self.problem.n_directions**2 / size**2  # whose Hessian costs that many passes
        return int(min(max(share * self.problem.n_judgements, least), most))

    def _search(
        self, point: Point, x: FloatArray, direction: FloatArray, decrement: float
    ) -> tuple[Point | None, float]:
        """Backtrack until the objective falls; below its rounding error take the full step."""
        length = 1.0
        while length > 1e-6:
            new = self._evaluate(x + length * direction)
            if new.value <= point.value - 1e-4 * length * decrement + 1e-14:
                return new, length
            length *= 0.5
        return None, 0.0


def _solve_dense(
    hessian: FloatArray, matrix: FloatArray, thresholds: FloatArray, held: BoolArray, residual: float
) -> tuple[FloatArray, FloatArray]:
    """Solve H[S, t] = (matrix, thresholds) exactly; some thresholds are held fixed."""
    right = packed.join(matrix, thresholds)
    free = np.append(np.ones(len(right) - len(held), dtype=bool), ~held)
    solution = np.zeros_like(right)
    solution[free] = np.linalg.solve(hessian[np.ix_(free, free)], right[free])
    return packed.split(solution, len(matrix))


def _is_good(decrement: float, before: float, length: float) -> bool:
    """Whether steps with the Hessian of a sample shrink as fast as they should."""
    return length == 1.0 and (decrement < 0.25 * before or decrement < _DECREMENT_ROUNDING)


def _damping(last: float, length: float, crawling: bool) -> float:
    """More damping after a short step; less if full steps gain little (a flat or infinite path to the optimum)."""
    if length < 0.1:
        return min(max(1e-3, 10.0 * last), 10.0)
    if crawling:
        return max(0.1 * last, 1e-12)
    return max(0.1 * last, _DAMPING) if last > _DAMPING else last
