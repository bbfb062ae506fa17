"""Published judgements of similarity are read as their authors publish them, and what is wrong with a file is named."""

import json
import sys
import types
import zipfile

import numpy as np
import pytest
import scipy.io

from paper import similarity

FOOD = "images/b.jpg; images/a.jpg; images/c.jpg\nimages/c.jpg; images/a.jpg; images/b.jpg\n\n"
CARS = "round,answer,car 1,car 2,car 3,seconds\n1,7,3,7,9,4.5\n2,1,1,2,60,10\n"
MUSICIANS = (
    "judgement type user target chosen other\n"
    "1 S u1 100 7 9\n"
    "1 S u1 100 7 55\n"
    "2 G u2 7 9\n"
    "3 G u2 7 7 9\n"
    "4 G u3 9 55 100\n"
)


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def archived(path, member, text):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, text)
        archive.writestr("food100-dataset/images/a.jpg", b"")
    return path


@pytest.mark.parametrize("place", ["file", "folder", "archive"])
def test_food(tmp_path, place):
    if place == "archive":
        path = archived(tmp_path / "food100-dataset.zip", "food100-dataset/all-triplets.csv", FOOD)
    else:
        file = written(tmp_path / "food100-dataset" / "all-triplets.csv", FOOD)
        path = file if place == "file" else tmp_path
    data = similarity.load_food_similarity(path)
    assert data.triplets.tolist() == [[1, 0, 2], [2, 0, 1]]
    assert data.names.tolist() == ["images/a.jpg", "images/b.jpg", "images/c.jpg"]
    assert data.n_dropped == 0
    assert data.DESCR == "2 triplets, 3 different items, read from all-triplets.csv."


def test_scenes(tmp_path):
    path = written(tmp_path / "nature_triplets.txt", "n1.jpg art2.jpg n3.jpg\nart2.jpg n9.jpg n1.jpg\n")
    data = similarity.load_scene_similarity(path)
    assert data.names.tolist() == ["art2.jpg", "n1.jpg", "n3.jpg", "n9.jpg"]
    assert data.shown.tolist() == [[1, 0, 2], [0, 3, 1]]
    assert data.triplets.tolist() == [[1, 0, 2], [0, 1, 2], [0, 3, 1], [3, 0, 1]]


@pytest.mark.parametrize("text", ["5 2 1853\n0 1 2\n", "5.0e+00 2.0e+00 1.853e+03\n0.0 1.0 2.0\n"])
def test_things(tmp_path, text):
    data = similarity.load_things_similarity(written(tmp_path / "trainset.txt", text))
    assert data.shown.tolist() == [[5, 2, 1853], [0, 1, 2]]
    assert data.triplets.tolist() == [[5, 2, 1853], [2, 5, 1853], [0, 1, 2], [1, 0, 2]]


def test_cars(tmp_path):
    data = similarity.load_car_similarity(archived(tmp_path / "cars.zip", "60_cars_data/survey_data.csv", CARS))
    assert data.shown.tolist() == [[2, 6, 8], [0, 1, 59]]
    assert data.central.tolist() == [6, 0]
    # The most central one is closer to both others than they are to each other.
    assert data.triplets.tolist() == [[2, 6, 8], [8, 6, 2], [1, 0, 59], [59, 0, 1]]
    assert data.round.tolist() == [1, 2]
    assert data.seconds.tolist() == [4.5, 10.0]


def test_materials(tmp_path):
    answers = {"answers": [[0, 5, 7], [3, 1, 2], [4, 4, 1]], "agreement": [[3, 0], [2, 1], [2, 2]], "answers_diff": []}
    data = similarity.load_material_similarity(written(tmp_path / "answers_processed_test.json", json.dumps(answers)))
    assert data.triplets.tolist() == [[0, 5, 7], [3, 1, 2], [3, 2, 1]]
    assert data.counts.tolist() == [3, 2, 1]
    assert data.n_dropped == 1
    assert data.DESCR.startswith("2 questions with 6 answers, 6 different items")
    assert data.DESCR.endswith("; 1 more were left out.")


