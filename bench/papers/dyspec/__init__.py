"""The tables and figures of the DySpec paper."""
