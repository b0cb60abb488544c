"""Java classes of this package, compiled by Janino, one of Spark's jars, without a Java compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGE = "py4j.reflection"
"""Reflection names py4j's own invoker as the caller, so the classes join its package."""


def define(jvm: Any, name: str) -> str:
    """Define the class of the file ``name``.java in the JVM; return its whole name."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(Path(__file__).with_name(f"{name}.java").read_text())
    whole = f"{PACKAGE}.{name}"
    jvm.java.lang.invoke.MethodHandles.lookup().defineClass(compiler.getBytecodes()[whole])
    return whole
