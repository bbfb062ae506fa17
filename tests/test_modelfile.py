"""The model file: round trips, atomic writes, and refusal of anything else."""

import errno
import inspect
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import closefar as cf
from closefar import files
from closefar.model import modelfile
from closefar.noise import NOISES, Normal

FACTOR = [[2.0, 0.0], [0.0, -1.5], [0.1, 0.0]]
DATA_SCALE = {"data_factor": [[0.0, 2.0], [1.5, 0.0], [0.0, 0.1]], "data_eigenvalues": [0.5, 0.25]}


@pytest.fixture
def metric():
    return cf.Metric.from_factor(
        FACTOR,
        threshold=1.25,
        noise="laplace",
        feature_names=["length", "mass", "Höhe µ"],
        origin=[0.5, -1e300, 1e-300],
        flip_rate=0.05,
        **DATA_SCALE,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metric.safetensors"


@pytest.fixture
def saved(metric, path):
    metric.save(path)
    return path


# Round trips


@pytest.mark.parametrize("noise", sorted(NOISES))
@pytest.mark.parametrize("origin", [None, [0.1, 0.2, 0.3]])
@pytest.mark.parametrize("names", [None, ["a", "b", "c"], ["長さ", "Maße", '\N{SNOWMAN} "quoted"\n\\']])
def test_round_trip_is_exact(path, noise, origin, names):
    metric = cf.Metric.from_factor(FACTOR, 0.1 + 0.2, noise, feature_names=names, origin=origin)
    metric.save(path)
    loaded = cf.load(path)
    assert loaded == metric
    assert loaded.noise is NOISES[noise]
    assert loaded.feature_names == (None if names is None else tuple(names))
    assert loaded.factor.tobytes() == metric.factor.tobytes()
    assert loaded.threshold == 0.1 + 0.2


@pytest.mark.parametrize("flip_rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("data_scale", [{}, DATA_SCALE], ids=["by hand", "learned"])
def test_data_scale_and_flip_rate_round_trip(path, data_scale, flip_rate):
    metric = cf.Metric.from_factor(FACTOR, 1.0, flip_rate=flip_rate, **data_scale)
    metric.save(path)
    loaded = cf.load(path)
    assert loaded == metric
    assert loaded.flip_rate == flip_rate
    assert (loaded.data_factor is None) == (not data_scale)


def test_only_what_a_metric_has_is_written(path):
    cf.Metric.from_factor(FACTOR, 1.0).save(path)
    with safe_open(path, framework="numpy") as file:
        assert set(file.keys()) == {"factor", "threshold"}
    cf.Metric.from_factor(FACTOR, 1.0, flip_rate=0.1, **DATA_SCALE).save(path)
    with safe_open(path, framework="numpy") as file:
        assert set(file.keys()) == {"factor", "threshold", "flip_rate", *DATA_SCALE}


@pytest.mark.parametrize("k", [0, 1])
def test_truncated_metrics_round_trip(metric, path, k):
    metric.truncate(k).save(path)
    assert cf.load(path) == metric.truncate(k)


def test_strings_are_paths(metric, path):
    metric.save(str(path))
    assert cf.load(str(path)) == metric


def test_loaded_metric_is_immutable(saved):
    with pytest.raises(ValueError, match="read-only"):
        cf.load(saved).factor[0, 0] = 1.0


def test_saving_again_replaces(metric, saved):
    other = metric.truncate(1)
    other.save(saved)
    assert cf.load(saved) == other
    assert os.listdir(saved.parent) == [saved.name]


def test_other_programs_can_read_it(metric, saved):
    with safe_open(saved, framework="numpy") as file:
        header = json.loads(file.metadata()["closefar"])
        np.testing.assert_array_equal(file.get_tensor("factor"), metric.factor)
    assert header["format_version"] == modelfile.FORMAT_VERSION
    assert header["library_version"] == cf.__version__
    assert header["noise"] == "laplace"


def test_unregistered_noise_is_not_saved(path):
    class Own(Normal):
        name = "own"

    class Disguised(Normal):
        """Has a registered name but is another model."""

    for noise in (Own(), Disguised()):
        with pytest.raises(ValueError, match="noise"):
            cf.Metric(FACTOR[:1], 1.0, noise).save(path)
    assert not path.exists()


# Atomic writes


@pytest.mark.parametrize("function", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_failed_write_leaves_the_old_file(metric, saved, monkeypatch, function, error):
    before = saved.read_bytes()

    def fail(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(type(error)):
            metric.truncate(1).save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_failed_first_write_leaves_nothing(metric, path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="Input/output error"):
            metric.save(path)
    assert os.listdir(path.parent) == []


def test_file_is_complete_before_it_is_moved(metric, saved, monkeypatch):
    replace, seen = os.replace, []

    def look(source, target):
        seen.append(cf.load(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    metric.truncate(1).save(saved)
    assert seen == [metric.truncate(1)]


def test_saving_to_a_directory_fails_and_leaves_nothing(metric, tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(OSError, match="folder"):
        metric.save(target)
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(target) == []


def test_missing_folder_error_says_what_to_check(metric, tmp_path):
    with pytest.raises(OSError, match=r"can't write .*model.*Check that the folder exists and is writable"):
        metric.save(tmp_path / "missing" / "model")


def test_unwritable_folder_error_says_what_to_check(metric, path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "open", refuse, raising=False)
    with pytest.raises(OSError, match=r"Permission denied\. Check that the folder exists and is writable"):
        metric.save(path)
    assert not path.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="an administrator may write anywhere")
def test_folder_without_write_permission(metric, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(OSError, match="Check that the folder exists and is writable"):
        metric.save(folder / "model")
    assert os.listdir(folder) == []


# Damage


@pytest.fixture
def original(metric, saved):
    """The bytes of the file with its header sorted: safetensors leaves the order of the metadata to chance."""
    content = bytearray(saved.read_bytes())
    _write_header(content, json.dumps(_read_header(content), sort_keys=True))
    saved.write_bytes(content)
    assert cf.load(saved) == metric
    return bytes(content)


def _header_length(content):
    return int.from_bytes(content[:8], "little")


def _read_header(content):
    return json.loads(content[8 : 8 + _header_length(content)])


def _write_header(content, text):
    content[: 8 + _header_length(content)] = len(text.encode()).to_bytes(8, "little") + text.encode()


def _replace_byte(content, rng):
    content[rng.integers(len(content))] = rng.integers(256)


def _flip_bit(content, rng):
    content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))


def _truncate(content, rng):
    del content[rng.integers(len(content)) :]


def _insert(content, rng):
    where = rng.integers(len(content) + 1)
    content[where:where] = rng.bytes(rng.integers(1, 9))


def _delete(content, rng):
    where = rng.integers(len(content))
    del content[where : where + rng.integers(1, 9)]


def _swap_bytes(content, rng):
    first, second = rng.integers(len(content), size=2)
    content[first], content[second] = content[second], content[first]


def _swap_blocks(content, rng):
    first, middle, last = np.sort(rng.integers(len(content) + 1, size=3))
    content[first:last] = content[middle:last] + content[first:middle]


def _edit_header_length(content, rng):
    length = _header_length(content)
    edits = [length + int(rng.integers(-20, 21)), int(rng.integers(2 * len(content))), int(rng.integers(2**63)), 0]
    content[:8] = max(edits[rng.integers(len(edits))], 0).to_bytes(8, "little")


def _append(content, rng):
    content += rng.bytes(rng.integers(1, 65))


def _edit_header_text(content, rng):
    """Change one character of the header for another that JSON knows."""
    content[8 + rng.integers(_header_length(content))] = b'{}[]":,0123456789 eE+-.\\uFI'[rng.integers(27)]


def _rewrite_header(content, rng):
    """Write other, well-formed JSON with the right length."""
    header = _read_header(content)
    names = list(header)
    name = names[rng.integers(len(names))]
    edit = rng.integers(6)
    if edit == 0:
        header = {key: header[key] for key in rng.permutation(names)}
    elif edit == 1:
        del header[name]
    elif edit == 2:
        header["extra"] = header.pop(name)
    elif edit == 3:
        header[name] = [None, 0, [], {}, "F64", 1e400][rng.integers(6)]
    elif edit == 4:
        field = list(header[name])[rng.integers(len(header[name]))]
        header[name][field] = ["F32", "I64", [0], [6], [2, 3], [0, 48], "", "{}", "[1]"][rng.integers(9)]
    else:
        header["__metadata__"]["note"] = "x" * int(rng.integers(30))
    _write_header(content, json.dumps(header))


MUTATIONS = [
    _replace_byte,
    _flip_bit,
    _truncate,
    _insert,
    _delete,
    _swap_bytes,
    _swap_blocks,
    _edit_header_length,
    _append,
    _edit_header_text,
    _rewrite_header,
]


def _load_or_refuse(path, content):
    path.write_bytes(content)
    try:
        return cf.load(path)
    except cf.ModelFileError:
        return None


def test_damaged_files_are_refused_or_load_unchanged(metric, saved, original):
    rng = np.random.default_rng(2024)
    refused = dict.fromkeys(MUTATIONS, 0)
    for number in range(2000):
        mutate = MUTATIONS[number % len(MUTATIONS)]
        content = bytearray(original)
        mutate(content, rng)
        loaded = _load_or_refuse(saved, bytes(content))
        assert loaded is None or loaded == metric, (mutate.__name__, number)
        refused[mutate] += loaded is None
    assert all(count > 50 for count in refused.values()), refused


def test_each_damaged_byte_is_noticed(metric, saved, original):
    length = _header_length(original)
    for where in range(len(original)):
        content = bytearray(original)
        content[where] ^= 1 << where % 8
        loaded = _load_or_refuse(saved, bytes(content))
        assert loaded is None or (loaded == metric and 8 <= where < 8 + length), where


def test_each_shorter_file_is_refused(saved, original):
    for length in range(len(original)):
        assert _load_or_refuse(saved, original[:length]) is None, length


# Files that were never a metric


def test_empty_file_is_refused(path):
    path.write_bytes(b"")
    with pytest.raises(cf.ModelFileError, match=rf"{path.name} is not a closefar model.*Save it again"):
        cf.load(path)


class _Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_pickle_is_refused_and_not_executed(path, tmp_path):
    path.write_bytes(pickle.dumps(_Trap(str(tmp_path / "executed"))))
    with pytest.raises(cf.ModelFileError, match="is not a closefar model"):
        cf.load(path)
    assert not (tmp_path / "executed").exists()


def test_source_never_mentions_pickle():
    assert "pickle" not in inspect.getsource(modelfile).lower()


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"closefar": "{}"}, {"closefar": "[]", "checksum": "0"}])
def test_safetensors_of_another_program_are_refused(path, metadata):
    save_file({"factor": np.eye(2), "threshold": np.ones(1)}, path, metadata=metadata)
    with pytest.raises(cf.ModelFileError, match=r"is not a closefar model|is damaged"):
        cf.load(path)


def test_other_number_types_are_refused(path):
    save_file(
        {"factor": np.eye(2, dtype=np.float32)},
        path,
        metadata={"closefar": json.dumps({"format_version": modelfile.FORMAT_VERSION, "checksum": ""})},
    )
    with pytest.raises(cf.ModelFileError, match="not float64"):
        cf.load(path)


@pytest.mark.parametrize("text", ["not a model", "{}", "\N{SNOWMAN}" * 100, "[" * 100_000])
def test_text_is_refused(path, text):
    content = text.encode()
    for written in (content, len(content).to_bytes(8, "little") + content):
        path.write_bytes(written)
        with pytest.raises(cf.ModelFileError, match="is not a closefar model"):
            cf.load(path)


def test_missing_file_is_named(path):
    with pytest.raises(FileNotFoundError, match=path.name):
        cf.load(path)


def test_directory_is_named(tmp_path):
    with pytest.raises(OSError, match=tmp_path.name):
        cf.load(tmp_path)


def test_oversized_file_is_refused_unread(saved, monkeypatch):
    def read(self):
        pytest.fail("an oversized file was read")

    size = saved.stat().st_size
    monkeypatch.setattr(modelfile, "_MAX_BYTES", size - 1)
    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(cf.ModelFileError, match=rf"at most {size - 1} bytes; got {size}"):
        cf.load(saved)


def test_file_of_the_largest_size_loads(metric, saved, monkeypatch):
    monkeypatch.setattr(modelfile, "_MAX_BYTES", saved.stat().st_size)
    assert cf.load(saved) == metric


# Well-formed files with the wrong content

ARRAYS = {"factor": np.eye(2), "threshold": np.ones(1)}
HEADER = {"noise": "normal", "feature_names": None}


def test_written_content_loads(path):
    modelfile.write(path, ARRAYS, HEADER)
    assert cf.load(path) == cf.Metric(np.eye(2), 1.0, "normal")


def test_future_format_asks_to_upgrade(path):
    newer = modelfile.FORMAT_VERSION + 1
    modelfile.write(path, ARRAYS, {**HEADER, "format_version": newer, "library_version": "9.8.7"})
    with pytest.raises(
        cf.ModelFileError, match=rf"model format {newer}, written by closefar 9\.8\.7.*Upgrade closefar"
    ):
        cf.load(path)


def test_earlier_format_asks_for_another_fit(path):
    modelfile.write(path, ARRAYS, {**HEADER, "format_version": 1, "library_version": "0.1"})
    with pytest.raises(cf.ModelFileError, match=r"model format 1, written by closefar 0\.1.*Fit it again"):
        cf.load(path)


def test_future_format_asks_to_upgrade_whatever_it_holds(path):
    header = json.dumps({"format_version": modelfile.FORMAT_VERSION + 1, "library_version": "9.8.7"})
    save_file({"factor": np.eye(2, dtype=np.float32)}, path, metadata={"closefar": header})
    with pytest.raises(cf.ModelFileError, match="Upgrade closefar"):
        cf.load(path)


@pytest.mark.parametrize("version", [0, -1, 1.5, "1", None, [1]])
def test_unknown_format_is_refused(path, version):
    modelfile.write(path, ARRAYS, {**HEADER, "format_version": version})
    with pytest.raises(cf.ModelFileError):
        cf.load(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"factor": np.eye(2)},
        {"threshold": np.ones(1)},
        {**ARRAYS, "other": np.ones(1)},
        {**ARRAYS, "factor": np.ones(2)},
        {**ARRAYS, "threshold": np.ones((1, 1))},
        {**ARRAYS, "threshold": np.array([2.0, 1.0])},
        {**ARRAYS, "threshold": np.array([1.0, np.inf])},
        {**ARRAYS, "threshold": np.array([np.nan])},
        {**ARRAYS, "factor": np.full((2, 2), np.inf)},
        {**ARRAYS, "factor": np.array([[1.0, 1.0], [1.0, 2.0]])},
        {**ARRAYS, "origin": np.ones(3)},
        {**ARRAYS, "origin": np.ones((2, 1))},
        {**ARRAYS, "origin": np.array([0.0, np.nan])},
        {**ARRAYS, "flip_rate": np.array([0.5])},
        {**ARRAYS, "flip_rate": np.array([-0.1])},
        {**ARRAYS, "flip_rate": np.array([np.nan])},
        {**ARRAYS, "flip_rate": np.array([0.6, 0.5])},
        {**ARRAYS, "flip_rate": np.array([0.1, 0.1, 0.1])},
        {**ARRAYS, "threshold": np.ones(2), "flip_rate": np.array([0.1, 0.1])},
        {**ARRAYS, "flip_rate": np.array([[0.1]])},
        {**ARRAYS, "data_factor": np.eye(2)},
        {**ARRAYS, "data_eigenvalues": np.ones(2)},
        {**ARRAYS, "data_factor": np.eye(2), "data_eigenvalues": np.ones((2, 1))},
        {**ARRAYS, "data_factor": np.eye(2), "data_eigenvalues": np.array([1.0, 2.0])},
        {**ARRAYS, "data_factor": np.eye(2), "data_eigenvalues": np.array([np.inf, 1.0])},
        {**ARRAYS, "data_factor": 2 * np.eye(2), "data_eigenvalues": np.ones(2)},
        {**ARRAYS, "data_factor": np.eye(2)[:, :1], "data_eigenvalues": np.ones(1)},
    ],
    ids=lambda arrays: " ".join(f"{name}{array.shape}" for name, array in arrays.items()),
)
def test_arrays_that_are_no_metric_are_refused(path, arrays):
    modelfile.write(path, arrays, HEADER)
    with pytest.raises(cf.ModelFileError, match=r"does not describe a metric|must contain the arrays"):
        cf.load(path)


@pytest.mark.parametrize(
    "header",
    [
        {"noise": "normal"},
        {"feature_names": None},
        {"noise": "cauchy", "feature_names": None},
        {"noise": ["normal"], "feature_names": None},
        {"noise": "normal", "feature_names": ["a"]},
        {"noise": "normal", "feature_names": 2},
    ],
    ids=str,
)
def test_headers_that_are_no_metric_are_refused(path, header):
    modelfile.write(path, ARRAYS, header)
    with pytest.raises(cf.ModelFileError, match="does not describe a metric"):
        cf.load(path)
