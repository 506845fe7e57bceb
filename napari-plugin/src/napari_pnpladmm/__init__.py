"""pnpladmm in napari. `logic` does the work and knows neither napari nor Qt; `widget` shows it."""
