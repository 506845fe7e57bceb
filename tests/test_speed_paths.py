"""What makes the path fast must not change where it leads: preconditioners, data steps, transforms, recording."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import pnpladmm as pl
from conftest import picture, positive_blur, small_problem
from pnpladmm.blur import gaussian
from pnpladmm.denoisers import Promise, Tikhonov
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.operators import preconditioner
from pnpladmm.operators.convolution import BoxBank, DenseBank
from pnpladmm.operators.fft import fast_size, is_smooth
from pnpladmm.operators.windows import BankData, windows
from pnpladmm.solvers.conjugate_gradient import conjugate_gradient
from pnpladmm.solvers.data_step import DataStep
from pnpladmm.solvers.inner_products import products, squared
from pnpladmm.tensors import per_picture

DOUBLE = torch.float64


def matrix_of(apply: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Tensor:
    """The matrix of a map from pictures of `shape` to pictures of that shape."""
    basis = torch.eye(int(torch.tensor(shape).prod()), dtype=DOUBLE)
    return torch.stack([apply(column.reshape(shape)).flatten() for column in basis], 1)


def segment_blur(
    size: tuple[int, int] = (32, 30), boundary: str = "circular", order: str = "convolve-then-weight"
) -> pl.SpatiallyVaryingBlur:
    """Three segments with kernels of different widths."""
    grow = 6 if (boundary, order) == ("unknown", "weight-then-convolve") else 0
    columns = torch.arange(size[1] + grow) * 3 // (size[1] + grow)
    weights = torch.stack([(columns == i).to(DOUBLE).expand(size[0] + grow, -1) for i in range(3)])
    kernels = torch.stack([gaussian((s, 0.6 * s), 30, size=7) for s in (0.5, 1.0, 2.0)])
    return pl.SpatiallyVaryingBlur(kernels, weights, boundary, order)


OPERATORS: dict[str, Callable[[], pl.LinearOperator]] = {
    **{
        f"{boundary}, {order}": lambda boundary=boundary, order=order: segment_blur((14, 15), boundary, order)
        for boundary in ("circular", "replicate", "reflect", "zero", "unknown")
        for order in ("convolve-then-weight", "weight-then-convolve")
    },
    "signed": lambda: pl.SpatiallyVaryingBlur(
        torch.randn(3, 4, 5, dtype=DOUBLE), torch.randn(3, 13, 11, dtype=DOUBLE), "reflect"
    ),
    "kernel as large as the picture": lambda: positive_blur((9, 9), k=9),
    "weights with a hole": lambda: pl.SpatiallyVaryingBlur(
        torch.rand(2, 3, 3), torch.rand(2, 12, 12) * (torch.arange(12) > 5)
    ),
    "many kernels": lambda: positive_blur((16, 15), count=20, k=3),
    "super-resolution": lambda: pl.Decimation(2) @ positive_blur((16, 12)),
    "inpainting after blur": lambda: pl.Mask(torch.rand(14, 15) > 0.5) @ positive_blur((14, 15)),
    "mask": lambda: pl.Mask(torch.rand(3, 12, 11) > 0.5),
    "compressed sensing": lambda: pl.SubsampledTransform((12, 12), 0.5),
}


@pytest.mark.parametrize("map_of_precision", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_preconditioners_are_symmetric_positive_definite(name: str, map_of_precision: bool) -> None:
    operator = OPERATORS[name]()
    domain = operator.domain
    assert domain is not None
    precision = torch.tensor(50.0, dtype=DOUBLE)
    if map_of_precision:
        precision = 50 * torch.rand(operator.output_shape(domain)[2:], dtype=DOUBLE).clamp_min(0.2) - 10
    precondition = operator.preconditioner(precision, torch.tensor(0.7, dtype=DOUBLE))
    if precondition is None:
        assert name == "compressed sensing"
        return
    inverse = matrix_of(precondition, domain)
    torch.testing.assert_close(inverse, inverse.mT, rtol=0, atol=1e-14 * float(inverse.abs().max()))
    assert float(torch.linalg.eigvalsh(inverse)[0]) > 0


@pytest.mark.parametrize("name", ["uniform", "mask", "compressed sensing"])
def test_where_the_inverse_is_known_it_is_found_in_one_step(name: str) -> None:
    if name == "uniform":
        operator: pl.LinearOperator = pl.SpatiallyVaryingBlur(torch.rand(1, 5, 4), torch.ones(1, 12, 10))
    else:
        operator = OPERATORS[name]()
    x = torch.randn(2, 3, *operator.domain[2:], dtype=DOUBLE)  # type: ignore[index]
    p, a = torch.tensor(30.0, dtype=DOUBLE), torch.tensor([0.4, 2.0], dtype=DOUBLE).reshape(2, 1, 1, 1)
    precondition = operator.preconditioner(p, a)
    assert precondition is not None
    torch.testing.assert_close(precondition(operator.adjoint(p * operator.forward(x)) + a * x), x)


@pytest.mark.parametrize("count", [3, 20])
def test_a_preconditioner_serves_each_picture_with_its_own(count: int) -> None:
    kernels = torch.rand(2, count, 2, 4, 5, dtype=DOUBLE)
    weights = torch.rand(2, count, 12, 10, dtype=DOUBLE)
    both = pl.SpatiallyVaryingBlur(kernels, weights, "replicate")
    precision = 40 * torch.rand(2, 2, 12, 10, dtype=DOUBLE)
    a = torch.tensor([0.5, 3.0], dtype=DOUBLE).reshape(2, 1, 1, 1)
    r = torch.randn(2, 2, 12, 10, dtype=DOUBLE)
    together = both.preconditioner(precision, a)(r)
    for b in range(2):
        alone = pl.SpatiallyVaryingBlur(kernels[b], weights[b], "replicate")
        expected = alone.preconditioner(precision[b], a[b : b + 1])(r[b : b + 1])
        torch.testing.assert_close(together[b : b + 1], expected)


def test_preconditioned_steps_are_worth_twice_the_plain_ones() -> None:
    operator = segment_blur((96, 90))
    sharp = picture(96)[..., :90]
    p, a = torch.tensor(650.0, dtype=DOUBLE), torch.tensor(12.0, dtype=DOUBLE)
    b = operator.adjoint(p * operator.forward(sharp)) + a * sharp

    def apply(q: Tensor) -> Tensor:
        return operator.adjoint(p * operator.forward(q)) + a * q

    precondition = operator.preconditioner(p, a)
    start = operator.forward(sharp)
    plain, quick = (
        (conjugate_gradient(apply, b, start, n, 0, m) - sharp).norm() for n, m in ((10, None), (5, precondition))
    )
    assert quick < plain
    torch.testing.assert_close(conjugate_gradient(apply, b, start, 200, 1e-14, precondition), sharp)


def test_beyond_the_border_filters_amplify_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """There pixels weigh less in the data: filters that knew nothing of it leave twice the error in twenty steps."""
    errors = []
    for lightest in (1.0, preconditioner.MIN_WEIGHT):
        monkeypatch.setattr(preconditioner, "MIN_WEIGHT", lightest)
        operator = segment_blur((96, 90), "unknown")
        sharp = F.pad(picture(96)[..., :90], operator.border_widths, mode="reflect")
        p, a = torch.tensor(6500.0, dtype=DOUBLE), torch.tensor(12.0, dtype=DOUBLE)
        observed = operator.forward(sharp)
        step = DataStep(operator, p, observed, 20, 0.0)
        z, _ = step.solve(a, sharp, operator.start(observed))
        errors.append(float((z - sharp).norm()))
    assert errors[1] < 0.5 * errors[0]


def test_conjugate_gradient_leaves_its_input_alone_and_stops_each_picture_by_itself() -> None:
    operator = positive_blur((20, 18))
    p, a = torch.tensor(100.0, dtype=DOUBLE), torch.tensor([5.0, 50.0], dtype=DOUBLE).reshape(2, 1, 1, 1)

    def solve(b: Tensor, x: Tensor, a: Tensor) -> Tensor:
        def apply(q: Tensor) -> Tensor:
            return operator.adjoint(p * operator.forward(q)) + a * q

        return conjugate_gradient(apply, b, x, 60, 1e-3, operator.preconditioner(p, a))

    b, x = torch.randn(2, 2, 1, 20, 18, dtype=DOUBLE)
    kept = b.clone(), x.clone()
    together = solve(b, x, a)
    assert torch.equal(b, kept[0])
    assert torch.equal(x, kept[1])
    for i in range(2):
        alone = solve(b[i : i + 1], x[i : i + 1], a[i])
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-9, atol=1e-9)
    assert torch.equal(solve(torch.zeros_like(b), torch.zeros_like(b), a), torch.zeros_like(b))


def test_a_data_step_solves_its_system_and_knows_its_gradient() -> None:
    problem, _ = small_problem()
    H, y = problem.operator, problem.observed
    p = problem.precision_for("test")
    step = DataStep(H, p, y, 500, 1e-13)
    z, g = y, None
    for mu in (3.0, 20.0, 90.0):  # each solve goes on from the last one's z and g
        a, v = per_picture(mu, y), torch.rand_like(y)
        z, g = step.solve(a, v, z, g)
        torch.testing.assert_close(H.adjoint(p * H.forward(z)) + a * z, H.adjoint(p * y) + a * v, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(g, step.gradient(z), rtol=0, atol=1e-9 * float(p))


def test_admm_has_the_same_limit_whatever_the_inner_solve_costs() -> None:
    problem, _ = small_problem()
    methods = [pl.ADMM(Tikhonov(), 0.03, rho=1000.0, cg_iterations=n, cg_tolerance=1e-13) for n in (2, 12)]
    images = [pl.solve(problem, method, 120, 1e-11).image for method in methods]
    torch.testing.assert_close(images[0], images[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("weights_on", ["observed", "extended"])
def test_boxes_of_a_batch_are_those_of_its_pictures(weights_on: str) -> None:
    """Each picture has its own windows; kernels without weight are left out; the dense way gives the same."""
    observed, k = (20, 17), 5
    size = observed if weights_on == "observed" else (24, 21)
    weights = torch.zeros(3, 4, 1, *size, dtype=DOUBLE)
    for b in range(3):
        for i in range(b + 1):
            weights[b, i, :, 2 * i : 2 * i + 6, b : b + 5 + 3 * i] = torch.rand(6, 5 + 3 * i, dtype=DOUBLE) + 0.1
    data = BankData(torch.rand(3, 4, 2, k, k, dtype=DOUBLE), weights, weights_on)  # type: ignore[arg-type]
    assert [w.pictures.start for w in windows(data, observed)] == [0, 1, 1, 2, 2, 2]
    whole, boxes = DenseBank(data, observed), BoxBank(data, observed)
    x, y = torch.randn(3, 2, 24, 21, dtype=DOUBLE), torch.randn(3, 2, *observed, dtype=DOUBLE)
    torch.testing.assert_close(boxes.forward(x), whole.forward(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(boxes.adjoint(y), whole.adjoint(y), rtol=0, atol=1e-12)
    assert float((boxes.forward(x) * y).sum()) == pytest.approx(float((x * boxes.adjoint(y)).sum()), rel=1e-12)


def test_transforms_have_sizes_that_are_fast() -> None:
    for n in range(1, 700):
        (fast, _), small = fast_size((n, n)), n
        assert fast >= n
        assert fast % 4 == 0
        assert fast <= 1.25 * n + 4
        for factor in (2, 3, 5):
            while fast % factor == 0:
                fast //= factor
            while small % factor == 0:
                small //= factor
        assert fast == 1
        assert is_smooth((n, n)) == (small == 1)


def test_a_picture_gets_the_same_from_any_batch_of_blurs() -> None:
    blurs = [segment_blur((32, 30), "reflect"), positive_blur((32, 30), count=3, k=7, boundary="reflect")]
    kernels, weights = (torch.cat([getattr(b, name) for b in blurs]).squeeze(2) for name in ("kernels", "weights"))
    both = pl.SpatiallyVaryingBlur(kernels, weights, "reflect")
    x = torch.randn(2, 3, 32, 30, dtype=DOUBLE)
    for i, blur in enumerate(blurs):
        torch.testing.assert_close(both.forward(x)[i : i + 1], blur.forward(x[i : i + 1]), rtol=0, atol=1e-12)
        torch.testing.assert_close(both.adjoint(x)[i : i + 1], blur.adjoint(x[i : i + 1]), rtol=0, atol=1e-12)


def test_nothing_is_measured_that_is_not_asked_for() -> None:
    """Without a record no data fit, no prior, no blur beyond the method's own; the picture is the same."""
    problem, sharp = small_problem()
    counted = Counted(problem.operator)
    bare = pl.Problem(problem.observed, counted, problem.data_term)
    method = pl.Annealed(Evaluated(), 0.03, calls=4, cg_iterations=2)
    runs = []
    for record in (True, False):
        counted.calls = 0
        result = pl.solve(bare, method, tolerance=0, reference=sharp, record=record)
        runs.append((result, counted.calls))
    (full, with_record), (quick, without) = runs
    assert torch.equal(full.image, quick.image)
    assert with_record == without + 4  # Hx of each iteration, for the data fit
    history = quick.history
    assert history.data_fit is None
    assert history.objective is None
    assert history.psnr is None
    assert torch.equal(history.x_change, full.history.x_change)
    assert history.denoiser_calls.tolist() == [1, 2, 3, 4]
    # Without a record nothing that rests on it is claimed.
    ladmm = pl.LADMM.certified(Evaluated(), problem, 0.03)
    assert pl.solve(problem, ladmm, 5, 0, record=False).certificate.level is not pl.Level.CHECKED


