"""From files to pairs in the three forms, with every mistake that people make in them."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from closefar import LinearMetricLearner
from closefar.errors import command_words
from closefar.tables import Encoding, Source, TableError, read_pairs, read_points

POINTS = "id,height,colour\na,1.5,red\nb,2.5,blue\nc,3.5,red\nd,4.5,red\n"
PAIRS = "first,second,label\na,b,far\nc,a, close \nc,c,close\n"
SIDES = "left_height,left_colour,right_height,right_colour,label\n1.5,red,2.5,blue,far\n3.5,red,1.5,red,close\n"
SINGLE = "id,height,colour,label\na,1.5,red,far\nb,2.5,blue,close\nc,3.5,red,far\n"


@pytest.fixture
def write(tmp_path):
    def written(content, name):
        path = tmp_path / name
        path.write_text(content, newline="")
        return path

    return written


@pytest.fixture
def by_id(write):
    """Read points and pairs given as text."""

    def read(points=POINTS, pairs=PAIRS, *, labelled=True, encoding=None, options=None, **source):
        files = {"points": write(points, "points.csv"), "pairs": write(pairs, "pairs.csv")}
        return read_pairs(Source(**files, **source), labelled=labelled, encoding=encoding, **(options or {}))

    return read


@pytest.fixture
def by_side(write):
    def read(pairs=SIDES, *, labelled=True, encoding=None, options=None, **source):
        path = write(pairs, "pairs.csv")
        return read_pairs(Source(pairs=path, **source), labelled=labelled, encoding=encoding, **(options or {}))

    return read


@pytest.fixture
def single(write):
    def read(points=SINGLE, *, labelled=True, encoding=None, options=None, **source):
        path = write(points, "points.csv")
        return read_pairs(Source(points=path, **source), labelled=labelled, encoding=encoding, **(options or {}))

    return read


# Points and pairs of their ids


def test_pairs_of_ids(by_id):
    table = by_id()
    assert table.encoding.feature_names == ("height", "colour=blue")
    assert np.asarray(table.data).tolist() == [[[1.5, 0], [2.5, 1]], [[3.5, 0], [1.5, 0]], [[3.5, 0], [3.5, 0]]]
    assert table.points.flags.c_contiguous
    assert table.labels.tolist() == ["far", "close", "close"]
    assert table.ids.tolist() == [["a", "b"], ["c", "a"], ["c", "c"]]
    assert table.id_names == ("first", "second")
    assert table.weights is None
    assert table.is_single is False
    assert table.notes == ()


def test_the_learner_takes_them(by_id):
    rng = np.random.default_rng(0)
    points = "id,x,y\n" + "".join(f"{index},{x},{y}\n" for index, (x, y) in enumerate(rng.normal(size=(50, 2))))
    pairs = "a,b,label\n" + "".join(
        f"{a},{b},{'far' if a > b else 'close'}\n" for a, b in rng.integers(0, 50, (200, 2))
    )
    table = by_id(points, pairs)
    learner = LinearMetricLearner(alpha=0.1, prior="zero", flip_rate=0.0).fit(table.data, table.labels)
    assert learner.classes_.tolist() == ["close", "far"]


def test_ids_are_text(by_id):
    table = by_id("id,x\n007,1\n7,2\n 7.0 ,3\n", "a,b,label\n007, 7,1\n7.0,7,0\n")
    assert table.data[:, :, 0].tolist() == [[1, 2], [3, 2]]
    assert table.labels.tolist() == ["1", "0"]


@pytest.mark.parametrize("name", ["ID", "Id", "id"])
def test_the_id_column_is_the_one_called_id(by_id, name):
    points = f"height,{name}\n1.5,a\n2.5,b\n3.5,c\n"
    assert by_id(points).encoding.column_names == ("height",)


def test_or_else_the_first_column_with_a_note(by_id):
    table = by_id(POINTS.replace("id,", "name,"))
    assert table.encoding.column_names == ("height", "colour")
    assert any("first column, 'name'" in note for note in table.notes)


def test_all_columns_can_be_named(by_id):
    points = "x,code,id\n1,p,0\n2,q,1\n"
    pairs = "verdict,mine,w,yours\nfar,p,2,q\nclose,q,0.5,q\n"
    table = by_id(
        points, pairs, id="code", left="mine", right="yours", label="verdict", weight="w", options={"drop": ["id"]}
    )
    assert table.data[:, :, 0].tolist() == [[1, 2], [2, 2]]
    assert table.labels.tolist() == ["far", "close"]
    assert table.weights.tolist() == [2.0, 0.5]
    assert table.id_names == ("mine", "yours")


def test_the_label_is_the_only_column_left(by_id):
    assert by_id(pairs="p,q,verdict\na,b,far\n").labels.tolist() == ["far"]
    assert by_id(pairs="verdict,p,q\nfar,a,b\n", left="p", right="q").labels.tolist() == ["far"]
    assert by_id(pairs="Labels,p,q,note\nfar,a,b,x\n").labels.tolist() == ["far"]


def test_several_columns_left_need_a_name(by_id):
    with pytest.raises(TableError, match=r"no column called 'label'.*'p', 'q', 'verdict', 'note'.*Set label to"):
        by_id(pairs="p,q,verdict,note\na,b,far,x\n")


def test_columns_without_use_are_noted(by_id):
    table = by_id(pairs="p,q,label,note,weight\na,b,far,x,1\n")
    assert any(note.endswith("not used: 'note', 'weight'.") for note in table.notes)
    assert table.weights is None


def test_new_pairs_without_labels(by_id):
    encoding = by_id().encoding
    plain = by_id(pairs="p,q\na,b\n", labelled=False, encoding=encoding)
    assert plain.labels is None
    assert np.asarray(plain.data).tolist() == [[[1.5, 0], [2.5, 1]]]
    for pairs in ("label,p,q\nfar,a,b\n", "label,p,q\n,a,b\n"):
        table = by_id(pairs=pairs, labelled=False, encoding=encoding, weight="not there")
        assert table.labels is None
        assert table.id_names == ("p", "q")
    named = by_id(pairs="verdict,p,q\nfar,a,b\n", labelled=False, encoding=encoding, label="verdict")
    assert named.id_names == ("p", "q")


def test_points_that_are_in_no_pair_do_not_matter(by_id):
    points = POINTS + "e,,purple\nf,inf,red\n"
    table = by_id(points)
    assert table.encoding == by_id().encoding
    np.testing.assert_array_equal(table.data, by_id().data)
    with pytest.raises(TableError, match=r"points.csv has missing values in column 'height' \(1\)"):
        by_id(points, PAIRS + "e,a,far\n")
    with pytest.raises(TableError, match=r"finite numbers; .* the first is 'inf' in row 7\."):
        by_id(points, PAIRS + "f,a,far\n")


def test_pairs_that_lack_a_value_are_left_out(by_id):
    points = POINTS + "e,,red\n"
    pairs = "p,q,label,w\na,b,far,1\ne,a,far,2\nb,e,close,3\ne,e,far,4\nc,a,close,5\n"
    table = by_id(points, pairs, weight="w", options={"missing": "drop"})
    assert table.ids.tolist() == [["a", "b"], ["c", "a"]]
    assert table.labels.tolist() == ["far", "close"]
    assert table.weights.tolist() == [1.0, 5.0]
    assert np.asarray(table.data).tolist() == [[[1.5, 0], [2.5, 1]], [[3.5, 0], [1.5, 0]]]
    assert "3 of 5 pairs were left out: they lack a value." in table.notes


def test_one_pair_left_out_reads_well(by_id):
    table = by_id(POINTS + "e,,red\n", PAIRS + "e,a,far\n", options={"missing": "drop"})
    assert table.notes == ("1 of 4 pairs was left out: it lacks a value.",)


@pytest.mark.filterwarnings("ignore:.*the training median")
def test_pairs_may_get_the_median(by_id):
    table = by_id(POINTS + "e,,red\n", PAIRS + "e,a,far\n", options={"missing": "median"})
    assert table.data[-1].tolist() == [[2.5, 0], [1.5, 0]]


def test_no_pairs_left_is_refused(by_id):
    with pytest.raises(TableError, match=r"every row has a missing value|no pairs left"):
        by_id("id,x\na,\nb,1\n", "p,q,label\na,b,far\n", options={"missing": "drop"})


def test_missing_labels(by_id):
    pairs = PAIRS + "a,c,\nb,c,NA\n"
    with pytest.raises(
        TableError, match=r"pairs.csv: label column 'label' has 2 missing values (.*), the first in row 5"
    ):
        by_id(pairs=pairs)
    table = by_id(pairs=pairs, options={"missing": "drop"})
    assert table.labels.tolist() == ["far", "close", "close"]
    assert table.notes == ("2 of 5 pairs were left out: they lack a label.",)
    with pytest.raises(TableError, match="no pairs left: each one lacks a label"):
        by_id(pairs="p,q,label\na,b,\n", options={"missing": "drop"})


def test_constant_categories_are_noted(by_id):
    table = by_id("id,x,c\na,1,u\nb,2,u\nc,3,u\n")
    assert any("a single category" in note and "'c'" in note for note in table.notes)


HOSTILE = {
    "duplicate id": (
        {"points": POINTS + "a,9,red\n"},
        r"points.csv: id column 'id' has 'a' 2 times, in row 2, row 6\.",
    ),
    "missing id": ({"points": POINTS + ",9,red\n"}, r"id column 'id' has 1 missing value (.*), the first in row 6"),
    "missing id in pairs": (
        {"pairs": PAIRS + "a,,far\n"},
        r"pairs.csv: id column 'second' has 1 missing.*row 5.*set right to",
    ),
    "unknown id": (
        {"pairs": PAIRS + "a,zz,far\nzz,b,far\n"},
        r"pairs.csv: 2 of 10 ids are not among the points; the first is 'zz' in column 'second', row 5\..*'a', 'b'",
    ),
    "ids in other columns": (
        {"pairs": "label,n,p,q\nfar,1,a,b\n"},
        r"'1' in column 'n', row 2.*set id, left and right",
    ),
    "one id column": ({"pairs": "p,label\na,far\n"}, "two id columns"),
    "same column twice": ({"left": "first", "right": "first"}, "different columns"),
    "label is an id": ({"label": "first", "left": "first", "right": "second"}, "different columns"),
    "label not there": ({"label": "verdict"}, "no column 'verdict', which was given as the label"),
    "id not there": ({"id": "Id"}, r"no column 'Id', which was given as the id.*Did you mean 'id'\?"),
    "left not there": ({"left": "frst", "right": "second"}, r"no column 'frst'.*Did you mean 'first'\?"),
    "weight not there": ({"weight": "w"}, "no column 'w', which was given as the weight"),
    "negative weight": (
        {"pairs": "p,q,label,w\na,b,far,1\na,c,far,-1\n", "weight": "w"},
        r"'w' must hold.*'-1.0' in row 3",
    ),
    "missing weight": ({"pairs": "p,q,label,w\na,b,far,\n", "weight": "w"}, r"finite numbers >= 0; got 'nan' in row 2"),
    "infinite weight": ({"pairs": "p,q,label,w\na,b,far,inf\n", "weight": "w"}, "got 'inf' in row 2"),
    "text as weight": ({"pairs": "p,q,label,w\na,b,far,1\na,b,far,x\n", "weight": "w"}, r"got 'x' in row 3"),
    "only ids": ({"points": "id\na\nb\nc\n"}, "no column left"),
    "text among numbers": ({"points": POINTS.replace("3.5", "tall")}, r"'height' mixes.*'tall' in row 4"),
    "dates": ({"points": "id,d\na,2024-01-01\nb,2024-01-02\nc,2024-01-03\n"}, "dates or times that are not"),
    "free text": (
        {"points": "id,t\na,x1\nb,x2\nc,x3\nd,x4\ne,x5\n", "pairs": "p,q,label\na,b,1\nc,d,0\ne,e,0\n"},
        "looks like an id or free text",
    ),
    "empty points": ({"points": ""}, "points.csv is empty"),
    "header only": ({"pairs": "p,q,label\n"}, "no rows"),
    "id as feature": ({"options": {"columns": ["id", "height"]}}, "'id' holds the ids, so it can't be a feature"),
    "drop not there": ({"options": {"drop": ["hight"]}}, r"no column 'hight'.*Did you mean 'height'\?"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pairs_of_ids(by_id, name):
    arguments, message = HOSTILE[name]
    with pytest.raises(TableError, match=message) as caught:
        by_id(**arguments)
    assert "\n" not in str(caught.value)


def test_many_duplicates_are_cut_short(by_id):
    with pytest.raises(TableError, match=r"'a' 9 times, in row 2, row 6, row 7, row 8, row 9 and so on\."):
        by_id(POINTS + "a,1,red\n" * 8)


def test_mixed_text_is_no_matter_in_a_column_that_is_dropped(by_id):
    points = POINTS.replace("3.5", "tall")
    assert by_id(points, options={"drop": ["height"]}).encoding.feature_names == ("colour=blue",)


def test_options_reach_the_encoding(by_id):
    points = "id,zip,size,x\na,01,S,1\nb,1,L,2\nc,01,M,3\n"
    table = by_id(points, options={"categorical": ["zip"], "ordinal": {"size": ["S", "M", "L"]}, "unseen": "average"})
    assert table.encoding.feature_names == ("zip=1", "size", "x")
    assert table.encoding.unseen == "average"
    assert table.data[0].tolist() == [[0, 0, 1], [1, 2, 2]]


def test_arrays_as_points_are_numbered_from_zero(tmp_path):
    np.save(tmp_path / "points.npy", np.arange(8.0).reshape(4, 2))
    np.save(tmp_path / "pairs.npy", np.array([[0, 3, 1], [2, 2, 0]]))
    table = read_pairs(Source(points=tmp_path / "points.npy", pairs=tmp_path / "pairs.npy"), labelled=True)
    assert np.asarray(table.data).tolist() == [[[0, 1], [6, 7]], [[4, 5], [4, 5]]]
    assert table.labels.tolist() == ["1", "0"]
    assert table.ids.tolist() == [["0", "3"], ["2", "2"]]
    np.save(tmp_path / "pairs.npy", np.array([[0, 4, 1]]))
    with pytest.raises(TableError, match=r"'4' in column 'x1', row 0 \(counted from 0\).*numbered from 0"):
        read_pairs(Source(points=tmp_path / "points.npy", pairs=tmp_path / "pairs.npy"), labelled=True)


def test_arrays_with_ids(tmp_path):
    np.savez(tmp_path / "points.npz", X=np.arange(4.0).reshape(2, 2), id=np.array(["a", "b"]))
    np.savez(tmp_path / "pairs.npz", one=np.array(["a"]), two=np.array(["b"]), labels=np.array([True]))
    table = read_pairs(Source(points=tmp_path / "points.npz", pairs=tmp_path / "pairs.npz"), labelled=True)
    assert np.asarray(table.data).tolist() == [[[0, 1], [2, 3]]]
    assert table.labels.tolist() == ["True"]


def frames():
    rng = np.random.default_rng(3)
    points = pd.DataFrame(
        {
            "id": np.arange(100, 160),
            "x": rng.normal(size=60),
            "member": rng.random(60) < 0.3,
            "colour": rng.choice(["red", "blue", "green"], 60),
            "count": rng.integers(0, 5, 60),
        }
    )
    pairs = pd.DataFrame(rng.integers(100, 160, (200, 2)), columns=["a", "b"])
    pairs["label"] = rng.integers(0, 2, 200)
    pairs["w"] = rng.random(200)
    return points, pairs


def same(left, right):
    np.testing.assert_array_equal(left.data, right.data)
    np.testing.assert_array_equal(left.labels, right.labels)
    np.testing.assert_array_equal(left.ids, right.ids)
    np.testing.assert_array_equal(left.weights, right.weights)
    assert left.encoding == right.encoding
    assert left.id_names == right.id_names


def test_every_format_gives_the_same_pairs(tmp_path):
    points, pairs = frames()
    tables = {}
    for suffix in (".csv", ".csv.gz", ".parquet", ".tsv"):
        for frame, name in ((points, "points"), (pairs, "pairs")):
            path = tmp_path / f"{name}{suffix}"
            if suffix == ".parquet":
                frame.to_parquet(path, index=False)
            else:
                frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
        source = Source(points=tmp_path / f"points{suffix}", pairs=tmp_path / f"pairs{suffix}", weight="w")
        tables[suffix] = read_pairs(source, labelled=True)
    for table in tables.values():
        same(table, tables[".csv"])
    expected = points.set_index("id").loc[pairs["a"], "x"].to_numpy()
    np.testing.assert_array_equal(tables[".csv"].data[:, 0, 0], expected)


def test_the_order_of_rows_does_not_matter(tmp_path):
    points, pairs = frames()
    tables = []
    for seed in (None, 1):
        mixed = points if seed is None else points.sample(frac=1, random_state=seed)
        order = pairs if seed is None else pairs.sample(frac=1, random_state=seed)
        mixed.to_csv(tmp_path / "points.csv", index=False)
        order.to_csv(tmp_path / "pairs.csv", index=False)
        source = Source(points=tmp_path / "points.csv", pairs=tmp_path / "pairs.csv")
        tables.append((order.index.to_numpy(), read_pairs(source, labelled=True)))
    (_, first), (order, second) = tables
    assert first.encoding == second.encoding
    np.testing.assert_array_equal(first.data[order], second.data)


def test_new_data_is_encoded_the_same_way(tmp_path):
    points, pairs = frames()
    points.to_csv(tmp_path / "points.csv", index=False)
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    source = Source(points=tmp_path / "points.csv", pairs=tmp_path / "pairs.csv")
    whole = read_pairs(source, labelled=True)
    encoding = Encoding.from_json(json.loads(json.dumps(whole.encoding.to_json())))
    pairs[190:].drop(columns="label").to_csv(tmp_path / "pairs.csv", index=False)
    points[["colour", "count", "member", "x", "id"]].to_csv(tmp_path / "points.csv", index=False)
    part = read_pairs(source, labelled=False, encoding=encoding)
    np.testing.assert_array_equal(part.data, whole.data[190:])
    np.testing.assert_array_equal(part.ids, whole.ids[190:])


def test_options_of_learning_are_refused_with_an_encoding(by_id):
    encoding = by_id().encoding
    for options in ({"drop": ["height"]}, {"columns": ["height"]}, {"categorical": ["height"]}):
        with pytest.raises(ValueError, match="must not be given with an encoding"):
            by_id(encoding=encoding, options=options)


@pytest.mark.filterwarnings("ignore:.*replaces .* missing value")
def test_policies_replace_those_of_an_encoding(by_id):
    encoding = by_id().encoding
    points = POINTS.replace("3.5", "").replace("blue", "pink")
    with pytest.raises(TableError, match="missing values"):
        by_id(points.replace("pink", "blue"), encoding=encoding)
    with pytest.raises(TableError, match="has the value 'pink'"):
        by_id(points, encoding=encoding)
    table = by_id(points, encoding=encoding, options={"missing": "median", "unseen": "average"})
    assert table.data[1].tolist() == [[2.5, 0], [1.5, 0]]
    assert table.data[0, 1].tolist() == [2.5, encoding.columns[1].shares[0]]
    assert table.encoding.missing == "median"


def test_lacking_columns_of_new_points_are_named(by_id):
    encoding = by_id().encoding
    with pytest.raises(TableError, match=r"points.csv has no column 'colour', which the model.*Did you mean 'color'\?"):
        by_id(POINTS.replace("colour", "color"), encoding=encoding)


def test_points_of_a_model_need_ids(by_id):
    encoding = by_id().encoding
    with pytest.raises(TableError, match=r"no column called 'id'.*'height', is a feature.*Set id to"):
        by_id("height,name,colour\n1,a,red\n", encoding=encoding)


# Judgements in a file of their own


def test_judgements_are_joined_with_their_pairs_exactly(write):
    def judged(
        tasks="task,left,right\n7,a,b\n07,c,a\n8,b,c\n", crowd="task,worker,label\n07,x,far\n7,y,close\n07,y,far\n"
    ):
        files = {"points": write(POINTS, "points.csv"), "pairs": write(tasks, "tasks.csv")}
        return read_pairs(Source(**files, judgements=write(crowd, "crowd.csv")), labelled=True)

    table = judged()
    assert table.ids.tolist() == [["c", "a"], ["a", "b"], ["c", "a"]]
    assert table.labels.tolist() == ["far", "close", "far"]
    assert table.annotators.tolist() == ["x", "y", "y"]
    for tasks, crowd, message in (
        (
            None,
            "task,label\n7,far\n9,far\n",
            r"crowd.csv: 1 of 2 ids are not among the rows of .*'9' in column 'task', row 3",
        ),
        (
            "task,left,right\n7,a,b\n8,a,c\n7,b,c\n",
            None,
            r"tasks.csv: id column 'task' has '7' 2 times, in row 2, row 4\. Keep one",
        ),
        (
            None,
            "task,label\n7,far\n,far\n",
            r"crowd.csv: id column 'task' has 1 missing value .*row 3\. Fill them in\.$",
        ),
        (None, "item,label\n7,far\n", "must have a column in common"),
    ):
        given = {name: text for name, text in (("tasks", tasks), ("crowd", crowd)) if text is not None}
        with pytest.raises(TableError, match=message):
            judged(**given)


def test_judgements_may_be_of_sides_and_of_single_points(write):
    crowd = write("task,label\n2,far\n1,close\n2,close\n", "crowd.csv")
    sides = write("task,left_x,right_x\n1,1,2\n2,3,5\n", "sides.csv")
    table = read_pairs(Source(pairs=sides, judgements=crowd), labelled=True)
    assert np.asarray(table.data).tolist() == [[[3], [5]], [[1], [2]], [[3], [5]]]
    single = write("id,x\n1,4\n2,6\n", "single.csv")
    crowd = write("id,label\n2,far\n1,close\n2,close\n", "crowd.csv")
    table = read_pairs(Source(points=single, judgements=crowd), labelled=True)
    assert np.asarray(table.data).tolist() == [[6], [4], [6]]
    assert table.labels.tolist() == ["far", "close", "close"]


KEYS = {
    "words": [f"P{number}" for number in (3, 1, 20, 11, 2, 12, 100, 101)] + ["été", "a b", "P 1", "p1"],
    "leading zeros": ["7", "07", "007", "0", "00", "70", "1e2", "100", "1.10", "1.1", "-7", "+7"],
    "integers": [5, -3, 0, 12, 2**62, 2**62 + 1, 2**53 + 1, 2**53, 7, 70, 8, 9],
    "unsigned integers": np.array([2**63 + 1, 2**63, 2**64 - 1, 0, 1, 2, 3, 4, 5, 6, 7, 8], dtype=np.uint64),
    "numbers": [0.5, 0.25, -1.5, 2.0, 3.0, 1e300, 1e-300, 0.1, 0.2, 0.1 + 0.2, 0.3, 1e20],
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("kind", KEYS)
def test_joins_are_those_of_a_dictionary(kind, suffix, tmp_path):
    """Points in any order, pairs that repeat, several judgements per task, and gaps in points and labels."""
    rng = np.random.default_rng(len(kind))

    def save(name, columns):
        frame = pd.DataFrame(columns)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
        return tmp_path / f"{name}{suffix}"

    keys = np.asarray(KEYS[kind])[rng.permutation(12)]
    values = np.where(np.arange(12) == 3, np.nan, rng.normal(size=12).round(6))
    rows = dict(zip(keys.tolist(), values.tolist(), strict=True))
    asked = keys[rng.integers(0, 12, (30, 3))]
    tasks = np.array([f"{key}{number}" for number, key in enumerate(rng.permutation(np.tile(keys, 3)[:30]).tolist())])
    judged = rng.integers(0, 30, 90)
    labels = rng.choice(np.array(["far", "close", None], dtype=object), 90)
    files = {
        "points": save("points", {"x": values, "key": keys}),
        "pairs": save("tasks", {"one": asked[:, 0], "task": tasks, "other": asked[:, 1]}),
        "judgements": save("crowd", {"label": labels, "task": tasks[judged], "w": np.arange(90)}),
    }
    table = read_pairs(Source(**files, id="key", weight="w"), labelled=True, missing="drop")
    of_task = dict(zip(tasks.tolist(), asked.tolist(), strict=True))
    expected = []
    for number, (task, label) in enumerate(zip(tasks[judged].tolist(), labels.tolist(), strict=True)):
        left, right, _ = of_task[task]
        if label is not None and not np.isnan([rows[left], rows[right]]).any():
            expected.append(([rows[left], rows[right]], label, number))
    assert np.asarray(table.data)[..., 0].tolist() == [pair for pair, _, _ in expected]
    assert table.labels.tolist() == [label for _, label, _ in expected]
    assert table.weights.tolist() == [number for _, _, number in expected]
    # Comparisons of different points, and an id that no point has.
    asked = asked[[len({*triple}) == 3 for triple in asked.tolist()]]
    compared = save("compared", dict(zip("pqr", asked.T, strict=True)))
    del files["pairs"], files["judgements"]
    table = read_pairs(Source(**files, id="key", comparisons=compared), labelled=True, missing="drop")
    found = [[rows[key] for key in triple] for triple in asked.tolist()]
    assert np.asarray(table.data)[..., 0].tolist() == [each for each in found if not np.isnan(each).any()]
    points = {"x": values[:-1], "key": keys[:-1]}
    lost = [row for row, triple in enumerate(asked.tolist()) if keys.tolist()[-1] in triple]
    first = f"row {lost[0] + 2}" if suffix == ".csv" else rf"row {lost[0]} \(counted from 0\)"
    with pytest.raises(TableError, match=rf"{len(lost)} of {asked.size} ids are not among the points.*{first}\."):
        read_pairs(Source(points=save("fewer", points), id="key", comparisons=compared), labelled=True)


# Comparisons


def test_triplets_and_quadruplets_of_ids(by_id, write):
    points = write(POINTS, "points.csv")

    def compared(text, **source):
        return read_pairs(Source(points=points, comparisons=write(text, "compared.csv"), **source), labelled=True)

    table = compared("anchor,near,far,answer\na,b,c,b\nb,c,a,a\n")
    assert table.ids.tolist() == [["a", "b", "c"], ["b", "c", "a"]]
    assert table.labels.tolist() == ["1", "-1"]
    assert compared("a,b,c,e,answer\na,b,c,d,1\na,c,b,d,-1.0\n").labels.tolist() == ["1", "-1"]
    assert compared("p,q,r\na,b,c\n").labels is None
    both = by_id(comparisons=write("p,q,r,answer\nd,b,c,left\n", "compared.csv"))
    assert both.comparisons.points is both.points
    assert both.comparisons.ids.tolist() == [["d", "b", "c"]]
    assert len(both.points) == 4
    for text, message in (
        (
            "p,q,r\na,b,zz\n",
            r"1 of 3 ids are not among the points; the first is 'zz' .* Add the points, or set id and compared",
        ),
        ("p,q,r\na,b,b\n", "must be different pairs; 1 row has the same on both, the first is row 2"),
        ("p,q,r,answer\na,b,c,maybe\n", r"answers must be .*'maybe' in column 'answer'.*set answer to"),
        ("p,q,r,answer\na,b,c,\n", 'answer column .* with missing="drop"'),
    ):
        with pytest.raises(TableError, match=message):
            compared(text)
    with pytest.raises(TableError, match="compared and answer must be different columns; got 'r' twice"):
        compared("p,q,r\na,b,c\n", compared=("p", "q", "r"), answer="r")


# Words of the command line


def test_messages_name_options_on_the_command_line(by_id):
    for arguments, words in (
        ({"pairs": "p,label\na,far\n"}, "Set --left and --right to them."),
        ({"pairs": PAIRS + "a,zz,far\n"}, "Add the points, or set --id, --left and --right to the id columns."),
        ({"pairs": PAIRS + "a,b,\n"}, "leave those pairs out with --missing drop."),
        ({"points": POINTS + "e,,red\n", "pairs": PAIRS + "e,a,far\n"}, "with --missing median."),
        ({"points": "id,a b\na,2024-01-01\nb,2024-01-02\nc,2024-01-03\n"}, "use --categorical 'a b' if"),
    ):
        with pytest.raises(TableError) as caught:
            by_id(**arguments)
        assert words in command_words(caught.value)
        assert "--" not in str(caught.value)


# Both sides in one table


def test_two_sides(by_side):
    table = by_side()
    assert table.encoding.column_names == ("height", "colour")
    assert table.encoding.feature_names == ("height", "colour=blue")
    assert np.asarray(table.data).tolist() == [[[1.5, 0], [2.5, 1]], [[3.5, 0], [1.5, 0]]]
    assert table.labels.tolist() == ["far", "close"]
    assert table.ids.tolist() == ["2", "3"]
    assert table.id_names == ("row",)
    assert table.notes == ()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("left_{}", "right_{}"),
        ("Left_{}", "Right_{}"),
        ("a_{}", "b_{}"),
        ("x_{}", "y_{}"),
        ("1_{}", "2_{}"),
        ("{}_left", "{}_right"),
        ("{}_a", "{}_b"),
        ("{}_x", "{}_y"),
        ("{}_1", "{}_2"),
        ("{}.x", "{}.y"),
        ("{}1", "{}2"),
    ],
)
def test_the_usual_names_of_sides_are_found(by_side, left, right):
    names = [left.format("mass"), left.format("age"), right.format("age"), right.format("mass"), "label"]
    table = by_side(",".join(names) + "\n1,2,3,4,far\n")
    assert table.encoding.column_names == ("mass", "age")
    assert np.asarray(table.data).tolist() == [[[1, 2], [4, 3]]]


@pytest.mark.parametrize(
    ("sides", "names"),
    [
        (("mine_", "yours_"), ["mine_age", "yours_age"]),
        ((".mine", ".yours"), ["age.mine", "age.yours"]),
        ((" (A)", " (B)"), ["age (A)", "age (B)"]),
        (("A", "B"), ["ageA", "ageB"]),
    ],
)
def test_sides_can_be_named(by_side, sides, names):
    table = by_side(",".join([*names, "label"]) + "\n1,2,far\n", sides=sides)
    assert table.encoding.column_names == ("age",)
    assert np.asarray(table.data).tolist() == [[[1], [2]]]


def test_three_of_a_kind_are_not_two_sides(by_side):
    with pytest.raises(TableError, match=r"no columns of two sides.*'x_1', 'x_2', 'x_3'.*Set sides to"):
        by_side("x_1,x_2,x_3,label\n1,2,3,far\n")


def test_columns_of_one_side_only_are_named(by_side):
    text = "left_a,right_a,left_b,right_c,label\n1,2,3,4,far\n"
    with pytest.raises(TableError, match=r"only one side has 'left_b', 'right_c'.*Add them to drop"):
        by_side(text)
    assert by_side(text, options={"drop": ["left_b", "right_c"]}).data.tolist() == [[[1], [2]]]


def test_columns_of_neither_side_are_noted(by_side):
    table = by_side("when,left_a,right_a,label,note\n2024,1,2,far,x\n")
    assert table.notes[0].endswith("not used: 'when', 'note'.")
    assert table.encoding.column_names == ("a",)


def test_sides_that_are_not_there(by_side):
    with pytest.raises(TableError, match=r"the prefixes or suffixes 'p_', 'q_'.*'left_height'"):
        by_side(sides=("p_", "q_"))
    with pytest.raises(TableError, match="two different prefixes"):
        by_side(sides=("p_", "p_"))


def test_ids_of_the_two_sides(by_side):
    table = by_side("left_id,left_x,right_id,right_x,label\nu,1,v,2,far\n")
    assert table.ids.tolist() == [["u", "v"]]
    assert table.id_names == ("left_id", "right_id")
    assert table.encoding.column_names == ("x",)
    named = by_side("p,q,left_x,right_x,label\nu,v,1,2,far\n", left="p", right="q")
    assert named.ids.tolist() == [["u", "v"]]
    assert named.notes == ()


def test_ids_of_pairs(by_side):
    table = by_side("id,left_x,right_x,label\n017,1,2,far\n")
    assert table.ids.tolist() == ["017"]
    assert table.id_names == ("id",)


def test_options_take_what_both_sides_have_in_common(by_side):
    assert by_side(options={"drop": ["colour"]}).encoding.column_names == ("height",)
    assert by_side(options={"columns": ["colour"]}).encoding.column_names == ("colour",)
    table = by_side(options={"categorical": ["height"]})
    assert table.encoding.feature_names == ("height=2.5", "height=3.5", "colour=blue")
    for option in ("drop", "columns", "categorical"):
        with pytest.raises(TableError, match=r"no column 'left_colour'.*Did you mean 'colour'"):
            by_side(options={option: ["left_colour"]})


def test_one_side_of_another_kind_names_its_column_and_row(by_side):
    with pytest.raises(TableError, match=r"column 'right_height' mixes.*'tall' in row 2"):
        by_side(SIDES.replace("2.5", "tall"))
    with pytest.raises(TableError, match=r"column 'right_height' must hold finite numbers.*row 3"):
        by_side(SIDES.replace("red,1.5", "red,inf"))


def test_missing_values_of_sides(by_side):
    text = SIDES + "1,red,,red,far\n,red,2,blue,close\n4,blue,5,red,far\n"
    with pytest.raises(TableError, match=r"columns 'left_height' and 'right_height' \(2\)"):
        by_side(text)
    table = by_side(text, options={"missing": "drop"})
    assert table.data[:, :, 0].tolist() == [[1.5, 2.5], [3.5, 1.5], [4, 5]]
    assert table.ids.tolist() == ["2", "3", "6"]
    assert table.notes == ("2 of 5 pairs were left out: they lack a value.",)
    unlabelled = by_side(text.replace("red,far\n,", "red,\n,"), options={"missing": "drop"})
    assert unlabelled.data[:, :, 0].tolist() == [[1.5, 2.5], [3.5, 1.5], [4, 5]]


def test_rows_are_named_after_unlabelled_ones_were_left_out(by_side):
    with pytest.raises(TableError, match=r"column 'right_height'.*row 4"):
        by_side(SIDES.replace("blue,far", "blue,") + "1,red,inf,red,far\n", options={"missing": "drop"})


def test_new_pairs_of_sides(by_side):
    whole = by_side()
    new = "extra,right_height,left_colour,left_height,right_colour,left_more\n0,2.5,red,1.5,blue,9\n"
    table = by_side(new, labelled=False, encoding=whole.encoding)
    np.testing.assert_array_equal(table.data, whole.data[:1])
    with pytest.raises(TableError, match=r"no column 'colour', which the model was trained on, on both sides"):
        by_side(new.replace("right_colour", "right_color"), labelled=False, encoding=whole.encoding)


def test_pairs_as_one_array(tmp_path):
    pairs = np.arange(12.0).reshape(3, 2, 2)
    np.savez(tmp_path / "pairs.npz", pairs=pairs, labels=np.array([1, 0, 1]))
    table = read_pairs(Source(pairs=tmp_path / "pairs.npz"), labelled=True)
    np.testing.assert_array_equal(table.data, pairs)
    assert table.labels.tolist() == ["1", "0", "1"]
    assert table.ids.tolist() == ["0", "1", "2"]
    np.save(tmp_path / "pairs.npy", pairs)
    new = read_pairs(Source(pairs=tmp_path / "pairs.npy"), labelled=False, encoding=table.encoding)
    np.testing.assert_array_equal(new.data, pairs)
    with pytest.raises(TableError, match="no column called 'label'"):
        read_pairs(Source(pairs=tmp_path / "pairs.npy"), labelled=True)


def test_the_two_forms_give_the_same(tmp_path, write):
    points, pairs = frames()
    points.to_csv(tmp_path / "points.csv", index=False)
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    by_id = read_pairs(Source(points=tmp_path / "points.csv", pairs=tmp_path / "pairs.csv", weight="w"), labelled=True)
    wide = pairs.merge(points.add_prefix("left_"), left_on="a", right_on="left_id").merge(
        points.add_prefix("right_"), left_on="b", right_on="right_id"
    )
    wide.drop(columns=["a", "b"]).to_csv(tmp_path / "wide.csv", index=False)
    by_side = read_pairs(Source(pairs=tmp_path / "wide.csv", weight="w"), labelled=True, encoding=by_id.encoding)
    assert by_side.id_names == ("left_id", "right_id")
    np.testing.assert_array_equal(by_side.data, by_id.data)
    np.testing.assert_array_equal(by_side.ids, by_id.ids)
    np.testing.assert_array_equal(by_side.weights, by_id.weights)


# Single points


def test_single_points(single):
    table = single()
    assert table.is_single
    assert np.asarray(table.data).tolist() == [[1.5, 0], [2.5, 1], [3.5, 0]]
    assert table.labels.tolist() == ["far", "close", "far"]
    assert table.ids.tolist() == ["a", "b", "c"]
    assert table.id_names == ("id",)


def test_single_points_without_ids_have_row_numbers(single):
    table = single("height,label\n1,far\n2,close\n")
    assert table.ids.tolist() == ["2", "3"]
    assert table.id_names == ("row",)


def test_columns_of_single_points_can_be_named(single):
    table = single("name,x,w,class\na,1,2,far\nb,2,0,close\n", id="name", weight="w", label="class")
    assert table.encoding.column_names == ("x",)
    assert table.ids.tolist() == ["a", "b"]
    assert table.weights.tolist() == [2.0, 0.0]
    assert table.labels.tolist() == ["far", "close"]


def test_single_points_need_a_label_column(single):
    with pytest.raises(TableError, match=r"no column called 'label'. Its columns are 'x', 'class'.*Set label to"):
        single("x,class\n1,far\n")


def test_single_points_with_gaps(single):
    text = "x,label\n1,far\n,far\n3,\n4,close\ninf,\n"
    table = single(text, options={"missing": "drop"})
    assert np.asarray(table.data).tolist() == [[1.0], [4.0]]
    assert table.ids.tolist() == ["2", "5"]
    assert table.notes == (
        "2 of 5 points were left out: they lack a label.",
        "1 of 3 points was left out: it lacks a value.",
    )


def test_the_label_is_no_feature_of_new_points(single):
    encoding = single().encoding
    assert single(labelled=False, encoding=encoding).data.tolist() == [[1.5, 0], [2.5, 1], [3.5, 0]]
    assert single("colour,height\nblue,7\n", labelled=False, encoding=encoding).data.tolist() == [[7, 1]]
    assert single(labelled=False).encoding.column_names == ("height", "colour")


def test_a_feature_may_be_called_label_where_the_label_is_another(single):
    encoding = single("label,y\n1,far\n2,close\n", label="y").encoding
    assert encoding.column_names == ("label",)
    assert single("label\n5\n", labelled=False, encoding=encoding).data.tolist() == [[5.0]]


def test_single_points_of_an_array(tmp_path):
    np.savez(tmp_path / "p.npz", X=np.arange(4.0).reshape(2, 2), label=np.array([0.0, 1.0]))
    table = read_pairs(Source(points=tmp_path / "p.npz"), labelled=True)
    assert table.labels.tolist() == ["0", "1"]
    assert table.ids.tolist() == ["0", "1"]


# Points to map


def test_points_to_map(write, by_id):
    encoding = by_id().encoding
    table = read_points(write("more,colour,id,height\n0,blue,p,1\n0,red,q,2\n", "new.csv"), encoding=encoding)
    assert np.asarray(table.data).tolist() == [[1, 1], [2, 0]]
    assert table.ids.tolist() == ["p", "q"]
    assert table.id_names == ("id",)
    assert table.encoding == encoding
    assert table.notes == ()


def test_points_to_map_may_have_no_ids_or_repeat_them(write, by_id, tmp_path):
    encoding = by_id().encoding
    table = read_points(write("height,colour\n1,blue\n", "new.csv"), encoding=encoding)
    assert (table.ids.tolist(), table.id_names) == (["2"], ("row",))
    table = read_points(write("name,height,colour\nu,1,blue\nu,2,red\n", "new.csv"), encoding=encoding)
    assert (table.ids.tolist(), table.id_names) == (["u", "u"], ("name",))
    np.save(tmp_path / "new.npy", np.ones((2, 2)))
    table = read_points(tmp_path / "new.npy", encoding=Encoding.of_numbers(["x0", "x1"]))
    assert (table.ids.tolist(), table.id_names) == (["0", "1"], ("row",))


def test_points_to_map_from_a_source(write, by_id):
    encoding = replace(by_id().encoding, missing="drop")
    path = write("height,code,colour\n1,p,blue\n,q,red\n", "new.csv")
    for table in (
        read_points(Source(points=path, id="code"), encoding=encoding),
        read_points(path, id="code", encoding=encoding),
        read_points(str(path), id="code", encoding=encoding),
    ):
        assert table.ids.tolist() == ["p"]
        assert table.notes == ("1 of 2 points was left out: it lacks a value.",)
    with pytest.raises(ValueError, match="must have a file of points"):
        read_points(Source(pairs=path), encoding=encoding)


# Sources


def test_a_source_needs_a_file():
    with pytest.raises(ValueError, match="got neither"):
        Source()


def test_ids_of_both_sides_are_named_together(tmp_path):
    with pytest.raises(ValueError, match="left and right must be given together"):
        Source(pairs=tmp_path, left="a")


def test_gzipped_pairs_and_strings_as_paths(tmp_path, write):
    (tmp_path / "pairs.csv.gz").write_bytes(gzip.compress(PAIRS.encode()))
    source = Source(points=str(write(POINTS, "points.csv")), pairs=str(tmp_path / "pairs.csv.gz"))
    assert len(read_pairs(source, labelled=True).data) == 3