def test_musicians(tmp_path):
    data = similarity.load_musician_similarity(written(tmp_path / "musicseer-results-2002-10-15.txt", MUSICIANS))
    assert data.names.tolist() == [7, 9, 55, 100]
    assert data.triplets.tolist() == [[3, 0, 1], [3, 0, 2], [1, 2, 3]]
    assert data.users.tolist() == ["u1", "u1", "u3"]
    assert data.origins.tolist() == ["S", "S", "G"]
    assert data.judgements.tolist() == ["1", "1", "4"]
    assert data.n_dropped == 3  # the header, a line without the other musician, and one with a musician twice


class FakeFile(dict):
    """As much of h5py.File as the reader uses."""

    arrays: dict = {}

    def __init__(self, path, mode):
        assert mode == "r"
        super().__init__({name: {(): value} for name, value in self.arrays.items()})

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


@pytest.fixture
def observations(tmp_path, monkeypatch):
    def make(**changed):
        arrays = {
            "stimulus_set": np.array([[9, 1, 2, 3], [8, 3, 1, -1]], dtype=np.int32),
            "n_select": np.array([2, 1]),
            "is_ranked": np.array([True, True]),
            "session_id": np.array([4, 5]),
            **changed,
        }
        monkeypatch.setattr(FakeFile, "arrays", {name: value for name, value in arrays.items() if value is not None})
        monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=FakeFile))
        return written(tmp_path / "obs-118.hdf5", "")

    return make


def test_imagenet(observations):
    data = similarity.load_imagenet_similarity(observations())
    assert sorted(data.triplets.tolist()) == [[8, 3, 1], [9, 1, 2], [9, 1, 3], [9, 2, 3]]
    assert data.sessions.tolist() == [4, 5]
    assert data.n_ranked.tolist() == [2, 1]


def test_imagenet_needs_ranked_observations(observations, monkeypatch):
    with pytest.raises(ValueError, match=r"\['session_id'\] are missing"):
        similarity.load_imagenet_similarity(observations(session_id=None))
    with pytest.raises(ValueError, match="answer 1 is not ranked"):
        similarity.load_imagenet_similarity(observations(is_ranked=np.array([True, False])))
    path = observations()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"needs h5py. Install the extra: pip install 'closefar\[paper\]'"):
        similarity.load_imagenet_similarity(path)
    with pytest.raises(FileNotFoundError, match="path must be an existing HDF5 file"):
        similarity.load_imagenet_similarity(path / "elsewhere")


@pytest.mark.parametrize(
    ("load", "text", "rule"),
    [
        ("food", "a; b\n", r"must have 3 fields in each line; line 1 of those that are not blank has 2"),
        ("food", "\n \n", "must have 3 fields in each line; it is empty"),
        ("scene", "a b c\na b c d\n", "line 2 of those that are not blank has 4"),
        ("things", "1 2 x\n", "must have numbers for three things"),
        ("things", "1 2 3\n1 2 2.5\n", r"whole numbers >= 0 for three things; answer 2 has \['1', '2', '2.5'\]"),
        ("things", "1 2 -3\n", "whole numbers >= 0"),
        ("car", "h\n1,4,1,2,3,9\n", r"one of three different ones shown; answer 1 says 4 of \[1, 2, 3\]"),
        ("car", "h\n1,1,1,1,3,9\n", "one of three different ones shown"),
        ("car", "h\n1,0,0,1,3,9\n", "whole numbers >= 1"),
        ("car", "h\n1,1,1,2,3,soon\n", "must have numbers for seconds"),
        ("material", "[1, 2", "must be JSON with the lists answers and agreement"),
        ("material", '{"answers": []}', "must be JSON with the lists answers and agreement.*'agreement'"),
        ("material", '{"answers": [[1, 2]], "agreement": [[1, 0]]}', r"got the shapes \(1, 2\) and \(1, 2\)"),
        ("material", '{"answers": [[1, 2, 3]], "agreement": [[1, -1]]}', "numbers >= 0; got -1"),
        ("musician", "1 S u1 100 7\n", "six fields in a line, the last three of them numbers; got no such line"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, load, text, rule):
    path = written(tmp_path / "published.txt", text)
    with pytest.raises(ValueError, match=rule):
        getattr(similarity, f"load_{load}_similarity")(path)


def test_missing_and_ambiguous_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="path must be an existing file, folder or zip archive"):
        similarity.load_food_similarity(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"must contain one file all-triplets.csv; got none. Pass the path"):
        similarity.load_food_similarity(tmp_path)
    for name in ("nature", "vogue"):
        written(tmp_path / name / f"{name}_triplets.txt", "a b c\n")
    with pytest.raises(ValueError, match=r"must contain one file \*_triplets.txt; got .*nature.*vogue"):
        similarity.load_scene_similarity(tmp_path)
    with pytest.raises(ValueError, match=r"must contain one file survey_data.csv; got none"):
        similarity.load_car_similarity(archived(tmp_path / "other.zip", "readme.txt", ""))
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="must be text in UTF-8"):
        similarity.load_food_similarity(binary)


