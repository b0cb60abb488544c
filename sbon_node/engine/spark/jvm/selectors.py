"""The JVM's selectors from ``Selectors.java``."""

from __future__ import annotations

from typing import Any

from sbon_node.engine.spark.jvm.compiled import define
from sbon_node.errors import SbonError

_PROPERTY = "java.nio.channels.spi.SelectorProvider"


def install(jvm: Any) -> None:
    """Install the selectors; call before the JVM opens a channel: it reads the property once.

    Raises :class:`SbonError` ``engine-failed`` if it was read already.
    """
    name = define(jvm, "Selectors")
    jvm.java.lang.System.setProperty(_PROPERTY, name)
    provider = jvm.java.nio.channels.spi.SelectorProvider.provider().getClass().getName()
    if provider != name:
        raise SbonError("engine-failed", f"the JVM's selectors are {provider}, which leaves descriptors open")
