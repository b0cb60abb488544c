"""A node's files are private to its user; results in other users' folders are readable there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from sbon_node.daemon import lock_data_dir

RESULT = """
import os, sys
from pathlib import Path
from sbon_node.base import private_files
os.umask(int(sys.argv[2], 8))
private_files.keep_private()
private_files.keep_private()
path = Path(sys.argv[1])
path.write_text("rows")
private_files.publish(path)
"""


def rights(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_an_open_data_directory_is_closed_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "operators" / "a").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_text("somebody's")
    inside = [folder / "node.db", folder / "operators" / "a" / "offsets", folder / "run"]
    for path in inside:
        path.write_text("")
        path.chmod(0o755 if path.name == "run" else 0o644)
    (folder / "link").symlink_to(outside)
    for path in (folder, folder / "operators", folder / "operators" / "a", tmp_path):
        path.chmod(0o755)
    outside.chmod(0o644)
    os.close(lock_data_dir(folder))
    assert {rights(path) for path in inside} == {0o600, 0o700}
    assert {rights(path) for path in folder.rglob("*") if path.is_dir()} == {0o700}
    assert (rights(folder), rights(outside), rights(tmp_path)) == (0o700, 0o644, 0o755)


def test_a_new_data_directory_is_closed(tmp_path: Path) -> None:
    os.close(lock_data_dir(tmp_path / "var" / "data"))
    assert rights(tmp_path / "var" / "data") == 0o700
    assert all(not rights(path) & 0o077 for path in (tmp_path / "var" / "data").rglob("*"))


def test_a_result_has_the_rights_of_its_folder_and_the_users_umask(tmp_path: Path) -> None:
    for umask, folder_mode, expected in (
        ("022", 0o755, 0o644),
        ("027", 0o755, 0o640),
        ("022", 0o700, 0o600),
        ("077", 0o755, 0o600),
    ):
        folder = tmp_path / f"{umask}-{folder_mode:o}"
        folder.mkdir()
        folder.chmod(folder_mode)
        subprocess.run([sys.executable, "-c", RESULT, str(folder / "r"), umask], check=True)
        assert rights(folder / "r") == expected
