"""How columns become numbers: by kind, by order asked for, and the same again for new data."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closefar.tables import Encoding, TableError, read_table

FILE = "people.csv"  # the first row of values is row 2


def texts(*values):
    return np.array(values, dtype=object)


def people():
    return {
        "age": np.array([31.0, 44.0, 28.0, 60.0]),
        "member": np.array([True, False, True, True]),
        "colour": texts("red", "blue", "red", "green"),
        "size": texts("S", "L", "M", "S"),
    }


def learn(table, **options):
    return Encoding.learn(table, **{"name": FILE, **options})


def encode(columns, **options):
    return learn(columns, **options).apply(columns, name=FILE)[0]


# Kinds


def test_each_kind_of_column():
    encoding = learn(people(), ordinal={"size": ["S", "M", "L"]})
    assert encoding.column_names == ("age", "member", "colour", "size")
    assert encoding.feature_names == ("age", "member", "colour=blue", "colour=green", "size")
    data, dropped = encoding.apply(people(), name=FILE)
    assert data.dtype == np.float64
    assert data.tolist() == [[31, 1, 0, 0, 0], [44, 0, 1, 0, 2], [28, 1, 0, 0, 1], [60, 1, 0, 1, 0]]
    assert not dropped.any()


def test_two_categories_give_one_column():
    columns = {"smoker": texts("no", "yes", "no")}
    assert learn(columns).feature_names == ("smoker=yes",)
    assert encode(columns).tolist() == [[0.0], [1.0], [0.0]]


def test_the_reference_is_the_most_frequent_and_of_equals_the_first_in_order():
    assert learn({"c": texts("z", "a", "z")}).feature_names == ("c=a",)
    assert learn({"c": texts("z", "b", "a")}).feature_names == ("c=b", "c=z")


def test_leaving_out_the_reference_loses_no_metric():
    rng = np.random.default_rng(0)
    values = rng.choice(["a", "b", "c", "d"], 60).astype(object)
    full = (values[:, None] == np.array(["a", "b", "c", "d"])).astype(float)
    root = rng.normal(size=(4, 4))
    wanted = np.sum(((full[:30] - full[30:]) @ root) ** 2, axis=1)
    data = encode({"c": values})
    difference = data[:30] - data[30:]
    # z'Mz is linear in M: find M by least squares over the products of columns.
    products = np.einsum("ni,nj->nij", difference, difference).reshape(30, -1)
    matrix = np.linalg.lstsq(products, wanted, rcond=None)[0]
    np.testing.assert_allclose(products @ matrix, wanted, atol=1e-10)
    assert np.linalg.eigvalsh(matrix.reshape(3, 3)).min() > -1e-10


def test_numbers_as_categories():
    columns = {"code": np.array([10.0, 2.0, 10.0, 2.5])}
    assert learn(columns, categorical=["code"]).feature_names == ("code=2", "code=2.5")
    assert encode(columns, categorical=["code"]).tolist() == [[0, 0], [1, 0], [0, 0], [0, 1]]


def test_numbers_in_order():
    assert encode({"n": np.array([3.0, 1.0])}, ordinal={"n": ["3", "2", "1"]}).tolist() == [[0.0], [2.0]]


@pytest.mark.filterwarnings("ignore:.*replaces .* missing value")
def test_text_that_is_all_numbers_or_all_true_and_false():
    columns = {"n": texts("1", None, "2.5"), "b": texts("TRUE", None, "false")}
    encoding = learn(columns, missing="median")
    assert [column.kind for column in encoding.columns] == ["number", "boolean"]
    assert encoding.apply(columns, name=FILE)[0].tolist() == [[1, 1], [1.75, 0], [2.5, 0]]


def test_a_constant_column_is_fine():
    columns = {"x": np.ones(3), "b": np.ones(3, dtype=bool), "c": texts("a", "a", "a"), "y": np.arange(3.0)}
    assert learn(columns).feature_names == ("x", "b", "y")


def test_only_constant_categories_are_refused():
    with pytest.raises(TableError, match="a single category"):
        learn({"c": texts("a", "a")})


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32, ">f8"])
def test_other_types_of_numbers(dtype):
    assert encode({"x": np.array([1, 2, 3], dtype=dtype)}).tolist() == [[1.0], [2.0], [3.0]]


def test_arrays_of_fixed_width_text():
    assert encode({"c": np.array(["a", "b", "a"])}).tolist() == [[0.0], [1.0], [0.0]]


# What can't be a feature


def test_infinite_numbers_are_refused():
    with pytest.raises(TableError, match=r"people.csv: column 'x' must hold finite numbers; 2 .* 'inf' in row 3\."):
        learn({"x": np.array([1.0, np.inf, -np.inf])})


def test_mixed_numbers_and_text_name_the_first():
    with pytest.raises(TableError, match=r"'x' mixes.*2 values are not numbers.*'low' in row 3.*categorical=\['x'\]"):
        learn({"x": texts("1", "low", "2", "high")})
    assert learn({"x": texts("1", "low", "1", "high")}, categorical=["x"]).feature_names == ("x=high", "x=low")


def test_decimal_commas_are_hinted_at():
    with pytest.raises(TableError, match=r"'1,5' in row 2\. Correct them, set decimal=.,. for decimal commas"):
        learn({"x": texts("1,5", "2", "0,3")})
    with pytest.raises(TableError, match=r"such as '0,3'\. Write them .*set decimal=.,. for decimal commas"):
        learn({"x": texts("1,5", "2,0", "0,3")})


@pytest.mark.parametrize(
    "values",
    [
        texts("2024-01-31", None, "2023-12-01"),
        texts("2024-01-31T12:30:00", "2024-01-31 12:30"),
        texts("2024-01-31T12:30:00.123Z", "2024-01-31 12:30:00+02:00"),
        texts("31.01.2024", "1.2.2024"),
        texts("01/31/2024", "02/01/2024"),
        np.array(["2024-01-31", "2024-02-01"], dtype="datetime64[D]"),
        np.array(["2024-01-31", "NaT"], dtype="datetime64[ns]"),
    ],
)
def test_dates_are_refused_with_a_hint(values):
    with pytest.raises(TableError, match=r"'when' h.* dates.*days since a reference date.*drop=\['when'\]"):
        learn({"when": values, "x": np.arange(float(len(values)))}, missing="median")


@pytest.mark.parametrize(
    "form", ["1.00#,56", "1'00#", "#%", "# kg", "$#", "12:3#", "1# Mar 1990", "1,23#", "1 00#", "#,5", "#-1#", "12#/80"]
)
def test_formatted_numbers_are_no_categories(form):
    values = np.array([form.replace("#", str(number % 7)) for number in range(60)], dtype=object)
    with pytest.raises(TableError, match=r"not written as plain numbers, such as .* without units and separators"):
        learn({"x": values})
    assert len(learn({"x": values}, categorical=["x"]).feature_names) == 6


@pytest.mark.parametrize("form", ["ward #", "A#", "v1.#"])
def test_names_with_numbers_are_categories(form):
    values = np.array([form.replace("#", str(number % 7)) for number in range(60)], dtype=object)
    assert len(learn({"x": values}).feature_names) == 6


def test_ids_and_free_text_are_refused_with_a_hint():
    many = np.array([f"t{index % 51}" for index in range(1000)], dtype=object)
    with pytest.raises(TableError, match=r"51 distinct texts.*drop=\['c'\], or use categorical=\['c'\]"):
        learn({"c": many})
    assert len(learn({"c": many}, categorical=["c"]).feature_names) == 50
    assert len(learn({"c": many[many != "t50"]}).feature_names) == 49
    with pytest.raises(TableError, match="looks like an id"):
        learn({"c": texts("a", "b", "c", "d", "e", "f")})
    assert len(learn({"c": texts("a", "b", "c", "d", "e", "a", "b", "c")}).feature_names) == 4


def test_too_many_named_categories_are_refused():
    with pytest.raises(TableError, match="1,001 distinct texts"):
        learn({"c": np.arange(1001.0)}, categorical=["c"])


def test_a_column_without_values_is_refused():
    with pytest.raises(TableError, match=r"'x' has no values.*drop=\['x'\]"):
        learn({"x": np.full(3, np.nan), "y": np.arange(3.0)}, missing="median")


def test_values_of_another_type_are_refused():
    with pytest.raises(TableError, match="'x' holds neither numbers nor text"):
        learn({"x": np.array([1, "a", {}], dtype=object)})
    with pytest.raises(TableError, match="complex"):
        learn({"x": np.array([1j])})


def test_names_of_features_must_differ():
    with pytest.raises(TableError, match="'c=b' is there twice"):
        learn({"c": texts("a", "b", "a"), "c=b": np.arange(3.0)})


# Which columns


def test_columns_and_drop():
    assert learn(people(), columns=["size", "age"]).column_names == ("age", "size")
    assert learn(people(), drop=["colour", "size"]).column_names == ("age", "member")


@pytest.mark.parametrize("option", ["columns", "drop", "categorical"])
def test_named_columns_must_be_there(option):
    with pytest.raises(TableError, match=r"no column 'Colur'.*Did you mean 'colour'\?"):
        learn(people(), **{option: ["Colur"]})


def test_ordinal_columns_must_be_there_and_used():
    with pytest.raises(TableError, match="no column 'sizes'"):
        learn(people(), ordinal={"sizes": ["S", "M"]})
    with pytest.raises(TableError, match="no column 'size'"):
        learn(people(), drop=["size"], ordinal={"size": ["S", "M", "L"]})


def test_nothing_left_is_refused():
    with pytest.raises(TableError, match="no column left"):
        learn(people(), drop=list(people()))


@pytest.mark.parametrize("order", [["S"], ["S", "S"], [], "SML"])
def test_orders_must_be_different_values(order):
    with pytest.raises(TableError, match="order of column 'size'"):
        learn(people(), ordinal={"size": order})


def test_a_value_outside_the_order_is_refused():
    with pytest.raises(TableError, match=r"'size' has the value 'L' in row 3.*'S', 'M'"):
        learn(people(), ordinal={"size": ["S", "M"]})


@pytest.mark.parametrize("options", [{"missing": "mean"}, {"unseen": "drop"}, {"missing": None}])
def test_policies_must_be_known(options):
    with pytest.raises(ValueError, match=r"must be 'refuse' or"):
        learn(people(), **options)


# Missing values


def gappy():
    return {
        "x": np.array([1.0, np.nan, 5.0, 100.0, 2.0]),
        "b": texts("true", "true", None, "false", "true"),
        "c": texts("u", "v", "v", None, "w"),
        "o": texts("S", "M", "M", "L", None),
    }


ORDER = {"o": ["S", "M", "L"]}


def test_missing_values_are_refused_with_every_column_and_count():
    columns = gappy()
    columns["x"][0] = np.nan
    with pytest.raises(
        TableError, match=r"'x' \(2\), column 'b' \(1\), column 'c' \(1\), column 'o' \(1\).*missing=.drop"
    ):
        learn(columns, ordinal=ORDER)


def test_rows_that_lack_a_value_are_dropped_and_told():
    encoding = learn({"x": gappy()["x"], "c": gappy()["c"]}, missing="drop")
    assert encoding.feature_names == ("x", "c=v", "c=w")
    data, dropped = encoding.apply(gappy(), name=FILE)
    assert dropped.tolist() == [False, True, False, True, False]
    assert data.tolist() == [[1, 0, 0], [5, 1, 0], [2, 0, 1]]


@pytest.mark.filterwarnings("ignore:.*the training median")
def test_medians_and_the_most_frequent_fill_in():
    columns = gappy()
    encoding = learn(columns, ordinal=ORDER, missing="median")
    data, dropped = encoding.apply(columns, name=FILE)
    assert not dropped.any()
    assert encoding.feature_names == ("x", "b", "c=u", "c=w", "o")
    assert data[1].tolist() == [3.5, 1, 0, 0, 1]
    assert data[2].tolist() == [5, 1, 0, 0, 1]
    assert data[3].tolist() == [100, 0, 0, 0, 2]
    assert data[4].tolist() == [2, 1, 0, 1, 1]


@pytest.mark.filterwarnings("ignore:.*the training median")
def test_new_data_gets_the_training_median():
    encoding = learn({"x": np.array([1.0, 2.0, 9.0])}, missing="median")
    assert encoding.apply({"x": np.array([np.nan, 50.0])}, name=FILE)[0].tolist() == [[2.0], [50.0]]


@pytest.mark.filterwarnings("ignore:.*replaces .* missing value")
def test_the_policy_can_be_changed_later():
    encoding = learn({"x": np.array([1.0, 2.0, 9.0])})
    new = {"x": np.array([np.nan, 5.0])}
    with pytest.raises(TableError, match="missing values"):
        encoding.apply(new, name=FILE)
    assert replace(encoding, missing="median").apply(new, name=FILE)[0].tolist() == [[2.0], [5.0]]
    assert replace(encoding, missing="drop").apply(new, name=FILE)[0].tolist() == [[5.0]]


def test_rows_are_named_as_in_the_file_after_dropping():
    columns = {"x": np.array([np.nan, 1.0, 2.0, np.inf])}
    with pytest.raises(TableError, match=r"row 5\."):
        learn(columns, missing="drop")
    with pytest.raises(TableError, match=r"row 3 \(counted from 0\)"):
        learn(columns, missing="drop", name="people.parquet")


def test_nothing_left_after_dropping_is_refused():
    with pytest.raises(TableError, match=r"every row has a missing value, in column 'x' \(1\), column 'y' \(1\)"):
        learn({"x": np.array([np.nan, 1.0]), "y": np.array([1.0, np.nan])}, missing="drop")


# New data


def test_unseen_categories_are_refused_with_the_known_ones():
    encoding = learn(people(), ordinal={"size": ["S", "M", "L"]})
    new = people() | {"colour": texts("red", "pink", "blue", "pink")}
    with pytest.raises(TableError, match=r"'colour' has the value 'pink' in row 3.*'red', 'blue', 'green' \(2 such"):
        encoding.apply(new, name=FILE)
    new = people() | {"size": texts("S", "M", "L", "XL")}
    with pytest.raises(TableError, match="'XL' in row 5"):
        encoding.apply(new, name=FILE)


def test_unseen_categories_get_the_training_mean():
    encoding = learn(people(), ordinal={"size": ["S", "M", "L"]}, unseen="average")
    new = people() | {"colour": texts("pink", "red", "red", "red"), "size": texts("XL", "S", "S", "S")}
    data, _ = encoding.apply(new, name=FILE)
    np.testing.assert_array_equal(
        data[0], np.mean(encoding.apply(people(), name=FILE)[0], axis=0) * [0, 0, 1, 1, 1] + [31, 1, 0, 0, 0]
    )


def test_at_most_ten_known_values_are_listed():
    values = np.array([f"v{index % 20:02}" for index in range(100)], dtype=object)
    with pytest.raises(TableError, match=r"'v09' and 10 more"):
        learn({"c": values}).apply({"c": texts("new")}, name=FILE)


def test_lacking_columns_are_named_with_near_ones():
    new = people()
    new["Age"], new["colur"] = new.pop("age"), new.pop("colour")
    with pytest.raises(
        TableError,
        match=r"no columns 'age', 'colour'.*Its columns are 'member', 'size', 'Age', 'colur'.*mean 'Age', 'colur'",
    ):
        learn(people()).apply(new, name=FILE)


def test_other_columns_and_their_order_are_ignored():
    new = {"other": texts(*"abcd"), **dict(reversed(people().items()))}
    encoding = learn(people())
    np.testing.assert_array_equal(encoding.apply(new, name=FILE)[0], encoding.apply(people(), name=FILE)[0])


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "age",
            texts("31", "old", "28", "60"),
            "'age' must hold numbers.*1 of its values are not, the first is 'old' in row 3",
        ),
        ("age", np.array(["2024-01-01"] * 4, dtype="datetime64[D]"), "must hold numbers, .*'2024-01-01' in row 2"),
        ("age", np.array([1, 2, 3, np.inf]), "finite"),
        ("member", texts("true", "false", "maybe", "true"), "'member' must hold true or false.*'maybe' in row 4"),
        ("member", np.array([0, 1, 2.0, 1]), "true or false.*'2' in row 4"),
    ],
)
def test_a_column_of_another_kind_is_refused(name, values, message):
    with pytest.raises(TableError, match=message):
        learn(people()).apply(people() | {name: values}, name=FILE)


def test_true_and_false_may_come_as_one_and_zero():
    new = people() | {"member": np.array([1.0, 0.0, 1.0, 1.0])}
    encoding = learn(people())
    np.testing.assert_array_equal(encoding.apply(new, name=FILE)[0], encoding.apply(people(), name=FILE)[0])


# The same numbers again

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(-1e6, 1e6)),
        st.one_of(st.none(), st.sampled_from(["a", "b", "c"])),
        st.booleans(),
        st.one_of(st.none(), st.sampled_from(["S", "M", "L"])),
    ),
    min_size=4,
    max_size=40,
)


def table_of(rows):
    number, category, flag, size = zip(*rows, strict=True)
    return {
        "n": np.array([np.nan if value is None else value for value in number]),
        "c": texts(*category),
        "b": np.array(flag),
        "s": texts(*size),
    }


@given(rows, st.randoms(use_true_random=False), st.sampled_from(["drop", "median"]))
@settings(deadline=None, max_examples=60)
@pytest.mark.filterwarnings("ignore:.*replaces .* missing value")
def test_row_order_and_row_by_row_do_not_matter(rows, random, missing):
    columns = table_of(rows)
    try:
        encoding = learn(columns, ordinal={"s": ["S", "M", "L"]}, missing=missing)
    except TableError:
        return
    order = np.array(random.sample(range(len(rows)), len(rows)))
    shuffled = {name: column[order] for name, column in columns.items()}
    assert learn(shuffled, ordinal={"s": ["S", "M", "L"]}, missing=missing).to_json() == encoding.to_json()
    data, dropped = encoding.apply(columns, name=FILE)
    kept = np.flatnonzero(~dropped)
    for position, row in enumerate(kept[:5]):
        alone, _ = encoding.apply({name: column[[row]] for name, column in columns.items()}, name=FILE)
        np.testing.assert_array_equal(alone[0], data[position])


def every_kind(missing="median", unseen="average"):
    return learn(
        people() | {"t": np.array([0.1, 0.2, 0.7, 0.4])},
        ordinal={"size": ["S", "M", "L"]},
        missing=missing,
        unseen=unseen,
    )


@pytest.mark.parametrize("missing", ["refuse", "drop", "median"])
@pytest.mark.parametrize("unseen", ["refuse", "average"])
def test_json_round_trip(missing, unseen):
    encoding = every_kind(missing, unseen)
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json(), allow_nan=False)))
    assert again == encoding
    new = people() | {"t": np.array([0.3, 0.1, 0.2, 0.9])}
    np.testing.assert_array_equal(again.apply(new, name=FILE)[0], encoding.apply(new, name=FILE)[0])


def test_of_numbers():
    encoding = Encoding.of_numbers(["a", "b"])
    assert encoding.feature_names == ("a", "b")
    assert Encoding.from_json(encoding.to_json()) == encoding
    assert encoding.apply({"b": np.array([2.0]), "a": np.array([1.0])}, name=FILE)[0].tolist() == [[1.0, 2.0]]
    with pytest.raises(ValueError, match="medians of the training data are not known"):
        replace(encoding, missing="median")


def spoil(path, value):
    def spoiled(description):
        *parents, last = path
        for key in parents:
            description = description[key]
        description[last] = value

    return spoiled


AGE, MEMBER, COLOUR, SIZE = ("columns", 0), ("columns", 1), ("columns", 2), ("columns", 3)


@pytest.mark.parametrize(
    "change",
    [
        spoil(("missing",), "mean"),
        spoil(("missing",), ["refuse"]),
        spoil(("unseen",), None),
        spoil(("extra",), 1),
        spoil(("columns",), []),
        spoil(("columns",), {}),
        spoil(("columns",), [1]),
        spoil(AGE, []),
        spoil((*AGE, "kind"), "text"),
        spoil((*AGE, "kind"), ["number"]),
        spoil((*AGE, "kind"), "boolean"),
        spoil((*AGE, "extra"), 1),
        spoil((*AGE, "name"), ""),
        spoil((*AGE, "name"), 5),
        spoil((*AGE, "name"), ["age"]),
        spoil((*AGE, "name"), "member"),
        spoil((*AGE, "name"), "colour=blue"),
        spoil((*AGE, "median"), "1"),
        spoil((*AGE, "median"), None),
        spoil((*AGE, "median"), float("nan")),
        spoil((*AGE, "median"), float("inf")),
        spoil((*AGE, "median"), True),
        spoil((*AGE, "median"), [1.0]),
        spoil((*MEMBER, "usual"), 1),
        spoil((*MEMBER, "usual"), "true"),
        spoil((*COLOUR, "values"), []),
        spoil((*COLOUR, "values"), "red"),
        spoil((*COLOUR, "values"), ["red", "red", "blue"]),
        spoil((*COLOUR, "values"), ["red", "blue"]),
        spoil((*COLOUR, "values"), ["red", 1, "blue"]),
        spoil((*COLOUR, "values"), ["red", ["blue"], "green"]),
        spoil((*COLOUR, "values"), ["red", "", "green"]),
        spoil((*COLOUR, "shares"), [0.5]),
        spoil((*COLOUR, "shares"), [0.9, 0.9]),
        spoil((*COLOUR, "shares"), [-0.1, 0.2]),
        spoil((*COLOUR, "shares"), [None, 0.2]),
        spoil((*COLOUR, "shares"), 0.5),
        spoil((*SIZE, "usual"), "XL"),
        spoil((*SIZE, "usual"), ["S"]),
        spoil((*SIZE, "mean"), 2.5),
        spoil((*SIZE, "mean"), float("nan")),
        spoil((*SIZE, "mean"), "1"),
    ],
)
def test_a_tampered_description_is_refused(change):
    description = copy.deepcopy(every_kind().to_json())
    Encoding.from_json(description)
    change(description)
    with pytest.raises(ValueError, match=r"\.$"):
        Encoding.from_json(description)


@pytest.mark.parametrize("description", [None, [], "x", 1, {}, {"columns": []}])
def test_other_things_are_refused(description):
    with pytest.raises(ValueError, match="must be a dict"):
        Encoding.from_json(description)


@pytest.mark.parametrize("removed", ["kind", "name", "values", "shares"])
def test_a_description_without_a_part_is_refused(removed):
    description = every_kind().to_json()
    del description["columns"][2][removed]
    with pytest.raises(ValueError, match="must"):
        Encoding.from_json(description)


def test_control_characters_are_escaped_and_long_values_cut(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\x1b[31m\n1\n" + "y" * 500 + "\n")
    with pytest.raises(TableError) as caught:
        learn(read_table(path).columns, name=str(path))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500
