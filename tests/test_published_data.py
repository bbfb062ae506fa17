"""Published files are read as they are, airline words become numbers, and what is wrong with a file is named."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from closefar.datasets import load_airline, load_combustion

PUBLISHED = Path(os.environ.get("CLOSEFAR_DATA_DIR") or "not given")
needs_published = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="CLOSEFAR_DATA_DIR names no folder with the published data"
)

STATES = np.array([[300.0, 0.0, 1.0], [1000.0, 0.25, 0.125], [2000.0, 1e-30, 0.0]])
FRACTION = np.array([0.0, 0.028, 1.0])
BASIS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

HEADER = ",id,Gender,Customer Type,Age,Type of Travel,Class,Arrival Delay in Minutes,satisfaction"
PASSENGERS = [
    "0,11,Female,Loyal Customer,52,Business travel,Eco,44.0,satisfied",
    "1,12,Male,disloyal Customer,7,Personal Travel,Eco Plus,,satisfied",
    "2,13,Male,disloyal Customer,36,Personal Travel,Eco Plus,0.0,neutral or dissatisfied",
    "3,14,Female,Loyal Customer,20,Business travel,Business,3,neutral or dissatisfied",
]


def write(path, text):
    """Write text, gzipped if the name says so."""
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def table(array):
    return "\n".join(",".join(map(repr, row)) for row in np.atleast_2d(array).tolist()) + "\n"


def write_combustion(folder, ending=".csv", **changed):
    texts = {
        "h-state-space": table(STATES),
        "h-state-space-names": "T\nH\nH2\n",
        "h-mixture-fraction": table(FRACTION[:, None]),
        "h-basis-3x2": table(BASIS),
    }
    for name, text in {**texts, **changed}.items():
        if text is not None:
            write(folder / f"{name}{ending}", text)
    return folder


def write_airline(path, passengers=PASSENGERS, header=HEADER):
    write(path, "\n".join([header, *passengers]) + "\n")
    return path


# load_combustion


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("convert", [str, Path])
def test_combustion_files_are_read(tmp_path, ending, convert):
    bunch = load_combustion(convert(write_combustion(tmp_path, ending)))
    np.testing.assert_array_equal(bunch.data, STATES)
    np.testing.assert_array_equal(bunch.target, FRACTION)
    np.testing.assert_array_equal(bunch.transformation, BASIS)
    assert bunch.feature_names == ["T", "H", "H2"]
    assert bunch.data.dtype == bunch.target.dtype == np.float64
    assert "3 states" in bunch.DESCR


def test_names_may_stand_in_one_line(tmp_path):
    assert load_combustion(write_combustion(tmp_path, **{"h-state-space-names": "T, H,H2"})).feature_names[2] == "H2"


def test_combustion_without_basis(tmp_path):
    assert load_combustion(write_combustion(tmp_path, **{"h-basis-3x2": None})).transformation is None


@pytest.mark.parametrize("missing", ["state-space", "state-space-names", "mixture-fraction"])
def test_missing_combustion_file_is_named(tmp_path, missing):
    write_combustion(tmp_path, **{f"h-{missing}": None})
    with pytest.raises(FileNotFoundError, match=rf"a file \*{missing}.csv or \*{missing}.csv.gz; got .*h-basis"):
        load_combustion(tmp_path)


def test_missing_combustion_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"existing folder; got .*nowhere"):
        load_combustion(tmp_path / "nowhere")


def test_two_files_for_one_purpose_are_named(tmp_path):
    write_combustion(write_combustion(tmp_path), ".csv.gz")
    with pytest.raises(
        ValueError, match=r"must contain one file .*got \['h-state-space.csv', 'h-state-space.csv.gz'\]"
    ):
        load_combustion(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("h-state-space", "300,0,1\n300,nan,1\n300,0,1\n", r"finite numbers; row 1 is \[300.0, nan, 1.0\]"),
        ("h-state-space", "300,0,1\n300,0\n", "comma-separated numbers without a header"),
        (
            "h-state-space",
            "T,H,H2\n300,0,1\n",
            "h-state-space.csv must contain comma-separated numbers without a header.*T",
        ),
        ("h-state-space", "", "h-state-space.csv must contain comma-separated numbers.*no data"),
        ("h-state-space-names", "T\nH\n", r"one name per column \(3\); got 2: \['T', 'H'\]"),
        ("h-mixture-fraction", "0\n1\n", r"one mixture fraction per state \(3\); got 2"),
        ("h-mixture-fraction", "0\n1\ninf\n", r"finite numbers; row 2 is \[inf\]"),
        ("h-basis-3x2", "1,2\n3,4\n", r"one row per column of \['T', 'H', 'H2'\]; got shape \(2, 2\)"),
    ],
)
def test_bad_combustion_file_is_named(tmp_path, name, text, rule):
    with pytest.raises(ValueError, match=rule):
        load_combustion(write_combustion(tmp_path, **{name: text}))


def test_cut_off_combustion_file_is_named(tmp_path):
    write_combustion(tmp_path, ".csv.gz")
    path = tmp_path / "h-state-space.csv.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=r"h-state-space.csv.gz must contain"):
        load_combustion(tmp_path)


@needs_published
def test_published_combustion():
    bunch = load_combustion(PUBLISHED / "combustion")
    assert bunch.data.shape == (13_650, 9)
    assert bunch.feature_names == ["T", "H", "H2", "O", "OH", "H2O", "O2", "HO2", "H2O2"]
    assert bunch.transformation.shape == (9, 3)
    assert (bunch.target.min(), bunch.target.max()) == (0.0, 1.0)
    np.testing.assert_array_equal(bunch.data[bunch.target == 1.0][:, 2], 1.0)


# load_airline


@pytest.mark.parametrize("name", ["train.csv", "test.csv.gz", "airline.csv"])
@pytest.mark.parametrize("give", [lambda path: path, lambda path: str(path.parent)], ids=["file", "folder"])
def test_airline_words_become_numbers(tmp_path, name, give):
    bunch = load_airline(give(write_airline(tmp_path / name)))
    assert bunch.feature_names == [
        "Gender",
        "Customer Type",
        "Age",
        "Type of Travel",
        "Class",
        "Arrival Delay in Minutes",
    ]
    np.testing.assert_array_equal(bunch.data, [[0, 0, 52, 0, 0, 44], [1, 1, 36, 1, 1, 0], [0, 0, 20, 0, 2, 3]])
    np.testing.assert_array_equal(bunch.target, [1, 0, 0])
    assert bunch.target.dtype == np.int64
    assert bunch.data.dtype == np.float64
    assert list(bunch.target_names) == ["neutral or dissatisfied", "satisfied"]
    assert bunch.n_dropped == 1
    assert name in bunch.DESCR


def test_airline_words_in_other_letters_and_quotes(tmp_path):
    passengers = ['0,11,FEMALE,"loyal customer", 52 ,business Travel,"ECO PLUS",44.0, Satisfied']
    bunch = load_airline(write_airline(tmp_path / "train.csv", passengers))
    np.testing.assert_array_equal(bunch.data, [[0, 0, 52, 0, 1, 44]])
    np.testing.assert_array_equal(bunch.target, [1])


@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_airline_row_numbers_are_left_out(tmp_path, index, mark):
    bunch = load_airline(write_airline(tmp_path / "train.csv", header=mark + index + HEADER))
    assert bunch.data.shape == (3, 6)


def test_airline_file_is_preferred_by_name(tmp_path):
    write_airline(tmp_path / "airline-2.csv", PASSENGERS[:1])
    write_airline(tmp_path / "train.csv")
    assert len(load_airline(tmp_path).data) == 1


def test_two_airline_files_are_named(tmp_path):
    write_airline(tmp_path / "train.csv")
    write_airline(tmp_path / "test.csv")
    with pytest.raises(ValueError, match=r"got \['test.csv', 'train.csv'\]. Pass the path of one of them"):
        load_airline(tmp_path)


@pytest.mark.parametrize(
    ("name", "rule"), [("no.csv", "existing CSV file .*no.csv"), ("", r"must contain a file \*.csv")]
)
def test_missing_airline_file_is_named(tmp_path, name, rule):
    with pytest.raises(FileNotFoundError, match=rule):
        load_airline(tmp_path / name)


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (",Eco,", ",First,", r"column 'Class' must contain only \['eco', 'eco plus', 'business'\]; got 'first'"),
        ("Female", "", r"column 'Gender' must contain only \['female', 'male'\]; got ''"),
        (",satisfied", ",happy", r"column 'satisfaction' must contain .*'satisfied'\]; got 'happy'"),
        (",52,", ",old,", "column 'Age' must contain numbers: .*'old'"),
        (",52,", ",,", r"only 'Arrival Delay in Minutes' may have missing values; got some in \['Age'\]"),
        (",52,", ",inf,", r"only 'Arrival Delay in Minutes' may have missing values; got some in \['Age'\]"),
        (",52,", ",", r"same number of fields; got 5 lines with \[8, 9\] fields"),
        ("Class", "Cabin", r"\['Class'\] are missing"),
    ],
)
def test_bad_airline_file_is_named(tmp_path, old, new, rule):
    path = write_airline(tmp_path / "train.csv")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=rule):
        load_airline(path)


def test_airline_file_without_passengers_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"a header, and rows .*got 1 lines with \[9\] fields"):
        load_airline(write_airline(tmp_path / "train.csv", []))


def test_damaged_airline_file_is_named(tmp_path):
    path = tmp_path / "train.csv.gz"
    path.write_text(HEADER)
    with pytest.raises(ValueError, match=r"train.csv.gz must be a CSV file, gzipped if its name ends in .gz"):
        load_airline(path)


@needs_published
def test_published_airline():
    bunch = load_airline(PUBLISHED / "airline")
    assert bunch.data.shape == (25_976 - 83, 22)
    assert bunch.n_dropped == 83
    assert np.mean(bunch.target) == pytest.approx(0.44, abs=0.005)
    words = [len(np.unique(bunch.data[:, bunch.feature_names.index(name)])) for name in ("Gender", "Class")]
    assert words == [2, 3]
