"""The paper's data, tuning, tables and figures."""
