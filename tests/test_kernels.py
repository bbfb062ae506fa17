"""The kernels for GPUs: compiled for sm_90 here, without a GPU; with one, compared with NumPy."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import closefar as cf
from closefar.noise import NOISES

triton = pytest.importorskip("triton", reason="the kernels are compiled by Triton: run pip install triton (Linux)")

from closefar.rows import kernels  # noqa: E402
from closefar.rows.fused import CURVED, FAST, FINEST, KINDS, PRECISE, Launch  # noqa: E402
from paper_estimator import PAPER  # noqa: E402

SHARED_MEMORY = 232_448  # bytes that a block of an H100 or H200 may use
STACK = 256  # bytes per thread: a few registers of the innermost loop may spill, a tile may not


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


POINTERS = {
    "SCALES": "*fp32",
    "SIGNS": "*i8",
    "WEIGHTS": "*fp32",
    "POINT": "*fp32",
    "threshold": "fp32",
    "threshold_rest": "fp32",
    "SUMS": "*fp64",
    "TOTALS": "*fp32",
    "n_rows": "i64",
    "rows_of_slot": "i64",
    "form_unit": "fp32",
    "form_rest": "fp32",
    "coefficient_unit": "fp32",
    "one": "fp32",
}


def compile_pass(width, level, kind, weighted=False, are_planes=True):
    launch = Launch.of(width, level, are_planes=are_planes)
    plane = f"tensordesc<fp16[{launch.rows},{width}]>" if are_planes else "*fp32"
    constants = {
        "d": width - 4,
        "D": width,
        "B": launch.rows,
        "KIND": kind,
        "LEVEL": level,
        "ARE_PLANES": are_planes,
        "WEIGHTED": weighted,
        "STAGES": launch.stages,
    }
    types = {**POINTERS, "HIGH": plane, "LOW": plane}
    return compile_for_hopper(kernels.pass_kernel, types, constants, launch.warps, launch.stages)


@pytest.mark.parametrize(
    ("width", "level"), [(16, FINEST), (32, FINEST), (64, FINEST), (128, FAST), (128, PRECISE), (128, FINEST)]
)
def test_passes_fit_the_chip(width, level, tmp_path):
    compiled = compile_pass(width, level, KINDS["logistic"])
    assert ("wgmma" in compiled.asm["ptx"]) == (width > 32)  # small blocks use the tensor cores in another way
    check(compiled, tmp_path, stack=STACK if width >= 64 else 0)


@pytest.mark.parametrize("width", [32, 128])
def test_passes_over_rows_as_stored_fit_the_chip(width, tmp_path):
    compiled = compile_pass(width, FINEST, KINDS["logistic"], are_planes=False)
    check(compiled, tmp_path, stack=1024 if width == 128 else STACK)  # splitting rows takes registers


@pytest.mark.parametrize("kind", [*(KINDS[name] for name in NOISES), CURVED])
def test_passes_of_each_noise_fit_the_chip(kind, tmp_path):
    check(compile_pass(128, FINEST, kind, weighted=True), tmp_path, stack=STACK)


@pytest.mark.parametrize("noise", NOISES)
def test_terms_fit_the_chip(noise, tmp_path):
    names = ("SQUARED", "WEIGHTS", "NUMBERS", "SUMS", "SLOPES", "CURVATURES")
    types = {**dict.fromkeys(names, "*fp64"), "SIGNS": "*i8", "n_rows": "i64", "rows_of_slot": "i64"}
    constants = {"B": 256, "KIND": KINDS[noise], "ORDER": 2, "WEIGHTED": True}
    check(compile_for_hopper(kernels.terms_kernel, types, constants, 4, 2), tmp_path, stack=STACK)


# With a GPU.


@pytest.fixture(scope="module")
def card():
    torch = pytest.importorskip("torch", reason="this needs torch: run pip install 'closefar[gpu]'")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("this needs an H100, an H200 or a later NVIDIA GPU")
    return torch


def data_of(kind, n=200_000, d=30, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)).astype(np.float32)
    if kind == "two values":
        rows = np.where(rows > 0, np.float32(0.7), np.float32(0.1))
    elif kind == "rounded":
        rows = np.round(rows, 1)
    elif kind == "one enormous row":
        rows[0] *= 1e4
    root = rng.standard_normal((d, d)) * np.sqrt(0.5) / d
    matrix = root @ root.T
    squared = np.einsum("ij,jk,ik->i", rows.astype(float), matrix, rows.astype(float))
    threshold = float(np.median(squared))
    signs = np.where(squared + rng.logistic(size=n) > threshold, 1.0, -1.0)
    return rows, signs, matrix, threshold


def expected(noise, rows, signs, weights, matrix, threshold):
    rows = rows.astype(float)
    loss, slope, curvature = noise.derivatives(signs * (np.einsum("ij,jk,ik->i", rows, matrix, rows) - threshold), 2)
    pulled = weights * signs * slope
    return weights @ loss, -pulled.sum(), weights @ curvature, (rows * pulled[:, None]).T @ rows


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("kind", ["normal", "two values", "rounded", "one enormous row"])
@pytest.mark.parametrize("name", NOISES)
def test_passes_agree_with_numpy(name, kind, is_weighted, card):

    from closefar.rows import Differences

    rows, signs, matrix, threshold = data_of(kind)
    weights = np.random.default_rng(1).random(len(rows)) if is_weighted else np.ones(len(rows))
    weights /= weights.sum()
    finest = Differences(card.from_numpy(rows).cuda()).rough
    given = (
        finest.row_array(signs),
        finest.row_array(weights if is_weighted else np.broadcast_to(weights[0], len(rows))),
    )
    loss, slope, curvature, gradient = expected(NOISES[name], rows, signs, weights, matrix, threshold)
    for source, accuracy in ((finest, 2e-5), (finest.rough, 2e-2)):
        found = source.margin_pass(NOISES[name], *given, matrix, threshold)
        if found is None:  # beyond the range of float16 numbers: such passes are not fused
            assert (name, kind) == ("normal", "one enormous row")
            return
        assert abs(found.loss - loss) <= 1e-7 * max(loss, 1.0)
        assert abs(found.slope - slope) <= 1e-6
        assert abs(found.curvature - curvature) <= 1e-6
        assert np.linalg.norm(found.gradient - gradient) <= accuracy * np.linalg.norm(gradient)
    fast = finest.rough.rough.margin_pass(NOISES[name], *given, matrix, threshold)
    assert np.linalg.norm(fast.gradient - gradient) <= 5e-2 * np.linalg.norm(gradient)


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("kind", ["normal", "one enormous row"])
@pytest.mark.parametrize("name", NOISES)
def test_terms_agree_with_numpy(name, kind, is_weighted, card):
    from closefar.rows import Differences

    rows, signs, matrix, threshold = data_of(kind)
    weights = np.random.default_rng(1).random(len(rows)) if is_weighted else np.ones(len(rows))
    weights /= weights.sum()
    source = Differences(card.from_numpy(rows).cuda())
    given = (
        source.row_array(signs),
        source.row_array(weights if is_weighted else np.broadcast_to(weights[0], len(rows))),
    )
    loss, slope, curvature, _ = expected(NOISES[name], rows, signs, weights, matrix, threshold)
    squared = source.quadratic_forms(matrix)
    terms = source.margin_terms(NOISES[name], squared, *given, threshold, 2)
    assert (terms.loss, terms.slope, terms.curvature) == pytest.approx((loss, slope, curvature), rel=1e-11, abs=1e-13)


def test_a_fit_gives_the_same_bits_twice_and_the_optimum(card):
    rows, signs, *_ = data_of("normal", d=40)
    on_card = card.from_numpy(rows).cuda()
    fits = [cf.LinearMetricLearner(tol=1e-8, **PAPER).fit(on_card, signs) for _ in range(2)]
    assert "fused" in fits[0].fit_.engine
    assert fits[0].metric_.factor.tobytes() == fits[1].metric_.factor.tobytes()
    assert fits[0].certificate_ == fits[1].certificate_
    on_cpu = cf.LinearMetricLearner(tol=1e-8, **PAPER).fit(rows, signs)
    assert abs(on_cpu.certificate_.loss - fits[0].certificate_.loss) <= 1e-8
    np.testing.assert_allclose(on_cpu.predict_proba(rows), fits[0].predict_proba(rows), atol=1e-6)


def test_rows_as_stored_agree_with_planes(card, monkeypatch):
    from closefar.rows import fused

    rows, signs, *_ = data_of("normal", d=40)
    rows = (rows * 10.0 ** np.linspace(-3, 3, 40)).astype(np.float32)
    planes = cf.LinearMetricLearner(tol=1e-8, device="cuda", **PAPER).fit(rows, signs)
    monkeypatch.setattr(fused, "_have_room", lambda exact: False)
    stored = cf.LinearMetricLearner(tol=1e-8, device="cuda", **PAPER).fit(rows, signs)
    assert (planes.fit_.engine[-7:], stored.fit_.engine[-12:]) == (" planes", "float32 rows")
    assert abs(planes.certificate_.loss - stored.certificate_.loss) <= 1e-8
    np.testing.assert_allclose(planes.predict_proba(rows), stored.predict_proba(rows), atol=1e-6)


def test_a_limited_rank_agrees_with_numpy(card):
    rows, signs, *_ = data_of("normal", d=40)
    on_card = cf.LinearMetricLearner(rank=3, tol=1e-8, device="cuda", **PAPER).fit(rows, signs)
    plain = cf.LinearMetricLearner(rank=3, tol=1e-8, **PAPER).fit(rows, signs)
    assert abs(plain.certificate_.loss - on_card.certificate_.loss) <= 1e-8
    np.testing.assert_allclose(plain.predict_proba(rows), on_card.predict_proba(rows), atol=1e-5)


def test_pairs_by_index_agree_with_numpy(card):
    rng = np.random.default_rng(0)
    points, index = rng.standard_normal((500, 40)), rng.integers(500, size=(200_000, 2))
    squared = np.sum((points[index[:, 0]] - points[index[:, 1]])[:, :3] ** 2, axis=1)
    labels = np.where(squared + rng.logistic(size=len(index)) > 5.0, 1, -1)
    pairs = cf.Tuples(points, index)
    plain = cf.LinearMetricLearner(tol=1e-8, **PAPER).fit(pairs, labels)
    learner = cf.LinearMetricLearner(tol=1e-8, device="cuda", **PAPER).fit(pairs, labels)
    assert "planes" in learner.fit_.engine
    assert abs(plain.certificate_.loss - learner.certificate_.loss) <= 1e-8
    np.testing.assert_allclose(plain.predict_proba(pairs), learner.predict_proba(pairs), atol=1e-6)
