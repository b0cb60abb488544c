"""The JVM's selectors from ``Selectors.java``, compiled by Janino, one of Spark's jars, without a Java compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbon_node.errors import SbonError

_SOURCE = Path(__file__).with_name("Selectors.java")
_CLASS = "py4j.reflection.Selectors"
_PROPERTY = "java.nio.channels.spi.SelectorProvider"


def install(jvm: Any) -> None:
    """Install the selectors; call before the JVM opens a channel: it reads the property once.

    Raises :class:`SbonError` ``engine-failed`` if it was read already.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE.read_text())
    # Reflection names py4j's own invoker as the caller, so the class joins its package.
    jvm.java.lang.invoke.MethodHandles.lookup().defineClass(compiler.getBytecodes()[_CLASS])
    jvm.java.lang.System.setProperty(_PROPERTY, _CLASS)
    provider = jvm.java.nio.channels.spi.SelectorProvider.provider().getClass().getName()
    if provider != _CLASS:
        raise SbonError("engine-failed", f"the JVM's selectors are {provider}, which leaves descriptors open")
