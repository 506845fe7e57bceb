"""The dock widget: choose a picture, its PSF and its regions; restore; cancel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from magicgui.widgets import (
    ComboBox,
    Container,
    FileEdit,
    FloatSpinBox,
    Label,
    ProgressBar,
    PushButton,
    SpinBox,
)
from napari.components import ViewerModel
from napari.layers import Image, Labels, Layer
from napari.qt.threading import thread_worker
from napari.utils.notifications import show_error, show_info, show_warning

from napari_pnpladmm import logic


class RestoreWidget(Container):
    """Restore the picture of a layer; the result is a new layer."""

    def __init__(self, napari_viewer: ViewerModel) -> None:
        self.viewer = napari_viewer
        self.picture = ComboBox(label="picture", choices=self._layers(Image), nullable=True)
        self.psf = ComboBox(label="PSF (layer)", choices=self._layers(Image), nullable=True)
        self.file = FileEdit(label="or PSF (file)", mode="r", nullable=True)
        self.regions = ComboBox(label="regions", choices=self._layers(Labels), nullable=True)
        self.noise = FloatSpinBox(label="noise (0: estimate)", value=0, min=0, max=1e9, step=1)
        self.gain = FloatSpinBox(label="gain (0: none)", value=0, min=0, max=1e9, step=0.1)
        self.background = FloatSpinBox(label="background", value=0, min=-1e9, max=1e9)
        self.method = ComboBox(label="method", choices=logic.METHODS, value="fast")
        self.denoiser = ComboBox(label="denoiser", choices=logic.DENOISERS, value="light")
        self.iterations = SpinBox(label="iterations (0: default)", value=0, min=0, max=10000)
        self.run = PushButton(text="Restore")
        self.cancel = PushButton(text="Cancel", enabled=False)
        self.bar = ProgressBar(value=0, min=0, max=logic.CALLS_OF_FAST, visible=False)
        self.text = Label(value="")
        super().__init__(
            widgets=[
                self.picture, self.psf, self.file, self.regions, self.noise, self.gain, self.background,
                self.method, self.denoiser, self.iterations, self.run, self.cancel, self.bar, self.text,
            ]
        )  # fmt: skip
        self.worker: Any = None
        self._stop = False
        self.run.changed.connect(self.start)
        self.cancel.changed.connect(self.stop)
        for event in (napari_viewer.layers.events.inserted, napari_viewer.layers.events.removed):
            event.connect(self.reset_choices)

    def _layers(self, kind: type[Layer]) -> Callable[..., list[Layer]]:
        """The layers of a kind, whenever a menu asks for them."""
        return lambda *_: [layer for layer in self.viewer.layers if isinstance(layer, kind)]

    def request(self) -> logic.Request:
        """What the fields say."""
        layer = self.picture.value
        if layer is None:
            raise ValueError("there is no picture: open one, or File > Open Sample > pnpladmm")
        file = self.file.value
        has_file = file is not None and str(file) not in ("", ".")
        if self.psf.value is None and not has_file:
            raise ValueError("there is no PSF: choose a layer that holds it, or a file")
        if self.psf.value is layer and not has_file:
            raise ValueError("the picture is its own PSF: choose another layer, or a file")
        regions = self.regions.value
        return logic.Request(
            picture=np.asarray(layer.data),
            psf=Path(file) if has_file else np.asarray(self.psf.value.data),
            regions=None if regions is None else np.asarray(regions.data),
            rgb=layer.rgb,
            noise=self.noise.value,
            gain=self.gain.value,
            background=self.background.value,
            method=self.method.value,
            denoiser=self.denoiser.value,
            iterations=self.iterations.value,
        )

    def start(self) -> None:
        """Restore in a thread of its own."""
        try:
            request = self.request()
            logic.check(request)
        except ValueError as error:
            show_error(str(error))
            return
        layer = self.picture.value
        self._stop = False
        self._busy(True)
        self.worker = _work(request, lambda: self._stop)
        self.worker.yielded.connect(self._show)
        self.worker.returned.connect(lambda done: self._add(layer, *done) if done is not None else None)
        self.worker.errored.connect(lambda error: show_error(str(error)))
        self.worker.finished.connect(lambda: self._busy(False))
        self.worker.start()

    def stop(self) -> None:
        """Stop after the current iteration; what there is becomes a layer."""
        self._stop = True
        self.text.value = "stopping ..."

    def _busy(self, busy: bool) -> None:
        self.run.enabled, self.cancel.enabled = not busy, busy
        self.bar.visible = busy
        self.bar.value = 0
        if not busy:
            self.text.value = ""

    def _show(self, step: tuple[int, int]) -> None:
        done, total = step
        self.bar.max = max(total, 1)
        self.bar.value = done

    def _add(self, source: Image, array: np.ndarray, metadata: dict[str, Any]) -> None:
        """The result as a layer in the place of its source."""
        place = {name: getattr(source, name) for name in ("scale", "translate", "rotate", "shear", "units")}
        shown = {} if source.rgb else {"colormap": source.colormap, "contrast_limits": source.contrast_limits}
        self.viewer.add_image(
            array, name=f"{source.name} restored", rgb=source.rgb, metadata=metadata, **place, **shown
        )
        made = metadata[logic.KEY]
        for warning in made["warnings"]:
            show_warning(warning)
        show_info(f"{made['status']} Noise {made['noise']:.3g}, {made['seconds']:.1f} s.")


@thread_worker
def _work(request: logic.Request, cancelled: Any) -> Any:
    """A generator: napari asks for each step in the thread, and shows it in its own."""
    from queue import SimpleQueue
    from threading import Thread

    steps: SimpleQueue[Any] = SimpleQueue()

    def run() -> None:
        try:
            steps.put(logic.restore(request, lambda done, total: steps.put((done, total)), cancelled))
        except logic.Cancelled:
            steps.put(None)
        except Exception as error:  # shown in the thread of the window
            steps.put(error)

    Thread(target=run, daemon=True).start()
    while True:
        step = steps.get()
        if step is None or isinstance(step[0] if isinstance(step, tuple) else step, np.ndarray):
            return step
        if isinstance(step, Exception):
            raise step
        yield step
