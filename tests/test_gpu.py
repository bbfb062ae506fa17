"""Fits on a GPU: the way there, fused kernels or none, and the same result; most is tested without a GPU."""

from __future__ import annotations

import collections
import re
import warnings

import numpy as np
import pytest

import closefar as cf
from closefar import arrays
from closefar.judgements import Judgements
from closefar.rows import Differences, GraphRows, IndexedRows, blocks, fused, indexed, opening, source
from paper_estimator import PAPER

torch = pytest.importorskip("torch", reason="needs torch: run pip install -e '.[test-torch]'")
has_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU, and torch with CUDA")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="tests what is said where there is no CUDA GPU")

RNG = np.random.default_rng(0)
N, D = 1200, 4
POINTS = RNG.standard_normal((150, D)) + 3.0
INDEX = RNG.integers(150, size=(N, 2))
PAIRS = POINTS[INDEX]
Z = PAIRS[:, 0] - PAIRS[:, 1]
LABELS = np.where(Z**2 @ [2.0, 0.5, 0.0, 0.1] + RNG.logistic(size=N) > 3.0, "far", "close")
WEIGHTS = RNG.integers(1, 4, N).astype(float)


@pytest.fixture(scope="module")
def expected():
    return cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(PAIRS, LABELS)


@pytest.fixture
def card(monkeypatch):
    """The CPU instead of a GPU: data is taken to it as to a card."""
    to_torch = opening._to_torch
    monkeypatch.setattr(opening, "_check_torch", lambda name: None)
    monkeypatch.setattr(opening, "_check_room", lambda *_: None)
    monkeypatch.setattr(opening, "_to_torch", lambda data, name: to_torch(data, "cpu"))


@pytest.fixture
def pretended(monkeypatch):
    """Tensors on the CPU are computed with as those on a GPU without fused kernels: in large blocks, and few steps."""
    for module in (blocks, indexed, source):
        monkeypatch.setattr(module, "is_on_gpu", arrays.is_tensor)
    monkeypatch.setenv(fused.VARIABLE, "plain")


def check_same(learner, expected):
    assert learner.certificate_.converged
    assert abs(learner.certificate_.loss - expected.certificate_.loss) < 1e-8
    np.testing.assert_allclose(learner.predict_proba(PAIRS), expected.predict_proba(PAIRS), rtol=0, atol=1e-6)


# What is said where a device can't be used.


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "\"cuda:1\" and so on; got 'gpu'"),
        (3, "and so on; got 3"),
        ("cuda:x", "got 'cuda:x'"),
        ("mps", "got 'mps'. It has no double precision, which proofs need. Use device=\"cpu\""),
        ("xpu:0", "got 'xpu:0'. It is not supported"),
    ],
)
def test_unknown_devices_are_refused(device, message):
    with pytest.raises(ValueError, match=message):
        cf.LinearMetricLearner(device=device, **PAPER).fit(PAIRS, LABELS)


@pytest.mark.parametrize(
    ("cuda", "n_cards", "message"),
    [
        (None, 0, 'device="cuda:1" can\'t be used: this torch was built for the CPU only. Install torch with CUDA'),
        ("12.8", 0, 'no GPU was found. Check that nvidia-smi lists a card, or use device="cpu"'),
        ("12.8", 1, "there is 1 GPU, cuda:0"),
    ],
)
def test_it_is_said_why_there_is_no_such_gpu(cuda, n_cards, message, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: n_cards > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_cards)
    with pytest.raises(ValueError, match=message):
        cf.LinearMetricLearner(device="cuda:1", **PAPER).fit(PAIRS, LABELS)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"torch is not installed. Run pip install 'closefar\[gpu\]'"):
        cf.LinearMetricLearner(device="cuda", **PAPER).fit(PAIRS, LABELS)


def test_data_that_do_not_fit_on_the_card_are_refused(monkeypatch):
    monkeypatch.setattr(opening, "_check_torch", lambda name: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda name: (2**29, 2**34))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda name: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda name: 0)
    with pytest.raises(ValueError, match=r"they take 0.0 GiB, and 1.0 GiB for computing, but 0.5 GiB of cuda are free"):
        cf.LinearMetricLearner(device="cuda", **PAPER).fit(PAIRS, LABELS)


# Taking data to a device.


def _mapped(folder):
    np.save(folder / "pairs.npy", PAIRS)
    return np.load(folder / "pairs.npy", mmap_mode="r")


def _opened(folder):
    np.save(folder / "z.npy", Z)
    return cf.open_pairs(folder / "z.npy")


