"""The house: imports run in one direction, doors are used, and an idea is one file."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import closefar as cf
from closefar.rows import BlockRows, RowSource
from paper_estimator import PAPER

SOURCE = Path(__file__).parent.parent / "src" / "closefar"
FILES = sorted(SOURCE.rglob("*.py"))

# From the ground up; a room may import those above it in this list, and none below.
ORDER = [
    {"errors"},  # messages, in the words of Python and of the command line
    {"arrays", "files", "plain", "plot_style", "templating"},  # know nothing of metrics
    {"cluster", "packed", "noise"},
    {"judgements"},
    {"rows"},
    {"solve"},
    {"model"},
    {"theory", "datasets", "tables"},
    {"fitting"},
    {"questions"},
    {"plot", "report"},
    {"learners"},
    {""},  # closefar itself: the public names
    {"demo", "label"},
    {"cli"},
    {"__main__"},  # of any room: where a program starts
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

# What shows things enters other rooms by their front doors, and never the engine room.
SHOWING = {"report", "plot", "cli", "demo", "label"}
ENGINE = {"rows", "solve"}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def room(module: str) -> str:
    parts = module.split(".")
    if parts[-1] == "__main__":
        return "__main__"
    return parts[1] if len(parts) > 1 else ""


def imports(module: str) -> list[tuple[str, str | None]]:
    """Each import of closefar in a module, wherever it stands: the module imported from, and the name."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names if alias.name.split(".")[0] == "closefar"]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            if (node.module or "").split(".")[0] == "closefar":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.append((inner, None) if inner in MODULES else (str(node.module), alias.name))
    return found


def test_every_room_has_a_place():
    assert {room(name) for name in MODULES} == set(LEVEL)


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_in_one_direction(module):
    """Those inside functions and under TYPE_CHECKING count as well."""
    for target, _ in imports(module):
        own, other = room(module), room(target)
        assert own == other or LEVEL[other] < LEVEL[own], f"{module} imports {target}, which is further up"


def test_no_module_needs_itself():
    edges = {name: {target for target, _ in imports(name)} - {name} for name in MODULES}
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join([*way[way.index(name) :], name])
        if name not in done:
            for target in edges[name]:
                visit(target, (*way, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) in SHOWING])
def test_what_shows_things_uses_the_public_surface(module):
    for target, name in imports(module):
        other = room(target)
        if other == room(module):
            continue
        assert other not in ENGINE, f"{module} imports {target}"
        assert target.count(".") <= 1, f"{module} imports {target}, not by the front door of {other}"
        if name is not None and name != "__version__":
            assert name in importlib.import_module(target).__all__, f"{name} is not a public name of {target}"


def test_names_are_looked_up_in_one_place_only():
    """A module imported by its name as text would be an import that these tests do not see."""
    by_name = [
        name for name, path in MODULES.items() if re.search(r"import_module\(f?\"closefar|__import__", path.read_text())
    ]
    assert by_name == ["closefar"]  # the public names


def test_what_is_passed_around_does_not_change():
    for name, path in MODULES.items():
        for found in re.findall(r"@dataclass.*", path.read_text()):
            assert "frozen=True" in found, f"{name} has a dataclass that can change"


def test_every_module_says_why_it_exists_and_what_it_offers():
    for name, tree in TREES.items():
        assert ast.get_docstring(tree), name
    for name in (name for name in MODULES if MODULES[name].name == "__init__.py" and name != "closefar"):
        public = importlib.import_module(name)
        assert all(hasattr(public, each) for each in getattr(public, "__all__", [])), name


# Modules that one other module of their room reads, and that are ideas of their own all the same.
OWN_IDEAS = {
    "closefar.label.findings": "what the answers show; the server renders it",
    "closefar.label.security": "who may ask for what; the server obeys it",
    "closefar.label.storage": "answers in a database, which outlive the server",
    "closefar.rows.kernels": "written in the language of Triton, which compiles it",
    "closefar.solve.sampled": "an algorithm, as those beside it",
}


def test_a_module_with_a_single_reader_in_its_room_is_a_chapter_of_that_reader():
    """Those that a door exports, or that are a command, have their readers outside."""
    readers: dict[str, set[str]] = {name: set() for name in MODULES}
    for name in MODULES:
        for target, _ in imports(name):
            if target in readers and target != name:
                readers[target].add(name)
    chapters = {
        name: reader
        for name, (reader, *others) in ((name, tuple(found)) for name, found in readers.items() if found)
        if not others
        and room(name) == room(reader) != ""
        and MODULES[reader].name != "__init__.py"
        and reader != "closefar.cli.app"
    }
    assert set(chapters) == set(OWN_IDEAS), chapters


# Names of commands and of plots are those that a user writes.
NAMED_BY_USERS = {"cli", "plot", "label", "demo", ""}


