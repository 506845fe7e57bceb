"""The page of `pnpladmm serve` and its API: restore a picture in the browser, on this machine alone.

The page decides nothing. It writes a blur file and a job, and a process of its own runs the job as `pnpladmm restore`
does. The rest of the package never imports this room, and importing the package does not import FastAPI.
"""
