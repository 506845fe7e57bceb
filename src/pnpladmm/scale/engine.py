"""Runs the tasks of a job: here, one after the other; in processes of this machine; or on a Dask cluster."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from pnpladmm.files import optional
from pnpladmm.tensors import InputError, one_line

RETRIES = 3
"""A task is tried again so often where a worker was lost or failed."""
CONNECT = 10
"""Seconds to wait for a scheduler."""

Task = Callable[..., Any]


@dataclass(frozen=True)
class Engine:
    """Where tasks run: in this process, or where a Dask client sends them."""

    client: Any = None
    distributed: Any = None

    def run(self, task: Task, arguments: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """`(number, task(*arguments[number]))` as they are done, in any order.

        Dask gives the tasks of a lost worker to another one, and tries failed ones again.
        """
        if self.client is None:
            for number, given in enumerate(arguments):
                yield number, task(*given)
            return
        submit = self.client.submit
        futures = {submit(task, *given, pure=False, retries=RETRIES): n for n, given in enumerate(arguments)}
        try:
            for future in self.distributed.as_completed(list(futures)):
                yield futures[future], _result(self.distributed, future)
                future.release()
        except (OSError, CancelledError) as error:
            raise InputError(f"the scheduler is gone ({one_line(str(error))}): run the command again") from error


@contextlib.contextmanager
def open_engine(workers: int = 1, scheduler: str | None = None) -> Iterator[Engine]:
    """Processes of this machine, or a running cluster. With one worker and no scheduler all happens in this process."""
    if scheduler is None and workers <= 1:
        yield Engine()
        return
    distributed = optional("distributed", "more than one worker")
    dask = optional("dask", "more than one worker")
    patience = {"distributed.comm.timeouts.connect": f"{CONNECT}s"}
    with dask.config.set(patience), _client(distributed, workers, scheduler) as client:
        yield Engine(client, distributed)


def _result(distributed: Any, future: Any) -> Any:
    """What a task returned; what went wrong in one line."""
    if future.status == "cancelled":
        raise InputError("the scheduler is gone, or cancelled the work: run the command again, finished tiles are kept")
    try:
        return future.result()
    except (InputError, CancelledError, distributed.comm.CommClosedError):
        raise  # the last one is an OSError of the cluster, not of a tile
    except distributed.scheduler.KilledWorker as error:
        raise InputError(
            f"workers died again and again at one tile ({one_line(str(error))}): give them more memory"
        ) from error
    except (OSError, MemoryError, RuntimeError) as error:
        raise InputError(f"a tile failed ({one_line(f'{type(error).__name__}: {error}')})") from error


@contextlib.contextmanager
def _client(distributed: Any, workers: int, scheduler: str | None) -> Iterator[Any]:
    """A client of the scheduler, or of a cluster on this machine that ends with the block."""
    for name in ("distributed", "distributed.client", "distributed.worker", "distributed.nanny", "distributed.core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=CONNECT)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(
                f"--scheduler {one_line(scheduler)}: nobody answers ({one_line(str(error))}): start `dask scheduler`"
            ) from error
        with client:
            yield client
        return
    cluster = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        yield client
