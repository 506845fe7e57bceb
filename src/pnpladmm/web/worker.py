"""The process that does the work: `python -m pnpladmm.web.worker` reads orders from stdin and answers on stdout."""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import threading
from typing import Any

from pnpladmm.tensors import InputError, one_line
from pnpladmm.web.limits import Refused

SHARE_OF_MEMORY = 0.8
"""Of the machine's, for one process: a file that unpacks to more fails here and not everywhere."""


def main() -> None:
    """Do one order after the other until the server is gone."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to the log
    _bound_memory()
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()

    def send(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")

    while True:
        order = json.loads(orders.get())
        try:
            from pnpladmm.web.tasks import TASKS

            send({"done": TASKS[order.pop("task")](send, **order)})
        except (InputError, Refused) as error:
            send({"error": without_folders(getattr(error, "message", str(error)))})
        except MemoryError:
            send({"error": "there is not enough memory for this: use a smaller picture, or fewer regions"})
        except Exception as error:  # one order must not end the process
            if "can't allocate memory" in str(error):
                send({"error": "there is not enough memory for this: use a smaller picture, or fewer regions"})
            else:
                send({"error": f"unexpected: {type(error).__name__}: {without_folders(str(error))}"})


def without_folders(message: str) -> str:
    """A message in one line, with the names of files but not of the folders that they lie in.

    >>> without_folders("/home/me/projects/0123456789ab/picture.png is a damaged PNG, 3/4 of it")
    'picture.png is a damaged PNG, 3/4 of it'
    """
    return one_line(re.sub(r"(?<!\S)(?:/[^/\s:]+)+/(?=[^/\s])", "", message))


def _listen(orders: queue.Queue[str]) -> None:
    """Take orders while the server lives. When it is gone, so is this process, whatever it is doing."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(3)


def _bound_memory() -> None:
    """Limit the data of this process, where the system can."""
    try:
        import resource

        most = int(SHARE_OF_MEMORY * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    except (ImportError, ValueError, OSError):
        pass


if __name__ == "__main__":
    main()