# Matrices of similarities

SIMILARITY = np.array([[1.0, 0.9, 0.1, np.nan], [0.9, 1.0, 0.5, 0.5], [0.1, 0.5, 1.0, 0.2], [np.nan, 0.5, 0.2, 1.0]])


@pytest.mark.parametrize("name", ["s", "d"])
def test_similarity_matrix(tmp_path, name):
    path = tmp_path / "fruits.mat"
    matrix = SIMILARITY if name == "s" else 3.0 - SIMILARITY
    scipy.io.savemat(path, {name: matrix, "labs": ["apple", "pear", "fig", "plum"], "n": 4})
    data = similarity.load_similarity_matrix(path, n_levels=3)
    assert data.index.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]  # the missing one is left out
    assert data.levels.tolist() == [0, 2, 1, 1, 2]
    np.testing.assert_allclose(np.diff(data.similarity), np.diff([0.9, 0.1, 0.5, 0.5, 0.2]))
    assert data.names.tolist() == ["apple", "pear", "fig", "plum"]


def test_levels_of_a_matrix_are_all_used(tmp_path):
    path = tmp_path / "equal.mat"
    scipy.io.savemat(path, {"s": np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 0.1], [0.5, 0.1, 1.0]])})
    data = similarity.load_similarity_matrix(path, n_levels=10)
    assert sorted(set(data.levels.tolist())) == [0, 1]
    assert data.names is None


@pytest.mark.parametrize(
    ("stored", "options", "rule"),
    [
        ({"x": np.eye(3)}, {}, "must have a matrix s of similarities, or d of distances"),
        ({"s": np.arange(9.0).reshape(3, 3)}, {}, r"must have a symmetric matrix; got one of shape \(3, 3\)"),
        ({"s": np.ones((2, 3))}, {}, r"must have a symmetric matrix; got one of shape \(2, 3\)"),
        ({"s": np.eye(3)}, {"n_levels": 1}, "n_levels must be a whole number >= 2; got 1"),
    ],
)
def test_bad_matrices_are_named(tmp_path, stored, options, rule):
    path = tmp_path / "bad.mat"
    scipy.io.savemat(path, stored)
    with pytest.raises(ValueError, match=rule):
        similarity.load_similarity_matrix(path, **options)


def test_other_files_are_no_matrices(tmp_path):
    with pytest.raises(ValueError, match="must be in MATLAB's format"):
        similarity.load_similarity_matrix(written(tmp_path / "a.mat", "1 2 3\n" * 100))
    with pytest.raises(FileNotFoundError, match="path must be an existing file"):
        similarity.load_similarity_matrix(tmp_path / "b.mat")
