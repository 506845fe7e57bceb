"""Plug & Play linearized ADMM for pictures degraded by operators that no closed form undoes."""
