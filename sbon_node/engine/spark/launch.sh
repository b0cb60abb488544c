#!/bin/sh
# Spark takes the name of a Python, without options.
exec "$SBON_PYTHON" -I -S "${0%/*}/launch.py" "$@"