class Counted(pl.LinearOperator):
    """An operator that counts its forward maps."""

    def __init__(self, inner: pl.LinearOperator) -> None:
        self.inner, self.calls = inner, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.inner.forward(x)

    def adjoint(self, y: Tensor) -> Tensor:
        return self.inner.adjoint(y)

    def output_shape(self, shape: pl.operators.Shape) -> pl.operators.Shape:
        return self.inner.output_shape(shape)

    def input_shape(self, shape: pl.operators.Shape) -> pl.operators.Shape:
        return self.inner.input_shape(shape)


class Evaluated:
    """A gradient step whose prior and curvature may be measured only where they are asked for."""

    promise = Promise.GRADIENT_STEP

    def __call__(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return 0.9 * x

    def curvature(self, v: Tensor, sigma: float | Tensor) -> Tensor:
        return torch.full((len(v),), 0.5, dtype=DOUBLE)


def test_sums_by_lines_are_those_of_float64() -> None:
    a, b = torch.randn(2, 3, 3, 200, 210)
    exact = a.double() * b.double()
    error = products(a, b, by_channel=False)[:, 0] - exact.sum((1, 2, 3))
    assert float(error.abs().max()) < 1e-7 * float(exact.abs().sum((1, 2, 3)).max())
    torch.testing.assert_close(squared(a), a.double().square().sum((1, 2, 3)), rtol=1e-7, atol=0)


def test_a_sigma_is_fetched_once_and_a_network_sees_every_picture_once() -> None:
    seen: list[tuple[int, ...]] = []

    class Noted(torch.nn.Module):
        stride = 1

        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            seen.append(tuple(x.shape))
            return x - sigma.reshape(-1, 1, 1, 1)

    denoiser = NetworkDenoiser({3: Noted()})
    x = torch.rand(2, 3, 9, 11)
    torch.testing.assert_close(denoiser(x, torch.tensor([0.1, 0.2])), x - torch.tensor([0.1, 0.2]).reshape(2, 1, 1, 1))
    assert seen == [(1, 3, 9, 11)] * 2
    assert denoiser(x, 0.1).is_contiguous()


@pytest.mark.parametrize("boundary", ["circular", "unknown"])
def test_a_preconditioner_does_not_depend_on_the_neighbours(boundary: str) -> None:
    """Segments, dense weights and more kernels than regions, padded to one batch, against each alone."""
    size, count = (40, 44), 20
    generator = torch.Generator().manual_seed(3)
    alone = []
    for kind, own in (("segments", 4), ("dense", 3), ("many", count), ("one", 1)):
        kernels = torch.rand(own, 5, 5, generator=generator, dtype=DOUBLE)
        kernels /= kernels.sum((1, 2), keepdim=True)
        if kind == "segments":
            weights = torch.zeros(own, *size, dtype=DOUBLE)
            for i in range(own):
                weights[i, :, i * 11 : (i + 1) * 11] = 1
        else:
            weights = torch.rand(own, *size, generator=generator, dtype=DOUBLE) + (kind == "one") * 1e9
            weights /= weights.sum(0)
        alone.append((kernels, weights))
    padded = [
        (torch.cat([k, torch.zeros(count - len(k), 5, 5, dtype=DOUBLE)]),
         torch.cat([w, torch.zeros(count - len(w), *size, dtype=DOUBLE)]))
        for k, w in alone
    ]  # fmt: skip
    both = pl.SpatiallyVaryingBlur(*(torch.stack(parts) for parts in zip(*padded, strict=True)), boundary)
    p, a = torch.tensor(400.0, dtype=DOUBLE), torch.tensor(3.0, dtype=DOUBLE)
    r = torch.randn(4, 3, *both.scene, generator=generator, dtype=DOUBLE)
    together = both.preconditioner(p, a)(r)
    for i, (kernels, weights) in enumerate(alone):
        single = pl.SpatiallyVaryingBlur(kernels, weights, boundary).preconditioner(p, a)(r[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], single, rtol=1e-9, atol=1e-12)
