"""The widget in a window without a screen, with napari's own fixtures."""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
pytest.importorskip("napari", reason="napari is not installed (it is the user's own choice)")
pytest.importorskip("pytestqt", reason="pytest-qt is not installed")

import npe2
from napari.components import ViewerModel

from napari_pnpladmm import logic
from napari_pnpladmm.samples import two_blurs
from napari_pnpladmm.widget import RestoreWidget


@pytest.fixture
def viewer(request, qtbot):
    """napari's window; where there is no OpenGL, as on a screen that does not exist, the viewer without its window."""
    from qtpy.QtGui import QOpenGLContext

    return request.getfixturevalue("make_napari_viewer")() if QOpenGLContext().create() else ViewerModel()


@pytest.fixture
def widget(viewer, qtbot):
    """The widget beside the sample data."""
    for data, options, kind in two_blurs():
        getattr(viewer, f"add_{kind}")(data, **options)
    viewer.layers["blurred"].scale = (0.2, 0.2)
    one = RestoreWidget(viewer)
    qtbot.addWidget(one.native)
    if hasattr(viewer, "window"):
        viewer.window.add_dock_widget(one)
    one.native.show()
    one.reset_choices()
    one.picture.value, one.psf.value = viewer.layers["blurred"], viewer.layers["PSFs"]
    one.regions.value = viewer.layers["regions"]
    one.iterations.value = 3
    return one


def finished(widget, qtbot) -> None:
    with qtbot.waitSignal(widget.worker.finished, timeout=60_000):
        pass
    qtbot.wait(50)


def test_the_manifest_is_valid() -> None:
    manifest = npe2.PluginManifest.from_distribution("napari-pnpladmm")
    assert [w.display_name for w in manifest.contributions.widgets] == ["Restore a blurred picture"]
    manifest.validate_imports()


def test_restore_makes_a_layer(widget, qtbot) -> None:
    widget.start()
    assert not widget.run.enabled
    assert widget.cancel.enabled
    finished(widget, qtbot)
    layer = widget.viewer.layers["blurred restored"]
    assert layer.data.shape == (256, 256)
    assert layer.data.dtype == np.uint8
    np.testing.assert_allclose(layer.scale, (0.2, 0.2))
    made = layer.metadata[logic.KEY]
    assert made["iterations"] == 3
    assert 1 < made["noise"] < 4
    assert widget.run.enabled


def test_cancel_stops_and_keeps_what_there_is(widget, qtbot) -> None:
    widget.method.value, widget.denoiser.value, widget.iterations.value = "certified", "tv", 5000
    widget.start()
    with qtbot.waitSignal(widget.worker.yielded, timeout=60_000):
        pass
    widget.stop()
    finished(widget, qtbot)
    made = widget.viewer.layers["blurred restored"].metadata[logic.KEY]
    assert made["status"].startswith("stopped")
    assert made["iterations"] < 5000


def test_a_missing_psf_is_said_and_nothing_runs(widget, monkeypatch) -> None:
    said = []
    monkeypatch.setattr("napari_pnpladmm.widget.show_error", said.append)
    widget.psf.value = None
    widget.start()
    assert said == ["there is no PSF: choose a layer that holds it, or a file"]
    assert widget.worker is None
    widget.psf.value, widget.regions.value = widget.viewer.layers["PSFs"], None
    widget.start()
    assert "choose the labels" in said[-1]


def test_a_psf_from_a_file(widget, qtbot, tmp_path) -> None:
    np.save(tmp_path / "psf.npy", np.ones((3, 3)))
    widget.file.value, widget.regions.value = tmp_path / "psf.npy", None
    widget.start()
    finished(widget, qtbot)
    assert widget.viewer.layers["blurred restored"].metadata[logic.KEY]["psf"].endswith("psf.npy")
