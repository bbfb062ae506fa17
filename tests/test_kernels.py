"""The kernels for GPUs: compiled for sm_90 here, and compared with NumPy on a card or in Triton's interpreter."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import closefar as cf
from cards import IS_INTERPRETED, device_of_kernels
from closefar.arrays import to_numpy
from closefar.noise import NOISES
from closefar.rows import Coordinates, Differences, LegRows, Trait, coordinates, rows_of
from closefar.rows.fused import _MOST_CODES, CURVED, FAST, FINEST, FORMS_ONLY, GIVEN, KINDS, PRECISE, Launch
from closefar.rows.legs import legs_of
from closefar.solve import Answers, Likelihood, Problem
from paper_estimator import PAPER

triton = pytest.importorskip("triton", reason="the kernels are compiled by Triton: run pip install triton (Linux)")

from closefar.rows import fused, kernels  # noqa: E402

compiled_here = pytest.mark.skipif(IS_INTERPRETED, reason="Triton's interpreter compiles nothing")

SHARED_MEMORY = 232_448  # bytes that a block of an H100 or H200 may use
STACK = 256  # bytes per thread: a few registers of the innermost loop may spill, a tile may not


# Compiled for a card that need not be here.


def compile_for_hopper(kernel, types, constants, warps, stages):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name in names
        if name not in constants and types[name].startswith("*")
    }
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
    return triton.compile(ASTSource(kernel, signature, values, aligned), GPUTarget("cuda", 90, 32), options)


def resources(compiled, tmp_path):
    """The registers, and the bytes of stack (where registers are spilled to) per thread."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        pytest.skip("this needs NVIDIA's cuobjdump, which Triton brings along")
    (tmp_path / "kernel.cubin").write_bytes(compiled.asm["cubin"])
    command = [tool, "-res-usage", tmp_path / "kernel.cubin"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return tuple(int(number) for number in re.search(r"REG:(\d+) STACK:(\d+)", told).groups())


def check(compiled, tmp_path, stack=0):
    assert compiled.metadata.shared <= SHARED_MEMORY
    registers, used = resources(compiled, tmp_path)
    assert registers <= 255
    assert used <= stack


TYPES = {
    **dict.fromkeys(("SCALES", "WEIGHTS", "POINT", "ENDS", "TOTALS"), "*fp32"),
    **dict.fromkeys(("SUMS", "FORMS"), "*fp64"),
    **dict.fromkeys(("threshold", "threshold_rest", "form_unit", "form_rest"), "fp32"),
    **dict.fromkeys(("coefficient_unit", "one"), "fp32"),
    **dict.fromkeys(("n_rows", "rows_of_slot"), "i64"),
    "CODES": "*i8",
}


def compile_pass(width, level=FINEST, kind=KINDS["logistic"], *, weighted=False, planes=True, n_codes=0, n_legs=1):
    launch = Launch.of(width, level, are_planes=planes, n_legs=n_legs, n_codes=n_codes)
    plane = f"tensordesc<fp16[{launch.rows},{width}]>" if planes else "*fp32"
    constants = {
        "d": width - 4,
        "D": width,
        "WIDTH": width,
        "B": launch.rows,
        "KIND": kind,
        "LEVEL": level,
        "ARE_PLANES": planes,
        "WEIGHTED": weighted,
        "N_CODES": n_codes,
        "N_LEGS": n_legs,
        "STAGES": launch.stages,
    }
    types = {**TYPES, "HIGH": plane, "LOW": plane}
    return compile_for_hopper(kernels.pass_kernel, types, constants, launch.warps, launch.stages)


@compiled_here
@pytest.mark.parametrize(
    ("width", "level"), [(16, FINEST), (32, FINEST), (64, FINEST), (128, FAST), (128, PRECISE), (128, FINEST)]
)
def test_passes_fit_the_chip(width, level, tmp_path):
    compiled = compile_pass(width, level)
    assert ("wgmma" in compiled.asm["ptx"]) == (width > 32)  # small blocks use the tensor cores in another way
    check(compiled, tmp_path, stack=STACK if width >= 64 else 0)


@compiled_here
@pytest.mark.parametrize("width", [32, 128])
def test_passes_over_rows_as_stored_fit_the_chip(width, tmp_path):
    compiled = compile_pass(width, planes=False)
    check(compiled, tmp_path, stack=1024 if width == 128 else STACK)  # splitting rows takes registers


@compiled_here
@pytest.mark.parametrize("kind", [*KINDS.values(), CURVED, GIVEN, FORMS_ONLY])
def test_passes_of_each_kind_fit_the_chip(kind, tmp_path):
    check(compile_pass(128, kind=kind, weighted=kind < CURVED), tmp_path, stack=STACK)


@compiled_here
@pytest.mark.parametrize("planes", [True, False])
@pytest.mark.parametrize("level", [FAST, FINEST])
@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize(("n_codes", "n_legs"), [(_MOST_CODES, 1), (0, 2), (_MOST_CODES, 2)])
def test_passes_over_levels_and_comparisons_fit_the_chip(width, level, n_codes, n_legs, planes, tmp_path):
    compiled = compile_pass(width, level, weighted=True, n_codes=n_codes, n_legs=n_legs, planes=planes)
    stack = STACK if planes else 1024  # splitting rows takes registers
    check(compiled, tmp_path, stack=stack + 16 * n_codes)  # the two sums of each code


@compiled_here
@pytest.mark.parametrize("noise", NOISES)
def test_terms_fit_the_chip(noise, tmp_path):
    names = ("SQUARED", "WEIGHTS", "NUMBERS", "SUMS", "SLOPES", "CURVATURES")
    types = {**dict.fromkeys(names, "*fp64"), "CODES": "*i8", "n_rows": "i64", "rows_of_slot": "i64"}
    constants = {"B": 256, "KIND": KINDS[noise], "ORDER": 2, "WEIGHTED": True}
    check(compile_for_hopper(kernels.terms_kernel, types, constants, 4, 2), tmp_path, stack=STACK)


@compiled_here
def test_the_kernels_agree_with_numpy_in_tritons_interpreter():
    """The tests below, in a process of the interpreter, which computes on the CPU as programs on a card would."""
    pytest.importorskip("torch", reason="needs torch: run pip install -e '.[test-torch]'")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    ran, skipped = (int(re.search(rf"(\d+) {word}", done.stdout).group(1)) for word in ("passed", "skipped"))
    assert ran > skipped


# Compared with NumPy in double precision.


@pytest.fixture
def device(monkeypatch):
    with np.errstate(all="ignore"):  # of the interpreter, in branches that are not taken
        yield device_of_kernels(monkeypatch)


def on(device, values):
    import torch

    return torch.tensor(np.asarray(values, dtype=np.float32), device=device)


N_LEVELS = {"close/far": 2, "levels": 5, "triplets": 0, "quadruplets": 0, "mixed": 3}


def rows_of_kind(kind, points):
    """The rows of points that are pairs or legs, (n, 4, d); a third of the mixed ones are pairs."""
    if kind == "mixed":
        n = len(points) // 3
        return LegRows.mixed(Differences(points[:n, 0] - points[:n, 1]), legs_of(points[n:]), 1.0 / 1.6)
    return rows_of({"triplets": points[:, :3], "quadruplets": points}.get(kind, points[:, 0] - points[:, 1]))


def problems_of(kind, noise, d, device, *, is_weighted=False, n=900):
    """A problem in NumPy, the same on a device, and a metric and thresholds that are not far from the truth."""
    rng = np.random.default_rng(1)
    points = np.round(256.0 * rng.standard_normal((n, 4, d))) / 256.0  # single precision holds their differences, too
    plain, there = rows_of_kind(kind, points), rows_of_kind(kind, on(device, points))
    root, n_pairs, n_levels = rng.standard_normal((d, d)) / d, plain.n_pairs, N_LEVELS[kind]
    matrix = root @ root.T
    forms = plain.forms(matrix)
    thresholds = np.quantile(forms[:n_pairs], np.arange(1, n_levels) / n_levels) if n_levels else np.empty(0)
    felt = forms + 0.3 * rng.logistic(size=n)
    codes = np.append(np.digitize(felt[:n_pairs], thresholds), n_levels + (felt[n_pairs:] > 0.0)).astype(np.int8)
    codes = codes if n_pairs else (felt > 0.0).astype(np.int8)
    weights = rng.random(n) if is_weighted else np.ones(n)
    shares = weights / weights.sum() if is_weighted else np.broadcast_to(1.0 / n, n)
    answers = Answers.of(n_levels, compares=n_pairs < n)
    problems = [
        Problem.of(rows, Likelihood(NOISES[noise], answers, rows.row_array(codes), rows.row_array(shares)))
        for rows in (plain, there)
    ]
    return *problems, 1.1 * matrix, 0.9 * thresholds


# What passes of each level may be wrong by: losses, slopes and forms, and gradients and products, which are relative.
ERRORS = {FINEST: (1e-6, 2e-5), PRECISE: (1e-6, 2e-2), FAST: (5e-3, 5e-2)}


def check_close(found, expected, error):
    assert np.linalg.norm(found - expected) <= error * np.linalg.norm(expected) + 1e-3 * error


def check_passes(plain, there, matrix, thresholds, *, is_fused=True):
    rng = np.random.default_rng(2)
    change, shift = rng.standard_normal(matrix.shape), rng.standard_normal(len(thresholds))
    change, numbers = change + change.T, rng.standard_normal(plain.n_judgements)
    expected, forms = plain.at(matrix, thresholds), plain.rows.forms(matrix)
    bend = expected.evaluation.curvature
    image, image_t = plain.hessian_product(change, shift, bend)
    for level, (error, error_of_sums) in ERRORS.items():
        there = there.rough
        rows, likelihood = there.rows, there.likelihood
        assert Trait.FUSED in there.traits
        found, _ = rows.sweep(likelihood.loss(thresholds), matrix, *likelihood.row_arrays)
        assert (found.arrays == ()) == is_fused
        here = there.at(matrix, thresholds)
        assert here.value == pytest.approx(expected.value, rel=error)
        check_close(here.slopes, expected.slopes, error)
        check_close(here.gradient, expected.gradient, error_of_sums)
        assert here.evaluation.least_margin == pytest.approx(expected.evaluation.least_margin, rel=error, abs=error)
        if level > FAST:  # whose forms may be on the other side of a threshold, where the curvature of Laplace jumps
            check_close(here.evaluation.curvature.thresholds, bend.thresholds, error)
        curvature = there.evaluate(rows.row_array(forms), thresholds, order=2).curvature
        check_close(curvature.thresholds, bend.thresholds, 1e-9)
        product, product_t = there.hessian_product(change, shift, curvature)
        check_close(product, image, error_of_sums)
        check_close(product_t, image_t, error_of_sums)
        check_close(rows.gather(rows.forms(change)), plain.rows.forms(change), error)
        check_close(rows.outer(rows.row_array(numbers)), plain.rows.outer(numbers), error_of_sums)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", N_LEVELS)
def test_passes_over_each_kind_of_judgement_agree_with_numpy(kind, noise, device):
    has_kernel = noise == "logistic" or kind not in ("levels", "mixed")  # only its intervals are a sum of two losses
    check_passes(*problems_of(kind, noise, 7, device, is_weighted=True), is_fused=has_kernel)


@pytest.mark.parametrize("d", [1, 3, 7, 33, 128])
@pytest.mark.parametrize("kind", N_LEVELS)
def test_passes_over_any_number_of_columns_agree_with_numpy(kind, d, device):
    check_passes(*problems_of(kind, "logistic", d, device))


@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (900, 7, 20), (1100, 33, 3), (700, 128, 128)])
def test_forms_of_single_precision_rows_are_exact(n, d, k, device):
    rng = np.random.default_rng(4)
    rows, matrix, factor = rng.standard_normal((n, d)), rng.standard_normal((d, d)), rng.standard_normal((d, k))
    there = Differences(on(device, rows))
    plain, matrix = rows.astype(np.float32).astype(np.float64), matrix + matrix.T
    forms, lengths = there.forms(matrix), there.squared_distances(factor)
    np.testing.assert_allclose(to_numpy(forms), np.sum(plain @ matrix * plain, axis=1), atol=1e-12 * d**2)
    np.testing.assert_allclose(to_numpy(lengths), np.sum((plain @ factor) ** 2, axis=1), rtol=1e-12)


