"""The measurement: sweeps, records, tables and figures around `specdec_core`."""
