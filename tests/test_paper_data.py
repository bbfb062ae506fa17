"""The data of the paper's experiments: published files are read as they are, simulated flames obey physics."""

import gzip
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from paper import flames
from paper.flames import load_flames, simulate_flames
from paper.single_points import load_airline

PUBLISHED = Path(os.environ.get("CLOSEFAR_DATA") or "not given")
needs_published = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="CLOSEFAR_DATA names no folder with the published data"
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


# Published flames


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_combustion_files_are_read(tmp_path, ending):
    bunch = load_flames(write_combustion(tmp_path, ending))
    np.testing.assert_array_equal(bunch.data, STATES)
    np.testing.assert_array_equal(bunch.target, FRACTION)
    np.testing.assert_array_equal(bunch.transformation, BASIS)
    assert bunch.feature_names == ["T", "H", "H2"]
    assert bunch.data.dtype == bunch.target.dtype == np.float64


def test_names_may_stand_in_one_line(tmp_path):
    assert load_flames(write_combustion(tmp_path, **{"h-state-space-names": "T, H,H2"})).feature_names[2] == "H2"


def test_combustion_without_basis(tmp_path):
    assert load_flames(write_combustion(tmp_path, **{"h-basis-3x2": None})).transformation is None


@pytest.mark.parametrize("missing", ["state-space", "state-space-names", "mixture-fraction"])
def test_missing_combustion_file_is_named(tmp_path, missing):
    write_combustion(tmp_path, **{f"h-{missing}": None})
    with pytest.raises(ValueError, match=rf"one file \*{missing}.csv or \*{missing}.csv.gz; got none"):
        load_flames(tmp_path)


def test_two_files_for_one_purpose_are_named(tmp_path):
    write_combustion(write_combustion(tmp_path), ".csv.gz")
    with pytest.raises(
        ValueError, match=r"must contain one file .*got \['h-state-space.csv', 'h-state-space.csv.gz'\]"
    ):
        load_flames(tmp_path)


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
        ("h-state-space-names", "T\nH\n", r"states of shape \(3, 3\), 3 fractions, 2 names and 3 rows"),
        ("h-mixture-fraction", "0\n1\n", r"states of shape \(3, 3\), 2 fractions, 3 names and 3 rows"),
        ("h-mixture-fraction", "0\n1\ninf\n", r"finite numbers; row 2 is \[inf\]"),
        ("h-basis-3x2", "1,2\n3,4\n", r"states of shape \(3, 3\), 3 fractions, 3 names and 2 rows"),
    ],
)
def test_bad_combustion_file_is_named(tmp_path, name, text, rule):
    with pytest.raises(ValueError, match=rule):
        load_flames(write_combustion(tmp_path, **{name: text}))


@needs_published
def test_published_combustion():
    bunch = load_flames(PUBLISHED / "combustion")
    assert bunch.data.shape == (13_650, 9)
    assert bunch.feature_names == ["T", "H", "H2", "O", "OH", "H2O", "O2", "HO2", "H2O2"]
    assert bunch.transformation.shape == (9, 3)
    assert (bunch.target.min(), bunch.target.max()) == (0.0, 1.0)
    np.testing.assert_array_equal(bunch.data[bunch.target == 1.0][:, 2], 1.0)


# Airline passengers


@pytest.mark.parametrize("name", ["train.csv", "test.csv.gz", "airline.csv"])
def test_airline_words_become_numbers(tmp_path, name):
    bunch = load_airline(write_airline(tmp_path / name).parent)
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


def test_airline_words_in_other_letters_and_quotes(tmp_path):
    passengers = ['0,11,FEMALE,"loyal customer", 52 ,business Travel,"ECO PLUS",44.0, Satisfied']
    bunch = load_airline(write_airline(tmp_path / "train.csv", passengers).parent)
    np.testing.assert_array_equal(bunch.data, [[0, 0, 52, 0, 1, 44]])
    np.testing.assert_array_equal(bunch.target, [1])


@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_airline_row_numbers_are_left_out(tmp_path, index, mark):
    bunch = load_airline(write_airline(tmp_path / "train.csv", header=mark + index + HEADER).parent)
    assert bunch.data.shape == (3, 6)


def test_other_numbers_of_airline_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="must contain one CSV file; got none"):
        load_airline(tmp_path)
    write_airline(tmp_path / "train.csv")
    write_airline(tmp_path / "test.csv")
    with pytest.raises(ValueError, match=r"must contain one CSV file; got \['test.csv', 'train.csv'\]"):
        load_airline(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (",Eco,", ",First,", r"column 'Class' must contain only \['eco', 'eco plus', 'business'\]; got \['first'\]"),
        ("Female", "", r"column 'Gender' must contain only \['female', 'male'\]; got \[''\]"),
        (",satisfied", ",happy", r"column 'satisfaction' must contain .*'satisfied'\]; got \['happy'\]"),
        (",52,", ",old,", "could not convert string to float: .*'old'"),
        (",52,", ",,", r"only 'Arrival Delay in Minutes' may have missing values; got some in \['Age'\]"),
        (",52,", ",inf,", r"only 'Arrival Delay in Minutes' may have missing values; got some in \['Age'\]"),
        (",52,", ",", "zip"),
        ("Class", "Cabin", r"\['Class'\] are missing"),
    ],
)
def test_bad_airline_file_is_named(tmp_path, old, new, rule):
    path = write_airline(tmp_path / "train.csv")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=rule):
        load_airline(tmp_path)


@needs_published
def test_published_airline():
    bunch = load_airline(PUBLISHED / "airline")
    assert bunch.data.shape == (25_976 - 83, 22)
    assert np.mean(bunch.target) == pytest.approx(0.44, abs=0.005)
    words = [len(np.unique(bunch.data[:, bunch.feature_names.index(name)])) for name in ("Gender", "Class")]
    assert words == [2, 3]