def spoiled(kind, n=900, d=30):
    """Rows of few values, or with one that float16 numbers hold beside the others only if their unit is chosen well."""
    rows = np.random.default_rng(3).standard_normal((n, d)).astype(np.float32)
    if kind == "two values":
        rows = np.where(rows > 0, np.float32(0.7), np.float32(0.1))
    elif kind == "rounded":
        rows = np.round(rows, 1)
    else:
        rows[0] *= 1e4
    return rows


def close_or_far(noise, rows, device, *, first=None):
    """The problems of close/far labels of these rows; that of the first may be given."""
    rng, (n, d) = np.random.default_rng(4), rows.shape
    plain, there = Differences(rows.astype(float)), Differences(on(device, rows))
    root = rng.standard_normal((d, d)) * np.sqrt(0.5) / d
    matrix = root @ root.T
    forms, shares = plain.forms(matrix), np.broadcast_to(1.0 / n, n)
    threshold = np.median(forms)
    codes = (forms + rng.logistic(size=n) > threshold).astype(np.int8)
    codes[0] = codes[0] if first is None else first
    likelihoods = (
        Likelihood(NOISES[noise], Answers.of(2), each.row_array(codes), each.row_array(shares))
        for each in (plain, there)
    )
    problems = [Problem.of(*each) for each in zip((plain, there), likelihoods, strict=True)]
    return *problems, matrix, np.array([threshold])


