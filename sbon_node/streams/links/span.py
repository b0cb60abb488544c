"""Choice of the next batch's frames: least watermarks first, none too far ahead (docs/design.md, section 7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sbon_node.model.frames import END_WATERMARK_MS, NO_WATERMARK_MS, Frame, InputOffset
from sbon_node.streams.links.credit import weight


@dataclass(slots=True)
class InputSpan:
    """One input: the last batch ended at ``start``, the next one ends at ``last``; ``at`` returns an available frame.

    A frame is held back while its watermark, less ``lag_ms``, is more than ``ahead_ms`` beyond the least of the other inputs;
    without ``ahead_ms`` none is. A stream's end is never held back, and its own watermark does not count: other inputs may
    never end, and the last watermark of this input would then hold back all that depend on them.

    No frame after ``upto`` is taken, and none is held back then: all of them have been in batches of another host.
    """

    start: int
    offset: InputOffset
    at: Callable[[int], Frame | None]
    lag_ms: int = 0
    ahead_ms: int | None = None
    upto: int | None = None
    last: Frame | None = None

    @property
    def next(self) -> Frame | None:
        number = self.start + 1 if self.last is None else self.last.number + 1
        return self.at(number) if self.upto is None or number <= self.upto else None

    def reach_ms(self, watermark_ms: int) -> int:
        """Return the watermark less the lag, to compare with other inputs; no watermark and the end stay as they are."""
        return watermark_ms if watermark_ms in (NO_WATERMARK_MS, END_WATERMARK_MS) else watermark_ms - self.lag_ms

    def offset_upto(self, incarnation: int) -> InputOffset:
        """Return the offset of the input once the batch has run."""
        before, last = self.offset, self.last
        return InputOffset(
            frame=last.number if last else before.frame,
            watermark_ms=max(before.watermark_ms, last.watermark_ms) if last else before.watermark_ms,
            ended=before.ended or (last is not None and last.ended),
            incarnation=incarnation,
        )

    @property
    def ends(self) -> bool:
        """Whether no frame follows the last one taken."""
        return self.last.ended if self.last is not None else self.offset.ended

    @property
    def stands_ms(self) -> int:
        """The watermark this input has, or could have at once; an input that has ended holds back no other."""
        following = self.next
        if following is not None and following.watermark_ms != END_WATERMARK_MS:
            return self.reach_ms(following.watermark_ms)
        if following is None and (self.offset.ended or (self.last is not None and self.last.ended)):
            return END_WATERMARK_MS
        return self.reach_ms(max(self.offset.watermark_ms, self.last.watermark_ms if self.last else NO_WATERMARK_MS))


def fill(inputs: Sequence[InputSpan], max_bytes: int, max_frames: int, max_rows: int | None = None) -> list[bool]:
    """Take frames until a limit is reached; return for each input whether its next frame is held back.

    The limits are bytes and rows of the batch and frames of each input. At least one frame is taken where any may be.
    """
    bytes_left, rows_left, is_empty = max_bytes, max_rows, True
    while True:
        are_held = _held(inputs)
        free = [
            source
            for source, is_held in zip(inputs, are_held, strict=True)
            if not is_held and (following := source.next) is not None and following.number - source.start <= max_frames
        ]
        if not free:
            return are_held
        least = min(free, key=lambda source: source.stands_ms)
        frame = least.next
        assert frame is not None
        size = weight(frame.payload)
        if not is_empty and (size > bytes_left or (rows_left is not None and frame.rows > rows_left)):
            return are_held
        bytes_left -= size
        rows_left = None if rows_left is None else rows_left - frame.rows
        least.last, is_empty = frame, False


def next_batch(
    after: Sequence[InputOffset], upto: tuple[int, ...] | None, batches: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the batch that follows ``after`` among those after the frames ``upto``; None before the first and after the last."""
    at, before = tuple(offset.frame for offset in after), upto
    for batch in batches:
        if at == before and batch != before:
            return batch
        before = batch
    return None


def fill_upto(inputs: Sequence[InputSpan], batch: tuple[int, ...]) -> bool:
    """Take the frames up to the end of a ``batch``; return False if some are not there."""
    for source, frame in zip(inputs, batch, strict=True):
        source.last = source.at(frame) if frame > source.start else None
    return all(source.last is not None or frame <= source.start for source, frame in zip(inputs, batch, strict=True))


def _held(inputs: Sequence[InputSpan]) -> list[bool]:
    watermarks = [source.stands_ms for source in inputs]
    if len(watermarks) < 2:
        return [False] * len(watermarks)
    least, second = sorted(watermarks)[:2]
    are_held = []
    for source, stand in zip(inputs, watermarks, strict=True):
        following = source.next
        others = second if stand == least else least
        has_watermark = following is not None and following.watermark_ms not in (NO_WATERMARK_MS, END_WATERMARK_MS)
        ahead_ms = source.ahead_ms if source.upto is None else None
        are_held.append(has_watermark and ahead_ms is not None and stand > others + ahead_ms)
    return are_held


def have_ended(offsets: tuple[InputOffset, ...]) -> bool:
    """Return whether all inputs have been read to their end."""
    return all(offset.ended for offset in offsets)
