"""Simulated flames obey physics, are simulated once, and survive a damaged store."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from closefar.datasets import flamelets, make_combustion

pytest.importorskip("cantera", reason="flames are simulated with Cantera, which is not installed")

N = 2000
# kg/kmol
ATOM = {"H": 1.008, "O": 15.999}
AIR_O2 = 0.21 * 2 * ATOM["O"] / (0.21 * 2 * ATOM["O"] + 0.79 * 2 * 14.007)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("flames") / "made" / "on the way"


@pytest.fixture(scope="module")
def bunch(home):
    return make_combustion(N, data_home=home, random_state=0)


@pytest.fixture
def never_simulated(monkeypatch):
    def fail(*_):
        raise AssertionError("simulated again")

    monkeypatch.setattr(flamelets, "_simulate", fail)


@pytest.fixture
def simulated_at_once(monkeypatch):
    """Stands for a simulation; counts its calls."""
    calls = []

    def simulate(ct, n_flames, path):
        calls.append(n_flames)
        fraction = np.linspace(0.999, 0.001, 160 * n_flames)
        states = np.column_stack([np.full(len(fraction), 300.0), *[fraction] * 8])
        return flamelets.Flamelets(states, fraction, np.repeat(np.arange(1.0, n_flames + 1), 160), "0.0")

    monkeypatch.setattr(flamelets, "_simulate", simulate)
    return calls


def column(bunch, name):
    return bunch.data[:, bunch.feature_names.index(name)]


def each_flame(bunch):
    for strain in np.unique(bunch.strain_rate):
        rows = bunch.strain_rate == strain
        yield bunch.data[rows, 0], bunch.target[rows]


# The flames


def test_bunch(bunch):
    import cantera

    assert bunch.data.shape == (N, 9)
    assert bunch.target.shape == bunch.strain_rate.shape == (N,)
    assert bunch.data.dtype == bunch.target.dtype == np.float64
    assert bunch.feature_names == ["T", "H", "H2", "O", "OH", "H2O", "O2", "HO2", "H2O2"]
    assert bunch.transformation is None
    assert f"Cantera {cantera.__version__}" in bunch.DESCR
    assert "16 steady" in bunch.DESCR


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

    monkeypatch.setattr(flamelets, "_first_flame", lambda ct: SimpleNamespace())
    monkeypatch.setattr(flamelets, "_strain", strain)
    monkeypatch.setattr(flamelets, "_mixing_layer", lambda flame, rate: (np.ones((9, 9)), np.ones(9), np.full(9, rate)))
    rates = np.unique(make_combustion(10, data_home=tmp_path).strain_rate)
    assert rates[-1] < 100.0
    assert "of 6 steady" in make_combustion(10, data_home=tmp_path).DESCR


# The store


@pytest.mark.usefixtures("never_simulated")
def test_flames_are_simulated_once(bunch, home):
    again = make_combustion(N, data_home=home, random_state=0)
    other = make_combustion(N, data_home=str(home), random_state=1)
    np.testing.assert_array_equal(again.data, bunch.data)
    np.testing.assert_array_equal(again.strain_rate, bunch.strain_rate)
    assert not np.array_equal(other.data, bunch.data)
    assert [path.suffix for path in home.iterdir()] == [".npz"]


@pytest.mark.usefixtures("bunch", "never_simulated")
def test_stored_flames_need_no_cantera(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "cantera", None)
    assert make_combustion(10, data_home=home).data.shape == (10, 9)


def test_missing_cantera_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cantera", None)
    with pytest.raises(ImportError, match=r"pip install 'closefar\[combustion\]'"):
        make_combustion(10, data_home=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_store_from_the_environment(tmp_path, monkeypatch, simulated_at_once):
    monkeypatch.setenv("CLOSEFAR_DATA", str(tmp_path / "environment"))
    make_combustion(10)
    assert len(list((tmp_path / "environment").iterdir())) == 1
    monkeypatch.delenv("CLOSEFAR_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    make_combustion(10)
    assert len(list((tmp_path / ".cache" / "closefar").iterdir())) == 1
    assert simulated_at_once == [16, 16]


@pytest.mark.parametrize(("n", "n_flames"), [(1, 16), (2400, 16), (2401, 17), (13_650, 91), (30_000, 200)])
def test_more_rows_are_more_flames(tmp_path, simulated_at_once, n, n_flames):
    assert make_combustion(n, data_home=tmp_path).data.shape == (n, 9)
    assert simulated_at_once == [n_flames]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-30],
        lambda content: content[: len(content) // 2],
        lambda content: content[:2000] + bytes([content[2000] ^ 255]) + content[2001:],
        lambda content: b"\x80\x04N.",
    ],
    ids=["empty", "end missing", "half", "one byte", "pickle"],
)
def test_damaged_store_is_simulated_again(tmp_path, simulated_at_once, damage):
    first = make_combustion(500, data_home=tmp_path, random_state=0)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match=r"flamelets-.*can't be read .*simulated again") as caught:
        second = make_combustion(500, data_home=tmp_path, random_state=0)
    assert caught[0].filename == __file__
    make_combustion(500, data_home=tmp_path, random_state=0)
    np.testing.assert_array_equal(first.data, second.data)
    assert simulated_at_once == [16, 16]


@pytest.mark.parametrize(
    "change",
    [
        {"states": np.zeros((3, 8))},
        {"mixture_fraction": np.zeros(4)},
        {"strain_rate": np.full(3, np.nan)},
        {"cantera": np.array([{}], dtype=object)},
    ],
    ids=["columns", "rows", "nan", "object"],
)
def test_wrong_store_is_simulated_again(tmp_path, simulated_at_once, change):
    right = {"states": np.zeros((3, 9)), "mixture_fraction": np.zeros(3), "strain_rate": np.ones(3), "cantera": "1"}
    make_combustion(2, data_home=tmp_path)
    (path,) = tmp_path.iterdir()
    np.savez(path, **right)
    assert make_combustion(2, data_home=tmp_path).data.shape == (2, 9)
    np.savez(path, **{**right, **change})
    with pytest.warns(UserWarning, match="simulated again"):
        make_combustion(2, data_home=tmp_path)
    assert simulated_at_once == [16, 16]


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"must be writable; .*file.* is not .*data_home=.*CLOSEFAR_DATA"):
        make_combustion(10, data_home=tmp_path / "file")


def test_interrupt_leaves_no_file(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(flamelets, "_first_flame", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_combustion(10, data_home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_too_few_burning_flames_are_named(tmp_path, simulated_at_once):
    make_combustion(2400, data_home=tmp_path)
    (path,) = tmp_path.iterdir()
    np.savez(path, states=np.zeros((3, 9)), mixture_fraction=np.zeros(3), strain_rate=np.ones(3), cantera="1.5")
    with pytest.raises(RuntimeError, match=r"grid points of the 16 flames, 3; got 2400.*this is 1.5"):
        make_combustion(2400, data_home=tmp_path)


@pytest.mark.parametrize("n", [0, -1, 2.5, None])
def test_bad_number_of_rows_is_named(tmp_path, n):
    with pytest.raises(ValueError, match=f"n must be a whole number >= 1; got {n}"):
        make_combustion(n, data_home=tmp_path)


# What is shown


@pytest.mark.parametrize("rich", [True, False])
def test_one_line_where_there_is_no_terminal(tmp_path, monkeypatch, capfd, rich):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    with flamelets._progress(16, tmp_path / "file.npz") as advance:
        advance()
    out, err = capfd.readouterr()
    assert out == ""
    assert err == f"Simulating 16 hydrogen/air flames with Cantera, once; storing {tmp_path / 'file.npz'}.\n"