@pytest.mark.parametrize("kind", ["two values", "rounded"])
@pytest.mark.parametrize("noise", NOISES)
def test_passes_over_rows_of_few_values_agree_with_numpy(noise, kind, device):
    check_passes(*close_or_far(noise, spoiled(kind), device))


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("noise", NOISES)
def test_an_enormous_row_leaves_passes_precise_or_they_are_not_fused(noise, label, device):
    plain, there, matrix, threshold = close_or_far(noise, spoiled("one enormous row"), device, first=label)
    there = there.rough
    loss, arrays = there.likelihood.loss(threshold), there.likelihood.row_arrays
    found = there.rows.passes.sweep(loss.kernel, matrix, *arrays)
    assert (found is None) == (noise == "normal" and label == 0)  # float16 numbers do not hold its coefficient
    here, expected = there.at(matrix, threshold), plain.at(matrix, threshold)
    assert here.value == pytest.approx(expected.value, rel=1e-6)
    check_close(here.gradient, expected.gradient, 2e-5)


@pytest.mark.parametrize("kind", ["close/far", "levels"])
def test_passes_over_rows_as_stored_agree_with_numpy(kind, device, monkeypatch):
    monkeypatch.setattr(fused, "_have_room", lambda exact: False)
    monkeypatch.setattr(coordinates, "KEEP_BYTES", 0)
    plain, there, matrix, thresholds = problems_of(kind, "logistic", 7, device)
    scale = 10.0 ** np.linspace(-3.0, 3.0, 7)
    transform = np.random.default_rng(5).standard_normal((7, 7)) + 2.0 * np.eye(7)
    to = Coordinates(transform / scale[:, None], None, np.empty((7, 0)), scale)
    stored = Differences(on(device, np.asarray(plain.rows) * scale))
    exact = Differences(np.asarray(stored.read(slice(0, 900)).cpu()).T @ to.transform)
    there = Problem.of(coordinates.WideRows(stored, to), there.likelihood)
    assert not there.rough.rows.passes.rows.are_planes
    check_passes(Problem.of(exact, plain.likelihood), there, matrix, thresholds)


