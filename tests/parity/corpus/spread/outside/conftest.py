"""Never loaded: its folder is not named."""

raise RuntimeError("must not be loaded")
