"""A terminal with a running command: typed input, and the resulting screen."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pexpect
import pyte

from tests.cli.commands import hearing_ctrl_c

PATIENCE_S = 60.0
CTRL_C, CTRL_D, UP, TAB = "\x03", "\x04", "\x1b[A", "\t"


class Screen:
    """A program on 40 lines of 120 columns, with more in its environment."""

    def __init__(self, program: str, arguments: Sequence[str], **more: str) -> None:
        self._child = pexpect.spawn(
            program,
            list(arguments),
            env={**os.environ, "TERM": "xterm", **more},
            cwd=more.get("HOME"),
            encoding="utf-8",
            dimensions=(40, 120),
            preexec_fn=hearing_ctrl_c,
        )
        self._screen = pyte.Screen(120, 40)
        self._stream = pyte.Stream(self._screen)

    def type(self, text: str) -> None:
        self._child.send(text)

    def until(self, *shown: str) -> str:
        """Reads until all of these are on the screen at once; returns it, without blanks at the ends of lines."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(text in self.text for text in shown):
            assert time.monotonic() < deadline, f"{shown} never came:\n{self.text}"
            self._read()
        return self.text

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def end(self) -> int:
        """Waits until the command has ended; returns its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        self._child.wait()
        return int(self._child.exitstatus)

    def close(self) -> None:
        self._child.close(force=True)

    def _read(self) -> bool:
        """Read the output of a moment; return False once the output has ended."""
        try:
            self._stream.feed(self._child.read_nonblocking(65_536, timeout=0.2))
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            return False
        return True


class Terminal(Screen):
    """``sbon``; ``state`` is the user's state directory."""

    def __init__(self, state: Path, *arguments: str) -> None:
        command = ("-m", "sbon_cli.main", *arguments)
        super().__init__(sys.executable, command, XDG_STATE_HOME=str(state), PROMPT_TOOLKIT_NO_CPR="1")

    def prompted(self, times: int) -> str:
        """Reads until so many prompts are on the screen, the last of them waiting."""
        deadline = time.monotonic() + PATIENCE_S
        while self.text.count("sbon>") < times or self.text.splitlines()[-1] != "sbon>":
            assert time.monotonic() < deadline, f"no prompt {times}:\n{self.text}"
            self._read()
        return self.text