DATA = {
    "array": lambda _: PAIRS,
    "memory map": _mapped,
    "opened file": _opened,
    "index pairs": lambda _: cf.Tuples(POINTS, INDEX),
    "tensor": lambda _: torch.tensor(PAIRS),
}


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("form", DATA)
def test_data_are_taken_to_the_device(form, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "_COPIED_BYTES", 1 << 12)
    data = DATA[form](tmp_path)
    learner = cf.LinearMetricLearner(tol=1e-9, device="cuda", **PAPER).fit(data, LABELS)
    check_same(learner, expected)
    assert learner.fit_.engine == "torch on the CPU"
    assert "Engine: torch on the CPU" in learner.summary()
    assert isinstance(learner.fit_.training().data, torch.Tensor) == (form == "tensor")  # not the copy on the device


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("form", ["array", "index pairs"])
def test_each_partition_is_taken_to_the_device_where_it_is(form, expected):
    dask = pytest.importorskip("dask.array", reason="needs dask: run pip install -e '.[test]'")
    data = dask.from_array(PAIRS, chunks=(500, 2, D))
    data = data if form == "array" else cf.Tuples(POINTS, dask.from_array(INDEX, chunks=500))
    labels = dask.from_array(LABELS, chunks=500)
    learner = cf.LinearMetricLearner(tol=1e-9, device="cuda", **PAPER).fit(data, labels)
    check_same(learner, expected)
    assert learner.fit_.engine == "3 partitions in this process, torch on cuda"


@pytest.mark.usefixtures("card")
def test_single_precision_stays_what_it_is(tmp_path):
    np.save(tmp_path / "z.npy", Z.astype(np.float32))
    for data in (Z.astype(np.float32), cf.open_pairs(tmp_path / "z.npy"), cf.Tuples(POINTS.astype(np.float32), INDEX)):
        moved = opening.on_device(data, "cuda")
        numbers = moved.points if isinstance(moved, cf.Tuples) else moved
        assert numbers.dtype == torch.float32
    assert moved.index.dtype == torch.int32


@pytest.mark.usefixtures("card")
def test_choosing_takes_data_there_once(monkeypatch):
    moved, move = [], opening._to_torch
    monkeypatch.setattr(opening, "_to_torch", lambda data, name: moved.append(type(data)) or move(data, name))
    plain = cf.LinearMetricLearner().fit(Z, LABELS)
    learner = cf.LinearMetricLearner(device="cuda").fit(Z, LABELS)
    assert learner.alpha_ == pytest.approx(plain.alpha_)
    assert moved.count(np.ndarray) == 1


def test_the_cpu_is_where_arrays_are():
    tensor, pairs = torch.tensor(Z), cf.Tuples(POINTS, INDEX)
    for data in (Z, tensor, pairs):
        assert opening.on_device(data, "cpu") is data
        assert opening.on_device(data, None) is data


# Pairs by index.


@pytest.mark.parametrize("entries", [1 << 17, 1])
def test_the_graph_of_tensors_computes_what_indexed_rows_do(entries, monkeypatch):
    monkeypatch.setattr("closefar.rows.indexed._GATHERED", entries)
    points = POINTS.copy()
    points[-1] = np.nan  # occurs in no pair
    index = INDEX % 149
    rows, plain = GraphRows.of(torch.tensor(points), torch.tensor(index)), IndexedRows(points, index)
    matrix = RNG.standard_normal((D, D))
    matrix, factor, numbers = matrix + matrix.T, RNG.standard_normal((D, 3)), RNG.standard_normal(N)
    handle = rows.row_array(numbers)

    def close(left, right):
        np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-10)

    close(rows.gather(rows.forms(matrix)), plain.forms(matrix))
    close(rows.gather(rows.squared_distances(factor)), plain.squared_distances(factor))
    close(rows.outer(handle), plain.outer(numbers))
    pulled = (each.backward(each.forward(factor), given) for each, given in ((rows, handle), (plain, numbers)))
    close(*pulled)
    left, right = rows.forward(factor), rows.forward(factor[:, ::-1])
    close(rows.gather(rows.inner(left, right)), plain.inner(plain.forward(factor), plain.forward(factor[:, ::-1])))
    close(rows.projected(factor), plain.projected(factor))
    close(rows.sides(factor), plain.sides(factor))
    close(rows.largest(np.zeros(D)), plain.largest(np.zeros(D)))
    for weights, same in ((handle**2, numbers**2), (rows.row_array(np.broadcast_to(0.5, N)), np.full(N, 0.5))):
        close(
            rows.second_moment(weights, np.zeros(D), np.arange(1.0, D + 1.0)),
            plain.second_moment(same, np.zeros(D), np.arange(1.0, D + 1.0)),
        )
    chosen = np.array([5, 3, 900])
    close(rows.take_rows(chosen).projected(factor), plain.projected(factor)[chosen])
    for found, expected in zip(
        rows.rotated_moments(handle, (handle,), factor), plain.rotated_moments(numbers, (numbers,), factor), strict=True
    ):
        close(found, expected)