@pytest.mark.parametrize("weights", ["equal", "equal, of a part", "unlike"])
@pytest.mark.parametrize("noise", NOISES)
def test_terms_at_known_squared_distances_agree_with_numpy(noise, weights, device):
    plain, there, matrix, thresholds = problems_of("close/far", noise, 7, device, is_weighted=weights == "unlike")
    if weights == "equal, of a part":  # whose weights do not sum to one
        plain, there = (
            each.with_likelihood(
                each.likelihood.of_rows((each.likelihood.codes, each.rows.row_array(np.broadcast_to(0.3 / 900, 900))))
            )
            for each in (plain, there)
        )
    forms = plain.rows.forms(matrix)
    for order in (1, 2):
        found, expected = (
            each.rows.each(
                each.likelihood.loss(thresholds, order), each.rows.row_array(forms), *each.likelihood.row_arrays
            )
            for each in (there, plain)
        )
        assert found.sums == pytest.approx(expected.sums, rel=1e-11, abs=1e-13)
        assert found.least == pytest.approx(expected.least, abs=1e-12)
        for one, other in zip((found.pull, *found.arrays), (expected.pull, *expected.arrays), strict=True):
            np.testing.assert_allclose(there.rows.gather(one), other, rtol=1e-10, atol=1e-16)


