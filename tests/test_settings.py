"""The table of settings: what is shipped is found, between its levels and beyond them, and a broken one is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pnpladmm as pl
from pnpladmm.solvers import settings


def test_settings_follow_the_noise() -> None:
    levels = torch.tensor([0.1, 0.5, 1, 2, 5, 10, 15, 30, 40, 80], dtype=torch.float64) / 255
    for denoiser, methods in settings.shipped_settings().items():
        for method, rows in methods.items():
            named = pl.as_denoiser(lambda x, sigma: x)
            named.name = denoiser
            for level, row in rows.items():
                found = settings.tuned(named, method, torch.tensor([level / 255], dtype=torch.float64))
                for name, value in row.items():
                    unit = 255 if name in settings.NOISE_LEVELS else 1
                    assert float(found[name]) == pytest.approx(value / unit), (denoiser, method, level, name)
            if method == "richardson-lucy":
                continue
            ends = settings.tuned(named, method, levels)["sigma_d"]
            assert float(ends[1]) == pytest.approx(float(ends[2]) / 2), "below the table it scales with the noise"
            assert float(ends[-1]) == float(ends[-2]), "beyond the table it stays"
            assert bool((ends > 0).all())


@pytest.mark.parametrize("tuned", [(4, 6, 8), (8, 14, 24)])
def test_settings_between_numbers_of_calls_lie_between_theirs(tuned: tuple[int, int, int]) -> None:
    sigma = torch.tensor([1 / 255], dtype=torch.float64)
    few, middle, many = (settings.tuned_fast(None, calls, sigma) for calls in tuned)
    for name, value in middle.items():
        low, high = sorted((float(few[name]), float(many[name])))
        assert low < float(value) < high, name
    near = settings.tuned_fast(None, tuned[2] - 1, sigma)["mu"]
    assert abs(float(near - many["mu"])) < abs(float(near - few["mu"]))
    for calls in tuned[::2]:
        own = settings.shipped_settings()["drunet"][f"fast-{calls}"][1.0]
        assert float(settings.tuned_fast(None, calls, sigma)["mu"]) == pytest.approx(own["mu"])


def test_beyond_the_numbers_of_calls_that_were_tuned_settings_stay() -> None:
    sigma = torch.tensor([1 / 255], dtype=torch.float64)
    for beyond, last in ((2, 4), (40, 24)):
        assert settings.tuned_fast(None, beyond, sigma) == settings.tuned_fast(None, last, sigma)


@pytest.mark.parametrize("text", ["", "[1]", '{"drunet": 3}', '{"drunet": {"fast-8": {"one": {"mu": 1}}}}'])
def test_a_broken_table_of_settings_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(pl.InputError, match=r"settings\.json: not a table of settings"):
        settings.read_settings(path)


def test_rows_with_and_without_tilt_interpolate() -> None:
    plain = {"sigma_d": 2.0, "mu": 0.2}
    for levels in ({1.0: plain, 100.0: {**plain, "tilt": 4.0}}, {1.0: {**plain, "tilt": 0.25}, 100.0: plain}):
        first, middle, last = (settings.at_noise(levels, noise) for noise in (1.0, 10.0, 100.0))
        assert [row.keys() for row in (first, middle, last)] == [{"sigma_d", "mu", "tilt"}] * 3
        assert {first["tilt"], last["tilt"]} in ({1.0, 4.0}, {0.25, 1.0})
        assert middle["tilt"] == pytest.approx((first["tilt"] * last["tilt"]) ** 0.5)
        assert middle["mu"] == pytest.approx(0.2)
    with pytest.raises(pl.InputError, match="settings: mu is in some rows"):
        settings.at_noise({1.0: plain, 10.0: {"sigma_d": 2.0}}, 3.0)


def test_numbers_of_calls_with_and_without_tilt_interpolate(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"sigma_d": 2.0, "mu": 0.2, "sigma_start": 50.0, "bend": 1.0, "extrapolation": 0.0}
    table = {"drunet": {f"fast-{n}": {1.0: row | ({"tilt": 3.0} if n == 8 else {})} for n in (4, 8, 24)}}
    monkeypatch.setattr(settings, "shipped_settings", lambda: table)
    sigma = torch.tensor([1, 5], dtype=torch.float64) / 255
    tilts = [settings.tuned_fast(None, calls, sigma)["tilt"].tolist() for calls in (5, 8, 12)]
    assert tilts[1] == [3.0, 3.0]
    assert all(1 < tilt < 3 for tilt in tilts[0] + tilts[2])
    assert "tilt" not in settings.tuned_fast(None, 4, sigma)


def test_the_neutral_values_are_the_defaults_of_the_method() -> None:
    for name, value in settings.NEUTRAL.items():
        assert getattr(pl.Annealed, name) == value