# Simulated flames

N = 2000
# kg/kmol
ATOM = {"H": 1.008, "O": 15.999}
AIR_O2 = 0.21 * 2 * ATOM["O"] / (0.21 * 2 * ATOM["O"] + 0.79 * 2 * 14.007)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("flames") / "made" / "on the way"


@pytest.fixture(scope="module")
def bunch(home):
    pytest.importorskip("cantera", reason="flames are simulated with Cantera, which is not installed")
    return simulate_flames(N, home, random_state=0)


def column(bunch, name):
    return bunch.data[:, bunch.feature_names.index(name)]


def each_flame(bunch):
    for strain in np.unique(bunch.strain_rate):
        rows = bunch.strain_rate == strain
        yield bunch.data[rows, 0], bunch.target[rows]


def test_bunch(bunch):
    assert bunch.data.shape == (N, 9)
    assert bunch.target.shape == bunch.strain_rate.shape == (N,)
    assert bunch.data.dtype == bunch.target.dtype == np.float64
    assert bunch.feature_names == ["T", "H", "H2", "O", "OH", "H2O", "O2", "HO2", "H2O2"]
    assert bunch.transformation is None


def test_rows_are_different_states(bunch):
    assert len(np.unique(bunch.data, axis=0)) == N


def test_all_flames_burn_and_cool_as_they_are_strained(bunch):
    strains = np.unique(bunch.strain_rate)
    hottest = np.array([temperature.max() for temperature, _ in each_flame(bunch)])
    assert (len(strains), strains[0], strains[-1]) == (16, pytest.approx(4.0), pytest.approx(14_000.0))
    assert np.all(np.diff(hottest) < 0)
    assert 2300 < hottest[0] < 2420  # the adiabatic flame temperature is 2383 K
    assert 1300 < hottest[-1] < 1450
    assert bunch.data[:, 0].min() >= 300.0 - 1e-6


def test_mixture_fraction_falls_from_fuel_to_air(bunch):
    for _, fraction in each_flame(bunch):
        assert np.all(np.diff(fraction) < 0)
        assert fraction[0] > 0.98
        assert fraction[-1] < 0.002


def test_hottest_near_the_stoichiometric_mixture(bunch):
    """2 H2 + O2: one gram of hydrogen for eight of oxygen."""
    stoichiometric = 1.0 / (1.0 + 2 * ATOM["O"] / (4 * ATOM["H"]) / AIR_O2)
    assert stoichiometric == pytest.approx(0.0285, abs=1e-4)
    for temperature, fraction in each_flame(bunch):
        assert stoichiometric - 0.002 < fraction[np.argmax(temperature)] < stoichiometric + 0.018


def test_mass_fractions_are_shares(bunch):
    """Nitrogen, not in the table, is mixed in with the air and nothing else."""
    shares = bunch.data[:, 1:]
    assert shares.min() >= 0.0
    assert shares.max() <= 1.0
    np.testing.assert_allclose(1.0 - shares.sum(axis=1), (1.0 - AIR_O2) * (1.0 - bunch.target), atol=2e-5)


def test_mixture_fraction_is_bilgers(bunch):
    """Z = (b - b_air) / (b_fuel - b_air) with b = Y_H / (2 m_H) - Y_O / m_O of the elements' mass fractions."""
    atoms = {"H": (1, 0), "H2": (2, 0), "O": (0, 1), "OH": (1, 1), "H2O": (2, 1), "O2": (0, 2), "HO2": (1, 2)}
    coupling = np.zeros(N)
    for name, (n_hydrogen, n_oxygen) in {**atoms, "H2O2": (2, 2)}.items():
        mass = n_hydrogen * ATOM["H"] + n_oxygen * ATOM["O"]
        coupling += column(bunch, name) / mass * (n_hydrogen / 2 - n_oxygen)
    fuel, air = 1 / (2 * ATOM["H"]), -AIR_O2 / ATOM["O"]
    np.testing.assert_allclose(bunch.target, (coupling - air) / (fuel - air), atol=1e-6)


def test_flame_that_goes_out_ends_the_series(tmp_path, monkeypatch):
    def strain(flame, rate):
        flame.T = np.array([300.0, 2000.0 if rate < 100.0 else 300.0])

    monkeypatch.setattr(flames, "_first_flame", lambda ct: SimpleNamespace())
    monkeypatch.setattr(flames, "_strain", strain)
    monkeypatch.setattr(flames, "_mixing_layer", lambda flame, rate: (np.ones((9, 9)), np.ones(9), np.full(9, rate)))
    rates = np.unique(simulate_flames(10, tmp_path).strain_rate)
    assert rates[-1] < 100.0
    assert len(rates) <= 6


@pytest.mark.usefixtures("bunch")
def test_stored_flames_are_not_simulated_again_and_need_no_cantera(bunch, home, monkeypatch):
    monkeypatch.setitem(sys.modules, "cantera", None)
    again, other = (simulate_flames(N, home, random_state=seed) for seed in (0, 1))
    np.testing.assert_array_equal(again.data, bunch.data)
    np.testing.assert_array_equal(again.strain_rate, bunch.strain_rate)
    assert not np.array_equal(other.data, bunch.data)
    assert [path.suffix for path in home.iterdir()] == [".npz"]
    with pytest.raises(ValueError, match=r"n must be from 1 to the number of grid points"):
        simulate_flames(0, home)


def test_missing_cantera_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cantera", None)
    with pytest.raises(ImportError, match=r"pip install 'closefar\[paper\]'"):
        simulate_flames(10, tmp_path / "new")
    assert not (tmp_path / "new").exists()