def test_other_answers_to_the_same_rows_agree_with_numpy(device):
    """What passes convert once, they convert again for other codes with the same weights."""
    plain, there, matrix, thresholds = problems_of("levels", "logistic", 7, device)
    there = there.rough
    for turn in (lambda codes: codes, lambda codes: 4 - codes):
        found, expected = (
            each.with_likelihood(each.likelihood.of_rows((turn(each.likelihood.codes), each.likelihood.weights))).at(
                matrix, thresholds
            )
            for each in (there, plain)
        )
        assert found.value == pytest.approx(expected.value, rel=1e-6)
        np.testing.assert_allclose(found.slopes, expected.slopes, atol=1e-6)


def test_mixed_rows_without_comparisons_are_not_fused(device):
    """A sample of the rows may have none."""
    _, there, matrix, _ = problems_of("mixed", "logistic", 7, device)
    pairs = there.rows.take_rows(np.arange(100))
    assert pairs.rough.legs is pairs.legs
    np.testing.assert_allclose(pairs.gather(pairs.rough.forms(matrix)), pairs.gather(pairs.forms(matrix)))


# Whole fits.


def judgements_of(kind, n):
    """A learner and what it is fitted to."""
    if kind == "mixed":
        (learner, given), (_, compared) = judgements_of("pairs", n), judgements_of("triplets", n // 2)
        return learner, given | {"comparisons": (compared["X"], compared["y"])}
    found = cf.datasets.make_judgements(n, 3, kind=kind, n_points=80, random_state=0)
    learner = {"pairs": cf.LinearMetricLearner, "levels": cf.OrdinalMetricLearner}.get(kind, cf.ComparisonMetricLearner)
    return learner, {"X": found.tuples, "y": found.labels}


def there(given, device, *, by_index=False):
    """The same with tuples in tensors on a device."""
    import torch

    def moved(tuples):
        points, index = (torch.tensor(np.asarray(each), device=device) for each in (tuples.points, tuples.index))
        return cf.Tuples(points, index) if by_index else points[index.long()]

    found = given | {"X": moved(given["X"])}
    if "comparisons" in given:
        tuples, answers = given["comparisons"]
        found["comparisons"] = moved(tuples), answers
    return found


KINDS_OF_JUDGEMENT = ("pairs", "levels", "triplets", "quadruplets", "mixed")
FITS = [(kind, {"solver": solver}, False) for kind in KINDS_OF_JUDGEMENT for solver in ("sampled", "lowrank")]
FITS += [(kind, {"solver": "sampled"}, True) for kind in ("pairs", "triplets")]
FITS += [("pairs", {"solver": "sampled", "rank": 2}, False)]
if IS_INTERPRETED:  # which takes its time
    FITS = [FITS[0], FITS[2], FITS[-2], ("mixed", {"solver": "lowrank"}, False)]


@pytest.mark.parametrize(("kind", "parameters", "by_index"), FITS, ids=str)
def test_whole_fits_agree_with_numpy(kind, parameters, by_index, device):
    learner, given = judgements_of(kind, 100_000 if device == "cuda" else 1500)
    parameters = PAPER | parameters | {"tol": 1e-9}
    plain, found = (learner(**parameters).fit(**each) for each in (given, there(given, device, by_index=by_index)))
    assert found.fit_.engine.endswith("fused Triton kernels on float16 planes")
    assert abs(found.certificate_.loss - plain.certificate_.loss) <= 1e-8
    new = np.random.default_rng(1).standard_normal((200, *given["X"].shape[1:]))
    # Both are proven to be within 1e-9 of the optimum, from which sqrt(gap / 2) follows, as root mean square.
    difference = found.predict_proba(new) - plain.predict_proba(new)
    assert np.sqrt(np.mean(difference**2)) <= 2.0 * np.sqrt(1e-9 / 2.0)


@pytest.mark.parametrize("kind", ["pairs", "levels"])
def test_a_fit_gives_the_same_bits_twice(kind, device):
    if device != "cuda":
        pytest.skip("the interpreter runs one program after another, whose bits are always the same")
    learner, given = judgements_of(kind, 100_000)
    once, again = (learner(solver="sampled", **PAPER).fit(**there(given, device)) for _ in range(2))
    assert "fused" in once.fit_.engine
    assert once.metric_.factor.tobytes() == again.metric_.factor.tobytes()
    assert once.certificate_ == again.certificate_