def test_a_public_name_lives_in_one_room():
    rooms: dict[str, set[str]] = {}
    for module, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                rooms.setdefault(node.name, set()).add(room(module))
    several = {name: found for name, found in rooms.items() if len(found - NAMED_BY_USERS) > 1}
    assert not several


def test_no_finished_text_is_rewritten():
    """A message knows the words of Python and of the command line from the start; see `closefar.errors`."""
    for name, path in MODULES.items():
        assert not re.search(r"\bsubn?\(", path.read_text()), name


def is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def constants(module: str) -> dict[str, ast.Assign | ast.AnnAssign]:
    """The numbers with a name of their own at the top of a module."""
    found: dict[str, ast.Assign | ast.AnnAssign] = {}
    for node in TREES[module].body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or not is_number(node.value):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, ast.Name) and each.id.isupper():
                found[each.id] = node
    return found


def test_a_constant_has_a_comment_with_its_origin():
    without = []
    for name, path in MODULES.items():
        lines = path.read_text().splitlines()
        for constant, node in constants(name).items():
            around = [lines[node.lineno - 2].lstrip(), *lines[node.lineno - 1 : node.end_lineno]]
            if not around[0].startswith("#") and not any("#" in line for line in around[1:]):
                without.append(f"{name}:{node.lineno} {constant}")
    assert not without


def test_a_constant_is_defined_once():
    places: dict[str, list[str]] = {}
    for name in MODULES:
        for constant in constants(name):
            places.setdefault(constant, []).append(name)
    assert not {constant: found for constant, found in places.items() if len(found) > 1}


# A fit as a reader follows it: few files, and few calls from the learner down to the likelihood.

MOST_FILES, MOST_FRAMES = 28, 18
MOST_FRAMES_OF_FLIPS = 20  # for fits that also look for wrong labels
MOST_FRAMES_OF_LIKELIHOOD = 5  # from a method of `Problem` down to the noise


class Walk:
    """What a call runs through: the files, the deepest stack, and the deepest from `Problem` down to a noise."""

    def __init__(self, function):
        self.files, self.deepest, self.to_noise = set(), [], []
        before = sys.getprofile()
        sys.setprofile(self._see)
        try:
            function()
        finally:
            sys.setprofile(before)

    def _see(self, frame, event, arg):
        if event != "call" or not frame.f_code.co_filename.startswith(str(SOURCE)):
            return
        self.files.add(str(Path(frame.f_code.co_filename).relative_to(SOURCE)))
        codes = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(str(SOURCE)) and not frame.f_code.co_name.startswith("<"):
                codes.append(frame.f_code)  # Python 3.11 has frames for comprehensions too
            frame = frame.f_back
        names = [code.co_qualname for code in codes]
        self.deepest = max(self.deepest, names, key=len)
        if names and names[0].endswith("._terms"):
            above = next((place for place, name in enumerate(names) if name.startswith("Problem.")), 0)
            self.to_noise = max(self.to_noise, names[: above + 1], key=len)


SMALL_FITS = {
    "maximum likelihood": (PAPER, 0.1, MOST_FRAMES),
    "a penalty": ({"alpha": 0.01, "prior": "zero", "flip_rate": 0.0}, 0.1, MOST_FRAMES),
    "a penalty in the units of the data": ({"alpha": 0.01, "prior": "euclidean", "flip_rate": 0.0}, 0.1, MOST_FRAMES),
    "defaults": ({}, 0.0, MOST_FRAMES),
    "defaults, with wrong labels": ({}, 0.1, MOST_FRAMES_OF_FLIPS),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SMALL_FITS)
def test_a_small_fit_runs_through_few_files_and_frames(name, seed):
    settings, wrong_share, most_frames = SMALL_FITS[name]
    for n, d in ((200, 3), (400, 2)):
        pairs, labels, *_ = cf.datasets.make_pairs(n, d, wrong_share=wrong_share, random_state=seed)
        learner = cf.LinearMetricLearner(**settings)
        learner.fit(pairs, labels)  # once before: what is loaded and cached by the first fit is not walked through
        walk = Walk(lambda learner=learner, pairs=pairs, labels=labels: learner.fit(pairs, labels))
        assert 10 < len(walk.files) <= MOST_FILES, sorted(walk.files)
        assert 10 < len(walk.deepest) <= most_frames, walk.deepest[::-1]
        assert 2 < len(walk.to_noise) - 1 <= MOST_FRAMES_OF_LIKELIHOOD, walk.to_noise[::-1]


MOST_SOURCES = 12


def test_row_sources_are_few():
    """Those that a reader has to know, beside `BlockRows`, from which most are derived."""

    def derived(kind):
        return {each for child in kind.__subclasses__() for each in {child, *derived(child)}}

    here = {each.__name__ for each in derived(RowSource) - {BlockRows} if each.__module__.startswith("closefar.rows.")}
    known = {name for name in here if not name.startswith("_")}
    assert {"Differences", "IndexedRows", "LegRows", "PartitionedRows", "StreamedRows"} < known
    assert len(known) <= MOST_SOURCES, known