@pytest.mark.parametrize("parameters", [{}, {"rank": 2}, {"alpha": 0.01, "solver": "lowrank"}, {"solver": "sampled"}])
def test_fits_to_index_pairs_of_tensors_are_the_same(parameters):
    plain = cf.LinearMetricLearner(tol=1e-9, **PAPER | parameters).fit(cf.Tuples(POINTS, INDEX), LABELS, WEIGHTS)
    pairs = cf.Tuples(torch.tensor(POINTS), INDEX)
    learner = cf.LinearMetricLearner(tol=1e-9, **PAPER | parameters).fit(pairs, LABELS, WEIGHTS)
    assert learner.certificate_.loss == pytest.approx(plain.certificate_.loss, abs=1e-8)
    np.testing.assert_allclose(learner.predict_proba(pairs), plain.predict_proba(PAIRS), atol=1e-6)
    np.testing.assert_allclose(learner.transform(pairs), learner.transform(PAIRS), atol=1e-9)


def test_tuples_of_tensors_act_as_those_of_arrays():
    plain, pairs = cf.Tuples(POINTS, INDEX), cf.Tuples(torch.tensor(POINTS), torch.tensor(INDEX))
    assert pairs == plain
    assert repr(pairs) == repr(plain)
    assert pairs.dtype == np.float64
    for key in (0, slice(3), [5, 2], np.arange(N) % 2 == 0, (slice(None), 0), (slice(None), slice(None), 1)):
        np.testing.assert_array_equal(np.asarray(pairs[key]), np.asarray(plain[key]))
    assert cf.Tuples(torch.tensor([[1, 2], [3, 4]]), [[0, 1]]).points.dtype == torch.float64


@pytest.mark.parametrize(
    ("points", "index", "message"),
    [
        ([1.0, 2.0], [[0, 1]], r"points must have shape .n_points, d., with at least one column; got .2,."),
        ([[1j, 2.0]], [[0, 0]], "points must hold real numbers"),
        ([[1.0], [2.0]], [[0, 2]], "0 to 1; got 2 in row 0, column 1"),
        ([[1.0], [2.0]], [[0.0, 1.0]], "index must hold integers"),
        ([[1.0], [np.nan]], [[0, 1]], "point 1, which occurs in tuple 0, has nan in column 0"),
    ],
)
def test_wrong_tuples_of_tensors_are_refused(points, index, message):
    with pytest.raises(ValueError, match=message):
        cf.Tuples(torch.tensor(points), torch.tensor(index))


@pytest.mark.parametrize("form", ["differences", "pairs", "index"])
def test_tensors_of_a_model_that_is_being_trained_are_read(form, expected):
    given = torch.tensor({"differences": Z, "pairs": PAIRS, "index": POINTS}[form], requires_grad=True)
    weights = torch.ones(N, requires_grad=True)
    data = cf.Tuples(given, torch.tensor(INDEX, dtype=torch.int16)) if form == "index" else given
    check_same(cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(data, LABELS, weights), expected)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.uint8])
def test_labels_and_weights_of_few_bits_are_read(kind):
    labels = (LABELS == "far").astype(int)
    plain = cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(PAIRS, labels, WEIGHTS)
    given = (torch.tensor(each).to(kind) for each in (labels, WEIGHTS))
    check_same(cf.LinearMetricLearner(tol=1e-9, **PAPER).fit(torch.tensor(PAIRS), *given), plain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda given: given.to_sparse(), "must be a dense tensor; got one of torch.sparse_coo"),
        (lambda given: given.to("meta"), "must be on the processor or on a CUDA device; got a tensor on meta"),
    ],
)
def test_tensors_without_rows_here_are_refused(change, message):
    with pytest.raises(ValueError, match=f"X {message}"):
        cf.LinearMetricLearner(**PAPER).fit(change(torch.tensor(Z)), LABELS)
    with pytest.raises(ValueError, match=f"points {message}"):
        cf.Tuples(change(torch.tensor(POINTS)), INDEX)


# Fused kernels, or the plain array API.


