"""pnpladmm as a solver of deepinv's public benchmarks (benchopt): copy this file into the folder `solvers` of one."""

from benchopt import BaseSolver


class Solver(BaseSolver):
    """`fast` and certified LADMM; the benchmark runs every combination of the parameters."""

    name = "pnpladmm"
    install_cmd = "conda"
    requirements = ["pip::pnpladmm[deepinv]"]  # noqa: RUF012
    parameters = {"method": ["fast", "certified"], "denoiser": ["light"]}  # noqa: RUF012
    sampling_strategy = "run_once"

    def set_objective(self, train_dataset=None, physics=None):
        """Make the model; the benchmark calls it as `model(y, physics)`."""
        from pnpladmm.deepinv import to_reconstructor

        self.model = to_reconstructor(self.method, self.denoiser)

    def run(self, _):
        """Nothing is trained."""

    def get_result(self):
        """What the benchmark scores."""
        return {"model": self.model}
