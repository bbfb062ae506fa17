"""The house: imports run in one direction, doors are used."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "closefar"
FILES = sorted(SOURCE.rglob("*.py"))

# From the ground up; a room may import those above it in this list, and none below.
ORDER = [
    {"errors"},  # messages, in the words of Python and of the command line
    {"arrays", "files", "plain", "plot_style", "templating"},  # know nothing of metrics
    {"engines", "packed", "noise"},
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
