"""The trained settings of the annealed method: as the shipped table would give them, and hostile ones refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from pnpladmm.data_terms import Gaussian
from pnpladmm.denoisers import load_denoiser
from pnpladmm.denoisers.building import new_network
from pnpladmm.operators import Mask
from pnpladmm.solvers import Problem, make_method
from pnpladmm.solvers.settings import NOISE_LEVELS, at_noise, shipped_settings
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import write_weights
from pnpladmm.workshop.training.method_schedule import LEVELS, MethodSchedule


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0, 10.0, 14.0, 40.0, 60.0])
def test_the_schedule_is_what_the_settings_would_say(noise: float) -> None:
    schedule = MethodSchedule("light", 8)
    with torch.no_grad():
        schedule.logs.add_(torch.linspace(-0.1, 0.2, schedule.logs.numel(), dtype=torch.float64).view_as(schedule.logs))
    row = schedule.at(noise)
    wanted = at_noise({float(level): values for level, values in schedule.rows().items()}, noise)
    assert set(row) == set(wanted)
    for key, value in wanted.items():
        unit = 255 if key in NOISE_LEVELS else 1
        assert float(torch.as_tensor(row[key]).detach()) * unit == pytest.approx(value, rel=1e-4, abs=1e-12)
    again = MethodSchedule("light", 8)
    again.load(schedule.rows(), "weights")
    torch.testing.assert_close(again.logs, schedule.logs, rtol=0, atol=1e-4)


def test_the_schedule_begins_as_shipped() -> None:
    rows = MethodSchedule("light", 8).rows()
    shipped = shipped_settings()["light"]["fast-8"]
    for level in (1.0, 10.0, 20.0, 40.0):
        for key, value in shipped[level].items():
            assert rows[f"{level:g}"][key] == pytest.approx(value, rel=1e-4)
    assert {row["tilt"] for row in rows.values()} == {1.0}
    assert [float(level) for level in rows] == list(LEVELS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fast-3": {"1": {"sigma_d": "x"}}}, "its card holds settings that cannot be read"),
        ({"fast-3": [1]}, "its card holds settings that cannot be read"),
        ("text", "its card holds settings that cannot be read"),
        ({"fast-3": {"nan": {"sigma_d": 1}}}, "the fast-3 settings in its card are not finite"),
        ({"fast-3": {"-1": {"sigma_d": 1}}}, "the fast-3 settings in its card are not finite"),
        ({"fast-3": {"1": {"sigma_d": math.inf}}}, "the fast-3 settings in its card are not finite"),
        ({"fast-3": {"1": {"sigma_d": 1, "odd": 2}}}, "odd is no parameter of it"),
        ({"fast-3": {"1": {"mu": 1}}}, "sigma_d is missing"),
        ({"fast-3": {"1": {"sigma_d": 1, "tilt": -1}}}, "tilt"),
    ],
)
def test_hostile_settings_in_a_card_are_refused(tmp_path: Path, settings: object, message: str) -> None:
    state = new_network("light", 3, (8, 8, 8), 1).state_dict()
    write_weights(tmp_path / "w.safetensors", state, {"settings": settings})
    problem = Problem(torch.rand(1, 3, 16, 16), Mask(torch.ones(16, 16)), Gaussian(0.1))
    with pytest.raises(InputError, match=message):
        make_method("fast", load_denoiser(tmp_path / "w.safetensors"), problem, torch.tensor([0.1]), calls=3)
