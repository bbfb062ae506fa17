"""Files are written whole or not at all, several of them together."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from closefar.files import check_writable, replace_file, replace_files, staged_files


def test_all_or_none(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "missing" / "bad"
    good.write_bytes(b"old")
    with pytest.raises(OSError, match="bad"):
        replace_files({good: b"new", bad: b"new"})
    assert good.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["good"]
    replace_files({good: b"new", tmp_path / "other": b"too"})
    assert (good.read_bytes(), (tmp_path / "other").read_bytes()) == (b"new", b"too")


def test_a_link_stays_a_link_and_permissions_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    replace_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    new = tmp_path / "new"
    with pytest.raises(OSError, match=r"/dev/full: .*disk has room"):
        replace_files({new: b"content", Path("/dev/full"): b"content"})
    assert Path("/dev/full").is_char_device()
    assert os.listdir(tmp_path) == []
    replace_file(Path("/dev/null"), b"content")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["", "missing/file"])
def test_what_could_not_be_written_is_known_before(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match="can't write"):
        check_writable(tmp_path / name)


def test_nothing_is_left_of_what_was_not_put_in_place(tmp_path: Path) -> None:
    with staged_files({tmp_path / "slow": b"slow"}) as put_in_place:
        replace_file(tmp_path / "quick", b"quick")
        put_in_place()
    with staged_files({tmp_path / "never": b"half"}):
        assert not (tmp_path / "never").exists()
    assert sorted(os.listdir(tmp_path)) == ["quick", "slow"]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="link to itself"):
        check_writable(tmp_path / "loop")
