"""Many threads plan and run at a time, in sessions of their own or in one, and each result is right."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from datafusion import SessionContext

from load.work import STATEMENTS, frame_result, loaded, message, result, text_result

THREADS = 64

Task = Callable[[SessionContext], object]


def _tasks() -> list[Task]:
    by_engine: list[Task] = [lambda ctx, sql=sql: result(ctx, sql) for sql in STATEMENTS.values()]  # type: ignore[misc]
    by_text: list[Task] = [lambda ctx, sql=sql: text_result(ctx, sql) for sql in STATEMENTS.values()]  # type: ignore[misc]
    return [*by_engine, *by_text, frame_result, message]


@pytest.mark.parametrize("stack", [0, 2048], ids=["stacks of the default size", "stacks of 2 MB"])
@pytest.mark.parametrize("is_shared", [False, True], ids=["sessions of their own", "one session"])
def test_each_result_is_right(is_shared: bool, stack: int, pytestconfig: pytest.Config) -> None:
    alone = loaded()
    wanted = [(task, task(alone)) for task in _tasks()]
    assert len({str(value) for _, value in wanted[: len(STATEMENTS)]}) == len(STATEMENTS)
    end = time.monotonic() + pytestconfig.getoption("load")
    wrong: list[str] = []
    done = itertools.count()

    def work(tasks: Iterator[tuple[Task, object]]) -> None:
        try:
            ctx = alone if is_shared else loaded()
            for task, expected in tasks:
                if (found := task(ctx)) != expected:
                    wrong.append(f"{found} instead of {expected}")
                next(done)
                if time.monotonic() > end:
                    return
        except BaseException as error:
            wrong.append(f"{type(error).__name__}: {error}")

    before = threading.stack_size(stack * 1024)
    try:
        starts = (wanted[number % len(wanted) :] + wanted[: number % len(wanted)] for number in range(THREADS))
        threads = [threading.Thread(target=work, args=[itertools.cycle(start)], daemon=True) for start in starts]
        for thread in threads:
            thread.start()
    finally:
        threading.stack_size(before)
    for thread in threads:
        thread.join(max(0.0, end + 120 - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "threads that do not end"
    assert not wrong, f"{len(wrong)} wrong: {wrong[0]}"
    print(f"{next(done)} results")