@pytest.mark.usefixtures("pretended")
def test_fused_kernels_can_be_turned_off_and_nothing_else(monkeypatch):
    monkeypatch.setenv(fused.VARIABLE, "fast")
    with pytest.raises(ValueError, match="CLOSEFAR_GPU must be fused or plain; got 'fast'"):
        cf.LinearMetricLearner(**PAPER).fit(torch.tensor(PAIRS), LABELS)


@pytest.mark.parametrize(
    ("capability", "triton", "compiler", "variable", "reason"),
    [
        ((9, 0), True, "", "", ""),
        ((8, 0), True, "", "", "fused kernels need an NVIDIA H100 or a later card"),
        ((9, 0), False, "", "", "fused kernels need Triton, which is not installed"),
        ((9, 0), True, "Triton can't compile", "", "Triton can't compile"),
        ((9, 0), True, "", "plain", "CLOSEFAR_GPU=plain"),
    ],
)
def test_fused_kernels_are_used_where_they_run(capability, triton, compiler, variable, reason, monkeypatch):
    monkeypatch.setenv(fused.VARIABLE, variable)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(fused, "find_spec", lambda name: triton or None)
    monkeypatch.setattr(fused, "_why_no_compiler", lambda: compiler)
    assert fused.why_not_fused(torch.tensor(Z), D) == reason
    assert fused.why_not_fused(torch.tensor(Z), 129) == "fused kernels have up to 128 columns"


@without_gpu
def test_it_is_said_why_kernels_can_not_be_compiled():
    pytest.importorskip("triton", reason="needs Triton")
    fused._why_no_compiler.cache_clear()
    assert re.match(r"Triton can't compile fused kernels: \w+: .+", fused._why_no_compiler())


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize("columns", [D, 18])
@pytest.mark.parametrize("form", ["differences", "single", "pairs", "index"])
def test_blocks_of_a_gpu_give_the_same_fit(form, columns):
    points = np.random.default_rng(2).standard_normal((400, columns))
    points = points.astype(np.float32) if form == "single" else points
    index = np.random.default_rng(3).integers(400, size=(1500, 2))
    moved = points[index[:, 0]] - points[index[:, 1]]
    labels = np.sum(moved[:, :3] ** 2, axis=1) + np.random.default_rng(4).logistic(size=1500) > 5
    plain = {"pairs": points[index], "index": cf.Tuples(points, index)}.get(form, moved)
    data = cf.Tuples(torch.tensor(points), index) if form == "index" else torch.tensor(plain)
    parameters = {"tol": 1e-9, "alpha": 0.0 if columns == D else 0.02}
    learner, expected = (cf.LinearMetricLearner(**PAPER | parameters).fit(each, labels) for each in (data, plain))
    assert learner.fit_.engine.startswith("torch on the CPU, plain array API")
    assert ("CLOSEFAR_GPU=plain" in learner.fit_.engine) == (columns > D)  # Newton steps need no fused passes
    assert learner.certificate_.loss == pytest.approx(expected.certificate_.loss, abs=1e-8)
    np.testing.assert_allclose(learner.predict_proba(plain), expected.predict_proba(plain), rtol=0, atol=1e-6)


class ExactPasses:
    """Stand-ins for fused kernels, which are exact, and keep nothing of rows; what was computed is counted."""

    words = "stand-ins for kernels"
    n_legs = 1

    def __init__(self, rows, counts):
        self.rows, self.counts = rows, counts
        self.faster = self

    def forms(self, matrix):
        return self.rows.forms(matrix)

    def outer(self, coefficients):
        return None  # which exact rows compute

    def sweep(self, call, matrix, *arrays):
        forms, threshold = self.rows.forms(matrix), call.threshold
        if call.noise is None:
            self.counts["change"] += 1
            pull = arrays[0] * (forms - threshold)
            return source.Terms(np.array([-float(pull.sum())])), self.rows.outer(pull)
        self.counts["loss"] += 1
        codes, weights = arrays
        signs = 2.0 * codes.double() - 1.0
        margins = signs * (forms - threshold)
        loss, *rest = call.noise.derivatives(margins, call.order)
        pull = weights * signs * rest[0]
        sums = [weights @ loss, -pull.sum(), *(weights @ bend for bend in rest[1:])]
        return source.Terms(np.array([float(each) for each in sums]), float(margins.min())), self.rows.outer(pull)


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize("form", ["differences", "index"])
@pytest.mark.parametrize("rank", [None, 2])
def test_fused_passes_approach_the_same_optimum(form, rank, monkeypatch):
    counts = collections.Counter()
    monkeypatch.setattr(blocks, "why_not_fused", lambda model, n_columns: "")
    monkeypatch.setattr(blocks, "passes_or_reason", lambda rows: ExactPasses(rows, counts))
    points = np.random.default_rng(2).standard_normal((400, 6))
    index = np.random.default_rng(3).integers(400, size=(4000, 2))
    moved = points[index[:, 0]] - points[index[:, 1]]
    labels = np.sum(moved[:, :3] ** 2, axis=1) + np.random.default_rng(4).logistic(size=4000) > 5
    data = cf.Tuples(torch.tensor(points), index) if form == "index" else torch.tensor(moved)
    parameters = {"alpha": 0.02, "solver": "sampled", "tol": 1e-9, "rank": rank}
    learner, plain = (cf.LinearMetricLearner(**PAPER | parameters).fit(each, labels) for each in (data, moved))
    assert learner.fit_.engine == "torch on the CPU, stand-ins for kernels"
    assert counts["change"] > 3, counts
    assert learner.certificate_.loss == pytest.approx(plain.certificate_.loss, abs=1e-8)
    np.testing.assert_allclose(learner.predict_proba(moved), plain.predict_proba(moved), rtol=0, atol=1e-5)


