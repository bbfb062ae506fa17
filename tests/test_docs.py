"""The documentation is whole: all public names are in the reference, with docstrings, and links lead somewhere."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import closefar

_ROOT = Path(__file__).parents[1]
_DOCS = _ROOT / "docs"
_PAGES = sorted([*_DOCS.glob("*.md"), _ROOT / "README.md"])
_IDS = [path.name for path in _PAGES]

# Their public names are those of __all__.
_MODULES = ("closefar", *(f"closefar.{name}" for name in ("datasets", "noise", "plot", "report", "tables", "theory")))
_CLASSES = ("LinearMetricLearner", "Metric")

_DIRECTIVE = re.compile(r"^( *)\.\. (auto|py:)(\w+):: ([\w.]+)[^\n]*\n((?:\1   (?::|   )[^\n]*\n)*)", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_REFERENCE = re.compile(r"\{(?:func|class|meth|exc|mod)\}`~?([\w.]+)`")


def _documented_names() -> set[str]:
    """Every name that the reference describes, as it is called there."""
    found: set[str] = set()
    inside = ""
    for indent, _, kind, name, options in _DIRECTIVE.findall((_DOCS / "api.md").read_text(encoding="utf-8")):
        full = f"{inside}.{name}" if indent else name
        inside = inside if indent else name
        found.add(full)
        members = re.search(r":members:([^:]*)", options)
        if members is None:
            continue
        listed = re.findall(r"\w+", members[1])
        if not listed:
            subject = _object(full)
            listed = (
                subject.__all__ if kind == "module" else _members(subject, inherited=":inherited-members:" in options)
            )
        found |= {f"{full}.{member}" for member in listed}
    return found


def _members(subject: Any, *, inherited: bool) -> list[str]:
    names = dir(subject) if inherited else vars(subject)
    return [name for name in names if not name.startswith("_") and inspect.getdoc(getattr(subject, name))]


def _object(name: str) -> Any:
    """The object of a dotted name, importing as much of it as is a module."""
    module, _, last = name.rpartition(".")
    if not module:
        return import_module(last)
    parent = _object(module)
    return getattr(parent, last) if hasattr(parent, last) else import_module(name)


def _public_objects() -> list[tuple[str, Any]]:
    found = []
    for module in map(import_module, _MODULES):
        found += [(f"{module.__name__}.{name}", getattr(module, name)) for name in module.__all__]
    return [(name, subject) for name, subject in found if not inspect.ismodule(subject)]


def _is_code(subject: Any) -> bool:
    return inspect.isclass(subject) or inspect.isfunction(subject)


def _exists(target: Path) -> bool:
    """Whether there is such a file; the pages of the gallery are made of its scripts."""
    if target.parent == _DOCS / "auto_gallery":
        source = _DOCS / "gallery" / f"{target.stem}.py"
        return source.exists() or (target.name == "index.rst" and source.parent.is_dir())
    return target.exists()


def _anchors(page: Path) -> set[str]:
    """The anchors of headings, of which Sphinx makes those of the first three levels."""
    headings = re.findall(r"^#{1,3} (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _is_missing(name: str) -> bool:
    try:
        _object(name)
    except ModuleNotFoundError:
        return True
    return False


def test_what_the_reference_describes_exists() -> None:
    assert not list(filter(_is_missing, _documented_names()))


def test_each_public_name_is_in_the_reference() -> None:
    documented = _documented_names()
    assert not [name for name, _ in _public_objects() if name not in documented]


@pytest.mark.parametrize("name", _CLASSES)
def test_each_public_method_is_in_the_reference(name: str) -> None:
    members = inspect.getmembers(getattr(closefar, name))
    ours = {
        member
        for member, value in members
        if not member.startswith("_")
        and (isinstance(value, property) or getattr(value, "__module__", "").startswith("closefar"))
        and (isinstance(value, property) or callable(value))
    }
    assert ours, "no method was found"
    attributes = set(re.findall(r"\w+_\b", inspect.getdoc(getattr(closefar, name)) or ""))  # those that a fit sets
    documented = _documented_names() | {f"closefar.{name}.{attribute}" for attribute in attributes}
    assert not [member for member in ours if f"closefar.{name}.{member}" not in documented]
    assert all(inspect.getdoc(getattr(getattr(closefar, name), member)) for member in ours)


def test_each_public_function_and_class_has_a_docstring() -> None:
    described = [(name, subject.__doc__ or "") for name, subject in _public_objects() if _is_code(subject)]
    made_up = [name for name, text in described if text.startswith(f"{name.rpartition('.')[2]}(")]  # by dataclasses
    assert not [*made_up, *(name for name, text in described if not text)]


@pytest.mark.parametrize("name", [name for name in closefar.__all__ if _is_code(getattr(closefar, name))])
def test_names_of_the_package_have_an_example(name: str) -> None:
    assert ">>> " in inspect.getdoc(getattr(closefar, name))


@pytest.mark.parametrize("path", _PAGES, ids=_IDS)
def test_references_are_in_the_reference(path: Path) -> None:
    documented = _documented_names()
    assert not [name for name in _REFERENCE.findall(path.read_text(encoding="utf-8")) if name not in documented]


@pytest.mark.parametrize("path", _PAGES, ids=_IDS)
def test_links_lead_somewhere(path: Path) -> None:
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    links = [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:", link)]
    broken = []
    for link in links:
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not _exists(target) or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken


def test_each_page_is_in_a_table_of_contents() -> None:
    contents = "\n".join(re.findall(r"^```\{toctree\}(.*?)^```", (_DOCS / "index.md").read_text(), re.M | re.S))
    listed = re.findall(r"^(\w[\w/]*)$", contents, re.MULTILINE)
    assert sorted(listed) == sorted({*(path.stem for path in _DOCS.glob("*.md")), "auto_gallery/index"} - {"index"})


def test_the_structure_lists_each_module() -> None:
    room, listed = "", set()
    for line in (_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        found = re.match(r"( *)(\w+(?:/|\.py))(?: |$)", line)
        if found and found[2].endswith("/"):
            room = found[2]
        elif found:
            listed.add(room + found[2] if found[1] else found[2])
    source = _ROOT / "src" / "closefar"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if not path.name.startswith("__")}
    assert listed == modules
