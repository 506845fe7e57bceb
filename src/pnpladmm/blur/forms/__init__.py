"""What a blur can be given as (one kernel, a bank, a map ...): one module per form, each from arrays to a `Blur`."""