# Labels and weights of very many pairs.


def test_one_number_stands_for_equal_weights():
    rows = Differences(torch.tensor(Z))
    shares = rows.row_array(np.broadcast_to(0.25, N))
    assert shares.stride() == (0,)
    assert rows.total(shares) == 0.25 * N


@pytest.mark.parametrize("kind", [torch.int64, torch.int8, torch.bool, torch.float32])
def test_very_many_labels_of_tensors_are_read(kind):
    n = (1 << 20) + 1
    labels = (torch.arange(n) % 3 == 0).to(kind)
    given = Judgements.read(cf.LinearMetricLearner(**PAPER), torch.zeros((n, 1)), labels)
    assert given.n_rarer == int((np.arange(n) % 3 == 0).sum())
    assert given.codes.dtype == np.int8  # a byte for each
    np.testing.assert_array_equal(given.is_far, np.arange(n) % 3 == 0)
    labels[5] = 7 if kind is not torch.bool else labels[5]
    if kind is not torch.bool:
        with pytest.raises(ValueError, match=r"two values.*got 3: \[0"):
            Judgements.read(cf.LinearMetricLearner(**PAPER), torch.zeros((n, 1)), labels)


# With a GPU.


@has_gpu
@pytest.mark.parametrize("rung", ["plain", "fused"])
@pytest.mark.parametrize("noise", ["logistic", "normal", "laplace", "hypsecant"])
def test_a_gpu_gives_the_same_fit(noise, rung, monkeypatch):
    monkeypatch.setenv(fused.VARIABLE, rung)
    plain = cf.LinearMetricLearner(noise, tol=1e-9, **PAPER).fit(PAIRS, LABELS, WEIGHTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of compilers
        learner = cf.LinearMetricLearner(noise, tol=1e-9, device="cuda", **PAPER).fit(PAIRS, LABELS, WEIGHTS)
    assert learner.fit_.engine.startswith("torch on cuda:0, ")
    check_same(learner, plain)


@has_gpu
@pytest.mark.parametrize("form", ["differences", "index pairs"])
def test_a_gpu_gives_the_same_bits_every_time(form):
    rng = np.random.default_rng(1)
    points = torch.tensor(rng.standard_normal((2000, 40)), dtype=torch.float32, device="cuda")
    index = torch.tensor(rng.integers(2000, size=(200_000, 2)), device="cuda")
    data = cf.Tuples(points, index) if form == "index pairs" else points[index[:, 0]] - points[index[:, 1]]
    squared = ((points[index[:, 0]] - points[index[:, 1]]) ** 2)[:, :5].sum(dim=1).cpu().numpy()
    labels = squared + rng.logistic(size=len(squared)) > 10
    once, again = (cf.LinearMetricLearner(**PAPER).fit(data, labels) for _ in range(2))
    assert np.array_equal(once.metric_.matrix, again.metric_.matrix)
    assert once.certificate_ == again.certificate_


@has_gpu
def test_a_tensor_on_a_gpu_is_taken_to_the_cpu(expected):
    learner = cf.LinearMetricLearner(tol=1e-9, device="cpu", **PAPER).fit(torch.tensor(PAIRS, device="cuda"), LABELS)
    assert learner.fit_.engine == "torch on the CPU"
    check_same(learner, expected)
